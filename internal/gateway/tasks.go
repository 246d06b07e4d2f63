// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/flow"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// tasksExtension is how a client says that it takes a task in place of an answer, in revisions where tasks are an
// extension.
const tasksExtension = "io.modelcontextprotocol/tasks"

// taskAt names a task: its id is one that the server at an endpoint gave, and the same id of another server is another
// task. What one server says is no word on the call of another, and nobody's answer to the one reaches the other.
func taskAt(endpoint, id string) string {
	if id == "" {
		return ""
	}
	return endpoint + " " + id
}

// task names the task that the message is about.
func (m *other) task() string { return taskAt(m.endpoint, m.message.TaskID()) }

// freeTasks remembers the task that the answer to a call without effects names, from the server at an endpoint: nobody
// watches over it.
func (c *call) freeTasks(endpoint string, next func([]byte) []byte) func([]byte) []byte {
	if !c.message.Call.Task && !bytes.Contains(c.message.Call.Meta, []byte(tasksExtension)) {
		return next
	}
	return func(message []byte) []byte {
		if answer, found, err := wire.ScanAnswer(message); err == nil && found && answer.Next != nil {
			c.server.flows.Free(taskAt(endpoint, answer.Next.Task.ID))
		}
		return next(message)
	}
}

// judge asks the policy in force about the message. What became of a call that was let through may be asked also where
// the server may be asked for nothing but its tools.
func (m *other) judge(snap *snapshot.Snapshot) policy.Decision {
	d := snap.Policy.Other(m.principal, m.server.Freshness())
	if d.Reason != policy.ReasonMethodDenied || !m.message.FollowsTask() {
		return d
	}
	if f, _ := m.server.flows.Task(m.task()); f != nil && f.Owner == m.owner() {
		d.Effect, d.Reason = policy.Allow, policy.ReasonMethodPassed
	}
	return d
}

// serveTask passes a request about tasks on. A task of a call with effects is its caller's alone, and what nobody who let
// that call through has seen does not reach it.
func (m *other) serveTask(w http.ResponseWriter, snap *snapshot.Snapshot) {
	f, known := m.server.flows.Task(m.task())
	if m.server.flows.Hides(m.task(), m.owner()) {
		m.refuseForeign(w, snap)
		return
	}
	headers := allHeaders
	if f != nil {
		headers = mcpHeaders
	}
	if m.message.HasInput() && (f != nil || !known) { // whatever the method: servers may read answers in others than tasks/update
		if refused := m.refuseInput(w, snap, f); refused {
			return
		}
	}
	silence := snap.Server.Spec.CallTimeout.Duration
	if m.message.Method == string(mcp.MethodTasksResult) { // it waits for the end of the task
		silence = max(silence, maxTask)
	}
	ctx, pulse, end := withPulse(m.request.Context(), silence)
	defer end()
	resp, _, err := m.send(ctx, m.server, outbound{request: m.request, caller: m.owner(), body: m.message.Raw, headers: headers, endpoint: m.endpoint, span: m.span})
	if err != nil {
		m.refuseUpstream(w, pulse.explain(err))
		return
	}
	relay{pulse: pulse, Gateway: m.Gateway, server: m.server, id: m.message.ID, transform: m.span.Watch(m.server.overhear(m.endpoint, m.owner(), m.aboutTasks)), span: m.span}.run(w, resp)
}

// refuseForeign answers as a server does that does not know the task.
func (m *other) refuseForeign(w http.ResponseWriter, snap *snapshot.Snapshot) {
	const code = "ForeignTask"
	r := m.receipt(snap, policy.Decision{Revision: snap.Policy.Revision})
	r.Verdict, r.Code, r.Reason = receipt.VerdictDeny, code, "the task is one of a call of somebody else"
	if _, err := m.Receipts.Append(r, receipt.Batched); err != nil {
		m.refuseUnrecorded(w)
		return
	}
	refusal := wire.Refusal{Status: http.StatusOK, Code: mcp.INVALID_PARAMS, Message: speaker + "no such task"}
	if m.message.ID == nil {
		refusal.Status = http.StatusForbidden
	}
	m.span.Decided(tracing.Decision{Verdict: policy.Deny.String(), Code: code, Call: r.CallID})
	m.span.Refused(refusal.Code)
	m.refuseMessage(w, m.server, code, refusal.For(m.message.ID))
}

