// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// Codes of notices, and reasons in metrics, that more than one place needs; docs/errors.md lists all.
const (
	codePending    = "ApprovalPending"
	codeExpired    = "ApprovalExpired"
	codeUsed       = "ApprovalUsed"
	codeAmbiguous  = "OutcomeUnknown"
	codeRound      = "NextRound"
	codeNoRound    = "RoundUnknown"
	codeNoTask     = "TaskNotSupported"
	codeNoFlow     = "TaskUnknown"
	codeUnseen     = "InputNotSeen"
	codeHeaders    = "HeaderMismatch"
	codeUnverified = "VotesNotVerified"
	codeUndefined  = "DefinitionUnavailable"
	codeUnrecorded = "ReceiptNotWritten"

	codeMalformed      = "Malformed"
	codeTooLarge       = "MessageTooLarge"
	codeResting        = "ServerUnavailable"
	codeTooSlow        = "MessageTooSlow"
	codeTooManyCalls   = "TooManyCalls"
	codeTooManyStreams = "TooManyStreams"
	codeRateLimited    = "RateLimited"
	codeBusy           = "GatewayBusy"
	codeForeignOrigin  = "ForeignOrigin"
	codeForeignSession = "ForeignSession"

	codeTooManyRequests = "TooManyRequests"
	codeNoStream        = "NoStream"
	codeSameID          = "SameID"

	codeAnswerTooLarge   = "AnswerTooLarge"
	codeEventTooLarge    = "EventTooLarge"
	codeAnswerUnreadable = "AnswerUnreadable"
	codeClientStalled    = "ClientStalled"
	codeStreamIdle       = "StreamIdle"
)

// unrecorded words that not even a refusal can be recorded.
const unrecorded = "the gateway cannot write its record, so it lets nothing through. Send the call again later."

// pending tells the agent that its call waits for a person.
func (g *gated) pending(request *v1alpha1.ApprovalRequest) (done bool) {
	text := fmt.Sprintf("this call needs a person's approval. Request %s waits for it until %s. Nothing was executed. After it is approved, send exactly the same call again; it then runs once.",
		request.Name, request.ExpiresAt().UTC().Format(time.RFC3339))
	switch {
	case request.CurrentPhase() == v1alpha1.PhaseExecuting:
		text = fmt.Sprintf("the approval %s of this very call is being used right now. Send the call again in a while to learn how it ended.", request.Name)
	case g.replaced != "":
		text += g.replaced
	case g.sentBefore:
		text += " The same action was sent before, and nobody knows whether it took effect."
	case request.Spec.Attempt > 1:
		text += " The same action was asked before."
	}
	g.refuse(g.judged, request, notice{code: codePending, text: text + tell(g.decision), retryAfter: 15})
	return true
}

// standsInTheWay tells the agent why no person is asked about its call now.
func (g *gated) standsInTheWay(request *v1alpha1.ApprovalRequest) (done bool) {
	now := g.Clock.Now()
	switch {
	case approval.Denied(request, now):
		g.refuse(g.judged, request, notice{code: "ApprovalDenied", text: fmt.Sprintf(
			"a person denied this call%s. Nothing was executed. Do not send it again; ask the people you work for how to go on.", because(request.Status.Reason))})
	case approval.Unclear(request, now):
		g.refuse(g.judged, request, notice{code: codeAmbiguous, text: fmt.Sprintf(
			"the same call was sent before under request %s, and nobody knows yet whether it took effect. It is refused until a person has found out.", request.Name)})
	default:
		g.refuse(g.judged, request, *expired())
	}
	return true
}

// ended tells the agent how the request that its call waited for ended, or asks anew when it was taken away since the
// policy or the tool changed.
func (g *gated) ended(request *v1alpha1.ApprovalRequest) (done bool) {
	switch request.CurrentPhase() {
	case v1alpha1.PhaseSucceeded:
		g.refuse(g.judged, request, notice{code: codeUsed, text: fmt.Sprintf(
			"the approval %s was used by an identical call, which succeeded. This call was not executed. Send it again only if it should run once more; a person is then asked anew.", request.Name)})
	case v1alpha1.PhaseFailed:
		g.refuse(g.judged, request, notice{code: codeUsed, text: fmt.Sprintf(
			"the approval %s was used by an identical call, which %s. This call was not executed. Send it again to ask anew.", request.Name, failed(request))})
	case v1alpha1.PhaseDismissed:
		g.refuse(g.judged, request, notice{code: "ApprovalDismissed", text: fmt.Sprintf(
			"a person said not now%s. Nothing was executed. The call may be sent again later.", because(request.Status.Reason)), retryAfter: 600})
	case v1alpha1.PhaseCancelled:
		if g.decision.Effect == policy.Allow {
			return g.runUnattended(nil)
		}
		if c := request.Status.Cancellation; c != nil {
			g.replaced = wasCancelled(request.Name, c.Reason, g.decision)
		}
		return g.ask(request.Spec.Attempt + 1)
	default:
		g.refuse(g.judged, request, notice{code: codeExpired, text: "nobody decided on this call in time. Nothing was executed. Send the call again to ask anew.", retryAfter: 5})
	}
	return true
}

// failed says how a call came to nothing.
func failed(request *v1alpha1.ApprovalRequest) string {
	e := request.Status.Execution
	switch {
	case e == nil || e.Outcome != v1alpha1.OutcomeNotSent:
		return "failed"
	case e.Message == "":
		return "was not sent"
	default:
		return "was not sent: " + quoted(e.Message)
	}
}

// wasCancelled tells of a request that was cancelled; d is the verdict that holds now.
func wasCancelled(name string, reason v1alpha1.CancellationReason, d policy.Decision) string {
	why := "what it asked about has changed"
	switch reason {
	case v1alpha1.CancelVotesVoid:
		why = "the votes on it are not valid"
	case v1alpha1.CancelStateChanged:
		why = "the server does not say any more that the call would affect what it said it would"
	case v1alpha1.CancelPolicyChanged:
		why = "the policy has changed" + by(d) + " and asks for more than it did"
	default:
	}
	return fmt.Sprintf(" The earlier request %s was cancelled, since %s.", name, why)
}

// expired tells that nobody used the approval in time.
func expired() *notice {
	return &notice{code: codeExpired, retryAfter: 5, text: "the approval of this call expired before it was used. Nothing was executed. Send the call again to ask anew."}
}

// serverGone tells that nobody governs the server any more.
func serverGone() *notice {
	return &notice{code: "ServerGone", text: "the server is no longer governed; nothing was executed."}
}
