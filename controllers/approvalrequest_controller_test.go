// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// harness runs the reconciler on a fake API that holds the given objects.
type harness struct {
	client client.WithWatch
	events *events.FakeRecorder
	clock  *clocktesting.FakePassiveClock
	*ApprovalRequestReconciler
}

func newHarness(t *testing.T, faults interceptor.Funcs, objects ...client.Object) harness {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if r, ok := o.(*v1alpha1.ApprovalRequest); ok {
			r.Spec.EndpointDigest = endpointOf(t, crane(""))
		}
	}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.ApprovalRequest{}).Build()
	h := harness{client: base, events: events.NewFakeRecorder(10), clock: clocktesting.NewFakePassiveClock(made)}
	h.ApprovalRequestReconciler = &ApprovalRequestReconciler{
		Client: interceptor.NewClient(base, faults), Live: base, Events: h.events, Clock: h.clock,
	}
	return h
}

func crane(uid types.UID) *v1alpha1.GovernedServer {
	return &v1alpha1.GovernedServer{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "cranes", UID: uid}}
}

func (h harness) reconcile(t *testing.T) (ctrl.Result, error) {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(newRequest()), &request); err != nil {
		t.Fatal(err)
	}
	return h.Reconcile(t.Context(), &request)
}

func (h harness) stored(t *testing.T) *v1alpha1.ApprovalRequest {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	err := h.client.Get(t.Context(), client.ObjectKeyFromObject(newRequest()), &request)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &request
}

func (h harness) event() string {
	select {
	case e := <-h.events.Events:
		return e
	default:
		return ""
	}
}

func TestReconcileStoresTheStepAndTells(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request    *v1alpha1.ApprovalRequest
		server     *v1alpha1.GovernedServer
		after      time.Duration
		want       v1alpha1.ApprovalRequestStatus
		wantResult ctrl.Result
		wantEvent  string
	}{
		"nothing to do": {
			request: newRequest(inPhase(v1alpha1.PhasePending)), server: crane("server-uid"),
			want: v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhasePending}, wantResult: ctrl.Result{RequeueAfter: time.Hour},
		},
		"approved": {
			request: newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), server: crane("server-uid"), after: time.Minute,
			want:       v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhaseApproved, Decision: v1alpha1.DecisionApproved},
			wantResult: ctrl.Result{RequeueAfter: 59 * time.Minute},
		},
		"not used in time": {
			request: newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), server: crane("server-uid"), after: time.Hour,
			want:       v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhaseExpired, Decision: v1alpha1.DecisionApproved},
			wantResult: ctrl.Result{RequeueAfter: requestRetention},
			wantEvent:  "Normal Expired The approval was not used in time",
		},
		"another server of the same name": {
			request: newRequest(inPhase(v1alpha1.PhasePending)), server: crane("another-uid"),
			want: v1alpha1.ApprovalRequestStatus{
				Phase: v1alpha1.PhaseCancelled, Cancellation: &v1alpha1.Cancellation{Reason: v1alpha1.CancelServerGone},
			},
			wantEvent: "Normal Cancelled The server that the action was for is gone",
		},
		"lost": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(time.Minute)), after: time.Minute,
			want:      newRequest(inPhase(v1alpha1.PhaseAmbiguous), executing(time.Minute)).Status,
			wantEvent: "Warning Ambiguous The call did not end in time; find out whether it took effect, then run kubectl tidewaiter resolve",
		},
		"settled by a person": {
			request: newRequest(inPhase(v1alpha1.PhaseFailed), executing(time.Minute), resolved(v1alpha1.ResolutionNotExecuted)), server: crane("server-uid"),
			after: 2 * time.Hour,
			want:  newRequest(inPhase(v1alpha1.PhaseFailed), executing(time.Minute), resolved(v1alpha1.ResolutionNotExecuted)).Status,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{tc.request}
			if tc.server != nil {
				objects = append(objects, tc.server)
			}
			h := newHarness(t, interceptor.Funcs{}, objects...)
			h.clock.SetTime(made.Add(tc.after))
			result, err := h.reconcile(t)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, h.stored(t).Status, cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("stored status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantResult, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantEvent, h.event()); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRemovalIsOfTheVersionThatWasJudged(t *testing.T) {
	t.Parallel()
	request := newRequest(inPhase(v1alpha1.PhaseExpired))
	var preconditions *metav1.Preconditions
	h := newHarness(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		preconditions = (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
		return c.Delete(ctx, o, opts...)
	}}, request, crane("server-uid"))
	h.clock.SetTime(made.Add(time.Hour + requestRetention))
	before := h.stored(t)
	if _, err := h.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if h.stored(t) != nil {
		t.Error("the request is still there")
	}
	want := &metav1.Preconditions{UID: &before.UID, ResourceVersion: &before.ResourceVersion}
	if diff := cmp.Diff(want, preconditions); diff != "" {
		t.Errorf("preconditions (-want +got):\n%s", diff)
	}
}

