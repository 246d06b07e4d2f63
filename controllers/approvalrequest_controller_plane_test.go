// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// yard is a namespace with a server, its gateway, a person who may decide, and the manager's own identity.
type yard struct {
	namespace               string
	admin, gateway, decider client.Client
	manager                 *rest.Config
	server                  *v1alpha1.GovernedServer
}

func newYard(t *testing.T) *yard {
	t.Helper()
	namespace := plane.Namespace(t)
	gateway, ana := plane.ServiceAccount(t, namespace, "gateway"), plane.User(t, "ana-"+namespace)
	plane.Grant(t, namespace, gateway, fixture.Authority("cranes", v1alpha1.VerbServe),
		fixture.Rule("approvalrequests", "create", "get"), fixture.Rule("approvalrequests/status", "update"))
	plane.Grant(t, namespace, ana, fixture.Authority("cranes", v1alpha1.VerbApprove, v1alpha1.VerbResolve),
		fixture.Rule("approvalrequests", "get"), fixture.Rule("approvalrequests/status", "patch"))
	y := &yard{
		namespace: namespace, manager: plane.Manager(t),
		admin: plane.Client(t, plane.Admin), gateway: plane.Client(t, gateway), decider: plane.Client(t, ana),
		server: &v1alpha1.GovernedServer{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cranes"},
			Spec:       v1alpha1.GovernedServerSpec{Endpoint: v1alpha1.Endpoint{URL: "https://cranes.example/mcp"}},
		},
	}
	if err := y.admin.Create(t.Context(), y.server); err != nil {
		t.Fatal(err)
	}
	return y
}

// run starts the controller as the manager, until the test ends.
func (y *yard) run(t *testing.T, c clock.PassiveClock) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	skip := true
	mgr, err := ctrl.NewManager(y.manager, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{y.namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciler := &ApprovalRequestReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("approvalrequest"), Clock: c,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

func (y *yard) ask(t *testing.T, name string) *v1alpha1.ApprovalRequest {
	t.Helper()
	return y.askAbout(t, name, func(*v1alpha1.ApprovalRequest) {})
}

func (y *yard) askAbout(t *testing.T, name string, change edit) *v1alpha1.ApprovalRequest {
	t.Helper()
	request := newRequest(func(r *v1alpha1.ApprovalRequest) {
		r.ObjectMeta = metav1.ObjectMeta{Namespace: y.namespace, Name: name, Labels: map[string]string{v1alpha1.ServerLabel: "cranes"}}
		r.Spec.ServerRef.UID = string(y.server.UID)
		r.Spec.EndpointDigest, r.Spec.ToolDigest, r.Spec.ActionHash = endpointOf(t, y.server), digestOf('d'), digestOf('a')
	}, change)
	if err := y.gateway.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return request
}

func digestOf(digit rune) string {
	return "sha256:" + fmt.Sprintf("%064s", string(digit))
}

// patch writes status as a person with kubectl patch does.
func (y *yard) patch(t *testing.T, name, status string) *v1alpha1.ApprovalRequest {
	t.Helper()
	request := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name}}
	err := y.decider.Status().Patch(t.Context(), request, client.RawPatch("application/merge-patch+json", []byte(`{"status":`+status+`}`)))
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// expect waits until the request is in a phase.
func (y *yard) expect(t *testing.T, name string, want v1alpha1.Phase) *v1alpha1.ApprovalRequest {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := y.admin.Get(ctx, client.ObjectKey{Namespace: y.namespace, Name: name}, &request)
		return request.CurrentPhase() == want, err
	})
	if err != nil {
		t.Fatalf("request %s is %s, want %s: %v", name, request.CurrentPhase(), want, err)
	}
	return &request
}

// claim does what a gateway does before it sends the call.
func (y *yard) claim(t *testing.T, name string, timeout time.Duration) {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	if err := y.gateway.Get(t.Context(), client.ObjectKey{Namespace: y.namespace, Name: name}, &request); err != nil {
		t.Fatal(err)
	}
	now, deadline := metav1.NowMicro(), metav1.NewMicroTime(time.Now().Add(timeout))
	request.Status.Phase = v1alpha1.PhaseExecuting
	request.Status.Execution = &v1alpha1.Execution{Gateway: "gateway-0", Claim: "c-" + name, StartedAt: &now, Deadline: &deadline}
	if err := y.gateway.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
}

