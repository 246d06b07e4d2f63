// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// asked returns a request in a phase that expires an hour after noon.
func asked(attempt int32, phase v1alpha1.Phase, edits ...func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
	r := fixture.With(fixture.ApprovalRequest("finance", "billing", int(attempt)), edits...)
	r.CreationTimestamp, r.Spec.Attempt, r.Status.Phase = metav1.NewTime(noon), attempt, phase
	switch phase {
	case v1alpha1.PhaseApproved:
		if r.Status.Decision == "" {
			r.Status.Decision = v1alpha1.DecisionApproved
		}
	case v1alpha1.PhaseExecuting:
		deadline := metav1.NewMicroTime(noon.Add(5 * time.Minute))
		r.Status.Execution = &v1alpha1.Execution{Claim: "c", Deadline: &deadline}
	}
	return r
}

func decided(d v1alpha1.Decision) func(*v1alpha1.ApprovalRequest) {
	return func(r *v1alpha1.ApprovalRequest) { r.Status.Decision = d }
}

func voted(d v1alpha1.Decision, at time.Time) func(*v1alpha1.ApprovalRequest) {
	return func(r *v1alpha1.ApprovalRequest) {
		r.Status.Votes = append(r.Status.Votes, v1alpha1.Vote{Username: "someone", Decision: d, Time: metav1.NewTime(at)})
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	open, expired, late := noon.Add(time.Minute), noon.Add(time.Hour), noon.Add(10*time.Minute)
	for name, tc := range map[string]struct {
		same        []*v1alpha1.ApprovalRequest
		now         time.Time
		want        Step
		wantRequest int32 // by attempt; 0 for none
		wantAttempt int32
	}{
		"nothing asked yet":                     {nil, open, Ask, 0, 1},
		"no phase reads as Pending":             {[]*v1alpha1.ApprovalRequest{asked(1, "")}, open, Hold, 1, 0},
		"a pending one is waited for":           {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhasePending)}, open, Hold, 1, 0},
		"a pending one that expired is not":     {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhasePending)}, expired, Ask, 1, 2},
		"an approval is used":                   {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseApproved)}, expired.Add(-time.Nanosecond), Use, 1, 0},
		"an expired approval is not":            {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseApproved)}, expired, Refuse, 1, 0},
		"a running one is waited for":           {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseExecuting)}, open, Hold, 1, 0},
		"one beyond its deadline is unclear":    {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseExecuting)}, late, Refuse, 1, 0},
		"an ambiguous one blocks for ever":      {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseAmbiguous)}, expired.Add(1000 * time.Hour), Refuse, 1, 0},
		"a denial answers":                      {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseDenied)}, open, Refuse, 1, 0},
		"until it expires":                      {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseDenied)}, expired, Ask, 1, 2},
		"a denial counts before its phase":      {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhasePending, decided(v1alpha1.DecisionDenied))}, open, Refuse, 1, 0},
		"and over a yes before":                 {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseApproved, decided(v1alpha1.DecisionDenied))}, open, Refuse, 1, 0},
		"and as a vote alone":                   {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseApproved, voted(v1alpha1.DecisionApproved, noon), voted(v1alpha1.DecisionDenied, noon))}, open, Refuse, 1, 0},
		"a vote for it alone approves nothing":  {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhasePending, voted(v1alpha1.DecisionApproved, noon))}, open, Hold, 1, 0},
		"nor does a decision":                   {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhasePending, decided(v1alpha1.DecisionApproved))}, open, Hold, 1, 0},
		"after success people are asked anew":   {[]*v1alpha1.ApprovalRequest{asked(3, v1alpha1.PhaseSucceeded)}, open, Ask, 3, 4},
		"after failure too":                     {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseFailed)}, open, Ask, 1, 2},
		"after not now too":                     {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseDismissed)}, open, Ask, 1, 2},
		"after cancellation too":                {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseCancelled)}, open, Ask, 1, 2},
		"an unknown phase gives nothing":        {[]*v1alpha1.ApprovalRequest{asked(1, "Blessed")}, open, Ask, 1, 2},
		"an old denial blocks a newer yes":      {[]*v1alpha1.ApprovalRequest{asked(1, v1alpha1.PhaseDenied), asked(2, v1alpha1.PhaseApproved)}, open, Refuse, 1, 0},
		"an old unclear one blocks a newer yes": {[]*v1alpha1.ApprovalRequest{asked(2, v1alpha1.PhaseApproved), asked(1, v1alpha1.PhaseAmbiguous)}, open, Refuse, 1, 0},
		"unclear speaks before denied":          {[]*v1alpha1.ApprovalRequest{asked(2, v1alpha1.PhaseDenied), asked(1, v1alpha1.PhaseAmbiguous)}, open, Refuse, 1, 0},
		"the latest attempt counts, whatever the order": {
			[]*v1alpha1.ApprovalRequest{asked(2, v1alpha1.PhasePending), asked(1, v1alpha1.PhaseApproved)}, open, Hold, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step, request, attempt := Next(tc.same, tc.now)
			var got int32
			if request != nil {
				got = request.Spec.Attempt
			}
			if step != tc.want || got != tc.wantRequest || attempt != tc.wantAttempt {
				t.Errorf("step %d on request %d, attempt %d; want %d, %d, %d", step, got, attempt, tc.want, tc.wantRequest, tc.wantAttempt)
			}
		})
	}
}

