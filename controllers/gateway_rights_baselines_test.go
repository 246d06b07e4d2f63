// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestOneRoleBindingNamesEveryGateway(t *testing.T) {
	t.Parallel()
	of := func(namespace, name, account string) *v1alpha1.GovernedServer {
		return cranes(runBy(account), func(s *v1alpha1.GovernedServer) { s.Namespace, s.Name = namespace, name })
	}
	o := newOffice(t, interceptor.Funcs{}, of("harbour", "cranes", "crew"), of("harbour", "barges", "crew"), of("yard", "trucks", "drivers"), of("yard", "bikes", ""))
	r := &BaselineReadersReconciler{Client: o.Client, Live: o.api, OperatorNamespace: fixture.SystemNamespace}
	run := func() error {
		o.writes = nil
		_, err := r.Reconcile(t.Context(), ctrl.Request{})
		return err
	}
	key := client.ObjectKey{Namespace: fixture.SystemNamespace, Name: baselinesReaders}
	expect := func(what string, writes []string, want ...rbacv1.Subject) {
		t.Helper()
		if err := run(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var binding rbacv1.RoleBinding
		if err := o.api.Get(t.Context(), key, &binding); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, binding.Subjects); diff != "" {
			t.Errorf("%s: subjects (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(writes, o.writes); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", what, diff)
		}
		if binding.RoleRef.Name != baselinesReader || binding.RoleRef.Kind != "Role" || binding.Labels[ManagedByLabel] != ManagedBy {
			t.Errorf("%s: it leads to %v, with labels %v", what, binding.RoleRef, binding.Labels)
		}
	}
	crew := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "harbour", Name: "crew"}
	drivers := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "yard", Name: "drivers"}
	expect("at first", []string{"create RoleBinding"}, crew, drivers)
	expect("again", nil, crew, drivers)

	if err := o.api.Delete(t.Context(), of("yard", "trucks", "drivers")); err != nil {
		t.Fatal(err)
	}
	ending := of("yard", "vans", "drivers")
	ending.Finalizers = []string{"example.com/kept"}
	if err := o.api.Create(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
	if err := o.api.Delete(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
	expect("one server went and another ends", []string{"update RoleBinding"}, crew)
	var binding rbacv1.RoleBinding
	if err := o.api.Get(t.Context(), key, &binding); err != nil {
		t.Fatal(err)
	}
	binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "User", Name: "mallory"})
	if err := o.api.Update(t.Context(), &binding); err != nil {
		t.Fatal(err)
	}
	expect("edited by hand", []string{"update RoleBinding"}, crew)
}

func TestARoleBindingToAnotherRoleIsLeftAndSaid(t *testing.T) {
	t.Parallel()
	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: fixture.SystemNamespace, Name: baselinesReaders},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	o := newOffice(t, interceptor.Funcs{}, cranes(runBy("crew")), theirs)
	r := &BaselineReadersReconciler{Client: o.Client, Live: o.api, OperatorNamespace: fixture.SystemNamespace}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil || !strings.Contains(err.Error(), "leads to the ClusterRole cluster-admin") {
		t.Errorf("error %v", err)
	}
	if len(o.writes) > 0 {
		t.Errorf("wrote %v", o.writes)
	}
}

func TestWithoutGatewaysThereIsNoRoleBinding(t *testing.T) {
	t.Parallel()
	o := newOffice(t, interceptor.Funcs{}, cranes(runBy("")))
	r := &BaselineReadersReconciler{Client: o.Client, Live: o.api, OperatorNamespace: fixture.SystemNamespace}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	err := o.api.Get(t.Context(), client.ObjectKey{Namespace: fixture.SystemNamespace, Name: baselinesReaders}, &rbacv1.RoleBinding{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("%v, want none", err)
	}
}
