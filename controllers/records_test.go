// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func ended(phase v1alpha1.Phase, outcome v1alpha1.ExecutionOutcome) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		r.Status.Phase = phase
		if outcome != "" {
			r.Status.Execution = &v1alpha1.Execution{Claim: "c", Outcome: outcome}
		}
	}
}

func forTool(name, digest string) edit {
	return func(r *v1alpha1.ApprovalRequest) { r.Spec.Tool, r.Spec.ToolDigest = name, digest }
}

func withUID(uid string) edit {
	return func(r *v1alpha1.ApprovalRequest) { r.UID, r.Name = types.UID(uid), "cranes-"+uid }
}

func votedBy(usernames ...string) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		for _, username := range usernames {
			r.Status.Votes = append(r.Status.Votes, v1alpha1.Vote{Username: username, Decision: v1alpha1.DecisionApproved, Time: metav1.NewTime(made)})
		}
	}
}

func needing(approvals int32) edit {
	return func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = approvals }
}

// ran is a call that succeeded, whoever approved it.
var ran = ended(v1alpha1.PhaseSucceeded, v1alpha1.OutcomeSucceeded)

func clean(r *v1alpha1.ApprovalRequest) {
	ran(r)
	votedBy("ana")(r)
}

func fresh(requests ...*v1alpha1.ApprovalRequest) evidence {
	e := evidence{endpointDigest: "sha256:e", digests: map[string]string{"lift_box": "sha256:t"}, now: made}
	for _, r := range requests {
		e.fresh = append(e.fresh, *r)
	}
	return e
}

// lifted is the record of three clean approvals of lift_box.
func lifted(edits ...func(*v1alpha1.ToolRecord)) v1alpha1.ToolRecord {
	return *fixture.With(v1alpha1.ToolRecord{
		Tool: "lift_box", Digest: "sha256:t", EndpointDigest: "sha256:e", Approved: 3, Autonomy: v1alpha1.AutonomyEligible,
		LastDecision: &metav1.Time{Time: made.Add(-time.Hour)},
	}, edits...)
}

func TestOnlyCleanApprovalsOfThisDefinitionAndEndpointCount(t *testing.T) {
	t.Parallel()
	type counts struct{ approved, failed, denied int32 }
	elsewhere := func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = "sha256:old" }
	for name, tc := range map[string]struct {
		request *v1alpha1.ApprovalRequest
		want    counts
	}{
		"approved, ran, succeeded":       {newRequest(clean), counts{approved: 4}},
		"ran without a vote":             {newRequest(ran), counts{approved: 3}},
		"ran on one vote of two":         {newRequest(ran, votedBy("ana"), needing(2)), counts{approved: 3}},
		"ran on two votes of one person": {newRequest(ran, votedBy("ana", "ana"), needing(2)), counts{approved: 3}},
		"ran on two votes of two":        {newRequest(ran, votedBy("ana", "bo"), needing(2)), counts{approved: 4}},
		"ran in spite of a no": {newRequest(ran, votedBy("ana", "bo"), func(r *v1alpha1.ApprovalRequest) {
			r.Status.Votes[1].Decision = v1alpha1.DecisionDenied
		}), counts{approved: 3}},
		"the tool answered with an error":        {newRequest(ended(v1alpha1.PhaseFailed, v1alpha1.OutcomeToolError)), counts{3, 1, 0}},
		"never sent":                             {newRequest(ended(v1alpha1.PhaseFailed, v1alpha1.OutcomeNotSent)), counts{approved: 3}},
		"denied":                                 {newRequest(ended(v1alpha1.PhaseDenied, "")), counts{3, 0, 1}},
		"found by a person to have taken effect": {newRequest(clean, resolved(v1alpha1.ResolutionCommitted)), counts{approved: 3}},
		"an unclear answer that succeeded":       {newRequest(ended(v1alpha1.PhaseSucceeded, v1alpha1.OutcomeUnclear), votedBy("ana")), counts{approved: 3}},
		"succeeded, says nobody":                 {newRequest(ended(v1alpha1.PhaseSucceeded, ""), votedBy("ana")), counts{approved: 3}},
		"an approval of another definition":      {newRequest(clean, forTool("lift_box", "sha256:old")), counts{approved: 3}},
		"an approval at another endpoint":        {newRequest(clean, elsewhere), counts{approved: 3}},
		"a failure of another definition":        {newRequest(ended(v1alpha1.PhaseFailed, v1alpha1.OutcomeToolError), forTool("lift_box", "sha256:old")), counts{approved: 3}},
		"a denial of another definition":         {newRequest(ended(v1alpha1.PhaseDenied, ""), forTool("lift_box", "sha256:old")), counts{3, 0, 1}},
		"a denial at another endpoint":           {newRequest(ended(v1alpha1.PhaseDenied, ""), elsewhere), counts{3, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, complete := account([]v1alpha1.ToolRecord{lifted()}, fresh(tc.request))
			if len(after) != 1 || !complete {
				t.Fatalf("got %v, complete %t", after, complete)
			}
			got := counts{after[0].Approved, after[0].Failed, after[0].Denied}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if !slices.Equal(after[0].Accounted, []string{"request-uid"}) || !after[0].LastDecision.Time.Equal(made) {
				t.Errorf("accounted %v at %v", after[0].Accounted, after[0].LastDecision)
			}
		})
	}
}

