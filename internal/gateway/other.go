// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// other is a message of an agent that is no call of a tool.
type other struct {
	arrival
	// endpoint is the digest of the one that the message goes to.
	endpoint string
}

// codeByPolicy is the code of the JSON-RPC error by which the gateway refuses what is well-formed and no call of a tool.
const codeByPolicy = -32010

// serve lets the message through, or refuses it.
func (m *other) serve(w http.ResponseWriter) {
	snap := m.server.Snapshot()
	if snap == nil {
		m.span.Refused(mcp.INTERNAL_ERROR)
		writeNotReady(w, m.message.ID)
		return
	}
	if m.cancels() {
		w.WriteHeader(http.StatusAccepted) // the server never heard of the call
		return
	}
	m.endpoint = m.server.dials()
	if m.message.Passes() {
		m.relay(w, snap)
		return
	}
	d := m.judge(snap)
	if d.Effect != policy.Allow {
		m.refuse(w, snap, d)
		return
	}
	if d.Observed != nil && d.Observed.Effect != policy.Allow {
		r := m.receipt(snap, d)
		r.Observed = asObserved(*d.Observed)
		if _, err := m.Receipts.Append(r, receipt.Batched); err != nil {
			m.refuseUnrecorded(w)
			return
		}
	}
	if m.message.AboutTasks() && m.legacy == nil { // over HTTP+SSE no task is governed
		m.serveTask(w, snap)
		return
	}
	m.relay(w, snap)
}

// receipt returns the record of a verdict on the message.
func (m *other) receipt(snap *snapshot.Snapshot, d policy.Decision) receipt.Receipt {
	return receipt.Receipt{
		Kind: receipt.KindDecision, CallID: m.NewID(), Namespace: m.server.Key.Namespace, Server: m.server.Key.Name,
		ServerUID: string(snap.Server.UID), EndpointDigest: snap.EndpointDigest, Method: m.message.Method,
		Verdict: receipt.Verdict(d.Effect.String()), Code: string(d.Reason), Reason: d.Why, GatedBy: d.GatedBy, Rule: ruleOf(d),
		Requester: m.requester.Username, ActsFor: m.requester.ActsFor, Groups: m.principal.Groups, PolicyRevision: d.Revision,
	}
}

// refuse answers with an error of JSON-RPC: a client that does not call a tool reads no result of one.
func (m *other) refuse(w http.ResponseWriter, snap *snapshot.Snapshot, d policy.Decision) {
	text := "the gateway may not act on what it knew, since it has lost touch with the Kubernetes API. Send the message again later."
	switch d.Reason {
	case policy.ReasonPolicyStale:
	case policy.ReasonServerStopped:
		text = "the server is stopped" + by(d) + ", so this message was not passed on. Ask the people you work for how to go on, or send it again later."
	case policy.ReasonCallerNotAllowed:
		text = "you are not among those who may use this server" + by(d) + ", so this message was not passed on. Ask the people you work for."
	default:
		text = "the server may be asked for nothing but its tools" + by(d) + ", so this message was not passed on. Do not send it again."
	}
	r := m.receipt(snap, d)
	r.Verdict, r.Reason = receipt.VerdictDeny, text
	if _, err := m.Receipts.Append(r, receipt.Batched); err != nil {
		m.refuseUnrecorded(w)
		return
	}
	m.span.Decided(tracing.Decision{Call: r.CallID})
	m.answer(w, notice{code: string(d.Reason), rule: d.GatedBy, text: text})
}

func (m *other) refuseUnrecorded(w http.ResponseWriter) {
	m.answer(w, notice{code: codeUnrecorded, text: unrecorded})
}

// answer refuses the message. What has no id gets no answer in MCP, so it is an error of HTTP.
func (m *other) answer(w http.ResponseWriter, n notice) {
	m.span.Decided(tracing.Decision{Verdict: policy.Deny.String(), Code: n.code, Rule: n.rule})
	m.span.Refused(codeByPolicy)
	refusal := n.refusal()
	switch {
	case m.message.ID == nil:
		refusal.Status = http.StatusForbidden
	case m.legacy != nil:
		m.Metrics.refused(m.server.Key, n.code)
		m.legacy.say(w, refusal.For(m.message.ID).Body())
		return
	}
	m.refuseMessage(w, m.server, n.code, refusal.For(m.message.ID))
}

// relay passes the message, and filters the answer when it is a list of tools. A server that sends nothing for as long
// as a call may take is given up.
func (m *other) relay(w http.ResponseWriter, snap *snapshot.Snapshot) {
	if m.legacy != nil {
		m.legacy.relay(w, m, snap.Server.Spec.CallTimeout.Duration)
		return
	}
	server, message := m.server, m.message
	out := outbound{request: m.request, caller: m.owner(), body: message.Raw, headers: allHeaders, endpoint: m.endpoint, span: m.span}
	ctx, silence := m.request.Context(), snap.Server.Spec.CallTimeout.Duration
	listens := placeOf(message) == listening
	if listens { // the stream of revisions without GET
		var cancel context.CancelFunc
		ctx, cancel = m.untilStopping(ctx)
		defer cancel()
		defer server.listens(m.endpoint, cancel)()
		silence = m.Limits.StreamIdle
	}
	ctx, pulse, end := withPulse(ctx, silence)
	defer end()
	resp, _, err := m.send(ctx, server, out)
	if err != nil {
		m.refuseUpstream(w, pulse.explain(err))
		return
	}
	answer := relay{Gateway: m.Gateway, server: server, id: message.ID, span: m.span, pulse: pulse, listened: listens}
	if listens {
		answer.transform = server.overhear(m.endpoint, m.owner(), func(message []byte) []byte { return message })
		if message.WantsListChanged() {
			answer.audience = &audience{principal: m.principal, subscription: message.ID}
		}
	}
	if known, _ := wire.Lookup(message.Method); known.Governed {
		answer.transform = m.span.Watch(m.listFilter(server, m.endpoint, m.caller, message.ID))
	}
	answer.run(w, resp)
}

// refuseUpstream answers for a server that cannot be reached.
func (m *other) refuseUpstream(w http.ResponseWriter, err error) {
	m.span.Refused(mcp.INTERNAL_ERROR)
	writeUpstreamError(w, m.message.ID, err)
}
