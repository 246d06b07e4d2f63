// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// leaseOf is a Lease of a gateway of cranes that was renewed some time ago.
func leaseOf(gateway, revision string, ago time.Duration, edits ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(made.Add(-ago))
	return fixture.With(coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "harbour", Name: "tidewaiter-cranes-" + gateway, UID: "lease-uid",
			Labels:          map[string]string{v1alpha1.ServerLabel: "cranes"},
			Annotations:     map[string]string{v1alpha1.PolicyRevisionAnnotation: revision},
			OwnerReferences: []metav1.OwnerReference{{Kind: "GovernedServer", Name: "cranes", UID: "server-uid"}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &gateway, RenewTime: &renewed, LeaseDurationSeconds: new(int32(180))},
	}, edits...)
}

func TestWhetherTheGatewaysEnforceIsToldByTheirLeases(t *testing.T) {
	t.Parallel()
	const now, old = "sha256:now", "sha256:old"
	const none = "No gateway of this server is alive: label its pods, set spec.gateway.standalone, or run one"
	type all = []*coordinationv1.Lease
	for name, tc := range map[string]struct {
		leases        all
		want, message string
		left          int
		next          time.Duration
	}{
		"no Lease":      {nil, "False/NoGateway", none, 0, 0},
		"one gateway":   {all{leaseOf("a", now, time.Minute)}, "True/Enforced", "1 of 1 gateways run the current policy", 0, 2 * time.Minute},
		"three of them": {all{leaseOf("a", now, 0), leaseOf("b", now, time.Minute), leaseOf("c", now, 0)}, "True/Enforced", "3 of 3 gateways run the current policy", 0, 2 * time.Minute},
		"one runs an older policy": {all{leaseOf("a", now, 0), leaseOf("b", old, 0), leaseOf("c", now, 0)},
			"False/CatchingUp", "2 of 3 gateways run the current policy", 0, 3 * time.Minute},
		"one has not been heard of since its Lease expired": {all{leaseOf("a", now, 0), leaseOf("b", now, 3*time.Minute)},
			"False/CatchingUp", "1 of 2 gateways run the current policy; 1 of 2 has not been heard of for some minutes", 0, 3 * time.Minute},
		"one is forgotten after ten minutes": {all{leaseOf("a", now, 0), leaseOf("b", now, 13*time.Minute)},
			"True/Enforced", "1 of 1 gateways run the current policy", 0, 3 * time.Minute},
		"all are gone":                    {all{leaseOf("a", now, 4*time.Minute)}, "False/NoGateway", "No gateway of this server is alive; there were 1 until a few minutes ago", 0, 9 * time.Minute},
		"one has been gone for long":      {all{leaseOf("a", now, 63*time.Minute)}, "False/NoGateway", none, 1, 0},
		"one that is about to be removed": {all{leaseOf("a", now, 62*time.Minute)}, "False/NoGateway", none, 0, time.Minute},
		"one of an earlier server": {all{leaseOf("a", now, 0, func(l *coordinationv1.Lease) { l.OwnerReferences[0].UID = "another" })},
			"False/NoGateway", none, 0, 0},
		"one without a time": {all{leaseOf("a", now, 0, func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil })},
			"False/NoGateway", none, 1, 0},
	} {
		var leases []coordinationv1.Lease
		for _, l := range tc.leases {
			leases = append(leases, *l)
		}
		m := count(cranes(), now, leases, made)
		c := m.condition()
		if got := fmt.Sprintf("%s/%s", c.Status, c.Reason); got != tc.want || c.Message != tc.message {
			t.Errorf("%s: %s, %q, want %s, %q", name, got, c.Message, tc.want, tc.message)
		}
		if len(m.left) != tc.left || m.next != tc.next {
			t.Errorf("%s: %d are left and the next look is in %s, want %d and %s", name, len(m.left), m.next, tc.left, tc.next)
		}
	}
}

