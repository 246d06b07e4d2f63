// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/failpoint"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// promptly is how long an agent waits for its answer so that the outcome is on record first.
	promptly = 2 * time.Second
	// outcomePatience is how long a gateway tries to record an outcome that the API does not take.
	outcomePatience = 10 * time.Minute
	// outcomeRetry is the time between two such tries.
	outcomeRetry = time.Second
	// maxCause is what a request can hold of why nothing was sent.
	maxCause = 512
)

// execution is a message of a call with effects that leaves: the call itself, or a later round of it.
type execution struct {
	*gated
	*fate
	// round is the call that the message goes on with, nil for one that is a call of its own.
	round *openCall
	// outlives tells that the call outlives its answer.
	outlives bool
	// overtakenBy says why the call did not leave after all.
	overtakenBy string
}

// execute sends a call with effects and records what became of it: the verdict is on disk before the first byte
// leaves, and what left is followed to its end even when the agent has gone.
func (g *gated) execute(claimed *v1alpha1.ApprovalRequest) {
	e := &execution{gated: g, fate: g.newFate(claimed)}
	if err := g.note(e.receipt(receipt.KindDecision), receipt.Sync); err != nil {
		e.unsent(unrecorded)
		e.end(func() { g.refuseUnrecorded(g.judged) })
		return
	}
	failpoint.Hit(failpoint.AfterDecision)
	if n := cmp.Or(e.moved(), e.overtaken()); n != nil {
		e.overtakenBy = n.code
		e.unsent(n.text)
		e.end(func() { e.reply.notice(e.about(*n)) })
		return
	}
	e.leave()
}

// newFate begins the record of what becomes of a call that is about to leave.
func (g *gated) newFate(claimed *v1alpha1.ApprovalRequest) *fate {
	return &fate{gateway: g.Gateway, server: g.server, claimed: claimed, sentAt: g.Clock.Now()}
}

// leave sends the message and follows it to its answer.
func (e *execution) leave() {
	e.Metrics.decided(e.server.Key, policy.Allow, string(e.decision.Reason))
	ctx, cancel := e.detached(e.snap.Server.Spec.CallTimeout.Duration)
	defer cancel()
	resp, sent, err := e.send(ctx, outbound{
		request: e.request, caller: e.owner(), body: e.message.Raw, headers: mcpHeaders, endpoint: e.want.EndpointDigest, effect: true, span: e.span})
	switch {
	case err == nil:
		e.relay(resp)
	case sent:
		e.unclear("the call was sent and nothing tells whether it took effect.")
	case e.round != nil:
		e.notSent(err)
	default:
		refusal := upstreamRefusal(err)
		e.unsent(strings.TrimPrefix(refusal.Message, speaker))
		e.end(func() { e.reply.refuse(refusal) })
	}
}

// overtaken looks a last time, with nothing left to wait for but the server: it returns why the call may not leave after
// all, nil when it may. Writing the claim and the receipt takes time, in which the agent can go and the policy change.
func (e *execution) overtaken() *notice {
	e.departs()
	now, ok := e.judge()
	switch {
	case e.clientGone():
		return &notice{code: "ClientGone", text: "the client has gone. Nothing was executed."}
	case !ok:
		return serverGone()
	case now.decision.Effect == policy.Deny:
		n := denial(now.decision)
		n.rule = now.decision.GatedBy
		return &n
	case e.changed(now):
		return &notice{code: "PolicyChanged", retryAfter: 5, rule: now.decision.GatedBy,
			text: e.whatChanged(now) + " changed just before the call was to leave" + by(now.decision) + ". Nothing was executed. Send the call again; it is judged anew."}
	case e.observed():
		return nil
	case e.round != nil && e.closed(now.snap):
		return &notice{code: codeNoRound, text: "the call that this message goes on with counts as ended. It was not passed on. Send the call without inputResponses and requestState; it is judged anew."}
	case e.claimed != nil && e.round == nil && !e.Clock.Now().Before(e.claimed.ExpiresAt()):
		return expired()
	case e.claimed != nil:
		return e.votesAgain()
	default:
		return nil
	}
}

