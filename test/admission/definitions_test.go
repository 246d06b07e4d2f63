// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestTheManagerWritesTheDefinitionsOfServersAndNoOtherConfigMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	server := fixture.GovernedServer(w.namespace, "billing")
	must(t, w.owner.Create(ctx, &server))
	owner := *metav1.NewControllerRef(&server, v1alpha1.GroupVersion.WithKind("GovernedServer"))
	owner.BlockOwnerDeletion = nil
	right := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: definitions.ConfigMapName("billing"), OwnerReferences: []metav1.OwnerReference{owner},
		},
		BinaryData: map[string][]byte{"sha256-0": []byte("x")},
	}
	for name, edit := range map[string]func(*corev1.ConfigMap){
		"of another name":                   func(c *corev1.ConfigMap) { c.Name = "settings" },
		"of another server's name":          func(c *corev1.ConfigMap) { c.Name = definitions.ConfigMapName("payroll") },
		"without an owner":                  func(c *corev1.ConfigMap) { c.OwnerReferences = nil },
		"of an owner that is no controller": func(c *corev1.ConfigMap) { c.OwnerReferences[0].Controller = nil },
		"of an owner of another kind":       func(c *corev1.ConfigMap) { c.OwnerReferences[0].Kind = "ToolPolicy" },
		"of an owner of another group":      func(c *corev1.ConfigMap) { c.OwnerReferences[0].APIVersion = "example.org/v1" },
	} {
		wrong := right.DeepCopy()
		edit(wrong)
		refused(t, "a ConfigMap "+name, definitionsPolicy, w.manager.Create(ctx, wrong, client.DryRunAll))
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "settings"}}
	must(t, plane.Client(t, plane.Admin).Create(ctx, theirs)) // others are not bound by it
	theirs.Data = map[string]string{"a": "b"}
	refused(t, "another's ConfigMap", definitionsPolicy, w.manager.Update(ctx, theirs, client.DryRunAll))
	theirs.OwnerReferences = right.OwnerReferences
	refused(t, "another's ConfigMap, made its own", definitionsPolicy, w.manager.Update(ctx, theirs, client.DryRunAll))

	taken(t, "the ConfigMap of a server", w.manager.Create(ctx, right))
	right.BinaryData = nil
	taken(t, "another content", w.manager.Update(ctx, right))
	right.OwnerReferences = nil
	refused(t, "to give it away", definitionsPolicy, w.manager.Update(ctx, right, client.DryRunAll))
}
