// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// judge tells whether the writer may do what they want, and nil if so. It never looks at what the client wrote beside
// the decision or the resolution.
func judge(w write, wanted wish, f facts) *refusal {
	if no := disagrees(w.stored, f.live); no != nil {
		return no
	}
	if no := entitled(w, f); no != nil {
		return no
	}
	if wanted.resolution != nil {
		return settles(f.live, *wanted.resolution)
	}
	if f.server == nil || string(f.server.UID) != f.live.Spec.ServerRef.UID {
		return refuse("ServerGone", "the server %s that this request is for is gone, so there is nothing left to decide; the manager cancels the request",
			f.live.Spec.ServerRef.Name)
	}
	return mayVote(f.live, w.user.Username, wanted.decision, f.tally, f.at)
}

// disagrees compares the request that the API server is about to write with the one that is stored. If only the version
// moved on, the client is asked to try again.
func disagrees(stored, live *v1alpha1.ApprovalRequest) *refusal {
	switch {
	case live == nil || live.UID != stored.UID || !equality.Semantic.DeepEqual(live.Spec, stored.Spec):
		return refuse("Disagrees", "this request is not the one that is stored under its name; read it again, then decide")
	case live.ResourceVersion != stored.ResourceVersion:
		return conflict("this request has changed meanwhile; read it again, then decide")
	case !equality.Semantic.DeepEqual(live.Status, stored.Status):
		return refuse("Disagrees", "the status of this request is not the one that is stored; read it again, then decide")
	default:
		return nil
	}
}

// entitled tells whether the writer is somebody who may decide requests of this server.
func entitled(w write, f facts) *refusal {
	name, server := w.user.Username, f.live.Spec.ServerRef.Name
	if vote.IsRequester(f.live, name) {
		return refuse("Requester", "%s asks for this action, or it is asked for them: somebody else decides it", name)
	}
	if isServiceAccount(name) {
		switch {
		case f.server == nil || !f.server.Spec.Approvals.AllowServiceAccounts:
			return refuse("ServiceAccount", "%s is a ServiceAccount, and only persons decide requests of %s; "+
				"a person has to, or whoever governs the server sets spec.approvals.allowServiceAccounts", name, server)
		case strings.HasPrefix(name, serviceAccountPrefix+f.live.Namespace+":"):
			return refuse("OwnNamespace", "%s does not decide requests of its own namespace; a person has to, or a ServiceAccount of another namespace", name)
		case f.wildcard:
			return refuse("Wildcard", "%s holds every verb by a wildcard, which says nothing about approvals; give it the verb by name, "+
				"on governedservers/authority, resourceNames [%s], in namespace %s, and no wildcard", name, server, f.live.Namespace)
		}
	}
	if len(f.live.Spec.ApproveVerbs) == 0 {
		return refuse("Verbs", "this request names no verb that a vote needs; have it asked anew")
	}
	if len(f.lacks) > 0 {
		return refuse("Verbs", "to decide this request %s needs the verb %s on governedservers/authority, resourceNames [%s], in namespace %s; "+
			"whoever manages Roles there can give it; check with: kubectl auth can-i %s governedservers/%s --subresource=authority -n %s",
			name, strings.Join(f.lacks, " and "), server, f.live.Namespace, f.lacks[0], server, f.live.Namespace)
	}
	return nil
}

const serviceAccountPrefix = "system:serviceaccount:"

func isServiceAccount(username string) bool { return strings.HasPrefix(username, serviceAccountPrefix) }

// mayVote tells whether a request can still be decided that way, and by that person. Their last word counts, and it can
// only become a no.
func mayVote(r *v1alpha1.ApprovalRequest, name string, decision v1alpha1.Decision, tally vote.Tally, at metav1.Time) *refusal {
	phase := r.CurrentPhase()
	saidYes := slices.Contains(tally.Approvals, name)
	switch {
	case !slices.Contains(decisions(), decision):
		return refuse("Decision", "status.decision is Approved, Denied or Dismissed, not %q", decision)
	case phase == v1alpha1.PhaseApproved && decision != v1alpha1.DecisionDenied:
		return refuse("Decided", "this request is Approved%s; until it is executed it can be Denied, and nothing else", lastWord(r))
	case phase != v1alpha1.PhasePending && phase != v1alpha1.PhaseApproved:
		return refuse("Decided", "this request is %s%s, and no vote changes that; if the action is still wanted, have the agent send its call again",
			phase, lastWord(r))
	case !at.Time.Before(r.ExpiresAt()):
		return refuse("Expired", "this request expired at %s; if the action is still wanted, have the agent send its call again",
			r.ExpiresAt().UTC().Format(time.RFC3339))
	case saidYes && decision == v1alpha1.DecisionApproved:
		return refuse("SecondYes", "%s has approved this request already and counts once; somebody else has to approve it, or deny it to take the yes back", name)
	case saidYes && decision == v1alpha1.DecisionDismissed:
		return refuse("SecondYes", "%s has approved this request; deny it to take the yes back", name)
	default:
		return nil
	}
}

