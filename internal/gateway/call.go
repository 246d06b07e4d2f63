// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// call is one tools/call on its way through the gateway.
type call struct {
	arrival
	arguments *expr.Arguments // those of message, read once whatever looks at them
	reply     *reply
	id        string
	started   time.Time
	meant     meaning // the last that was worked out
	reported  bool    // people were told that part of the policy cannot be evaluated for the call
	unknown   bool    // the server does not say what the tool is
	// wouldRefuse is the code by which the way that the call takes would be refused if the server did not only observe.
	wouldRefuse string
	// name, cancel and cancelled: its client can cancel it as long as it has not left.
	name      waitingFor
	cancel    func()
	cancelled bool
}

// call returns the call that the message asks for; w takes the answer.
func (a arrival) call(w http.ResponseWriter) *call {
	return &call{
		arrival: a, arguments: expr.NewArguments(a.message.Call.Arguments), reply: newReply(w, a.request, a.message, a.span),
		id: a.NewID(), started: a.Clock.Now(),
	}
}

// send sends the call to the server and returns its answer; sent is as of Gateway.send.
func (c *call) send(ctx context.Context, out outbound) (resp *http.Response, sent bool, err error) {
	if c.legacy != nil {
		return c.legacy.exchange(ctx, out, nil)
	}
	return c.Gateway.send(ctx, c.server, out)
}

// judged is a call with the verdict on it and the snapshot that gave it.
type judged struct {
	snap     *snapshot.Snapshot
	decision policy.Decision
}

// observed tells whether the call passes for the only reason that the server observes.
func (j judged) observed() bool { return j.decision.Observed != nil }

// reads tells whether the call runs at once and changes nothing.
func (j judged) reads() bool {
	return j.decision.Effect == policy.Allow && j.decision.Tier == v1alpha1.TierRead
}

// judge asks the policy in force about the call; without one there is no verdict.
func (c *call) judge() (judged, bool) {
	snap := c.server.Snapshot()
	if snap == nil {
		return judged{}, false
	}
	j := judged{snap, snap.Policy.Decide(c.question())}
	c.reportUncertain(j.decision)
	return j, true
}

// question is what policies are asked about the call.
func (c *call) question() policy.Call {
	return policy.Call{
		Tool: c.message.Call.Name, Arguments: c.arguments, Principal: c.principal, Freshness: c.server.Freshness(),
	}
}

// reportUncertain tells people, once a call, of a policy that could not be evaluated for it.
func (c *call) reportUncertain(d policy.Decision) {
	uncertain := uncertainty(d)
	if uncertain == "" || c.reported {
		return
	}
	c.reported = true
	c.Metrics.notEvaluated(c.server.Key)
	if c.server.unevaluated.due(c.Clock.Now()) {
		log.FromContext(c.request.Context()).Info("policy not evaluated", "server", c.server.Key.String(), "tool", c.message.Call.Name, "reason", uncertain)
	}
}

// uncertainty says what could not be evaluated for a verdict, or for the one that it stands in for.
func uncertainty(d policy.Decision) string {
	if d.Uncertain == "" && d.Observed != nil {
		return d.Observed.Uncertain
	}
	return d.Uncertain
}

// serve judges the call and lets it through, holds it or refuses it.
func (c *call) serve() {
	j, ok := c.judge()
	if !ok {
		c.refuseNotReady()
		return
	}
	if j.decision.Reason == policy.ReasonDefinitionNotAccepted && j.decision.Tool.Drifted {
		// The server may give the accepted definition by now. Nothing else would ask it, since no call passes.
		if _, err := c.server.define(c.request.Context(), c.message.Call.Name); err == nil {
			if j, ok = c.judge(); !ok {
				c.refuseNotReady()
				return
			}
		}
	}
	if j.decision.Effect == policy.Deny {
		c.deny(j, nil)
		return
	}
	// A request that still asks about a call which only reads is closed on the way of those that wait.
	reads := j.reads() && (j.observed() || c.unusualFlow() || len(c.own(j)) == 0)
	if !reads || hasParamHeaders(c.request.Header) {
		if refused := c.checkParamHeaders(j); refused {
			return
		}
	}
	if reads {
		c.passRead(j)
		return
	}
	defer c.cancellable()()
	c.gate()
}