func TestNextNeverDependsOnOrder(t *testing.T) {
	t.Parallel()
	phases := []v1alpha1.Phase{"", v1alpha1.PhasePending, v1alpha1.PhaseApproved, v1alpha1.PhaseDenied, v1alpha1.PhaseExpired,
		v1alpha1.PhaseCancelled, v1alpha1.PhaseExecuting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseAmbiguous}
	rapid.Check(t, func(t *rapid.T) {
		var same []*v1alpha1.ApprovalRequest
		for i, phase := range rapid.SliceOfN(rapid.SampledFrom(phases), 0, 5).Draw(t, "phases") {
			same = append(same, asked(int32(i/2+1), phase, func(r *v1alpha1.ApprovalRequest) { r.Name += string(rune('a' + i)) }))
		}
		now := noon.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
		step, request, attempt := Next(same, now)
		otherStep, other, otherAttempt := Next(rapid.Permutation(same).Draw(t, "order"), now)
		if step != otherStep || request != other || attempt != otherAttempt {
			t.Fatalf("one order gives %d, another %d", step, otherStep)
		}
		blocked := slices.ContainsFunc(same, func(r *v1alpha1.ApprovalRequest) bool { return Denied(r, now) || Unclear(r, now) })
		if blocked && step != Refuse {
			t.Fatalf("step %d although a denial or an unclear outcome stands in the way", step)
		}
		if step == Use && (request.CurrentPhase() != v1alpha1.PhaseApproved || !now.Before(request.ExpiresAt())) {
			t.Fatalf("used %s at %s", request.CurrentPhase(), now)
		}
	})
}

