// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// api is a fake API with requests in it, and the faults of hooks.
func api(t rapid.TB, hooks interceptor.Funcs, requests ...*v1alpha1.ApprovalRequest) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ApprovalRequest{}).WithInterceptorFuncs(hooks)
	for _, r := range requests {
		b = b.WithObjects(r)
	}
	return b.Build()
}

var claims atomic.Int64

func store(c client.Client) *Store {
	return &Store{Client: c, Clock: testclock.NewFakePassiveClock(noon), Gateway: "gw", NewClaim: func() string { return fmt.Sprint("claim-", claims.Add(1)) }}
}

func stored(t rapid.TB, c client.Client, r *v1alpha1.ApprovalRequest) *v1alpha1.ApprovalRequest {
	t.Helper()
	got := &v1alpha1.ApprovalRequest{}
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(r), got); err != nil {
		t.Fatal(err)
	}
	return got
}

type update = func(ctx context.Context, c client.Client, subresource string, o client.Object, opts ...client.SubResourceUpdateOption) error

// really makes the update that an interceptor stands in for.
func really(ctx context.Context, c client.Client, o client.Object) error {
	return c.Status().Update(ctx, o)
}

func TestClaim(t *testing.T) {
	t.Parallel()
	group := v1alpha1.GroupVersion.WithResource("approvalrequests").GroupResource()
	for name, tc := range map[string]struct {
		update update
		want   error // nil: claimed
		unsure bool  // some error that is none of the sentinels
		stands v1alpha1.Phase
	}{
		"an approved request": {reallyUpdate, nil, false, v1alpha1.PhaseExecuting},
		"the answer was lost, the update won": {func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			if err := really(ctx, c, o.DeepCopyObject().(client.Object)); err != nil {
				return err
			}
			return context.DeadlineExceeded
		}, nil, false, v1alpha1.PhaseExecuting},
		"the update won, its repetition met a conflict": {func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			if err := really(ctx, c, o.DeepCopyObject().(client.Object)); err != nil {
				return err
			}
			return apierrors.NewConflict(group, o.GetName(), errors.New("modified"))
		}, nil, false, v1alpha1.PhaseExecuting},
		"the answer was lost, the update too": {func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return context.DeadlineExceeded
		}, nil, true, v1alpha1.PhaseApproved},
		"the answer was lost, another claim won": {func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			theirs := o.DeepCopyObject().(*v1alpha1.ApprovalRequest)
			theirs.Status.Execution.Claim = "theirs"
			if err := really(ctx, c, theirs); err != nil {
				return err
			}
			return context.DeadlineExceeded
		}, ErrTaken, false, v1alpha1.PhaseExecuting},
		"a conflict": {func(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			denied := o.DeepCopyObject().(*v1alpha1.ApprovalRequest)
			denied.Status = v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhaseDenied}
			if err := really(ctx, c, denied); err != nil {
				return err
			}
			return really(ctx, c, o)
		}, ErrTaken, false, v1alpha1.PhaseDenied},
		"forbidden": {func(_ context.Context, _ client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			return apierrors.NewForbidden(group, o.GetName(), errors.New("no serve"))
		}, nil, true, v1alpha1.PhaseApproved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := api(t, interceptor.Funcs{SubResourceUpdate: tc.update}, asked(1, v1alpha1.PhaseApproved))
			claimed, err := store(c).Claim(t.Context(), stored(t, c, asked(1, "")), time.Minute)
			switch {
			case tc.unsure && (err == nil || errors.Is(err, ErrTaken) || claimed == nil):
				t.Errorf("claimed %v, error %v, want an error and what was tried", claimed, err)
			case !tc.unsure && !errors.Is(err, tc.want):
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if got := stored(t, c, asked(1, "")); got.CurrentPhase() != tc.stands {
				t.Errorf("stored phase %s, want %s", got.CurrentPhase(), tc.stands)
			} else if tc.want == nil && !tc.unsure && (claimed.Status.Execution.Claim != got.Status.Execution.Claim || claimed.ResourceVersion != got.ResourceVersion) {
				t.Errorf("claimed %+v, stored %+v", claimed.Status.Execution, got.Status.Execution)
			}
		})
	}
}

