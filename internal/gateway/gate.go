// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// apiTimeout bounds one conversation with the Kubernetes API while a call waits.
const apiTimeout = 10 * time.Second

// gated is a call with effects between its verdict and its end.
type gated struct {
	*call
	judged
	want v1alpha1.ApprovalRequestSpec
	// known is the newest this call has seen of the request that it waits for, nil before it waits for one.
	known *v1alpha1.ApprovalRequest
	// seen tells that the snapshot has shown known: once it shows it no more, it was deleted.
	seen bool
	// until is the end of the hold, nextSign the time of the next sign of life.
	until, nextSign time.Time
	ticks           int
	// sentBefore tells that the same action was sent before without a request, and nobody knows whether it took effect.
	sentBefore bool
	// replaced tells of a request that was cancelled, so that a person is asked anew.
	replaced string
	// tally are the votes on the approval that is spent.
	tally vote.Tally
}

// gate takes a call with effects to its end. Each turn of the loop judges anew, on the policy and the requests as they
// are then; it ends with an answer to the agent.
func (c *call) gate() {
	g := &gated{call: c}
	free, ok := c.takeRoom()
	if !ok {
		return
	}
	defer free()
	for {
		if c.clientGone() {
			return // the agent has gone: nothing may run for it any more
		}
		changed := c.server.Changed()
		if ready, done := g.prepare(); done {
			return
		} else if !ready {
			continue
		}
		if g.goesOn() {
			g.nextRound()
			return
		}
		if g.observed() {
			if g.leftAlone() {
				return
			}
			g.execute(nil) // and nothing else: nobody is asked, and nothing is used or cancelled
			return
		}
		if g.decision.Effect == policy.Allow && c.Receipts.Unclear(g.want.ActionHash) {
			// It may have taken effect the last time: whether it runs again is a person's to say.
			g.decision = g.snap.Policy.Attended(g.decision, "an earlier call of unknown outcome")
			g.want.GatedBy, g.sentBefore = g.decision.GatedBy, true
		}
		if g.until.IsZero() {
			g.until, g.nextSign = c.started.Add(hold(g.snap.Server)), c.started.Add(progressEvery)
		}
		if g.turn() {
			return
		}
		if !g.wait(changed) {
			return
		}
	}
}

// prepare judges the call and works out what it would do; done tells that the agent has its answer, ready that the next
// step can be done.
func (g *gated) prepare() (ready, done bool) {
	var ok bool
	if g.judged, ok = g.judge(); !ok {
		g.refuse(g.judged, g.known, *serverGone())
		return false, true
	}
	if g.decision.Effect == policy.Deny {
		g.deny(g.judged, g.known)
		return false, true
	}
	definition, err := g.server.define(g.request.Context(), g.message.Call.Name)
	// What the server said just now may have changed the verdict: it is drift from then on.
	if g.judged, ok = g.judge(); !ok || g.decision.Effect == policy.Deny {
		return false, false
	}
	g.unknown, g.wouldRefuse = err != nil, ""
	// The revision that HTTP+SSE belongs to knows no tasks.
	if g.message.Call.Task && (g.legacy != nil || !runsAsTask(definition)) {
		g.wouldRefuse = codeNoTask
	}
	switch {
	case g.observed():
	case g.unknown:
		g.refuse(g.judged, nil, undefined())
		return false, true
	case g.wouldRefuse != "":
		g.refuse(g.judged, nil, noTask())
		return false, true
	}
	switch g.want, err = g.describe(g.judged, definition); {
	case err != nil && g.observed(): // a tool that nobody knows has no digest, and so a call of it no hash
		g.want = v1alpha1.ApprovalRequestSpec{EndpointDigest: g.snap.EndpointDigest}
	case err != nil:
		g.refuse(g.judged, nil, notice{code: "ArgumentsNotReadable", text: "the arguments cannot be judged: " + err.Error()})
		return false, true
	}
	return true, false
}

// takeRoom counts the message of the call among those that are under way until free is called; it refuses the call when
// they are too many.
func (c *call) takeRoom() (free func(), ok bool) {
	room := c.callers.holding(c.requester.Username, ofEffects)
	if room.grow(int64(len(c.message.Raw))) {
		return room.free, true
	}
	if j, known := c.judge(); known {
		c.refuse(j, nil, notice{code: "TooManyHeld", retryAfter: 10,
			text: "the gateway holds as many calls as it can, or as many of yours as it may. Nothing was executed, and nobody was asked. Send this call again later."})
	} else {
		c.refuseNotReady()
	}
	return nil, false
}

