// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// wish is what a writer wants of a request: to decide it, to settle it, or, the zero value, nothing that is for us to
// judge.
type wish struct {
	decision   v1alpha1.Decision
	resolution *v1alpha1.Resolution
}

// verbs returns the verbs that its writer needs.
func (w wish) verbs(r *v1alpha1.ApprovalRequest) []string {
	if w.resolution != nil {
		return []string{v1alpha1.VerbResolve}
	}
	return r.Spec.ApproveVerbs
}

// wish reads what the writer wants, and refuses what is not said as it must be. It compares the objects whole.
func (w write) wish() (wish, *refusal) {
	was, is := w.stored.Status, w.sent.Status
	decides, resolves := was.Decision != is.Decision, !equality.Semantic.DeepEqual(was.Resolution, is.Resolution)
	rest := *is.DeepCopy()
	rest.Decision, rest.Reason, rest.Resolution = was.Decision, was.Reason, was.Resolution
	switch {
	case !w.concernsVotes():
		return wish{}, nil
	case w.sent.ResourceVersion != "" && w.sent.ResourceVersion != w.stored.ResourceVersion:
		return wish{}, conflict("this request has changed meanwhile; read it again, then decide")
	case !equality.Semantic.DeepEqual(was.Votes, is.Votes):
		return wish{}, refuse("Votes", "nobody writes status.votes; set status.decision, and your vote is stamped and signed for you")
	case w.phaseChanged():
		return wish{}, refuse("Phase", "status.phase follows from the votes; set status.decision, or status.resolution of an Ambiguous request, and leave phase as it is")
	case !same(was, rest):
		return wish{}, refuse("NotAlone", "a decision is written alone, with its reason and nothing else; leave the rest of status as it is")
	case resolves && (decides || was.Reason != is.Reason):
		return wish{}, refuse("NotAlone", "a resolution is written alone; leave status.decision and status.reason as they are")
	case resolves && is.Resolution == nil:
		return wish{}, refuse("NotAmbiguous", "a resolution is not taken back; leave status.resolution as it is")
	case resolves:
		return wish{resolution: is.Resolution}, nil
	case !decides:
		return wish{}, refuse("ReasonAlone", "status.reason belongs to a decision and is written together with it; "+
			"this request is %s%s", w.stored.CurrentPhase(), lastWord(w.stored))
	case is.Decision == "":
		return wish{}, refuse("Emptied", "a decision is not taken back by emptying it; an Approved request can be Denied until it is executed")
	default:
		return wish{decision: is.Decision}, nil
	}
}

// concernsVotes tells whether a write changes what follows from votes and resolutions. It says the same as the
// matchConditions in config/webhook, so that a wider configuration does no harm.
func (w write) concernsVotes() bool {
	was, is := w.stored.Status, w.sent.Status
	return was.Decision != is.Decision || was.Reason != is.Reason ||
		!equality.Semantic.DeepEqual(was.Votes, is.Votes) || !equality.Semantic.DeepEqual(was.Resolution, is.Resolution) ||
		(w.phaseChanged() && w.followsFromWords())
}

// followsFromWords tells whether only a person's word leads to the phase that was sent.
func (w write) followsFromWords() bool {
	switch w.sent.CurrentPhase() {
	case v1alpha1.PhaseApproved, v1alpha1.PhaseDenied, v1alpha1.PhaseDismissed:
		return true
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed:
		return w.stored.CurrentPhase() == v1alpha1.PhaseAmbiguous &&
			equality.Semantic.DeepEqual(w.stored.Status.Execution, w.sent.Status.Execution)
	default:
		return false
	}
}

func (w write) phaseChanged() bool { return w.stored.CurrentPhase() != w.sent.CurrentPhase() }

// added returns the last vote, if there is one more than there was.
func (w write) added() (v1alpha1.Vote, bool) {
	is := w.sent.Status.Votes
	if len(is) != len(w.stored.Status.Votes)+1 {
		return v1alpha1.Vote{}, false
	}
	return is[len(is)-1], true
}

// losesStatus tells whether a write of the main resource has words in its status that are not stored.
func (w write) losesStatus() bool {
	was, is := w.stored.Status, w.sent.Status
	return (is.Decision != "" && is.Decision != was.Decision) || (is.Reason != "" && is.Reason != was.Reason) ||
		(is.Resolution != nil && !equality.Semantic.DeepEqual(is.Resolution, was.Resolution)) ||
		(w.phaseChanged() && w.followsFromWords())
}

// refusal is why a write is not taken.
type refusal struct {
	// word is for metrics.
	word string
	// text tells the writer what to do instead.
	text string
	// again asks the client to read the object again and to retry.
	again bool
}

func refuse(word, format string, args ...any) *refusal {
	return &refusal{word: word, text: fmt.Sprintf(format, args...)}
}

func conflict(text string) *refusal { return &refusal{word: "Conflict", text: text, again: true} }

func (r *refusal) response() admission.Response {
	answer := admission.Denied(r.text)
	if r.again {
		answer.Result.Code, answer.Result.Reason = http.StatusConflict, metav1.StatusReasonConflict
	}
	return answer
}
