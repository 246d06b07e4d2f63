// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// call is one tools/call on its way through the gateway.
type call struct {
	*Gateway
	requester v1alpha1.Requester // whose call it is
	server    *Server
	message   wire.Message
	request   *http.Request
	reply     *reply
	id        string
	started   time.Time
	meant     meaning // the last that was worked out
}

// judged is a call with the verdict on it and the snapshot that gave it.
type judged struct {
	snap     *snapshot.Snapshot
	decision policy.Decision
}

// judge asks the policy in force about the call; without one there is no verdict.
func (c *call) judge() (judged, bool) {
	snap := c.server.Snapshot()
	if snap == nil {
		return judged{}, false
	}
	return judged{snap, snap.Policy.Decide(policy.Call{Tool: c.message.Call.Name, Freshness: c.server.Freshness(c.Clock.Now(), c.MaxStaleness)})}, true
}

// serve judges the call and lets it through, holds it or refuses it.
func (c *call) serve() {
	j, ok := c.judge()
	if !ok {
		c.refuseNotReady()
		return
	}
	if j.decision.Effect == policy.Deny {
		c.withdraw(c.request.Context(), j, nil)
		c.refuse(j, nil, denial(j.decision))
		return
	}
	reads := j.decision.Effect == policy.Allow && j.decision.Tier == v1alpha1.TierRead
	if reads && !hasParamHeaders(c.request.Header) {
		c.passRead(c.request.Context(), j)
		return
	}
	definition, err := c.server.define(c.request.Context(), c.message.Call.Name, c.Clock.Now())
	if err != nil {
		c.refuse(j, nil, undefined())
		return
	}
	if refusal := wire.CheckParamHeaders(c.request.Header, c.message, definition.InputSchema); refusal != nil {
		c.refuseMalformed(j, codeHeaders, refusal)
		return
	}
	if reads {
		c.passRead(c.request.Context(), j)
		return
	}
	if m := c.message.Call; m.Task || m.InputResponses || m.RequestState {
		c.refuseFlow(j)
		return
	}
	c.gate()
}

func hasParamHeaders(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Mcp-Param-") {
			return true
		}
	}
	return false
}

// passRead lets a Read call through.
func (c *call) passRead(ctx context.Context, j judged) {
	if _, err := c.Receipts.Append(c.receipt(j, receipt.KindDecision), receipt.Batched); err != nil {
		c.refuseUnrecorded(j)
		return
	}
	c.Metrics.decided(c.server.Key, j.decision.Effect, string(j.decision.Reason))
	ctx, cancel := context.WithTimeout(ctx, j.snap.Server.Spec.CallTimeout.Duration)
	defer cancel()
	resp, _, err := c.server.send(ctx, outbound{request: c.request, caller: snapshot.CallerOf(c.requester), body: c.message.Raw, headers: allHeaders, endpoint: j.snap.EndpointDigest})
	if err != nil {
		c.reply.refuse(upstreamRefusal(err))
		return
	}
	relay{transform: sanitize(c.message.ID), id: c.message.ID}.run(c.reply.w, resp)
}

// maxGatedBy is what the API takes; a policy with a very long name must not keep people from being asked.
const maxGatedBy = 256

// describe says what the call would do, as a person will be asked about it.
func (c *call) describe(j judged, definition tool.Descriptor) (v1alpha1.ApprovalRequestSpec, error) {
	digest, d := toolDigest(j.snap, j.decision), j.decision
	meant, err := c.mean(meaningOf{string(j.snap.Server.UID), j.snap.EndpointDigest, digest, definition.Digest()}, definition.InputSchema)
	if err != nil {
		return v1alpha1.ApprovalRequestSpec{}, err
	}
	shown := meant.shown
	spec := v1alpha1.ApprovalRequestSpec{
		ServerRef: serverRef(j.snap), EndpointDigest: j.snap.EndpointDigest, Tool: d.Tool.Name, ToolDigest: digest,
		Arguments: shown.Text, ArgumentsSize: int64(shown.Size), ActionHash: meant.hash, BlastRadius: meant.radius,
		Requester: c.requester, Tier: d.Tier, GatedBy: d.GatedBy,
		RequiredApprovals: max(d.RequiredApprovals, 1), ApproveVerbs: d.Verbs, PolicyRevision: d.Revision,
		TTLSeconds: int32(j.snap.Server.Spec.Approvals.TTL.Seconds()),
	}
	if len(spec.ApproveVerbs) == 0 {
		spec.ApproveVerbs = []string{d.Tier.ApproveVerb()}
	}
	if len(spec.GatedBy) > maxGatedBy {
		spec.GatedBy = spec.GatedBy[:maxGatedBy]
	}
	if !shown.Fits {
		spec.ApproveVerbs = []string{v1alpha1.VerbApproveIrreversible}
	}
	return spec, nil
}

