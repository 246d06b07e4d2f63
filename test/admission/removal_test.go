// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// Each policy is the only thing that stands in the way of these writes: without its binding they are taken. What
// the other tests see refused is thereby refused by the policy, and by nothing else.
//
// It takes bindings away from everybody, so it does not run beside other tests.
func TestWithoutAPolicyItsAttackSucceeds(t *testing.T) {
	c := newCast(t)
	ctx := t.Context()
	server, policy := c.server, fixture.ToolPolicy(c.namespace, "house", "billing")
	must(t, c.owner.Create(ctx, policy.DeepCopy()))
	request := c.request(t, pending)
	governor := person(t, c.namespace, "governor", fixture.Authority("billing", "govern"))
	approvers := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "approve-billing"}}
	must(t, admin(t).Create(ctx, approvers.DeepCopy()))
	dry := client.DryRunAll
	pod := berth{namespace: c.namespace}.pod("labelled-later", "")
	must(t, admin(t).Create(ctx, pod.DeepCopy()))
	plane.Grant(t, c.namespace, c.editor.cfg, leases("create"))

	attacks := map[string]func(context.Context) error{
		statusPolicy: func(ctx context.Context) error {
			return c.editor.Status().Patch(ctx, server.DeepCopy(), merge(`{"status":{"counts":{"read":9,"reversible":0,"irreversible":0}}}`), dry)
		},
		serversPolicy:  func(ctx context.Context) error { return c.editor.Delete(ctx, server.DeepCopy(), dry) },
		policiesPolicy: func(ctx context.Context) error { return c.editor.Delete(ctx, policy.DeepCopy(), dry) },
		promotionsPolicy: func(ctx context.Context) error {
			return governor.Patch(ctx, policy.DeepCopy(),
				merge(`{"spec":{"autonomy":[{"tool":"refund","mode":"Unattended","digest":"`+fixture.Digest("a")+`"}]}}`), dry)
		},
		requestsPolicy: func(ctx context.Context) error { return c.editor.Delete(ctx, request.DeepCopy(), dry) },
		requestsStatusPolicy: func(ctx context.Context) error {
			return c.editor.Status().Patch(ctx, request.DeepCopy(), merge(`{"status":`+cancel+`}`), dry)
		},
		leasesPolicy: func(ctx context.Context) error {
			return c.editor.Create(ctx, leaseOf(c.namespace, "forged", "billing"), dry)
		},
		gatewayRightsPolicy: func(ctx context.Context) error { return c.manager.Delete(ctx, approvers.DeepCopy(), dry) },
		definitionsPolicy: func(ctx context.Context) error {
			return c.manager.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "settings"}}, dry)
		},
		standalonePolicy: func(ctx context.Context) error {
			return c.manager.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "anybody"}}, dry)
		},
		podsPolicy: func(ctx context.Context) error {
			return admin(t).Patch(ctx, pod.DeepCopy(), merge(`{"metadata":{"labels":{"tidewaiter.dev/govern":"billing"}}}`), dry)
		},
		networksPolicy: func(ctx context.Context) error {
			return c.manager.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "closed"}}, dry)
		},
	}
	shipped := &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	must(t, admin(t).List(ctx, shipped))
	if len(shipped.Items) != len(attacks) {
		t.Errorf("%d policies are bound and %d attacked", len(shipped.Items), len(attacks))
	}
	// back waits until the binding that was taken away before is in force again; the API server looks at bindings
	// once a second, so giving one back and taking the next away share a second.
	back := func() {}
	for _, binding := range shipped.Items {
		policy := binding.Spec.PolicyName
		attack := attacks[policy]
		if attack == nil {
			t.Errorf("no attack on the policy %s", policy)
			continue
		}
		refused(t, "with the policy", policy, attack(ctx))
		must(t, admin(t).Delete(ctx, binding.DeepCopy()))
		back()
		until(t, policy+" is gone", func(ctx context.Context) bool { return attack(ctx) == nil })

		must(t, admin(t).Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, Spec: binding.Spec,
		}))
		back = func() {
			until(t, policy+" is back", func(ctx context.Context) bool { return fixture.RefusedBy(attack(ctx), policy) })
		}
	}
	back()
}

// until waits for something that takes milliseconds.
func until(t *testing.T, what string, reached func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !reached(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("waited 30 s in vain: %s", what)
		}
	}
}
