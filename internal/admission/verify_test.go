// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestTheCheckTakesOnlyWhatWasDecided(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 2)
	_, p.live = p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
	_, honest := p.ask(t, "ben", false, decide(v1alpha1.DecisionApproved))
	if answer := p.check(t, "ben", honest); !answer.Allowed {
		t.Fatal(answer.Result.Message)
	}
	copied := p.live.DeepCopy()
	copied.Status.Votes = append(copied.Status.Votes, copied.Status.Votes[0])
	for name, tc := range map[string]struct {
		who  string
		edit func(*v1alpha1.ApprovalRequestStatus)
	}{
		"somebody else writes it": {"eve", func(*v1alpha1.ApprovalRequestStatus) {}},
		"no vote":                 {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes = s.Votes[:1] }},
		"no votes":                {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes = nil }},
		"the votes change places": {"ben", func(s *v1alpha1.ApprovalRequestStatus) { slices.Reverse(s.Votes) }},
		"an old vote is bent":     {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[0].Reason = "" }},
		"two more votes":          {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes = append(s.Votes, s.Votes[1]) }},
		"the first vote again":    {"ana", func(s *v1alpha1.ApprovalRequestStatus) { *s = copied.Status }},
		"the phase stays":         {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhasePending }},
		"the decision is lost":    {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Decision = "" }},
		"the reason is another":   {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Reason = "x" }},
		"an execution comes in":   {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Execution = &v1alpha1.Execution{Claim: "c"} }},
		"a resolution comes in": {"ben", func(s *v1alpha1.ApprovalRequestStatus) {
			s.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionCommitted, Reason: "x", By: "ben"}
		}},
		"the signature is lost": {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[1].Signature = "" }},
		"it is another's vote":  {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[1].Username = "eve" }},
		"it has another uid":    {"ben", func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[1].UID = "x" }},
	} {
		final := honest.DeepCopy()
		tc.edit(&final.Status)
		if answer := p.check(t, tc.who, final); answer.Allowed {
			t.Errorf("%s: taken", name)
		}
	}
	// Users with certificates have no uid: the name alone tells them apart.
	namesake := reviewOf(t, "eve", p.live, honest)
	namesake.UserInfo.UID = honest.Status.Votes[1].UID
	if answer := p.hooks.validate(t.Context(), namesake); answer.Allowed {
		t.Error("somebody else with the same uid writes it: taken")
	}
	final := honest.DeepCopy()
	final.Status.Votes[1].UID = "x"
	var err error
	if final.Status.Votes[1], err = key.Sign(p.live, final.Status.Votes[1]); err != nil {
		t.Fatal(err)
	}
	if answer := p.check(t, "ben", final); answer.Allowed {
		t.Error("a vote of the writer's name and another uid, well signed: taken")
	}
}

func TestTheCheckTakesOnlyTheWritersResolution(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	p.live.Status.Phase = v1alpha1.PhaseAmbiguous
	_, honest := p.ask(t, "ana", false, func(s *v1alpha1.ApprovalRequestStatus) {
		s.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionNotExecuted, Reason: "asked the bank", By: "somebody"}
	})
	if answer := p.check(t, "ana", honest); !answer.Allowed || honest.Status.Resolution.By != "ana" || honest.Status.Phase != v1alpha1.PhaseFailed {
		t.Fatalf("%s: %+v", answer.Result.Message, honest.Status)
	}
	for name, edit := range map[string]func(*v1alpha1.ApprovalRequestStatus){
		"another writer":     func(s *v1alpha1.ApprovalRequestStatus) { s.Resolution.By = "ben" },
		"another outcome":    func(s *v1alpha1.ApprovalRequestStatus) { s.Resolution.Outcome = v1alpha1.ResolutionCommitted },
		"no reason":          func(s *v1alpha1.ApprovalRequestStatus) { s.Resolution.Reason = " " },
		"another phase":      func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseSucceeded },
		"the phase stays":    func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseAmbiguous },
		"the phase alone":    func(s *v1alpha1.ApprovalRequestStatus) { s.Resolution = nil },
		"a vote beside it":   func(s *v1alpha1.ApprovalRequestStatus) { s.Votes = []v1alpha1.Vote{{Username: "ana"}} },
		"an outcome unknown": func(s *v1alpha1.ApprovalRequestStatus) { s.Resolution.Outcome = "Perhaps" },
	} {
		final := honest.DeepCopy()
		edit(&final.Status)
		if answer := p.check(t, "ana", final); answer.Allowed {
			t.Errorf("%s: taken", name)
		}
	}
}

// However persons vote, a request is Approved exactly when enough different persons have said yes and nobody no; what
// the webhook makes is what its other half takes; and votes only grow.
func TestTheLawsOfVotes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		required := rapid.Int32Range(1, 8).Draw(rt, "required")
		p := newPolling(t, required)
		yes, ended := map[string]bool{}, v1alpha1.Phase("")
		for i := range rapid.IntRange(1, 20).Draw(rt, "votes") {
			who := fmt.Sprintf("person-%d", rapid.IntRange(0, 9).Draw(rt, "who"))
			decision := rapid.SampledFrom([]v1alpha1.Decision{"Approved", "Approved", "Approved", "Approved", "Denied", "Dismissed"}).Draw(rt, "decision")
			p.clock.SetTime(born.Add(time.Duration(i) * time.Second))
			was := p.live.DeepCopy()
			answer, after := p.ask(t, who, false, decide(decision))
			may := ended == "" && (decision == v1alpha1.DecisionDenied || was.Status.Phase == v1alpha1.PhasePending && !yes[who])
			unchanged := was.Status.Decision == decision && was.Status.Reason == "because"
			if unchanged {
				if len(answer.Patch) != 0 {
					rt.Fatalf("the same words again made %s", answer.Patch)
				}
				continue
			}
			if answer.Allowed != may {
				rt.Fatalf("%s says %s to a request that is %s: allowed %t, want %t: %+v", who, decision, was.Status.Phase, answer.Allowed, may, answer.Result)
			}
			if !may {
				continue
			}
			if answer := p.check(t, who, after); !answer.Allowed {
				rt.Fatalf("the check refuses what was made: %s", answer.Result.Message)
			}
			if len(after.Status.Votes) != len(was.Status.Votes)+1 || !same(v1alpha1.ApprovalRequestStatus{Votes: was.Status.Votes},
				v1alpha1.ApprovalRequestStatus{Votes: after.Status.Votes[:len(was.Status.Votes)]}) {
				rt.Fatalf("the votes %+v became %+v", was.Status.Votes, after.Status.Votes)
			}
			p.live = after
			if decision == v1alpha1.DecisionApproved {
				yes[who] = true
			} else {
				ended = v1alpha1.Phase(decision)
			}
			want := v1alpha1.PhasePending
			switch {
			case ended != "":
				want = ended
			case len(yes) >= int(required):
				want = v1alpha1.PhaseApproved
			}
			tally := p.keys.Count(after)
			if after.Status.Phase != want || tally.Approved(required) != (want == v1alpha1.PhaseApproved) {
				rt.Fatalf("%d yes of %d, ended %q: the request is %s and the votes come to %+v", len(yes), required, ended, after.Status.Phase, tally)
			}
			if undecided := after.Status.Decision == "" && after.Status.Reason == ""; undecided != (want == v1alpha1.PhasePending) {
				rt.Fatalf("the request is %s with decision %q and reason %q", want, after.Status.Decision, after.Status.Reason)
			}
		}
	})
}
