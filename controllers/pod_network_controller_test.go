// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// moat is the reconciler on a real API server, as the manager, with its admission policies.
type moat struct {
	*PodNetworkReconciler
	*yard
	events *events.FakeRecorder
}

func newMoat(t *testing.T, url string) *moat {
	t.Helper()
	y := newYard(t)
	manager := plane.Client(t, y.manager)
	m := &moat{yard: y, events: events.NewFakeRecorder(16)}
	m.PodNetworkReconciler = &PodNetworkReconciler{Client: manager, Live: manager, Events: m.events, OperatorNamespace: fixture.SystemNamespace}
	m.move(t, url)
	return m
}

// move puts the server elsewhere and reconciles.
func (m *moat) move(t *testing.T, url string) ctrl.Result {
	t.Helper()
	m.server.Spec.Endpoint.URL = url
	if err := m.admin.Update(t.Context(), m.server); err != nil {
		t.Fatal(err)
	}
	return m.run(t)
}

func (m *moat) run(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := m.Reconcile(t.Context(), m.server.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// policy returns what is stored, nil for none.
func (m *moat) policy(t *testing.T) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{}
	err := m.admin.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: "tidewaiter-cranes"}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const onLoopback, elsewhere = "http://127.0.0.1:9000/mcp", "https://cranes.example/mcp"

func TestGovernedPodsAdmitTheGatewaysPortAlone(t *testing.T) {
	t.Parallel()
	m := newMoat(t, onLoopback)
	p := m.policy(t)
	port := func(n int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(n))}}
	}
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.GovernLabel: "cranes"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{Ports: port(9440)},
			{Ports: port(9442), From: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "tidewaiter-system"}},
				PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "tidewaiter", "app.kubernetes.io/component": "manager"}},
			}}},
		},
	}
	if diff := cmp.Diff(want, p.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if !metav1.IsControlledBy(p, m.server) { // so the collector takes it when the server goes
		t.Errorf("owners are %+v", p.OwnerReferences)
	}
	m.run(t)
	if again := m.policy(t); again.ResourceVersion != p.ResourceVersion {
		t.Error("a steady state writes")
	}
}

func TestANetworkPolicyIsPutRightAndGoesWithItsReason(t *testing.T) {
	t.Parallel()
	m := newMoat(t, onLoopback)
	p := m.policy(t)
	p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
	p.Labels["mine"] = "too"
	if err := m.admin.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	m.run(t)
	if p = m.policy(t); len(p.Spec.Ingress) != 2 || p.Labels["mine"] != "too" {
		t.Errorf("it has %d rules and labels %v, want the two of the operator, and the label of somebody", len(p.Spec.Ingress), p.Labels)
	}
	m.move(t, elsewhere)
	if m.policy(t) != nil {
		t.Error("it is there for a server elsewhere")
	}
	m.move(t, onLoopback)
	if m.policy(t) == nil {
		t.Error("it did not come back")
	}
}

func TestANetworkPolicyOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := newMoat(t, elsewhere)
	theirs := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "tidewaiter-cranes"}}
	if err := m.admin.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	m.run(t)
	if result := m.move(t, onLoopback); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	if p := m.policy(t); p == nil || p.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it is %+v now", p)
	}
	select {
	case told := <-m.events.Events:
		if !strings.HasPrefix(told, "Warning NetworkPolicyConflict") {
			t.Errorf("told %q", told)
		}
	default:
		t.Error("nobody is told")
	}
	if err := m.admin.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	m.run(t)
	if p := m.policy(t); p == nil || !metav1.IsControlledBy(p, m.server) {
		t.Errorf("after it has gone: %+v", p)
	}
}

// The manager's rights on NetworkPolicies are wide, and admission narrows them.
func TestTheManagerWritesNoOtherNetworkPolicy(t *testing.T) {
	t.Parallel()
	m := newMoat(t, elsewhere)
	manager := plane.Client(t, m.manager)
	owned := func(name string) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: m.namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m.server, v1alpha1.GroupVersion.WithKind("GovernedServer"))},
		}}
	}
	loose := owned("tidewaiter-cranes")
	loose.OwnerReferences = nil
	theirs := owned("theirs")
	if err := m.admin.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"of another name":    manager.Create(t.Context(), owned("other"), client.DryRunAll),
		"of nobody":          manager.Create(t.Context(), loose, client.DryRunAll),
		"that is somebody's": manager.Delete(t.Context(), theirs, client.DryRunAll),
	} {
		if !fixture.RefusedBy(err, "tidewaiter-networks") {
			t.Errorf("one %s: %v, want it refused", name, err)
		}
	}
	if err := manager.Create(t.Context(), owned("tidewaiter-cranes"), client.DryRunAll); err != nil {
		t.Errorf("that of a server: %v", err)
	}
}