func reallyUpdate(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return really(ctx, c, o)
}

func TestClaimOfADeletedRequestIsNone(t *testing.T) {
	t.Parallel()
	c := api(t, interceptor.Funcs{}, asked(1, v1alpha1.PhaseApproved))
	judged := stored(t, c, asked(1, ""))
	if err := c.Delete(t.Context(), judged.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if _, err := store(c).Claim(t.Context(), judged, time.Minute); !errors.Is(err, ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
	// Another request under the same name is another request.
	if err := c.Create(t.Context(), fixture.With(*asked(1, v1alpha1.PhaseApproved), func(r *v1alpha1.ApprovalRequest) { r.UID = "another" })); err != nil {
		t.Fatal(err)
	}
	if _, err := store(c).Claim(t.Context(), judged, time.Minute); err == nil {
		t.Error("claimed a request of another UID")
	}
}

// losses says which of the updates, in the order they arrive, do not reach the API, and which answers do not come back.
type losses struct {
	n                atomic.Int64
	updates, answers []bool
}

func (l *losses) update(ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
	i := int(l.n.Add(1)-1) % len(l.updates)
	if l.updates[i] {
		return context.DeadlineExceeded
	}
	err := really(ctx, c, o)
	if l.answers[i] {
		return context.DeadlineExceeded
	}
	return err
}

func TestAtMostOneClaimWhateverInterleaves(t *testing.T) {
	t.Parallel()
	var faults atomic.Pointer[losses]
	c := api(t, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
		return faults.Load().update(ctx, c, sub, o, opts...)
	}})
	var requests int
	rapid.Check(t, func(t *rapid.T) {
		faults.Store(&losses{
			updates: rapid.SliceOfN(rapid.Bool(), 8, 8).Draw(t, "updates lost"), answers: rapid.SliceOfN(rapid.Bool(), 8, 8).Draw(t, "answers lost")})
		denied := rapid.IntRange(0, 8).Draw(t, "denied by")
		requests++
		request := asked(1, v1alpha1.PhaseApproved, func(r *v1alpha1.ApprovalRequest) { r.Name = fmt.Sprint("billing-", requests) })
		if err := c.Create(context.Background(), request); err != nil {
			t.Fatal(err)
		}
		judged := stored(t, c, request)
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if i == denied {
					no := judged.DeepCopy()
					no.Status.Phase = v1alpha1.PhaseDenied
					_ = c.Status().Update(context.Background(), no)
					return
				}
				if _, err := store(c).Claim(context.Background(), judged, time.Minute); err == nil {
					won.Add(1)
				}
			})
		}
		all.Wait()
		got := stored(t, c, request).CurrentPhase()
		if won.Load() > 1 || won.Load() == 1 && got != v1alpha1.PhaseExecuting {
			t.Fatalf("%d calls hold the claim of a request that is stored as %s", won.Load(), got)
		}
	})
}