// meaning is what the arguments of a call come to; it costs time that grows with them.
type meaning struct {
	of     meaningOf
	hash   string
	shown  action.Masked
	radius v1alpha1.BlastRadius
}

// meaningOf is what a meaning depends on besides the call itself.
type meaningOf struct{ serverUID, endpointDigest, toolDigest, definition string }

// mean works out the meaning of the call, once as long as nothing that it depends on changes: a held call is judged anew
// whenever anything happens, and its arguments stay.
func (c *call) mean(of meaningOf, inputSchema []byte) (meaning, error) {
	if c.meant.of == of && of != (meaningOf{}) {
		return c.meant, nil
	}
	hash, err := action.Hash(action.Input{
		ServerUID: of.serverUID, EndpointDigest: of.endpointDigest, Tool: c.message.Call.Name, ToolDigest: of.toolDigest,
		Params: c.message.Params, Requester: c.requester.Username, ActsFor: c.requester.ActsFor,
	})
	if err != nil {
		return meaning{}, fmt.Errorf("hash the action: %w", err)
	}
	shown, err := action.Mask(c.message.Call.Arguments)
	if err != nil {
		return meaning{}, fmt.Errorf("show the arguments: %w", err)
	}
	c.meant = meaning{of: of, hash: hash, shown: shown, radius: action.Radius(c.message.Call.Arguments, inputSchema)}
	return c.meant, nil
}

// receipt returns the record of the verdict, or of the outcome, of the call.
func (c *call) receipt(j judged, kind receipt.Kind) receipt.Receipt {
	d := j.decision
	r := receipt.Receipt{
		Kind: kind, CallID: c.id, Namespace: c.server.Key.Namespace, Server: c.server.Key.Name,
		Tool: c.message.Call.Name, Tier: string(d.Tier), Verdict: receipt.Verdict(d.Effect.String()),
		Code: string(d.Reason), Reason: d.Why, GatedBy: d.GatedBy, Requester: c.requester.Username, ActsFor: c.requester.ActsFor,
		ArgumentsSize: int64(len(c.message.Call.Arguments)), PolicyRevision: d.Revision,
	}
	if j.snap != nil {
		r.ServerUID, r.EndpointDigest, r.ToolDigest = string(j.snap.Server.UID), j.snap.EndpointDigest, toolDigest(j.snap, d)
	}
	return r
}

// refuse answers the call in place of the server, and records it. request may be nil.
func (c *call) refuse(j judged, request *v1alpha1.ApprovalRequest, n notice) {
	r := c.receipt(j, receipt.KindDecision)
	r.Verdict, r.Code, r.Reason = receipt.VerdictDeny, n.code, n.text
	if request != nil {
		n.request, n.namespace, n.expiry = request.Name, request.Namespace, request.ExpiresAt().UTC().Format(time.RFC3339)
		r.Request, r.RequestUID, r.ActionHash = request.Name, string(request.UID), request.Spec.ActionHash
		r.BlastRadius = string(request.Spec.BlastRadius.Scope)
		if n.code == codePending {
			r.Verdict = receipt.VerdictRequireApproval
		}
	}
	n.tier, n.rule = string(j.decision.Tier), j.decision.GatedBy
	if _, err := c.Receipts.Append(r, receipt.Batched); err != nil {
		c.refuseUnrecorded(j)
		return
	}
	effect := policy.Deny
	if r.Verdict == receipt.VerdictRequireApproval {
		effect = policy.RequireApproval
	}
	c.Metrics.decided(c.server.Key, effect, n.code)
	c.reply.notice(n)
}

