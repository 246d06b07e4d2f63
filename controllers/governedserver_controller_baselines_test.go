// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func namespaceWith(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "harbour", Labels: labels}}
}

func TestAServerKnowsTheLabelsOfItsNamespace(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range maxNamespaceLabels + 1 {
		many[fmt.Sprint("label-", i)] = ""
	}
	most := map[string]string{}
	for i := range maxNamespaceLabels {
		most[fmt.Sprint("label-", i)] = ""
	}
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		want      map[string]string
	}{
		"some":                 {namespaceWith(map[string]string{"team": "docks", "tier": "production"}), map[string]string{"team": "docks", "tier": "production"}},
		"as many as there may": {namespaceWith(most), most},
		"more":                 {namespaceWith(many), nil},
		"none":                 {namespaceWith(nil), nil},
		"no such namespace":    {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, nil},
	} {
		d := newDock(t, interceptor.Funcs{}, cranes(), tc.namespace)
		if diff := cmp.Diff(tc.want, d.see(t, listed(getBox())).Status.NamespaceLabels); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", name, diff)
		}
		before := d.patches.Load()
		if _, err := d.reconcile(t); err != nil {
			t.Fatal(err)
		}
		if d.patches.Load() != before {
			t.Errorf("%s: written again though nothing changed", name)
		}
	}
	d := newDock(t, interceptor.Funcs{}, cranes(), namespaceWith(map[string]string{"team": "docks"}))
	d.see(t, listed(getBox()))
	if err := d.api.Update(t.Context(), namespaceWith(map[string]string{"team": "cranes"})); err != nil {
		t.Fatal(err)
	}
	if _, err := d.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"team": "cranes"}, d.stored(t).Status.NamespaceLabels); diff != "" {
		t.Errorf("relabelled (-want +got):\n%s", diff)
	}
}

func TestABaselineWakesEveryServerAndAPolicyItsTargets(t *testing.T) {
	t.Parallel()
	other := cranes(func(s *v1alpha1.GovernedServer) { s.Namespace, s.Name = "yard", "barges" })
	d := newDock(t, interceptor.Funcs{}, cranes(), other)
	baseline := func(namespace string) *v1alpha1.ToolPolicy {
		p := new(fixture.ToolPolicy(namespace, "stop"))
		p.Spec.Targets, p.Spec.NamespaceSelector = nil, &metav1.LabelSelector{}
		return p
	}
	for name, tc := range map[string]struct {
		changed client.Object
		want    []string
	}{
		"a baseline":                             {baseline(fixture.SystemNamespace), []string{"harbour/cranes", "yard/barges"}},
		"a baseline where it counts for nothing": {baseline("harbour"), nil},
		"a policy":                               {new(fixture.ToolPolicy("harbour", "team", "cranes")), []string{"harbour/cranes"}},
	} {
		var got []string
		for _, request := range governedBy(d.api, fixture.SystemNamespace)(t.Context(), tc.changed) {
			got = append(got, request.String())
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s wakes (-want +got):\n%s", name, diff)
		}
	}
	woken := inNamespace(d.api)(t.Context(), namespaceWith(nil))
	if len(woken) != 1 || woken[0].String() != "harbour/cranes" {
		t.Errorf("a namespace wakes %v", woken)
	}
}