// changed tells whether the action, or what lets it run, is not what it was when it was judged.
func (e *execution) changed(now judged) bool {
	if e.observed() {
		return !now.observed()
	}
	if now.observed() {
		return false
	}
	if e.retold(now) {
		return true
	}
	want, err := e.describe(now, now.snap.Definitions[e.message.Call.Name])
	if err != nil || !approval.Same(want, e.want) {
		return true
	}
	if now.decision.Effect == policy.Allow {
		return false
	}
	return e.claimed == nil || approval.Stricter(want, e.claimed.Spec)
}

// retold tells whether the manager says something new of the tool, and not what the call was judged for: then the
// gateway's own listing is the older one.
func (e *execution) retold(now judged) bool {
	said := now.decision.Tool.Digest
	return !e.observed() && said != e.decision.Tool.Digest && said != e.want.ToolDigest
}

// whatChanged names what is not what it was when the call was judged.
func (e *execution) whatChanged(now judged) string {
	switch {
	case now.snap.EndpointDigest != e.want.EndpointDigest || serverRef(now.snap) != e.want.ServerRef:
		return "the server"
	case !e.observed() && toolDigest(now.snap, now.decision) != e.want.ToolDigest || e.retold(now):
		return "the tool"
	default:
		return "the policy"
	}
}

// unclear answers for a call whose fate nobody knows.
func (e *execution) unclear(what string) {
	e.settle(v1alpha1.OutcomeUnclear, nil)
	text := what + " Sent again, the same call waits for a person. Do not try another way."
	switch {
	case e.claimed != nil:
		text = what + " The same call is refused until a person has found out. Do not try another way."
	case e.observed():
		text = what + " Nothing keeps the same call from running again, since the server only observes: find out before you send it."
	}
	e.end(func() { e.reply.notice(e.about(notice{code: codeAmbiguous, text: text})) })
}

// end answers the agent once the outcome is on record, or promptly is over, and then sees to it that it gets there.
func (e *execution) end(answer func()) {
	recorded := e.recordPromptly()
	if !recorded {
		e.reply.last()
	}
	answer()
	e.reply.flush()
	switch {
	case recorded:
	case e.reply.serial:
		e.record()
	default: // a stream of HTTP/2 ends with its handler: the agent would wait for the record
		e.recording.Go(e.record)
	}
}

// about adds the request to a notice.
func (e *execution) about(n notice) notice {
	n.tier, n.rule = string(e.decision.Tier), cmp.Or(n.rule, e.decision.GatedBy)
	if e.claimed != nil {
		n.request, n.namespace = e.claimed.Name, e.claimed.Namespace
	}
	return n
}

// receipt returns the record of the verdict, or of the outcome.
func (e *execution) receipt(kind receipt.Kind) receipt.Receipt {
	r := e.call.receipt(e.judged, kind)
	r.Verdict = receipt.VerdictAllow
	r.ActionHash, r.BlastRadius = e.want.ActionHash, string(e.want.BlastRadius.Scope)
	if e.claimed != nil {
		r.Request, r.RequestUID, r.Code = e.claimed.Name, string(e.claimed.UID), "Approved"
		r.ApprovedBy, r.KeyIDs = e.tally.Approvals, e.tally.KeyIDs
		if p := e.claimed.Spec.Preview; p != nil {
			r.Preview = p.ResultDigest
		}
	}
	if e.round != nil {
		r.Code, r.CallID = codeRound, e.line.CallID // all rounds are one call
	}
	if e.overtakenBy != "" {
		r.Code = e.overtakenBy
	}
	return r
}

// relay passes the answer on, and learns the outcome from it before the agent does.
func (e *execution) relay(resp *http.Response) {
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	switch {
	case isEncoded(resp.Header):
		e.unclear("the server's answer is encoded although it was not asked to be, so nothing tells whether the call took effect.")
	case readableAs(resp.Header) == kindEvents && resp.StatusCode == http.StatusOK:
		e.relayEvents(resp)
	default:
		e.relayWhole(resp)
	}
}

