// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// promptly is how long an agent waits for its answer so that the outcome is on record first.
	promptly = 2 * time.Second
	// outcomePatience is how long a gateway tries to record an outcome that the API does not take.
	outcomePatience = 10 * time.Minute
	// outcomeRetry is the time between two such tries.
	outcomeRetry = time.Second
)

// execution is a call with effects that leaves.
type execution struct {
	*gated
	claimed *v1alpha1.ApprovalRequest // nil for a call without a request
	sentAt  time.Time
	result  *approval.Result // nil until the outcome is known
	stored  bool
}

// execute sends a call with effects and records what became of it: the verdict is on disk before the first byte
// leaves, and what left is followed to its end even when the agent has gone.
func (g *gated) execute(claimed *v1alpha1.ApprovalRequest) {
	e := &execution{gated: g, claimed: claimed, sentAt: g.Clock.Now()}
	if _, err := g.Receipts.Append(e.receipt(receipt.KindDecision), receipt.Sync); err != nil {
		e.settle(v1alpha1.OutcomeNotSent, nil)
		e.record()
		g.refuseUnrecorded(g.judged)
		return
	}
	g.Metrics.decided(g.server.Key, policy.Allow, string(g.decision.Reason))
	if g.request.Context().Err() != nil {
		e.settle(v1alpha1.OutcomeNotSent, nil)
		e.record()
		return
	}
	ctx, cancel := g.detached(g.snap.Server.Spec.CallTimeout.Duration)
	defer cancel()
	resp, sent, err := g.server.send(ctx, outbound{request: g.request, body: g.message.Raw, headers: mcpHeaders, effect: true})
	if err != nil {
		e.failed(sent, err)
		return
	}
	e.relay(resp)
}

// failed answers for a call that got no answer.
func (e *execution) failed(sent bool, err error) {
	if sent {
		e.settle(v1alpha1.OutcomeUnclear, nil)
		e.record()
		e.reply.notice(e.about(notice{code: codeAmbiguous, text: "the call was sent and nothing tells whether it took effect. The same call is refused until a person has found out. Do not try another way."}))
		return
	}
	e.settle(v1alpha1.OutcomeNotSent, nil)
	e.record()
	e.reply.refuse(upstreamRefusal(err))
}

// about adds the request to a notice.
func (e *execution) about(n notice) notice {
	n.tier, n.rule = string(e.decision.Tier), e.decision.GatedBy
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
	}
	if e.result != nil {
		r.Outcome, r.ResultDigest, r.Duration = string(e.result.Outcome), e.result.Digest, e.result.At.Sub(e.sentAt)
	}
	return r
}

// relay passes the answer on, and learns the outcome from it before the agent does.
func (e *execution) relay(resp *http.Response) {
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	switch kind := contentType(resp.Header); {
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		e.relayEvents(resp)
	default:
		e.relayWhole(resp)
	}
	if e.result == nil {
		e.settle(v1alpha1.OutcomeUnclear, nil)
	}
	e.record()
}

// relayEvents passes an event stream on. When the agent has gone, it still reads to the answer.
func (e *execution) relayEvents(resp *http.Response) {
	sink := e.reply.raw
	if !e.reply.committed {
		copyHeader(e.reply.w.Header(), resp.Header)
		e.reply.w.WriteHeader(resp.StatusCode)
		e.reply.committed = true
	}
	clean := sanitize(e.message.ID)
	pumpEvents(resp.Body, func(event []byte) bool { sink(event); return true }, func(message []byte) []byte {
		if answer, found, err := wire.ScanAnswer(message); err == nil && found && slices.Equal(answer.ID, e.message.ID) {
			e.settle(outcomeOf(answer), message)
			e.recordPromptly()
		}
		return clean(message)
	})
}

