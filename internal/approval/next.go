// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package approval asks people about calls, on ApprovalRequest objects, and spends what they answer; it never decides
// whether a call needs a person.
package approval

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Step is what a gated call does next. The zero value refuses.
type Step int

const (
	// Refuse answers the call with the state of the request that stands in its way.
	Refuse Step = iota
	// Ask opens a new request.
	Ask
	// Hold waits for the end of a request that is already open or runs.
	Hold
	// Use spends an approval.
	Use
)

// Next says what a call does that meets these requests, all of them of its own action, in any order. Attempt is that
// of a new request. It is pure; what it says of the latest request is checked again, live, when the approval is spent.
func Next(same []*v1alpha1.ApprovalRequest, now time.Time) (step Step, request *v1alpha1.ApprovalRequest, attempt int32) {
	attempt = 1
	for _, r := range same {
		attempt = max(attempt, r.Spec.Attempt+1)
	}
	// What stands in the way does so whatever came after it; the strictest speaks first.
	if r := latestThat(same, Unclear, now); r != nil {
		return Refuse, r, 0
	}
	if r := latestThat(same, Denied, now); r != nil {
		return Refuse, r, 0
	}
	if r := latestThat(same, executing, now); r != nil {
		return Hold, r, 0
	}
	latest := latestThat(same, each, now)
	if latest == nil {
		return Ask, nil, attempt
	}
	switch latest.CurrentPhase() {
	case v1alpha1.PhasePending:
		if now.Before(latest.ExpiresAt()) {
			return Hold, latest, 0
		}
	case v1alpha1.PhaseApproved:
		if now.Before(latest.ExpiresAt()) {
			return Use, latest, 0
		}
		// The manager is about to write Expired; until it does, the caller learns it from here.
		return Refuse, latest, 0
	default:
	}
	return Ask, latest, attempt
}

// Unclear tells whether nobody knows if the call of a request took effect. One that runs beyond its deadline is unclear
// whether or not the manager has written so: its gateway is gone, or does not know either.
func Unclear(r *v1alpha1.ApprovalRequest, now time.Time) bool {
	if r.CurrentPhase() == v1alpha1.PhaseAmbiguous {
		return true
	}
	deadline := r.ExpiresAt()
	if e := r.Status.Execution; e != nil && e.Deadline != nil {
		deadline = e.Deadline.Time
	}
	return r.CurrentPhase() == v1alpha1.PhaseExecuting && !now.Before(deadline)
}

// Denied tells whether a denial still answers the action. It counts wherever it is written, signed or not: it only takes
// away.
func Denied(r *v1alpha1.ApprovalRequest, now time.Time) bool {
	switch r.CurrentPhase() {
	case v1alpha1.PhaseDenied:
	case v1alpha1.PhasePending, v1alpha1.PhaseApproved:
		if r.Status.Decision != v1alpha1.DecisionDenied && r.LastVote(v1alpha1.DecisionDenied).IsZero() {
			return false
		}
	default:
		return false
	}
	return now.Before(r.ExpiresAt())
}

func executing(r *v1alpha1.ApprovalRequest, _ time.Time) bool {
	return r.CurrentPhase() == v1alpha1.PhaseExecuting
}

func each(*v1alpha1.ApprovalRequest, time.Time) bool { return true }

// latestThat returns the request with the highest attempt of those that are so, nil without any. Of two with the same
// attempt the name decides, so that the order never shows.
func latestThat(requests []*v1alpha1.ApprovalRequest, is func(*v1alpha1.ApprovalRequest, time.Time) bool, now time.Time) *v1alpha1.ApprovalRequest {
	var latest *v1alpha1.ApprovalRequest
	for _, r := range requests {
		if is(r, now) && (latest == nil || cmp.Or(cmp.Compare(r.Spec.Attempt, latest.Spec.Attempt), cmp.Compare(r.Name, latest.Name)) > 0) {
			latest = r
		}
	}
	return latest
}

// bound returns the part of a spec that must be what the gateway would have written itself when an approval is
// spent: everything that gives the action its meaning, and everything that the person saw of it but the preview. What a
// preview says changes by itself, and whether that matters is for recheck to say; that it is what the person saw, the
// votes prove, since they are over the whole spec.
func bound(s v1alpha1.ApprovalRequestSpec) v1alpha1.ApprovalRequestSpec {
	return v1alpha1.ApprovalRequestSpec{
		ServerRef: s.ServerRef, EndpointDigest: s.EndpointDigest, Tool: s.Tool, ToolDigest: s.ToolDigest,
		Arguments: s.Arguments, ArgumentsSize: s.ArgumentsSize, ActionHash: s.ActionHash, BlastRadius: s.BlastRadius,
		Requester: v1alpha1.Requester{Username: s.Requester.Username, ActsFor: s.Requester.ActsFor},
	}
}

// Stricter tells whether the policy now asks for more than it did when the request was made. Who may approve what cannot
// be undone was asked for more than approve. A preview that has to be the same in the end is part of what was asked: where
// now and then differ in it, the one who approved was told something else.
func Stricter(now, then v1alpha1.ApprovalRequestSpec) bool {
	if now.Tier.StricterThan(then.Tier) || now.RequiredApprovals > then.RequiredApprovals || rechecks(now.Preview) != rechecks(then.Preview) {
		return true
	}
	return slices.ContainsFunc(now.ApproveVerbs, func(verb string) bool {
		covered := verb == v1alpha1.VerbApprove && slices.Contains(then.ApproveVerbs, v1alpha1.VerbApproveIrreversible)
		return !covered && !slices.Contains(then.ApproveVerbs, verb)
	})
}

// rechecks names the tool that is asked again before the call is sent, "" for none.
func rechecks(p *v1alpha1.Preview) string {
	if p == nil || !p.Recheck {
		return ""
	}
	return p.Tool
}

// Outdated tells whether an open request was made for another definition of the tool, or another endpoint, than the
// one that a call would meet now.
func Outdated(r *v1alpha1.ApprovalRequest, now v1alpha1.ApprovalRequestSpec) bool {
	if phase := r.CurrentPhase(); phase != v1alpha1.PhasePending && phase != v1alpha1.PhaseApproved {
		return false
	}
	return r.Spec.Tool == now.Tool && (r.Spec.ToolDigest != now.ToolDigest || r.Spec.EndpointDigest != now.EndpointDigest)
}

// settled returns the phase that an outcome of the call puts the request into.
func settled(outcome v1alpha1.ExecutionOutcome) v1alpha1.Phase {
	switch outcome {
	case v1alpha1.OutcomeSucceeded:
		return v1alpha1.PhaseSucceeded
	case v1alpha1.OutcomeToolError, v1alpha1.OutcomeNotSent, v1alpha1.OutcomeRejected:
		return v1alpha1.PhaseFailed
	default:
		return v1alpha1.PhaseAmbiguous
	}
}
