// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package votingkey

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

var plane *fixture.ControlPlane

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &plane)) }

func TestTheManagersRightsAreEnoughAndEverybodyReadsThePublicHalves(t *testing.T) {
	t.Parallel()
	store := &Store{Client: plane.Client(t, plane.Manager(t)), Namespace: fixture.SystemNamespace, Clock: clock.RealClock{}, Lifetime: month}
	first, err := store.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nobody := plane.Client(t, plane.User(t, "nobody-in-particular"))
	key := client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}
	configMap := &corev1.ConfigMap{}
	if err := nobody.Get(t.Context(), key, configMap); err != nil || configMap.Data[first.ID] == "" {
		t.Errorf("the ConfigMap: %v, %v", configMap.Data, err)
	}
	// As a gateway's watch asks: by the name.
	list := &corev1.ConfigMapList{}
	if err := nobody.List(t.Context(), list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}); err != nil || len(list.Items) != 1 {
		t.Errorf("a list by name: %d, %v", len(list.Items), err)
	}
	for name, err := range map[string]error{
		"the Secret":          nobody.Get(t.Context(), key, &corev1.Secret{}),
		"all ConfigMaps":      nobody.List(t.Context(), list, client.InNamespace(key.Namespace)),
		"writing":             nobody.Update(t.Context(), configMap),
		"the webhook's":       nobody.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: v1alpha1.WebhookConfiguration}, &corev1.Secret{}),
		"another's ConfigMap": nobody.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "kube-root-ca.crt"}, configMap),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", name, err)
		}
	}

	// Who may write the ConfigMap puts a key back that was removed, and fixes it there.
	admin := plane.Client(t, plane.Admin)
	if err := admin.Get(t.Context(), key, configMap); err != nil {
		t.Fatal(err)
	}
	configMap.Data["0011223344556677"], configMap.Immutable = configMap.Data[first.ID], new(true)
	if err := admin.Update(t.Context(), configMap); err != nil {
		t.Fatal(err)
	}
	if err := store.ensure(t.Context()); err != nil {
		t.Errorf("an immutable ConfigMap: %v", err)
	}
	mended := &corev1.ConfigMap{}
	if err := nobody.Get(t.Context(), key, mended); err != nil || mended.Data["0011223344556677"] != "" || mended.Data[first.ID] == "" {
		t.Errorf("after a round it publishes %v, %v", mended.Data, err)
	}
}