// refuseMalformed refuses a call by a protocol error, and records that.
func (c *call) refuseMalformed(j judged, code string, refusal *wire.Refusal) {
	c.Metrics.refused(c.server.Key, codeMalformed)
	r := c.receipt(j, receipt.KindDecision)
	r.Verdict, r.Code, r.Reason = receipt.VerdictDeny, code, refusal.Message
	if _, err := c.Receipts.Append(r, receipt.Batched); err != nil {
		c.refuseUnrecorded(j)
		return
	}
	c.reply.refuse(refusal)
}

// refuseFlow refuses a call that would not end with its answer. A client that asked for a task reads no result of a
// call: it gets an error.
func (c *call) refuseFlow(j judged) {
	n := notice{code: codeFlow,
		text: "tasks and calls in several rounds are not governed yet, so they are refused on a tool that is not Read. Call the tool in one round, without task, inputResponses and requestState."}
	if !c.message.Call.Task {
		c.refuse(j, nil, n)
		return
	}
	c.refuseMalformed(j, n.code, &wire.Refusal{Status: http.StatusOK, Code: mcp.INVALID_REQUEST, Message: "Tidewaiter gateway: " + n.text})
}

// refuseNotReady refuses a call that there is nothing to judge by.
func (c *call) refuseNotReady() {
	r := c.receipt(judged{}, receipt.KindDecision)
	r.Verdict, r.Code = receipt.VerdictDeny, "NotReady"
	if _, err := c.Receipts.Append(r, receipt.Batched); err != nil {
		c.refuseUnrecorded(judged{})
		return
	}
	c.Metrics.decided(c.server.Key, policy.Deny, r.Code)
	writeNotReady(c.reply.w, c.message.ID)
}

// refuseUnrecorded answers when not even the refusal can be recorded.
func (c *call) refuseUnrecorded(j judged) {
	c.Metrics.decided(c.server.Key, policy.Deny, "ReceiptNotWritten")
	c.reply.notice(notice{code: "ReceiptNotWritten", tier: string(j.decision.Tier), retryAfter: 30,
		text: "the gateway cannot write its record, so it lets nothing through. Send the call again later."})
}

// undefined words that the server does not say what the tool is.
func undefined() notice {
	return notice{code: "DefinitionUnavailable", retryAfter: 10,
		text: "the server cannot say right now what this tool is, so nobody can be asked about it. Nothing was executed. Send the call again later."}
}

// denial words a verdict of Deny.
func denial(d policy.Decision) notice {
	if d.Reason == policy.ReasonPolicyStale {
		return notice{code: string(d.Reason), retryAfter: 30,
			text: "the gateway has lost touch with the Kubernetes API and may not act on what it knew. Send the call again later."}
	}
	return notice{code: string(d.Reason), text: "this tool cannot be called here: it is not among the tools that were discovered and classified. List the tools again; a new one may be there in some minutes."}
}

// reservedWord begins the keys that only the gateway may write.
const reservedWord = "tidewaiter"

// sanitize takes what only the gateway may say out of a server's answer to a call. An answer that nobody can read
// beyond doubt is passed on only if it cannot hold anything of the kind.
func sanitize(id []byte) func([]byte) []byte {
	return func(message []byte) []byte {
		clean, err := wire.DropReserved(message)
		switch {
		case err == nil:
			return clean
		case !mightSay(message, reservedWord):
			return message
		case id == nil:
			return nil
		}
		refusal := wire.Refusal{Status: http.StatusOK, Code: mcp.INTERNAL_ERROR, Message: "Tidewaiter gateway: the server's answer cannot be read beyond doubt and is withheld"}
		return refusal.For(id).Body()
	}
}

// mightSay tells whether some parser could find a word of ASCII letters in a message that no strict one can read: in its
// bytes, whatever their case, or spelt with escapes, or in an encoding of several bytes to the letter.
func mightSay(message []byte, word string) bool {
	return bytes.Contains(bytes.ToUpper(message), bytes.ToUpper([]byte(word))) || bytes.IndexByte(message, 0) >= 0 || letterEscape.Match(message)
}

// letterEscape matches JSON escapes of ASCII letters, and of what stands between them in reserved keys.
var letterEscape = regexp.MustCompile(`\\u00(?:[46][1-9A-Fa-f]|[57][0-9Aa]|2[DEFdef])`)

// detached returns a context that lives as long as the call may, also when the agent has gone: what was sent has to be
// followed to its end.
func (c *call) detached(timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.request.Context()), timeout)
}
