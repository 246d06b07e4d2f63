// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/flow"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// openCall is a call with effects that did not end with its answer, and what becomes of it.
type openCall = flow.Flow[*fate]

// goesOn tells that the message is a further round of a call, by what only such a message has.
func (c *call) goesOn() bool { return c.message.Call.InputResponses || c.message.Call.RequestState }

// nextRound lets a message go on with the call that waits for it. It needs no approval of its own: it is part of the one
// that the call left on, and of no other. Each round is sent once.
func (g *gated) nextRound() {
	var f *openCall
	why := flow.Unknown
	asked := g.message.Round()
	if g.want.ActionHash != "" {
		f, why = g.server.flows.Take(flow.Call{Owner: g.owner(), Action: g.want.ActionHash}, asked, g.Clock.Now())
	}
	e := &execution{gated: g, round: f}
	if f != nil {
		e.fate = f.Of
	}
	if n := refusedRound(f, why, asked, would(g.decision)); n != nil && !g.observed() {
		e.giveUp(*n)
		return
	} else if n != nil {
		g.wouldRefuse = n.code
	}
	if wait := g.reaches(g.request.Context(), g.server); wait > 0 {
		e.giveUp(resting(wait))
		return
	}
	if f == nil {
		g.execute(nil) // the server only observes
		return
	}
	// Who approved is known from here on. It is looked at again once the record is written, which takes time.
	if n := e.overtaken(); n != nil {
		e.giveUp(*n)
		return
	}
	if err := g.note(e.receipt(receipt.KindDecision), receipt.Sync); err != nil {
		g.server.flows.Release(f)
		g.refuseUnrecorded(g.judged)
		return
	}
	if n := e.overtaken(); n != nil {
		e.giveUp(*n)
		return
	}
	e.leave()
}

// would is the verdict that a call has, or would have if the server did not only observe.
func would(d policy.Decision) policy.Decision {
	if d.Observed != nil {
		return *d.Observed
	}
	return d
}

// refusedRound says why a message may not go on with a call, nil where it may. f is the call, nil where none waits for
// the message.
func refusedRound(f *openCall, why flow.Refusal, asked wire.Round, d policy.Decision) *notice {
	switch {
	case why == flow.Unasked:
		return &notice{code: "InputNotAsked", text: "the message answers what the server did not ask. It was not passed on. Answer only what inputRequests names."}
	case f == nil:
		return &notice{code: codeNoRound, text: "no call of yours waits for this message: the tool, the arguments and requestState have to be those of a call whose answer asked for it, and each such message is passed on once. It was not. " +
			"Send the call without inputResponses and requestState; it is judged anew."}
	case len(asked.Answers) > 0 && !f.Of.mayAnswer(d):
		return f.Of.unseen()
	}
	return nil
}

// mayAnswer tells whether the caller may answer what the server asks in the middle of the call: the policy of this moment
// lets it, and who approved the call was told so.
func (f *fate) mayAnswer(d policy.Decision) bool {
	return d.Input && (f.claimed == nil || f.claimed.Spec.InputResponses == v1alpha1.InputAllow)
}

// unseen words that answers which nobody saw are not passed on.
func (f *fate) unseen() *notice {
	text := "the server asks for more in the middle of this call, and nobody who let the call through has seen what you answer, so it was not passed on. "
	if f.claimed != nil {
		text += fmt.Sprintf("What was sent before stands: without a further word of the server, request %s counts as of unknown outcome in the end. ", f.claimed.Name)
	}
	return &notice{code: codeUnseen, text: text + "Put all that the tool needs into its arguments, or ask the people you work for; a rule of the policy can allow such answers."}
}

// giveUp refuses the message, of which nothing was sent; the call waits on for the same round.
func (e *execution) giveUp(n notice) {
	var request *v1alpha1.ApprovalRequest
	if e.round != nil {
		e.server.flows.Release(e.round)
		request = e.claimed
	}
	e.refuse(e.judged, request, n)
}

// notSent answers for a round that could not be sent; the call waits on for it.
func (e *execution) notSent(err error) {
	e.server.flows.Release(e.round)
	r := e.receipt(receipt.KindDecision)
	r.Verdict, r.Code, r.Reason = receipt.VerdictDeny, "RoundNotSent", "the server could not be reached"
	if err := e.note(r, receipt.Batched); err != nil {
		e.Metrics.writeFailed(e.server.Key, "receipt")
	}
	e.reply.refuse(upstreamRefusal(err))
}

// keep has the call wait for what the answer says comes next, and tells whether it does. What does not fit ends the call.
func (e *execution) keep(answer wire.Answer) bool {
	if answer.Next == nil || e.over() || e.want.ActionHash == "" {
		return false
	}
	if e.legacy != nil && answer.Next.Task.ID != "" { // no task is governed there: nobody would learn how it ends
		return false
	}
	f := e.round
	if f == nil {
		f = &openCall{Call: flow.Call{Owner: e.owner(), Action: e.want.ActionHash}, Of: e.fate, Deadline: e.sentAt.Add(e.limit())}
		if e.claimed != nil && e.claimed.Status.Execution != nil && e.claimed.Status.Execution.Deadline != nil {
			f.Deadline = e.claimed.Status.Execution.Deadline.Time
		}
		e.line = e.receipt(receipt.KindOutcome)
		if arguments := e.message.Call.Arguments; would(e.decision).Input && len(arguments) <= maxKept {
			e.kept = append([]byte{}, arguments...)
		}
	}
	next := *answer.Next
	next.Task.ID = taskAt(e.want.EndpointDigest, next.Task.ID)
	e.outlives = e.server.flows.Keep(f, next, e.Clock.Now())
	return e.outlives
}

// maxKept bounds the arguments that are kept with a call that goes on, in bytes. Those of a longer one count as not known.
const maxKept = 64 << 10

// maxTask is the longest that a task is waited for, whatever its caller asks: as long as callTimeout can be.
const maxTask = time.Hour

// limit is how long the call may take to its end.
func (c *call) limit() time.Duration {
	snap := c.server.Snapshot()
	if snap == nil {
		return 0
	}
	return max(snap.Server.Spec.CallTimeout.Duration, min(c.message.TaskTTL(), maxTask))
}

// runsAsTask tells whether the server says that calls of the tool may run as tasks.
func runsAsTask(definition tool.Descriptor) bool {
	entry, err := strictjson.Scan(definition.Raw)
	support := entry.Get("execution").Get("taskSupport")
	return err == nil && (support.Is("optional") || support.Is("required"))
}

// noTask words that a tool does not run as a task.
func noTask() notice {
	return notice{code: codeNoTask, text: "the server does not say that this tool runs as a task. Nothing was executed. Call it without task."}
}