// relayWhole passes any other answer on.
func (e *execution) relayWhole(resp *http.Response) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(body) > maxAnswer {
		e.settle(v1alpha1.OutcomeUnclear, nil)
		e.recordPromptly()
		e.reply.notice(e.about(notice{code: codeAmbiguous, text: "the server's answer broke off or is too large, so nothing tells whether the call took effect. The same call is refused until a person has found out."}))
		return
	}
	e.settle(outcomeOfResponse(resp, body, e.message.ID), body)
	e.recordPromptly()
	if contentType(resp.Header) == "application/json" {
		body = sanitize(e.message.ID)(body)
	}
	if e.reply.committed {
		if resp.StatusCode != http.StatusOK {
			e.reply.refuse(upstreamRefusal(errors.New(resp.Status)))
			return
		}
		e.reply.event(body)
		return
	}
	copyHeader(e.reply.w.Header(), resp.Header)
	e.reply.w.Header().Del("Content-Length")
	e.reply.w.WriteHeader(resp.StatusCode)
	e.reply.w.Write(body) //nolint:errcheck // the agent has gone; the outcome is on record
}

// settle notes the outcome; the first one holds.
func (e *execution) settle(outcome v1alpha1.ExecutionOutcome, answer []byte) {
	if e.result != nil {
		return
	}
	e.result = &approval.Result{Outcome: outcome, At: e.Clock.Now()}
	if answer != nil {
		sum := sha256.Sum256(answer)
		e.result.Digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	e.Metrics.executed(e.server.Key, outcome)
	// The decision is on disk already; when this line cannot be written the call shows as sent, its outcome unknown.
	if _, err := e.Receipts.Append(e.receipt(receipt.KindOutcome), receipt.Batched); err != nil {
		e.Metrics.apiFailed(e.server.Key, "receipt")
	}
}

// recordPromptly records the outcome on the request before the agent learns it, if that is quick.
func (e *execution) recordPromptly() {
	ctx, cancel := e.detached(promptly)
	defer cancel()
	e.store(ctx)
}

// store makes one try to record the outcome and tells whether there is nothing left to do.
func (e *execution) store(ctx context.Context) bool {
	if e.stored || e.claimed == nil {
		return true
	}
	err := e.Approvals.Finish(ctx, e.claimed, *e.result)
	e.stored = err == nil || errors.Is(err, approval.ErrTaken) || errors.Is(err, approval.ErrGone)
	if !e.stored {
		e.Metrics.apiFailed(e.server.Key, "outcome")
	}
	return e.stored
}

// record records the outcome on the request, however long the API takes. If it never does, the manager calls the
// request Ambiguous after its deadline, and the receipt has the truth.
func (e *execution) record() {
	ctx, cancel := e.detached(outcomePatience)
	defer cancel()
	for !e.store(ctx) {
		timer := e.Clock.NewTimer(outcomeRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// refusedBeforeDispatch are the JSON-RPC errors by which a server says that it did not start a call.
var refusedBeforeDispatch = []int{
	mcp.PARSE_ERROR, mcp.INVALID_REQUEST, mcp.METHOD_NOT_FOUND, mcp.HEADER_MISMATCH,
	mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION,
}

// outcomeOf reads the fate of a call from its answer. What is not plainly a success or plainly a refusal is unclear.
func outcomeOf(a wire.Answer) v1alpha1.ExecutionOutcome {
	switch {
	case a.Error && (a.UnknownTool || slices.Contains(refusedBeforeDispatch, a.Code)):
		return v1alpha1.OutcomeRejected
	case a.Error || !a.Complete:
		return v1alpha1.OutcomeUnclear
	case a.IsError:
		return v1alpha1.OutcomeToolError
	default:
		return v1alpha1.OutcomeSucceeded
	}
}

// outcomeOfResponse reads the fate of a call from a whole HTTP answer.
func outcomeOfResponse(resp *http.Response, body, id []byte) v1alpha1.ExecutionOutcome {
	answer, found, err := wire.ScanAnswer(body)
	if err == nil && found && (slices.Equal(answer.ID, id) || resp.StatusCode != http.StatusOK && string(answer.ID) == "null") {
		outcome := outcomeOf(answer)
		if outcome == v1alpha1.OutcomeRejected || resp.StatusCode == http.StatusOK {
			return outcome
		}
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized,
		resp.StatusCode == http.StatusForbidden && resp.Header.Get("WWW-Authenticate") != "",
		resp.StatusCode == http.StatusNotFound && resp.Request != nil && resp.Request.Header.Get("Mcp-Session-Id") != "":
		return v1alpha1.OutcomeRejected
	default:
		return v1alpha1.OutcomeUnclear
	}
}