func TestAWayAroundTheGatewaysIsToldByTheirLeases(t *testing.T) {
	t.Parallel()
	found := func(gateway, word string, ago time.Duration) coordinationv1.Lease {
		return *leaseOf(gateway, "sha256:now", ago, func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.BypassAnnotation] = word })
	}
	for name, tc := range map[string]struct {
		leases []coordinationv1.Lease
		want   string
	}{
		"nobody looks":                   {[]coordinationv1.Lease{*leaseOf("a", "sha256:now", 0)}, ""},
		"no gateway":                     {nil, ""},
		"all closed":                     {[]coordinationv1.Lease{found("a", "Closed", 0), found("b", "Closed", 0)}, "True/DirectPathClosed"},
		"one open":                       {[]coordinationv1.Lease{found("a", "Closed", 0), found("b", "Open", 0)}, "False/DirectPathOpen"},
		"one cannot tell":                {[]coordinationv1.Lease{found("a", "Closed", 0), *leaseOf("b", "sha256:now", 0)}, "True/DirectPathClosed"},
		"one open that is gone":          {[]coordinationv1.Lease{found("a", "Closed", 0), found("b", "Open", time.Hour)}, "True/DirectPathClosed"},
		"a word that nobody understands": {[]coordinationv1.Lease{found("a", "Ajar", 0)}, ""},
	} {
		got := ""
		if c := count(cranes(), "sha256:now", tc.leases, made).bypass(); c != nil {
			got = fmt.Sprintf("%s/%s", c.Status, c.Reason)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAWayAroundIsAConditionOfTheServer(t *testing.T) {
	t.Parallel()
	lease := leaseOf("a", "sha256:now", 0, func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.BypassAnnotation] = "Open" })
	l := newLookout(t, cranes(), lease)
	run := func() string {
		t.Helper()
		var s v1alpha1.GovernedServer
		if err := l.api.Get(t.Context(), cranesKey, &s); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reconcile(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if err := l.api.Get(t.Context(), cranesKey, &s); err != nil {
			t.Fatal(err)
		}
		return states(&s)[v1alpha1.ConditionBypassClosed]
	}
	if got := run(); got != "False/DirectPathOpen" {
		t.Errorf("condition is %q", got)
	}
	delete(lease.Annotations, v1alpha1.BypassAnnotation)
	if err := l.api.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if got := run(); got != "" {
		t.Errorf("condition is %q, want none when nobody can tell", got)
	}
}

// lookout runs the reconciler on a fake API and counts its writes.
type lookout struct {
	*EnforcingReconciler
	api    client.WithWatch
	clock  *clocktesting.FakeClock
	writes int
}

func newLookout(t *testing.T, objects ...client.Object) *lookout {
	t.Helper()
	scheme := serverScheme(t)
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l := &lookout{clock: clocktesting.NewFakeClock(made)}
	l.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.GovernedServer{}).Build()
	counted := interceptor.NewClient(l.api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			l.writes++
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			l.writes++
			return c.Delete(ctx, obj, opts...)
		},
	})
	l.EnforcingReconciler = &EnforcingReconciler{Client: counted, Clock: l.clock, Library: policy.NewLibrary(), OperatorNamespace: fixture.SystemNamespace}
	return l
}

// look reconciles cranes and returns what Enforcing says, when the next look is, and how much was written.
func (l *lookout) look(t *testing.T) (state string, next time.Duration, writes int) {
	t.Helper()
	var server v1alpha1.GovernedServer
	if err := l.api.Get(t.Context(), cranesKey, &server); err != nil {
		t.Fatal(err)
	}
	l.writes = 0
	result, err := l.Reconcile(t.Context(), &server)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.api.Get(t.Context(), cranesKey, &server); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionEnforcing)
	if c.ObservedGeneration != server.Generation {
		t.Errorf("the condition is of generation %d, want %d", c.ObservedGeneration, server.Generation)
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason), result.RequeueAfter, l.writes
}

func (l *lookout) expect(t *testing.T, what, state string, next time.Duration, writes int) {
	t.Helper()
	gotState, gotNext, gotWrites := l.look(t)
	if gotState != state || gotNext != next || gotWrites != writes {
		t.Errorf("%s: %s, next look in %s, %d writes; want %s, %s, %d", what, gotState, gotNext, gotWrites, state, next, writes)
	}
}

func TestEnforcingFollowsPoliciesAndLeasesAndIsQuietOtherwise(t *testing.T) {
	t.Parallel()
	team := new(fixture.ToolPolicy("harbour", "team", "cranes"))
	team.UID, team.Generation = "team-uid", 1
	l := newLookout(t, cranes(), team)
	revision := func() string {
		server := &v1alpha1.GovernedServer{}
		if err := l.api.Get(t.Context(), cranesKey, server); err != nil {
			t.Fatal(err)
		}
		r, err := l.revision(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	l.expect(t, "without a gateway", "False/NoGateway", 0, 1)
	l.expect(t, "nothing new", "False/NoGateway", 0, 0)

	lease := leaseOf("a", revision(), 0)
	put := func(change func()) {
		change()
		if err := l.api.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.api.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	l.expect(t, "a gateway that runs it", "True/Enforced", 3*time.Minute, 1)
	l.clock.Step(time.Minute)
	put(func() { lease.Spec.RenewTime.Time = l.clock.Now() })
	l.expect(t, "a renewed Lease", "True/Enforced", 3*time.Minute, 0)

	before := revision()
	team.Generation++
	if err := l.api.Update(t.Context(), team); err != nil {
		t.Fatal(err)
	}
	if revision() == before {
		t.Fatal("another policy is the same revision")
	}
	l.expect(t, "the policy changed", "False/CatchingUp", 3*time.Minute, 1)
	put(func() { lease.Annotations[v1alpha1.PolicyRevisionAnnotation] = revision() })
	l.expect(t, "the gateway runs it", "True/Enforced", 3*time.Minute, 1)

	l.clock.Step(5 * time.Minute)
	l.expect(t, "not heard of any more", "False/NoGateway", 8*time.Minute, 1)
	l.clock.Step(time.Hour)
	l.expect(t, "gone for long", "False/NoGateway", 0, 2) // its words, and the Lease
	if err := l.api.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease is still there: %v", err)
	}
}

func TestEnforcingIsNoPartOfReady(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes(func(s *v1alpha1.GovernedServer) {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEnforcing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoGateway})
	}))
	got := states(d.see(t, listed(getBox())))
	want := map[string]string{"Ready": "True/Ready", "Enforcing": "False/NoGateway"}
	if diff := cmp.Diff(want, map[string]string{"Ready": got["Ready"], "Enforcing": got["Enforcing"]}); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