// clientGone tells that nobody waits for the answer any more.
func (c *call) clientGone() bool {
	ctx := c.request.Context()
	return c.reply.gone || ctx.Err() != nil || hasHungUp(ctx)
}

func hold(server *v1alpha1.GovernedServer) time.Duration {
	if server.Spec.Approvals.Hold == nil {
		return 0
	}
	return server.Spec.Approvals.Hold.Duration
}

// turn does the next step of the call and tells whether the agent has its answer.
func (g *gated) turn() (done bool) {
	same, deleted := g.requests()
	if deleted {
		g.refuseAPI(approval.ErrGone)
		return true
	}
	now := g.Clock.Now()
	step, request, attempt := approval.Next(same, now)
	if g.known != nil && request != nil && request.UID == g.known.UID && step == approval.Ask {
		// The request that this call waited for has ended.
		return g.ended(request)
	}
	switch step {
	case approval.Use:
		return g.use(request)
	case approval.Hold:
		if g.decision.Effect == policy.Allow && request.CurrentPhase() == v1alpha1.PhasePending {
			return g.runUnattended(request)
		}
		g.know(request)
		if now.Before(g.until) {
			return false
		}
		return g.pending(request)
	case approval.Ask:
		if g.decision.Effect == policy.Allow {
			return g.runUnattended(nil)
		}
		return g.ask(attempt)
	default:
		return g.standsInTheWay(request)
	}
}

// know notes the newest version of the request that the call waits for.
func (g *gated) know(request *v1alpha1.ApprovalRequest) {
	if g.known == nil || g.known.UID != request.UID {
		g.seen = false
	}
	g.known = request
}

// requests returns all requests of this action: those of the snapshot, and in place of the one that this call knows
// better, that one. deleted tells that the one it waits for was there and is not any more.
func (g *gated) requests() (same []*v1alpha1.ApprovalRequest, deleted bool) {
	same = g.server.sameAction(g.snap, g.want.ActionHash)
	if g.known == nil || g.known.Spec.ActionHash != g.want.ActionHash {
		return same, false
	}
	i := slices.IndexFunc(same, func(r *v1alpha1.ApprovalRequest) bool { return r.UID == g.known.UID })
	if i < 0 {
		return append(same, g.known), g.seen
	}
	g.seen = true
	if newer(g.known, same[i]) {
		same[i] = g.known
	}
	return same, false
}

// newer compares versions of one object; they are ordered numbers (KEP-5504). What cannot be read is not newer.
func newer(a, b *v1alpha1.ApprovalRequest) bool {
	va, errA := strconv.ParseUint(a.ResourceVersion, 10, 64)
	vb, errB := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && va > vb
}

// wait sleeps until something changed or a sign of life is due; false says that the agent has gone.
func (g *gated) wait(changed <-chan struct{}) bool {
	due := g.until
	if g.nextSign.Before(due) {
		due = g.nextSign
	}
	timer := g.Clock.NewTimer(max(due.Sub(g.Clock.Now()), 0))
	defer timer.Stop()
	g.Metrics.holding(g.server.Key, 1)
	defer g.Metrics.holding(g.server.Key, -1)
	select {
	case <-g.request.Context().Done():
		return false
	case <-changed:
	case <-timer.C():
	}
	// Also where changes follow each other: they must not put off the sign.
	if now := g.Clock.Now(); !now.Before(g.nextSign) && now.Before(g.until) && g.known != nil {
		g.ticks++
		g.nextSign = now.Add(progressEvery)
		g.reply.progress(g.ticks, "waiting for a person to decide on request "+g.known.Name)
	}
	return true
}

// runUnattended lets a call run on the strength of a promotion. An open request of the same action is withdrawn, so
// that nobody is asked about what has run.
func (g *gated) runUnattended(open *v1alpha1.ApprovalRequest) (done bool) {
	if g.leftAlone() {
		return true
	}
	if open != nil {
		g.know(open)
		if err := g.cancelKnown(v1alpha1.CancelWithdrawn); err != nil {
			g.refuseAPI(err)
			return true
		}
	}
	g.execute(nil)
	return true
}

// refuseAPI answers when the Kubernetes API cannot be asked. Nothing was sent.
func (g *gated) refuseAPI(err error) {
	g.Metrics.writeFailed(g.server.Key, "request")
	n := notice{code: "ApprovalUnavailable", retryAfter: 30,
		text: "the gateway cannot reach the Kubernetes API to ask a person. Nothing was executed. Send the call again later."}
	if errors.Is(err, approval.ErrGone) {
		n = notice{code: "RequestGone", text: "the request for this call was deleted. Nothing was executed. Send the call again to ask anew."}
	}
	g.refuse(g.judged, nil, n)
}