func TestSameComparesWhatGivesTheActionItsMeaning(t *testing.T) {
	t.Parallel()
	type edit = func(*v1alpha1.ApprovalRequestSpec)
	for name, tc := range map[string]struct {
		edit edit
		want bool
	}{
		"server name":     {func(s *v1alpha1.ApprovalRequestSpec) { s.ServerRef.Name = "x" }, false},
		"server uid":      {func(s *v1alpha1.ApprovalRequestSpec) { s.ServerRef.UID = "x" }, false},
		"endpoint":        {func(s *v1alpha1.ApprovalRequestSpec) { s.EndpointDigest = "x" }, false},
		"tool":            {func(s *v1alpha1.ApprovalRequestSpec) { s.Tool = "x" }, false},
		"definition":      {func(s *v1alpha1.ApprovalRequestSpec) { s.ToolDigest = "x" }, false},
		"display":         {func(s *v1alpha1.ApprovalRequestSpec) { s.Arguments = "{}" }, false},
		"size":            {func(s *v1alpha1.ApprovalRequestSpec) { s.ArgumentsSize++ }, false},
		"hash":            {func(s *v1alpha1.ApprovalRequestSpec) { s.ActionHash = "x" }, false},
		"radius":          {func(s *v1alpha1.ApprovalRequestSpec) { s.BlastRadius.Scope = v1alpha1.BlastBulk }, false},
		"radius summary":  {func(s *v1alpha1.ApprovalRequestSpec) { s.BlastRadius.Summary = "harmless" }, false},
		"radius evidence": {func(s *v1alpha1.ApprovalRequestSpec) { s.BlastRadius.Evidence = []string{"x"} }, false},
		"acts for":        {func(s *v1alpha1.ApprovalRequestSpec) { s.Requester.ActsFor = "x" }, false},
		"requester":       {func(s *v1alpha1.ApprovalRequestSpec) { s.Requester.Username = "x" }, false},

		"nothing":          {func(*v1alpha1.ApprovalRequestSpec) {}, true},
		"no evidence":      {func(s *v1alpha1.ApprovalRequestSpec) { s.BlastRadius.Evidence = []string{} }, true},
		"pod":              {func(s *v1alpha1.ApprovalRequestSpec) { s.Requester.Pod = "x" }, true},
		"groups":           {func(s *v1alpha1.ApprovalRequestSpec) { s.Requester.Groups = []string{"x"} }, true},
		"revision":         {func(s *v1alpha1.ApprovalRequestSpec) { s.PolicyRevision = "x" }, true},
		"attempt":          {func(s *v1alpha1.ApprovalRequestSpec) { s.Attempt = 9 }, true},
		"ttl":              {func(s *v1alpha1.ApprovalRequestSpec) { s.TTLSeconds = 60 }, true},
		"policy is judged": {func(s *v1alpha1.ApprovalRequestSpec) { s.Tier, s.RequiredApprovals = v1alpha1.TierIrreversible, 2 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, now := asked(1, "").Spec, asked(1, "").Spec
			tc.edit(&stored)
			if got := Same(stored, now); got != tc.want {
				t.Errorf("Same = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestStricter(t *testing.T) {
	t.Parallel()
	then := asked(1, "").Spec
	irreversible := asked(1, "").Spec
	irreversible.Tier, irreversible.ApproveVerbs = v1alpha1.TierIrreversible, []string{v1alpha1.VerbApproveIrreversible}
	if Stricter(then, irreversible) {
		t.Error("a looser tier calls for its own verb, although a stricter one was asked for")
	}
	if !Stricter(irreversible, then) {
		t.Error("a stricter tier is content with the verb of a looser one")
	}
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.ApprovalRequestSpec)
		want bool
	}{
		"the same":        {func(*v1alpha1.ApprovalRequestSpec) {}, false},
		"a stricter tier": {func(s *v1alpha1.ApprovalRequestSpec) { s.Tier = v1alpha1.TierIrreversible }, true},
		"a looser tier":   {func(s *v1alpha1.ApprovalRequestSpec) { s.Tier = v1alpha1.TierRead }, false},
		"more persons":    {func(s *v1alpha1.ApprovalRequestSpec) { s.RequiredApprovals = 2 }, true},
		"another verb":    {func(s *v1alpha1.ApprovalRequestSpec) { s.ApproveVerbs = []string{"approve-finance"} }, true},
		"one verb more": {func(s *v1alpha1.ApprovalRequestSpec) {
			s.ApproveVerbs = append(slices.Clone(s.ApproveVerbs), "approve-x")
		}, true},
		"a recheck": {func(s *v1alpha1.ApprovalRequestSpec) {
			s.Preview = &v1alpha1.Preview{Tool: "count_rows", Recheck: true}
		}, true},
		"a preview that may age": {func(s *v1alpha1.ApprovalRequestSpec) { s.Preview = &v1alpha1.Preview{Tool: "count_rows"} }, false},
		"another reason only":    {func(s *v1alpha1.ApprovalRequestSpec) { s.GatedBy, s.PolicyRevision = "x", "x" }, false},
	} {
		now := asked(1, "").Spec
		tc.edit(&now)
		if got := Stricter(now, then); got != tc.want {
			t.Errorf("%s: Stricter = %v, want %v", name, got, tc.want)
		}
	}
}

func TestOutdatedIsAnOpenRequestForAnotherDefinition(t *testing.T) {
	t.Parallel()
	changed := asked(1, "").Spec
	changed.ToolDigest = fixture.Digest("b")
	moved := asked(1, "").Spec
	moved.EndpointDigest = fixture.Digest("b")
	other := changed
	other.Tool = "another"
	for name, tc := range map[string]struct {
		phase v1alpha1.Phase
		now   v1alpha1.ApprovalRequestSpec
		want  bool
	}{
		"pending, tool changed":    {v1alpha1.PhasePending, changed, true},
		"approved, tool changed":   {v1alpha1.PhaseApproved, changed, true},
		"approved, endpoint moved": {v1alpha1.PhaseApproved, moved, true},
		"approved, nothing":        {v1alpha1.PhaseApproved, asked(1, "").Spec, false},
		"another tool":             {v1alpha1.PhaseApproved, other, false},
		"executing":                {v1alpha1.PhaseExecuting, changed, false},
		"denied":                   {v1alpha1.PhaseDenied, changed, false},
	} {
		if got := Outdated(asked(1, tc.phase), tc.now); got != tc.want {
			t.Errorf("%s: Outdated = %v, want %v", name, got, tc.want)
		}
	}
}

func TestSettled(t *testing.T) {
	t.Parallel()
	got := map[v1alpha1.ExecutionOutcome]v1alpha1.Phase{}
	for _, outcome := range []v1alpha1.ExecutionOutcome{v1alpha1.OutcomeSucceeded, v1alpha1.OutcomeToolError, v1alpha1.OutcomeNotSent, v1alpha1.OutcomeRejected, v1alpha1.OutcomeUnclear, "", "Fine"} {
		got[outcome] = settled(outcome)
	}
	want := map[v1alpha1.ExecutionOutcome]v1alpha1.Phase{
		v1alpha1.OutcomeSucceeded: v1alpha1.PhaseSucceeded, v1alpha1.OutcomeToolError: v1alpha1.PhaseFailed, v1alpha1.OutcomeNotSent: v1alpha1.PhaseFailed,
		v1alpha1.OutcomeRejected: v1alpha1.PhaseFailed, v1alpha1.OutcomeUnclear: v1alpha1.PhaseAmbiguous, "": v1alpha1.PhaseAmbiguous, "Fine": v1alpha1.PhaseAmbiguous,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("phases by outcome (-want +got):\n%s", diff)
	}
}