// refuseInput refuses answers to what a task asks, unless they may pass; f is nil for a task that is not known. What may
// pass is on disk before it does.
func (m *other) refuseInput(w http.ResponseWriter, snap *snapshot.Snapshot, f *openCall) (refused bool) {
	d := policy.Decision{Reason: policy.ReasonMethodPassed, Revision: snap.Policy.Revision}
	n := &notice{code: codeNoFlow, text: "the gateway does not know whose call this task runs, so what you answer was not passed on. A gateway that was started again, or another one, does not know. Send the call anew."}
	observes := snap.Policy.Other(m.principal, policy.Fresh).Observed != nil
	if f != nil {
		d = snap.Policy.Decide(policy.Call{
			Tool: f.Of.line.Tool, Arguments: f.Of.arguments(), Principal: m.principal, Freshness: m.server.Freshness(),
		})
		observes = d.Observed != nil
		n = m.refusesAnswer(snap, f.Of, would(d))
	}
	r := m.receipt(snap, d)
	if f != nil {
		r = f.Of.line
		r.Kind, r.Method, r.PolicyRevision, r.GatedBy = receipt.KindDecision, m.message.Method, d.Revision, d.GatedBy
		if f.Of.over() {
			r.ActionHash = "" // nothing takes off again
		}
	}
	r.Verdict, r.Code, r.Reason = receipt.VerdictAllow, codeRound, "the caller answers what the task asks"
	switch {
	case n == nil:
	case observes:
		r.Observed = &receipt.Observed{Verdict: receipt.VerdictDeny, Code: n.code}
	default:
		r.Verdict, r.Code, r.Reason, refused = receipt.VerdictDeny, n.code, n.text, true
	}
	if _, err := m.Receipts.Append(r, receipt.Sync); err != nil {
		m.refuseUnrecorded(w)
		return true
	}
	if refused {
		m.answer(w, notice{code: n.code, rule: d.GatedBy, text: n.text})
	}
	return refused
}

// arguments are those of the call, as far as they are kept.
func (f *fate) arguments() *expr.Arguments {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		return expr.UnknownArguments()
	}
	return expr.NewArguments(f.kept)
}

// refusesAnswer says why the caller may not answer what the task of the call asks, nil where it may: all that a further
// round of the call would have to meet holds for an answer to its task.
func (m *other) refusesAnswer(snap *snapshot.Snapshot, f *fate, d policy.Decision) *notice {
	switch {
	case f.over() || f.closed(snap):
		return &notice{code: codeNoFlow, text: "the call that this task runs counts as ended, so what you answer was not passed on. Send the call anew; it is judged anew."}
	case f.line.EndpointDigest != snap.EndpointDigest || f.line.ToolDigest != toolDigest(snap, d):
		return &notice{code: codeNoFlow, text: "the server, or the tool, is not what it was when the call of this task was let through, so what you answer was not passed on. Send the call anew; it is judged anew."}
	case !f.mayAnswer(d) || d.Effect != policy.Allow && f.claimed == nil:
		return f.unseen()
	case f.claimed == nil || d.Effect == policy.Allow:
		return nil
	case approval.Stricter(demands(d, f.claimed.Spec.Preview), f.claimed.Spec):
		return &notice{code: "PolicyChanged", text: "the policy asks for more since the call of this task was let through" + by(d) + ", so what you answer was not passed on. Ask the people you work for how to go on."}
	}
	ctx, cancel := context.WithTimeout(m.request.Context(), apiTimeout)
	defer cancel()
	if tally, err := m.Votes(ctx, f.claimed); err != nil || !tally.Approved(max(f.claimed.Spec.RequiredApprovals, d.RequiredApprovals)) {
		return &notice{code: "VotesVoid", text: "the votes on the call of this task are not valid any more, or nobody can tell now whether they are, so what you answer was not passed on. Ask the people you work for how to go on."}
	}
	return nil
}

