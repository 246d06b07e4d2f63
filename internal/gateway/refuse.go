// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// receipt returns the record of the verdict, or of the outcome, of the call.
func (c *call) receipt(j judged, kind receipt.Kind) receipt.Receipt {
	d := j.decision
	r := receipt.Receipt{
		Kind: kind, CallID: c.id, Namespace: c.server.Key.Namespace, Server: c.server.Key.Name,
		Tool: c.message.Call.Name, Tier: string(d.Tier), Verdict: receipt.Verdict(d.Effect.String()),
		Code: string(d.Reason), Reason: d.Why, GatedBy: d.GatedBy, Requester: c.requester.Username, ActsFor: c.requester.ActsFor,
		ArgumentsSize: int64(len(c.message.Call.Arguments)), PolicyRevision: d.Revision,
		Rule: ruleOf(d), Controls: d.Controls, Uncertain: uncertainty(d), Groups: c.principal.Groups, Observed: c.observation(d),
	}
	if j.snap != nil {
		r.ServerUID, r.EndpointDigest, r.ToolDigest = string(j.snap.Server.UID), j.snap.EndpointDigest, toolDigest(j.snap, d)
	}
	return r
}

// note keeps a receipt of the call, and has its span say the same.
func (c *call) note(r receipt.Receipt, durability receipt.Durability) error {
	c.span.Decided(tracing.Decision{Verdict: string(r.Verdict), Code: r.Code, Tier: r.Tier, Rule: r.GatedBy, Call: r.CallID, Request: r.Request, Outcome: r.Outcome})
	_, err := c.Receipts.Append(r, durability)
	return err
}

// refuse answers the call in place of the server, and records it. request may be nil.
func (c *call) refuse(j judged, request *v1alpha1.ApprovalRequest, n notice) {
	r := c.receipt(j, receipt.KindDecision)
	r.Verdict, r.Code, r.Reason, r.Steps = receipt.VerdictDeny, n.code, n.text, c.steps(j)
	if n.recorded != "" {
		r.Code = n.recorded
	}
	if request != nil {
		n.request, n.namespace, n.expiry = request.Name, request.Namespace, request.ExpiresAt().UTC().Format(time.RFC3339)
		r.Request, r.RequestUID, r.ActionHash = request.Name, string(request.UID), request.Spec.ActionHash
		r.BlastRadius = string(request.Spec.BlastRadius.Scope)
		if n.code == codePending {
			r.Verdict = receipt.VerdictRequireApproval
		}
	}
	if n.recorded == "" {
		n.tier, n.rule = string(j.decision.Tier), j.decision.GatedBy
	}
	if err := c.note(r, receipt.Batched); err != nil {
		c.refuseUnrecorded(j)
		return
	}
	effect := policy.Deny
	if r.Verdict == receipt.VerdictRequireApproval {
		effect = policy.RequireApproval
	}
	c.Metrics.decided(c.server.Key, effect, r.Code)
	c.reply.notice(n)
}

// steps are how the verdict is come to.
func (c *call) steps(j judged) []receipt.Step {
	if j.snap == nil {
		return nil
	}
	var steps []receipt.Step
	for _, step := range j.snap.Policy.Explain(c.question()) {
		steps = append(steps, receipt.Step(step))
	}
	return steps
}

// ruleOf returns what decided if that is a rule of a policy.
func ruleOf(d policy.Decision) string {
	if strings.Contains(d.GatedBy, " rule ") {
		return d.GatedBy
	}
	return ""
}

// deny refuses a call that the policy denies, and ends what was asked about it; known is a request that the call waits
// for, or nil.
func (c *call) deny(j judged, known *v1alpha1.ApprovalRequest) {
	ended := c.withdraw(c.request.Context(), j, known)
	n := denial(j.decision)
	switch {
	case len(ended) > 0:
		known = ended[0]
		n.text += fmt.Sprintf(" Request %s, which asked a person about this call, counts no more, since the policy has changed.", known.Name)
	case j.decision.Reason == policy.ReasonToolUnknown:
		if d := j.snap.Policy.Other(c.principal, policy.Fresh); d.Reason == policy.ReasonCallerNotAllowed {
			j.decision = d // no tool of the server is theirs to call, so it does not matter whether there is this one
			n = denial(d)
		}
	case c.hidden(j):
		n = absent()
		n.recorded = string(j.decision.Reason)
	}
	c.refuse(j, known, n)
}

// hidden tells whether the caller is not to learn that there is such a tool: rules deny all its calls of it, and have
// nothing to say to it. What holds for the whole server, or until people accept a definition, is no secret.
func (c *call) hidden(j judged) bool {
	if r := j.decision.Reason; r != policy.ReasonRuleDenied && r != policy.ReasonRuleUncertain {
		return false
	}
	_, loosest := j.snap.Policy.Range(c.message.Call.Name, c.principal)
	return loosest == policy.Deny && j.decision.Message == ""
}

// refuseMalformed refuses a call by a protocol error, and records that.
func (c *call) refuseMalformed(j judged, code string, refusal *wire.Refusal) {
	c.Metrics.refused(c.server.Key, codeMalformed)
	r := c.receipt(j, receipt.KindDecision)
	r.Verdict, r.Code, r.Reason = receipt.VerdictDeny, code, refusal.Message
	if err := c.note(r, receipt.Batched); err != nil {
		c.refuseUnrecorded(j)
		return
	}
	c.reply.refuse(refusal)
}

// refuseNotReady refuses a call that there is nothing to judge by.
func (c *call) refuseNotReady() {
	r := c.receipt(judged{}, receipt.KindDecision)
	r.Verdict, r.Code = receipt.VerdictDeny, "NotReady"
	if err := c.note(r, receipt.Batched); err != nil {
		c.refuseUnrecorded(judged{})
		return
	}
	c.Metrics.decided(c.server.Key, policy.Deny, r.Code)
	if c.legacy != nil {
		c.reply.refuse(notReady())
		return
	}
	c.span.Refused(mcp.INTERNAL_ERROR)
	writeNotReady(c.reply.w, c.message.ID)
}

// refuseUnrecorded answers when not even the refusal can be recorded.
func (c *call) refuseUnrecorded(j judged) {
	c.Metrics.decided(c.server.Key, policy.Deny, codeUnrecorded)
	c.reply.notice(notice{code: codeUnrecorded, tier: string(j.decision.Tier), retryAfter: 30, text: unrecorded})
}