// checkParamHeaders refuses a call whose headers contradict its arguments; what the tool is says which headers count.
// Where the server only observes, a call without any such header passes to a tool that nobody knows.
func (c *call) checkParamHeaders(j judged) (refused bool) {
	definition, err := c.server.define(c.request.Context(), c.message.Call.Name)
	if err != nil {
		if j.observed() && !hasParamHeaders(c.request.Header) {
			return false
		}
		c.refuse(j, nil, undefined())
		return true
	}
	if refusal := wire.CheckParamHeaders(c.request.Header, c.message, definition.InputSchema); refusal != nil {
		c.refuseMalformed(j, codeHeaders, refusal)
		return true
	}
	return false
}

// unusualFlow tells that the call would not end with its answer.
func (c *call) unusualFlow() bool {
	m := c.message.Call
	return m.Task || m.InputResponses || m.RequestState
}

// own returns the requests of this very call that still wait for a person, or for their use.
func (c *call) own(j judged) []*v1alpha1.ApprovalRequest {
	same := j.snap.OfTool(c.message.Call.Name)
	if len(same) == 0 {
		return nil
	}
	shown, err := action.Mask(c.message.Call.Arguments)
	return slices.DeleteFunc(slices.Clone(same), func(r *v1alpha1.ApprovalRequest) bool {
		phase := r.CurrentPhase()
		open := phase == v1alpha1.PhasePending || phase == v1alpha1.PhaseApproved
		return err != nil || !open || r.Spec.Arguments != shown.Text || snapshot.CallerOf(r.Spec.Requester) != c.owner()
	})
}

func hasParamHeaders(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, mcp.HeaderParamPrefix) {
			return true
		}
	}
	return false
}

// passRead lets a Read call through.
func (c *call) passRead(j judged) {
	if wait := c.rests(c.server); wait > 0 {
		c.refuse(j, nil, resting(wait))
		return
	}
	if err := c.note(c.receipt(j, receipt.KindDecision), receipt.Batched); err != nil {
		c.refuseUnrecorded(j)
		return
	}
	c.Metrics.decided(c.server.Key, j.decision.Effect, string(j.decision.Reason))
	ctx, cancel := context.WithTimeout(c.request.Context(), j.snap.Server.Spec.CallTimeout.Duration)
	defer cancel()
	out := outbound{request: c.request, caller: c.owner(), body: c.message.Raw, headers: allHeaders, endpoint: j.snap.EndpointDigest, span: c.span}
	if c.legacy != nil {
		c.legacy.passRead(ctx, c, out)
		return
	}
	out.again = !c.unusualFlow() && !j.observed()
	out.written = &written{}
	resp, _, err := c.Gateway.send(ctx, c.server, out)
	if err != nil {
		c.reply.refuse(upstreamRefusal(err))
		return
	}
	answer := relay{
		Gateway: c.Gateway, server: c.server, id: c.message.ID, span: c.span,
		transform: c.span.Watch(c.freeTasks(out.endpoint, sanitize(c.message.ID))), strains: true,
	}
	answer.run(c.reply.w, resp)
	if out.again && out.written.once() {
		reuse(c.message.Raw) // the call has ended with its answer
	}
}

// What the API takes; a policy with a very long name, or message, must not keep people from being asked.
const (
	maxGatedBy = 256
	maxMessage = 512
)

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
		RequiredApprovals: max(d.RequiredApprovals, 1), ApproveVerbs: d.Verbs, Message: glyph.Clip(glyph.Escaped(d.Message), maxMessage), PolicyRevision: d.Revision,
		TTLSeconds: int32(j.snap.Server.Spec.Approvals.TTL.Seconds()),
	}
	if d.Input {
		spec.InputResponses = v1alpha1.InputAllow
	}
	spec.Preview = planned(j.snap, c.question())
	if len(spec.ApproveVerbs) == 0 {
		spec.ApproveVerbs = []string{d.Tier.ApproveVerb()}
	}
	spec.GatedBy = glyph.Cut(spec.GatedBy, maxGatedBy)
	if !shown.Fits {
		spec.ApproveVerbs = verbsUnseen(spec.ApproveVerbs)
	}
	return spec, nil
}

// verbsUnseen returns the verbs for a call that people do not see whole: approve-irreversible stands in for the verb of a
// milder tier, and what rules ask for stays.
func verbsUnseen(verbs []string) []string {
	strict := []string{v1alpha1.VerbApproveIrreversible}
	for _, verb := range verbs {
		if verb != v1alpha1.VerbApprove && verb != v1alpha1.VerbApproveIrreversible {
			strict = append(strict, verb)
		}
	}
	return strict
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
		Params: c.message.Params, Requester: c.requester.Username, ActsFor: c.requester.ActsFor, Continues: c.goesOn(),
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
		default:
			return withheld("answer", id)
		}
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
