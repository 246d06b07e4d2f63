// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// opinions are what the votes of a request come to, as they stand there. The gateway checks their signatures; this is for
// people.
type opinions struct {
	// approved and refused are the persons whose last word it is, in the order of their first.
	approved, refused []string
}

func count(r *v1alpha1.ApprovalRequest) opinions {
	var voters []string
	last := map[string]v1alpha1.Decision{}
	for _, v := range r.Status.Votes {
		if !slices.Contains(voters, v.Username) {
			voters = append(voters, v.Username)
		}
		last[v.Username] = v.Decision
	}
	var t opinions
	for _, name := range voters {
		if last[name] == v1alpha1.DecisionApproved {
			t.approved = append(t.approved, name)
		} else {
			t.refused = append(t.refused, name)
		}
	}
	return t
}

// quorum is how many of the needed persons approve.
func quorum(r *v1alpha1.ApprovalRequest) string {
	return fmt.Sprintf("%d/%d", len(count(r).approved), r.Spec.RequiredApprovals)
}

// by names persons, or says nothing where there are none.
func by(names []string) string {
	if len(names) == 0 {
		return ""
	}
	plain := make([]string, len(names))
	for i, name := range names {
		plain[i] = glyph.Plain(name)
	}
	return " by " + and(plain)
}

// after names persons who had approved what was denied then.
func after(approved []string) string {
	if len(approved) == 0 {
		return ""
	}
	return ", after the approval" + by(approved)
}

// and joins words as a sentence does.
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// instant writes a time.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// state says what a request is, who made it that, and what can be done about it, in one sentence.
func state(r *v1alpha1.ApprovalRequest) string {
	votes, until, because := count(r), instant(r.ExpiresAt()), ""
	if r.Status.Reason != "" {
		because = fmt.Sprintf(" (%s)", glyph.Plain(r.Status.Reason))
	}
	used := fmt.Sprintf("the approval%s was used", by(votes.approved))
	switch r.CurrentPhase() {
	case v1alpha1.PhasePending:
		return pendingState(r, votes)
	case v1alpha1.PhaseApproved:
		return fmt.Sprintf("%s is Approved%s%s: it runs once, if the agent waits or sends the call again by %s", r.Name, by(votes.approved), because, until)
	case v1alpha1.PhaseDenied:
		return fmt.Sprintf("%s is Denied%s%s%s: the same action is refused until %s", r.Name, by(votes.refused), because, after(votes.approved), until)
	case v1alpha1.PhaseDismissed:
		return fmt.Sprintf("%s is Dismissed%s%s: the agent may ask again", r.Name, by(votes.refused), because)
	case v1alpha1.PhaseExpired:
		return fmt.Sprintf("%s is Expired since %s: the agent has to ask again", r.Name, until)
	case v1alpha1.PhaseCancelled:
		reason := v1alpha1.CancellationReason("no reason given")
		if r.Status.Cancellation != nil {
			reason = r.Status.Cancellation.Reason
		}
		return fmt.Sprintf("%s is Cancelled (%s): the agent has to ask again", r.Name, glyph.Plain(string(reason)))
	case v1alpha1.PhaseExecuting:
		return fmt.Sprintf("%s is Executing: %s, and the call was sent", r.Name, used)
	case v1alpha1.PhaseSucceeded:
		return fmt.Sprintf("%s is Succeeded: %s, and the call took effect%s", r.Name, used, settledBy(r))
	case v1alpha1.PhaseFailed:
		if e := r.Status.Execution; e != nil && e.Outcome == v1alpha1.OutcomeNotSent {
			why := ""
			if e.Message != "" {
				why = ": " + glyph.Plain(e.Message)
			}
			return fmt.Sprintf("%s is Failed: %s, and the call was not sent%s", r.Name, used, why)
		}
		return fmt.Sprintf("%s is Failed: %s, and the call did not take effect or the tool reported an error%s", r.Name, used, settledBy(r))
	case v1alpha1.PhaseAmbiguous:
		return fmt.Sprintf("%s is Ambiguous: %s, and nobody knows whether the call took effect; settle it with kubectl tidewaiter resolve", r.Name, used)
	default:
		return fmt.Sprintf("%s is in the phase %q, which this kubectl-tidewaiter does not know", r.Name, r.Status.Phase)
	}
}

func pendingState(r *v1alpha1.ApprovalRequest, votes opinions) string {
	until := instant(r.ExpiresAt())
	if have, need := len(votes.approved), int(r.Spec.RequiredApprovals); have > 0 {
		return fmt.Sprintf("%s has %d of %d approvals, given%s: it needs %d more by %s", r.Name, have, need, by(votes.approved), need-have, until)
	}
	return fmt.Sprintf("%s is Pending until %s", r.Name, until)
}

// settledBy says who found out how a call ended of which nobody knew.
func settledBy(r *v1alpha1.ApprovalRequest) string {
	if r.Status.Resolution == nil {
		return ""
	}
	return fmt.Sprintf("; so said %s (%s)", glyph.Plain(r.Status.Resolution.By), glyph.Plain(r.Status.Resolution.Reason))
}