func TestPeopleDecideOnARealAPI(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.run(t, clock.RealClock{})
	// Of what a manager finds when it starts it tells nothing: what follows has to come when it is at work.
	y.askAbout(t, "cranes-of-another", func(r *v1alpha1.ApprovalRequest) { r.Spec.ServerRef.UID = "another" })
	y.expect(t, "cranes-of-another", v1alpha1.PhaseCancelled)
	for _, name := range []string{"cranes-used", "cranes-taken-back", "cranes-dismissed", "cranes-orphaned"} {
		y.ask(t, name)
		y.expect(t, name, v1alpha1.PhasePending)
	}
	if got := y.patch(t, "cranes-used", `{"decision":"Approved","reason":"fine"}`); got.Status.Phase != v1alpha1.PhaseApproved {
		t.Errorf("the answer to the vote says %s", got.Status.Phase)
	}
	y.patch(t, "cranes-taken-back", `{"decision":"Approved"}`)
	y.patch(t, "cranes-dismissed", `{"decision":"Dismissed"}`)
	y.expect(t, "cranes-used", v1alpha1.PhaseApproved)
	y.expect(t, "cranes-dismissed", v1alpha1.PhaseDismissed)
	y.expect(t, "cranes-taken-back", v1alpha1.PhaseApproved)
	y.patch(t, "cranes-taken-back", `{"decision":"Denied","reason":"not today"}`)
	y.expect(t, "cranes-taken-back", v1alpha1.PhaseDenied)

	// The gateway dies after its claim: the deadline alone moves the request on, and a person settles it.
	y.claim(t, "cranes-used", 100*time.Millisecond)
	y.expect(t, "cranes-used", v1alpha1.PhaseAmbiguous)
	y.patch(t, "cranes-used", `{"resolution":{"outcome":"NotExecuted","reason":"no box moved"}}`)
	y.expect(t, "cranes-used", v1alpha1.PhaseFailed)

	if err := y.admin.Delete(t.Context(), y.server); err != nil {
		t.Fatal(err)
	}
	orphan := y.expect(t, "cranes-orphaned", v1alpha1.PhaseCancelled)
	if orphan.Status.Cancellation == nil || orphan.Status.Cancellation.Reason != v1alpha1.CancelServerGone {
		t.Errorf("cancellation %v, want ServerGone", orphan.Status.Cancellation)
	}
	y.expectEvents(t, "cranes-used", "Approved", "Ambiguous", "Failed")
	y.expectEvents(t, "cranes-taken-back", "Approved", "Denied")
	y.expectEvents(t, "cranes-dismissed", "Dismissed")
	y.expectEvents(t, "cranes-orphaned", "Cancelled")

	// Another manager, which is shown all of this as new, has nothing to tell; what it has to tell comes after.
	y.run(t, clock.RealClock{})
	y.ask(t, "cranes-later")
	y.expect(t, "cranes-later", v1alpha1.PhaseCancelled)
	y.expectEvents(t, "cranes-used", "Approved", "Ambiguous", "Failed")
	y.expectEvents(t, "cranes-dismissed", "Dismissed")
}

// expectEvents waits for these events about a request, and wants each of them once.
func (y *yard) expectEvents(t *testing.T, name string, reasons ...string) {
	t.Helper()
	var seen map[string]int
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var all eventsv1.EventList
		if err := y.admin.List(ctx, &all, client.InNamespace(y.namespace)); err != nil {
			return false, err
		}
		seen = map[string]int{}
		for _, e := range all.Items {
			if e.Regarding.Name == name {
				seen[e.Reason]++
				if e.Series != nil {
					seen[e.Reason] += int(e.Series.Count)
				}
			}
		}
		return len(seen) >= len(reasons), nil
	})
	want := map[string]int{}
	for _, reason := range reasons {
		want[reason] = 1
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("events on %s (-want +got), %v:\n%s", name, err, diff)
	}
}

// Requests that ended while the manager was down are collected when it comes back; those that a person still has to
// look at are not.
func TestRequestsAreCollectedAfterAnOutage(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const many = 40
	for i := range many {
		y.ask(t, fmt.Sprintf("cranes-%d", i))
	}
	c := clocktesting.NewFakePassiveClock(time.Now())
	y.ask(t, "cranes-open")
	c.SetTime(time.Now().Add(2 * time.Hour)) // they live for one
	y.run(t, c)
	for i := range many {
		y.expect(t, fmt.Sprintf("cranes-%d", i), v1alpha1.PhaseExpired)
	}
	y.expect(t, "cranes-open", v1alpha1.PhaseExpired)

	// Another manager, a day later.
	later := clocktesting.NewFakePassiveClock(time.Now().Add(2*time.Hour + requestRetention))
	y.run(t, later)
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var left v1alpha1.ApprovalRequestList
		err := y.admin.List(ctx, &left, client.InNamespace(y.namespace))
		return len(left.Items) == 0, err
	})
	if err != nil {
		t.Errorf("requests are left: %v", err)
	}
}

// Of a yes and a no at the same time one stands, and a no that comes before the claim wins.
func TestApproveAndDenyRace(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.run(t, clock.RealClock{})
	for i := range 20 {
		name := fmt.Sprintf("cranes-race-%d", i)
		y.ask(t, name)
		results := make(chan error, 2)
		for _, decision := range []string{"Approved", "Denied"} {
			go func() {
				request := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name}}
				results <- y.decider.Status().Patch(t.Context(), request,
					client.RawPatch("application/merge-patch+json", []byte(`{"status":{"decision":"`+decision+`"}}`)))
			}()
		}
		for range 2 {
			if err := <-results; err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Fatal(err)
			}
		}
		var request v1alpha1.ApprovalRequest
		if err := y.admin.Get(t.Context(), client.ObjectKey{Namespace: y.namespace, Name: name}, &request); err != nil {
			t.Fatal(err)
		}
		y.expect(t, name, v1alpha1.Phase(request.Status.Decision))
	}
}