func decisions() []v1alpha1.Decision {
	return []v1alpha1.Decision{v1alpha1.DecisionApproved, v1alpha1.DecisionDenied, v1alpha1.DecisionDismissed}
}

// lastWord says who decided, so that who lost a race is told the truth.
func lastWord(r *v1alpha1.ApprovalRequest) string {
	if len(r.Status.Votes) == 0 {
		return ""
	}
	last := r.Status.Votes[len(r.Status.Votes)-1]
	return fmt.Sprintf(" (%s: %s)", last.Username, last.Decision)
}

// settles tells whether a resolution can be taken.
func settles(r *v1alpha1.ApprovalRequest, to v1alpha1.Resolution) *refusal {
	switch {
	case r.CurrentPhase() != v1alpha1.PhaseAmbiguous || r.Status.Resolution != nil:
		return refuse("NotAmbiguous", "only a request that is Ambiguous is resolved, once; this one is %s", r.CurrentPhase())
	case to.Outcome != v1alpha1.ResolutionCommitted && to.Outcome != v1alpha1.ResolutionNotExecuted:
		return refuse("Outcome", "status.resolution.outcome is Committed or NotExecuted, not %q", to.Outcome)
	case strings.TrimSpace(to.Reason) == "":
		return refuse("Reason", "a resolution says in status.resolution.reason how you know what became of the call")
	default:
		return nil
	}
}

// outcome is the status that a write comes to, and what its writer is told.
type outcome struct {
	status  v1alpha1.ApprovalRequestStatus
	warning string
}

// voted returns the status of a request after one more vote. Below the quorum decision and reason are empty again, so
// that the next person's words are their own.
func voted(r *v1alpha1.ApprovalRequest, v v1alpha1.Vote, tally vote.Tally) outcome {
	status := *r.Status.DeepCopy()
	status.Votes = append(status.Votes, v)
	status.Decision, status.Reason = v.Decision, v.Reason
	switch v.Decision {
	case v1alpha1.DecisionApproved:
		if !slices.Contains(tally.Approvals, v.Username) {
			tally.Approvals = append(slices.Clone(tally.Approvals), v.Username)
		}
		if have, need := len(tally.Approvals), int(r.Spec.RequiredApprovals); !tally.Approved(r.Spec.RequiredApprovals) {
			status.Decision, status.Reason = "", ""
			return outcome{status, fmt.Sprintf("%d of %d approvals; %d more needed", have, need, max(need-have, 1))}
		}
		status.Phase = v1alpha1.PhaseApproved
	case v1alpha1.DecisionDismissed:
		status.Phase = v1alpha1.PhaseDismissed
	default: // what is not known refuses
		status.Phase = v1alpha1.PhaseDenied
	}
	return outcome{status: status}
}

// settled returns a status after a person has said what became of the call.
func settled(was v1alpha1.ApprovalRequestStatus, r v1alpha1.Resolution) outcome {
	status := *was.DeepCopy()
	status.Resolution, status.Phase = &r, v1alpha1.PhaseFailed
	if r.Outcome == v1alpha1.ResolutionCommitted {
		status.Phase = v1alpha1.PhaseSucceeded
	}
	return outcome{status: status}
}

// verify tells whether a status, as it will be stored, is the stored one with one valid vote of the writer, or with
// their resolution, and what follows from that; and nothing else.
func verify(w write, keys vote.Keys, at metav1.Time) *refusal {
	r, is := w.stored, w.sent.Status
	if is.Resolution != nil && !equality.Semantic.DeepEqual(r.Status.Resolution, is.Resolution) {
		if no := settles(r, *is.Resolution); no != nil {
			return no
		}
		if is.Resolution.By != w.user.Username || !same(settled(r.Status, *is.Resolution).status, is) {
			return tampered()
		}
		return nil
	}
	given, ok := w.added()
	if !ok {
		return refuse("NoVote", "a decision without a vote is not stored: the vote webhook did not run; have the operator's webhook configuration put back")
	}
	tally := keys.Count(r)
	if no := mayVote(r, w.user.Username, given.Decision, tally, at); no != nil {
		return no
	}
	if given.Username != w.user.Username || given.UID != w.user.UID || !same(voted(r, given, tally).status, is) {
		return tampered()
	}
	if w.dryRun {
		return nil
	}
	if err := keys.Verify(r, given); err != nil {
		return refuse("Signature", "the vote of %s is %v; try again, and if that does not help have the voting keys looked at", w.user.Username, err)
	}
	return nil
}

func tampered() *refusal {
	return refuse("Tampered", "what would be stored is not what was decided: something between this webhook and the store rewrites votes; "+
		"look for another mutating webhook or policy on approvalrequests/status")
}

func same(a, b v1alpha1.ApprovalRequestStatus) bool { return equality.Semantic.DeepEqual(a, b) }