// demands is what a request for a call would ask of people now.
func demands(d policy.Decision, preview *v1alpha1.Preview) v1alpha1.ApprovalRequestSpec {
	spec := v1alpha1.ApprovalRequestSpec{Tier: d.Tier, RequiredApprovals: d.RequiredApprovals, ApproveVerbs: d.Verbs, Preview: preview}
	if len(spec.ApproveVerbs) == 0 {
		spec.ApproveVerbs = []string{d.Tier.ApproveVerb()}
	}
	return spec
}

// aboutTasks learns what an answer about tasks says of the call that a task runs, and leaves out of a list what is other
// callers'.
func (m *other) aboutTasks(message []byte) []byte {
	m.learn(message)
	if m.message.Method != string(mcp.MethodTasksList) {
		return sanitize(m.message.ID)(message)
	}
	filtered, err := wire.FilterTasks(message, func(id string) bool { return !m.server.flows.Hides(taskAt(m.endpoint, id), m.owner()) })
	if err != nil {
		return withheld("list of tasks", m.message.ID)
	}
	return filtered
}

// learn settles the outcome of a call by what the answer says of its task, and has it on record before the caller learns
// it if that is quick.
func (m *other) learn(message []byte) {
	id := m.message.TaskID()
	var f *openCall
	ending := flow.Open
	if m.message.Method == string(mcp.MethodTasksResult) {
		if answer, found, err := wire.ScanAnswer(message); err == nil && found && wire.SameID(answer.ID, m.message.ID) {
			f, ending = m.server.flows.HearResult(m.task(), answer)
		}
	} else if state, of, found := wire.ScanTaskState(message); found && of != nil && wire.SameID(of, m.message.ID) && state.ID == id {
		state.ID = m.task()
		f, ending = m.server.flows.Hear(state, m.Clock.Now())
	}
	if f == nil {
		return
	}
	m.server.conclude(f, ending, message)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.request.Context()), promptly)
	defer cancel()
	f.Of.store(ctx)
}

// overhear learns what the server at an endpoint tells a caller of tasks by itself, and keeps from it what is other
// callers'. What it does not keep goes to next.
func (s *Server) overhear(endpoint string, caller snapshot.Caller, next func([]byte) []byte) func([]byte) []byte {
	return func(message []byte) []byte {
		// A name may be written with escapes: some servers write every slash so.
		if !bytes.Contains(message, []byte(wire.MethodNotificationTasks)) && bytes.IndexByte(message, '\\') < 0 {
			return next(message)
		}
		state, id, found := wire.ScanTaskState(message)
		state.ID = taskAt(endpoint, state.ID)
		switch {
		case !found || id != nil:
		case s.flows.Hides(state.ID, caller):
			return nil
		default:
			if f, ending := s.flows.Hear(state, s.Clock.Now()); f != nil {
				s.conclude(f, ending, message)
			}
		}
		return next(message)
	}
}

// conclude settles the outcome of a call that went on after its answer, and sees to it that it is recorded.
func (s *Server) conclude(f *openCall, ending flow.Ending, message []byte) {
	outcome := v1alpha1.OutcomeUnclear
	switch ending {
	case flow.Succeeded:
		outcome = v1alpha1.OutcomeSucceeded
	case flow.ToolError:
		outcome = v1alpha1.OutcomeToolError
	case flow.Open, flow.Unclear:
	}
	f.Of.settle(f.Of.line, outcome, message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.late, f.Of) {
		s.late = append(s.late, f.Of)
	}
}