// A request may reach the manager before its server does: the cache alone must not cancel it.
func TestACacheThatLagsCancelsNothing(t *testing.T) {
	t.Parallel()
	lagging := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*v1alpha1.GovernedServer); ok {
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("governedservers").GroupResource(), key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}}
	h := newHarness(t, lagging, newRequest(inPhase(v1alpha1.PhasePending)), crane("server-uid"))
	if _, err := h.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if got := h.stored(t).Status.Phase; got != v1alpha1.PhasePending {
		t.Errorf("phase %s, want Pending", got)
	}
}

// A request is void once the server moved, or a listing from after it shows another definition of its tool; nothing less
// cancels it, and no cache alone.
func TestARequestEndsWithTheDefinitionThatItIsAbout(t *testing.T) {
	t.Parallel()
	lists := func(digest string, after time.Duration, edits ...func(*v1alpha1.GovernedServer)) *v1alpha1.GovernedServer {
		s := crane("server-uid")
		s.Status.EndpointDigest = endpointOf(t, s)
		s.Status.LastChanged = &metav1.Time{Time: made.Add(after)}
		s.Status.Tools = []v1alpha1.ToolStatus{liftBox(func(l *v1alpha1.ToolStatus) { l.Digest = digest })}
		return fixture.With(*s, edits...)
	}
	classified := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.GovernedServer) {
		return func(s *v1alpha1.GovernedServer) {
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionClassified, Status: status, Reason: reason})
		}
	}
	move := func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "https://elsewhere.example/mcp" }
	for name, tc := range map[string]struct {
		server *v1alpha1.GovernedServer
		cached *v1alpha1.GovernedServer // where it is another
		want   v1alpha1.Phase
	}{
		"the same definition":                            {server: lists("sha256:t", time.Minute), want: v1alpha1.PhaseApproved},
		"another definition":                             {server: lists("sha256:u", time.Minute), want: v1alpha1.PhaseCancelled},
		"another definition in the same second":          {server: lists("sha256:u", 0), want: v1alpha1.PhaseCancelled},
		"and all is well classified":                     {server: lists("sha256:u", time.Minute, classified(metav1.ConditionTrue, v1alpha1.ReasonClassified)), want: v1alpha1.PhaseCancelled},
		"a listing from before the request":              {server: lists("sha256:u", -time.Second), want: v1alpha1.PhaseApproved},
		"a listing that is stale":                        {server: lists("sha256:u", time.Minute, classified(metav1.ConditionFalse, v1alpha1.ReasonStale)), want: v1alpha1.PhaseApproved},
		"a listing that is not whole":                    {server: lists("sha256:u", time.Minute, classified(metav1.ConditionFalse, v1alpha1.ReasonTruncated)), want: v1alpha1.PhaseApproved},
		"a listing without the tool":                     {server: lists("sha256:u", time.Minute, func(s *v1alpha1.GovernedServer) { s.Status.Tools = nil }), want: v1alpha1.PhaseApproved},
		"a listing of another endpoint":                  {server: lists("sha256:u", time.Minute, func(s *v1alpha1.GovernedServer) { s.Status.EndpointDigest = "sha256:x" }), want: v1alpha1.PhaseApproved},
		"another endpoint":                               {server: lists("sha256:t", time.Minute, move), want: v1alpha1.PhaseCancelled},
		"another endpoint, of which nothing is listed":   {server: fixture.With(*crane("server-uid"), move), want: v1alpha1.PhaseCancelled},
		"another definition, in a cache that lags":       {server: lists("sha256:t", time.Minute), cached: lists("sha256:u", time.Minute), want: v1alpha1.PhaseApproved},
		"another endpoint, in a cache that lags":         {server: lists("sha256:t", time.Minute), cached: lists("sha256:t", time.Minute, move), want: v1alpha1.PhaseApproved},
		"another definition that the cache has not seen": {server: lists("sha256:u", time.Minute), cached: lists("sha256:t", time.Minute), want: v1alpha1.PhaseApproved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if s, ok := o.(*v1alpha1.GovernedServer); ok && tc.cached != nil {
					tc.cached.DeepCopyInto(s)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}}
			h := newHarness(t, cache, newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), tc.server)
			if _, err := h.reconcile(t); err != nil {
				t.Fatal(err)
			}
			got, told := h.stored(t), h.event()
			if got.Status.Phase != tc.want {
				t.Errorf("phase %s, want %s", got.Status.Phase, tc.want)
			}
			if c := got.Status.Cancellation; tc.want == v1alpha1.PhaseCancelled &&
				(c == nil || c.Reason != v1alpha1.CancelToolChanged || !strings.Contains(told, "not the one that was asked about")) {
				t.Errorf("cancelled by %v, told %q", c, told)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	resource := v1alpha1.GroupVersion.WithResource("approvalrequests").GroupResource()
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		patch      error
		wantErr    error
		wantResult ctrl.Result
	}{
		"a conflict is quiet and never hot": {
			patch: apierrors.NewConflict(resource, "cranes-0123", broken), wantResult: ctrl.Result{RequeueAfter: conflictDelay},
		},
		"what is gone is no error": {
			patch: apierrors.NewNotFound(resource, "cranes-0123"), wantResult: ctrl.Result{RequeueAfter: conflictDelay},
		},
		"another error is reported": {patch: broken, wantErr: broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				return tc.patch
			}}, newRequest(inPhase(v1alpha1.PhasePending)))
			result, err := h.reconcile(t)
			if !errors.Is(err, tc.wantErr) || (err != nil) != (tc.wantErr != nil) {
				t.Errorf("error %v, want %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.wantResult, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if e := h.event(); e != "" {
				t.Errorf("told %q though nothing was saved", e)
			}
		})
	}
}