// relayEvents passes an event stream on. When the agent has gone, it still reads to the answer.
func (e *execution) relayEvents(resp *http.Response) {
	if !e.reply.committed {
		copyHeader(e.reply.w.Header(), resp.Header)
		e.reply.w.WriteHeader(resp.StatusCode)
		e.reply.committed = true
		e.reply.flush() // who waits for the headers has them before the first event
	}
	clean := e.server.overhear(e.want.EndpointDigest, e.owner(), sanitize(nil)) // what is withheld is followed by a word of the gateway's own
	first, resumable := true, false
	sink := func(event []byte) bool {
		resumable = resumable || bytes.HasPrefix(event, []byte("id:")) || bytes.Contains(event, []byte("\nid:"))
		if first { // behind what was sent during the hold, a byte order mark would be part of a line
			event = bytes.TrimPrefix(event, []byte("\ufeff"))
			first = false
		}
		e.reply.raw(event)
		return true
	}
	err := pumpEvents(resp.Body, e.Limits.Event, sink, e.span.Watch(func(message []byte) []byte {
		if answer, found, err := wire.ScanAnswer(message); err == nil && found && wire.SameID(answer.ID, e.message.ID) {
			if !e.outlives && !e.keep(answer) {
				e.settle(outcomeOf(answer), message)
			}
			e.recordPromptly()
		}
		return clean(message)
	}))
	switch {
	case e.outlives || e.over():
		e.record()
	case errors.Is(err, wire.ErrEventTooLarge):
		e.oversized(codeEventTooLarge)
	case err != nil:
		e.unclear("the server's answer broke off, so nothing tells whether the call took effect.")
	case resumable: // the agent may still fetch the answer; it does not pass here then
		e.settle(v1alpha1.OutcomeUnclear, nil)
		e.record()
	default:
		e.reply.raw([]byte("\n\n")) // ends what the server may have left without an end
		e.unclear("the server ended its answer without a result, so nothing tells whether the call took effect.")
	}
}

// oversized ends an answer of which more would have to be read than may be.
func (e *execution) oversized(reason string) {
	e.Metrics.cutShort(e.server.Key, reason)
	e.unclear("the server's answer is larger than the gateway passes on, so nothing tells whether the call took effect.")
}

// relayWhole passes any other answer on.
func (e *execution) relayWhole(resp *http.Response) {
	body, err := readUpTo(resp.Body, resp.ContentLength, e.Limits.Event)
	switch {
	case errors.Is(err, errTooLarge):
		e.oversized(codeAnswerTooLarge)
		return
	case err != nil:
		e.unclear("the server's answer broke off, so nothing tells whether the call took effect.")
		return
	}
	answer, found, err := wire.ScanAnswer(body)
	if err != nil || !found || resp.StatusCode != http.StatusOK || !wire.SameID(answer.ID, e.message.ID) || !e.keep(answer) {
		e.settle(outcomeOfResponse(resp, body, e.message.ID), body)
	}
	e.end(func() { e.answerWhole(resp, body) })
}

func (e *execution) answerWhole(resp *http.Response, body []byte) {
	if redirects(resp) {
		e.reply.refuse(badAnswer(isRedirect))
		return
	}
	isJSON := contentType(resp.Header) == kindJSON
	body = e.span.Watch(sanitize(e.message.ID))(body) // whatever it is said to be: a client may look
	if !e.reply.committed {
		copyHeader(e.reply.w.Header(), resp.Header)
		writeWhole(e.reply.w, resp.StatusCode, body)
		return
	}
	// Status and headers have left during the hold; a message can still follow.
	if answer, found, err := wire.ScanAnswer(body); isJSON && (resp.StatusCode == http.StatusOK || err == nil && found && wire.SameID(answer.ID, e.message.ID)) {
		e.reply.event(body)
		return
	}
	e.reply.refuse(badAnswer("is HTTP " + strconv.Itoa(resp.StatusCode)))
}

// unsent settles a call of which nothing has left. What the agent is told says why, and then what it can do; people need
// the first alone.
func (e *execution) unsent(told string) {
	why, _, _ := strings.Cut(told, noneNow)
	e.cause = glyph.Clip(strings.TrimSuffix(why, "."), maxCause)
	e.settle(v1alpha1.OutcomeNotSent, nil)
}

// settle notes the outcome of the call. A server that refuses a later round has had the ones before it.
func (e *execution) settle(outcome v1alpha1.ExecutionOutcome, answer []byte) {
	if e.round != nil {
		if outcome == v1alpha1.OutcomeRejected {
			outcome = v1alpha1.OutcomeUnclear
		}
		e.server.flows.End(e.round)
	}
	e.span.Decided(tracing.Decision{Outcome: string(outcome)})
	e.fate.settle(e.receipt(receipt.KindOutcome), outcome, answer)
}