func TestFinish(t *testing.T) {
	t.Parallel()
	ours := func(r *v1alpha1.ApprovalRequest) { r.Status.Execution.Claim = "ours" }
	for name, tc := range map[string]struct {
		stored  *v1alpha1.ApprovalRequest
		outcome v1alpha1.ExecutionOutcome
		want    error
		stands  v1alpha1.Phase
	}{
		"success":                        {edited(asked(1, v1alpha1.PhaseExecuting), ours), v1alpha1.OutcomeSucceeded, nil, v1alpha1.PhaseSucceeded},
		"tool error":                     {edited(asked(1, v1alpha1.PhaseExecuting), ours), v1alpha1.OutcomeToolError, nil, v1alpha1.PhaseFailed},
		"unclear":                        {edited(asked(1, v1alpha1.PhaseExecuting), ours), v1alpha1.OutcomeUnclear, nil, v1alpha1.PhaseAmbiguous},
		"late, but definite":             {edited(asked(1, v1alpha1.PhaseExecuting), ours, phase(v1alpha1.PhaseAmbiguous)), v1alpha1.OutcomeSucceeded, nil, v1alpha1.PhaseSucceeded},
		"late and unclear":               {edited(asked(1, v1alpha1.PhaseExecuting), ours, phase(v1alpha1.PhaseAmbiguous)), v1alpha1.OutcomeUnclear, nil, v1alpha1.PhaseAmbiguous},
		"a person found out first":       {edited(asked(1, v1alpha1.PhaseExecuting), ours, phase(v1alpha1.PhaseFailed)), v1alpha1.OutcomeSucceeded, ErrTaken, v1alpha1.PhaseFailed},
		"the claim of another":           {asked(1, v1alpha1.PhaseExecuting), v1alpha1.OutcomeSucceeded, ErrTaken, v1alpha1.PhaseExecuting},
		"a claim that did not arrive":    {asked(1, v1alpha1.PhaseApproved), v1alpha1.OutcomeNotSent, ErrTaken, v1alpha1.PhaseApproved},
		"a claim that arrived after all": {edited(asked(1, v1alpha1.PhaseExecuting), ours), v1alpha1.OutcomeNotSent, nil, v1alpha1.PhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := api(t, interceptor.Funcs{}, tc.stored)
			mine := edited(asked(1, v1alpha1.PhaseExecuting), ours)
			mine.ResourceVersion = "1" // not the stored one: Finish reads again
			ended, err := store(c).Finish(t.Context(), mine, Result{Outcome: tc.outcome, Digest: "sha256:x", At: noon})
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			got := stored(t, c, mine)
			if err == nil && ended.ResourceVersion != got.ResourceVersion {
				t.Errorf("returned version %s, stored is %s", ended.ResourceVersion, got.ResourceVersion)
			}
			if got.CurrentPhase() != tc.stands {
				t.Errorf("stored as %s, want %s", got.CurrentPhase(), tc.stands)
			}
			if tc.want == nil && tc.stands != v1alpha1.PhaseAmbiguous && got.Status.Execution.Outcome != tc.outcome {
				t.Errorf("stored outcome %q, want %q", got.Status.Execution.Outcome, tc.outcome)
			}
		})
	}
}

func edited(r *v1alpha1.ApprovalRequest, edits ...func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
	for _, edit := range edits {
		edit(r)
	}
	return r
}

func phase(p v1alpha1.Phase) func(*v1alpha1.ApprovalRequest) {
	return func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = p }
}

func TestGiveBackEndsOnlyItsOwnClaim(t *testing.T) {
	t.Parallel()
	ours := edited(asked(1, v1alpha1.PhaseExecuting), func(r *v1alpha1.ApprovalRequest) { r.Status.Execution.Claim = "ours" })
	for name, tc := range map[string]struct {
		stored *v1alpha1.ApprovalRequest
		want   error
		stands v1alpha1.Phase
	}{
		"it arrived":       {ours.DeepCopy(), nil, v1alpha1.PhaseFailed},
		"it did not":       {asked(1, v1alpha1.PhaseApproved), ErrTaken, v1alpha1.PhaseApproved},
		"another's did":    {asked(1, v1alpha1.PhaseExecuting), ErrTaken, v1alpha1.PhaseExecuting},
		"a person said no": {asked(1, v1alpha1.PhaseDenied), ErrTaken, v1alpha1.PhaseDenied},
	} {
		c := api(t, interceptor.Funcs{}, tc.stored)
		tried := ours.DeepCopy()
		tried.ResourceVersion = stored(t, c, ours).ResourceVersion // the update was lost, so the version still fits
		if _, err := store(c).GiveBack(t.Context(), tried, Result{Outcome: v1alpha1.OutcomeNotSent, At: noon}); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
		if got := stored(t, c, ours).CurrentPhase(); got != tc.stands {
			t.Errorf("%s: stored as %s, want %s", name, got, tc.stands)
		}
	}
}