// A no that lands between the manager's look and its write stays: what the manager saw has passed.
func TestAStepIsTakenOnlyOnTheVersionThatWasJudged(t *testing.T) {
	t.Parallel()
	denyFirst := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		var current v1alpha1.ApprovalRequest
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), &current); err != nil {
			return err
		}
		current.Status.Decision, current.Status.Phase = v1alpha1.DecisionDenied, v1alpha1.PhaseDenied
		if err := c.SubResource(sub).Update(ctx, &current); err != nil {
			return err
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}}
	h := newHarness(t, denyFirst, newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), crane("server-uid"))
	h.clock.SetTime(made.Add(time.Hour))
	result, err := h.reconcile(t)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.stored(t).Status.Phase; got != v1alpha1.PhaseDenied {
		t.Errorf("phase %s, want Denied", got)
	}
	if result.RequeueAfter != conflictDelay || h.event() != "" {
		t.Errorf("result %v, want a quiet second look", result)
	}
}

func TestWhatAPersonSaidIsToldOnce(t *testing.T) {
	t.Parallel()
	phase := func(p v1alpha1.Phase, edits ...edit) *v1alpha1.ApprovalRequest {
		return newRequest(append(edits, inPhase(p))...)
	}
	for name, tc := range map[string]struct {
		before, after *v1alpha1.ApprovalRequest
		want          string
	}{
		"approved":                        {newRequest(), phase(v1alpha1.PhaseApproved), "Normal Approved The action may run once, until the request expires"},
		"denied":                          {phase(v1alpha1.PhasePending), phase(v1alpha1.PhaseDenied), "Normal Denied The action is refused, and the tool loses its autonomy"},
		"taken back":                      {phase(v1alpha1.PhaseApproved), phase(v1alpha1.PhaseDenied), "Normal Denied The action is refused, and the tool loses its autonomy"},
		"dismissed":                       {phase(v1alpha1.PhasePending), phase(v1alpha1.PhaseDismissed), "Normal Dismissed The action is refused for now, without prejudice"},
		"committed":                       {phase(v1alpha1.PhaseAmbiguous), phase(v1alpha1.PhaseSucceeded, resolved(v1alpha1.ResolutionCommitted)), "Normal Succeeded A person found that the call took effect"},
		"no effect":                       {phase(v1alpha1.PhaseAmbiguous), phase(v1alpha1.PhaseFailed, resolved(v1alpha1.ResolutionNotExecuted)), "Normal Failed A person found that the call did not take effect"},
		"seen late":                       {phase(v1alpha1.PhaseExecuting), phase(v1alpha1.PhaseFailed, resolved(v1alpha1.ResolutionNotExecuted)), "Normal Failed A person found that the call did not take effect"},
		"one of two":                      {newRequest(), newRequest(votedBy("ana")), ""},
		"seen again":                      {phase(v1alpha1.PhaseDenied), phase(v1alpha1.PhaseDenied, accounted(0)), ""},
		"and settled":                     {phase(v1alpha1.PhaseFailed, resolved(v1alpha1.ResolutionNotExecuted)), phase(v1alpha1.PhaseFailed, resolved(v1alpha1.ResolutionNotExecuted), accounted(0)), ""},
		"the manager tells of its own":    {newRequest(), phase(v1alpha1.PhaseExpired), ""},
		"the call simply ran":             {phase(v1alpha1.PhaseExecuting), phase(v1alpha1.PhaseSucceeded), ""},
		"the gateway heard of it at last": {phase(v1alpha1.PhaseAmbiguous), phase(v1alpha1.PhaseSucceeded), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, interceptor.Funcs{})
			h.announce(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, nil)
			if diff := cmp.Diff(tc.want, h.event()); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetricsCountByPhase(t *testing.T) {
	t.Parallel()
	named := func(name string) edit { return func(r *v1alpha1.ApprovalRequest) { r.Name = name } }
	of := func(server string) edit { return func(r *v1alpha1.ApprovalRequest) { r.Spec.ServerRef.Name = server } }
	younger := func(r *v1alpha1.ApprovalRequest) {
		r.CreationTimestamp = metav1.NewTime(made.Add(time.Minute))
	}
	h := newHarness(t, interceptor.Funcs{}, newRequest(inPhase(v1alpha1.PhasePending)), newRequest(named("b"), younger),
		newRequest(named("c"), inPhase(v1alpha1.PhaseDenied)), newRequest(named("d"), of("barges"), younger),
		newRequest(named("e"), of("barges"), inPhase(v1alpha1.PhaseAmbiguous)), newRequest(named("f"), of("quiet"), inPhase(v1alpha1.PhaseExpired)))
	h.clock.SetTime(made.Add(90 * time.Second))
	want := `
# HELP tidewaiter_approval_requests ApprovalRequests by phase.
# TYPE tidewaiter_approval_requests gauge
tidewaiter_approval_requests{phase="Ambiguous"} 1
tidewaiter_approval_requests{phase="Approved"} 0
tidewaiter_approval_requests{phase="Cancelled"} 0
tidewaiter_approval_requests{phase="Denied"} 1
tidewaiter_approval_requests{phase="Dismissed"} 0
tidewaiter_approval_requests{phase="Executing"} 0
tidewaiter_approval_requests{phase="Expired"} 1
tidewaiter_approval_requests{phase="Failed"} 0
tidewaiter_approval_requests{phase="Pending"} 3
tidewaiter_approval_requests{phase="Succeeded"} 0
# HELP tidewaiter_approval_requests_ambiguous ApprovalRequests of a server whose outcome a person has to find out; no series without one.
# TYPE tidewaiter_approval_requests_ambiguous gauge
tidewaiter_approval_requests_ambiguous{namespace="harbour",server="barges"} 1
# HELP tidewaiter_approval_requests_oldest_pending_seconds Age of the request of a server that has waited longest for a person; no series without one.
# TYPE tidewaiter_approval_requests_oldest_pending_seconds gauge
tidewaiter_approval_requests_oldest_pending_seconds{namespace="harbour",server="barges"} 30
tidewaiter_approval_requests_oldest_pending_seconds{namespace="harbour",server="cranes"} 90
# HELP tidewaiter_approval_requests_pending ApprovalRequests of a server that wait for a person; no series without one.
# TYPE tidewaiter_approval_requests_pending gauge
tidewaiter_approval_requests_pending{namespace="harbour",server="barges"} 1
tidewaiter_approval_requests_pending{namespace="harbour",server="cranes"} 2
`
	if err := testutil.CollectAndCompare(&ApprovalRequestMetrics{Reader: h.client, Clock: h.clock}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