func TestARecordStartsAnewForAnotherDefinitionOrEndpointButForDenials(t *testing.T) {
	t.Parallel()
	full := lifted(func(r *v1alpha1.ToolRecord) { r.Failed, r.Denied, r.Accounted = 1, 2, []string{"u"} })
	anew := func(digest, endpoint string) v1alpha1.ToolRecord {
		return lifted(func(r *v1alpha1.ToolRecord) {
			r.Digest, r.EndpointDigest, r.Approved, r.Denied, r.Accounted = digest, endpoint, 0, 2, []string{"u"}
		})
	}
	for name, tc := range map[string]struct {
		digests  map[string]string
		endpoint string
		want     v1alpha1.ToolRecord
	}{
		"nothing changed":           {map[string]string{"lift_box": "sha256:t"}, "sha256:e", full},
		"the tool is left out once": {map[string]string{}, "sha256:e", full},
		"another definition":        {map[string]string{"lift_box": "sha256:new"}, "sha256:e", anew("sha256:new", "sha256:e")},
		"another endpoint":          {map[string]string{"lift_box": "sha256:t"}, "sha256:new", anew("sha256:t", "sha256:new")},
		"another endpoint, no list": {map[string]string{}, "sha256:new", anew("sha256:t", "sha256:new")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, _ := account([]v1alpha1.ToolRecord{full}, evidence{digests: tc.digests, endpointDigest: tc.endpoint, now: made})
			if diff := cmp.Diff([]v1alpha1.ToolRecord{tc.want}, after); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if full.Approved != 3 || len(full.Accounted) != 1 {
		t.Error("account changed its argument")
	}
}

func TestWhatIsHeldIsNotCountedAgainAndGoesOnlyWhenSettled(t *testing.T) {
	t.Parallel()
	held := lifted(func(r *v1alpha1.ToolRecord) { r.Accounted = []string{"a", "b"} })
	e := fresh(newRequest(clean, withUID("a")), newRequest(clean, withUID("c")))
	e.settled = map[string]bool{"b": true, "x": true}
	e.ambiguous = map[string]int32{"lift_box": 2, "other": 1}
	after, complete := account([]v1alpha1.ToolRecord{held}, e)
	want := lifted(func(r *v1alpha1.ToolRecord) {
		r.Approved, r.Accounted, r.Ambiguous, r.LastDecision = 4, []string{"a", "c"}, 2, &metav1.Time{Time: made}
	})
	if diff := cmp.Diff([]v1alpha1.ToolRecord{want}, after); diff != "" || !complete {
		t.Errorf("complete %t (-want +got):\n%s", complete, diff)
	}
}

func TestTheFirstDecisionOpensARecord(t *testing.T) {
	t.Parallel()
	after, _ := account(nil, fresh(newRequest(clean, forTool("gone", "sha256:g"), withUID("b")), newRequest(clean, withUID("a"))))
	at := &metav1.Time{Time: made}
	want := []v1alpha1.ToolRecord{
		{Tool: "gone", Digest: "sha256:g", EndpointDigest: "sha256:e", Approved: 1, Autonomy: v1alpha1.AutonomyNone, LastDecision: at, Accounted: []string{"b"}},
		{Tool: "lift_box", Digest: "sha256:t", EndpointDigest: "sha256:e", Approved: 1, Autonomy: v1alpha1.AutonomyNone, LastDecision: at, Accounted: []string{"a"}},
	}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// many returns full records of as many tools as fit.
func many(edit func(i int, r *v1alpha1.ToolRecord)) ([]v1alpha1.ToolRecord, map[string]string) {
	digests := map[string]string{"lift_box": "sha256:t"}
	var records []v1alpha1.ToolRecord
	for i := range maxRecords {
		record := lifted(func(r *v1alpha1.ToolRecord) { r.Tool = fmt.Sprintf("tool_%04d", i) })
		digests[record.Tool] = record.Digest
		edit(i, &record)
		records = append(records, record)
	}
	return records, digests
}

func TestFullRecordsNeverLoseADenial(t *testing.T) {
	t.Parallel()
	denial, approval := newRequest(ended(v1alpha1.PhaseDenied, ""), withUID("d")), newRequest(clean, withUID("a"))
	deny := func(i int, r *v1alpha1.ToolRecord) { r.Denied = 1 }
	for name, tc := range map[string]struct {
		edit         func(i int, r *v1alpha1.ToolRecord)
		unlisted     string
		request      *v1alpha1.ApprovalRequest
		wantGone     string
		wantComplete bool
	}{
		"an approval takes no listed tool's room":      {edit: func(int, *v1alpha1.ToolRecord) {}, request: approval},
		"an approval takes the room of an absent tool": {edit: func(int, *v1alpha1.ToolRecord) {}, unlisted: "tool_0007", request: approval, wantGone: "tool_0007", wantComplete: true},
		"a denial takes any room but a denial's": {
			edit:    func(i int, r *v1alpha1.ToolRecord) { r.Denied = int32(min(1, i%999)) }, // tool_0000 and tool_0999 are not denied
			request: denial, wantGone: "tool_0000", wantComplete: true,
		},
		"a denial of an absent tool stays too":    {edit: deny, unlisted: "tool_0007", request: approval},
		"a denial that finds no room is not lost": {edit: deny, request: denial},
		"what waits for its request to be marked stays": {
			edit: func(i int, r *v1alpha1.ToolRecord) {
				if r.Denied = 1; i == 7 {
					r.Denied, r.Accounted = 0, []string{"held"}
				}
			},
			unlisted: "tool_0007", request: denial,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records, digests := many(tc.edit)
			delete(digests, tc.unlisted)
			e := fresh(tc.request)
			e.digests = digests
			after, complete := account(records, e)
			if complete != tc.wantComplete || len(after) != maxRecords {
				t.Errorf("complete %t with %d records, want %t with %d", complete, len(after), tc.wantComplete, maxRecords)
			}
			has := map[string]bool{}
			for _, r := range after {
				has[r.Tool] = true
			}
			if has["lift_box"] != tc.wantComplete || tc.wantGone != "" && has[tc.wantGone] {
				t.Errorf("lift_box has a record: %t; %s has one: %t", has["lift_box"], tc.wantGone, has[tc.wantGone])
			}
		})
	}
}

func TestCountingWaitsWhenTooManyAreHeld(t *testing.T) {
	t.Parallel()
	held := lifted(func(r *v1alpha1.ToolRecord) {
		for i := range maxAccounted {
			r.Accounted = append(r.Accounted, fmt.Sprint(i))
		}
	})
	e := fresh(newRequest(clean))
	after, complete := account([]v1alpha1.ToolRecord{held}, e)
	if complete || after[0].Approved != 3 {
		t.Errorf("complete %t, approved %d; want it to wait", complete, after[0].Approved)
	}
	e.settled = map[string]bool{"5": true}
	after, complete = account([]v1alpha1.ToolRecord{held}, e)
	if !complete || after[0].Approved != 4 || len(after[0].Accounted) != maxAccounted {
		t.Errorf("complete %t, approved %d, held %d", complete, after[0].Approved, len(after[0].Accounted))
	}
}

func TestAnOutcomeThatNobodyKnowsOpensARecordOfAListedTool(t *testing.T) {
	t.Parallel()
	e := evidence{ambiguous: map[string]int32{"lost": 2, "gone": 1}, digests: map[string]string{"lost": "d1", "quiet": "d2"}, endpointDigest: "e1"}
	want := []v1alpha1.ToolRecord{{Tool: "lost", Digest: "d1", EndpointDigest: "e1", Ambiguous: 2, Autonomy: v1alpha1.AutonomyNone}}
	after, complete := account(nil, e)
	if diff := cmp.Diff(want, after); diff != "" || !complete {
		t.Errorf("complete %t (-want +got):\n%s", complete, diff)
	}
	e.ambiguous = nil
	want[0].Ambiguous = 0
	if after, _ = account(after, e); cmp.Diff(want, after) != "" {
		t.Errorf("once it is resolved: %+v", after)
	}
}