func TestFinishOfADeletedRequestEnds(t *testing.T) {
	t.Parallel()
	c := api(t, interceptor.Funcs{SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("approvalrequests").GroupResource(), "x", errors.New("modified"))
	}})
	if _, err := store(c).Finish(t.Context(), asked(1, v1alpha1.PhaseExecuting), Result{Outcome: v1alpha1.OutcomeSucceeded, At: noon}); !errors.Is(err, ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
}

func TestCancelEndsOnlyWhatIsOpen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, want v1alpha1.Phase }{
		{v1alpha1.PhasePending, v1alpha1.PhaseCancelled},
		{v1alpha1.PhaseApproved, v1alpha1.PhaseCancelled},
		{v1alpha1.PhaseExecuting, v1alpha1.PhaseExecuting},
		{v1alpha1.PhaseSucceeded, v1alpha1.PhaseSucceeded},
		{v1alpha1.PhaseAmbiguous, v1alpha1.PhaseAmbiguous},
	} {
		c := api(t, interceptor.Funcs{}, asked(1, tc.from))
		seen := asked(1, v1alpha1.PhasePending)
		seen.ResourceVersion = "1" // an old view: the stored one counts
		if err := store(c).Cancel(t.Context(), seen, v1alpha1.CancelToolChanged); err != nil {
			t.Errorf("%s: %v", tc.from, err)
		}
		if got := stored(t, c, seen).CurrentPhase(); got != tc.want {
			t.Errorf("%s: became %s, want %s", tc.from, got, tc.want)
		}
	}
	if err := store(api(t, interceptor.Funcs{})).Cancel(t.Context(), asked(1, v1alpha1.PhasePending), v1alpha1.CancelToolChanged); err != nil {
		t.Errorf("a request that is gone: %v", err)
	}
}

func TestCreateTakesTheNextNameWhereOneIsTaken(t *testing.T) {
	t.Parallel()
	name := func(attempt int32) string { return asked(attempt, "").Name }
	spec := asked(1, "").Spec
	foreign := asked(1, v1alpha1.PhasePending, func(r *v1alpha1.ApprovalRequest) { r.Spec.ActionHash = fixture.Digest("f") })
	for label, tc := range map[string]struct {
		there []*v1alpha1.ApprovalRequest
		want  int32
	}{
		"a free name":              {nil, 1},
		"the same action, open":    {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhasePending)}, 1},
		"the same action, ended":   {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseSucceeded)}, 2},
		"another action":           {[]*v1alpha1.ApprovalRequest{foreign}, 2},
		"another, and ended after": {[]*v1alpha1.ApprovalRequest{foreign, asked(2, v1alpha1.PhaseExpired)}, 3},
	} {
		c := api(t, interceptor.Funcs{}, tc.there...)
		got, err := store(c).Create(t.Context(), "finance", spec, name)
		if err != nil || got.Name != name(tc.want) || got.Spec.Attempt != tc.want || got.Spec.ActionHash != spec.ActionHash {
			t.Errorf("%s: got %v, error %v, want attempt %d", label, got, err, tc.want)
		}
	}
}

func TestCreateGivesUpWhereEveryNameIsTaken(t *testing.T) {
	t.Parallel()
	creates := 0
	c := api(t, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			creates++
			return apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("approvalrequests").GroupResource(), o.GetName())
		},
		Get: func(_ context.Context, _ client.WithWatch, _ types.NamespacedName, o client.Object, _ ...client.GetOption) error {
			asked(1, v1alpha1.PhaseExpired).DeepCopyInto(o.(*v1alpha1.ApprovalRequest))
			return nil
		},
	})
	if _, err := store(c).Create(t.Context(), "finance", asked(1, "").Spec, func(int32) string { return "n" }); !errors.Is(err, errNoName) || creates != maxAttempts {
		t.Errorf("error %v after %d attempts", err, creates)
	}
}
