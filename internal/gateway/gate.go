// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
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
	// until is the end of the hold.
	until time.Time
	ticks int
	// replaced names a request that was cancelled since what it asked about has changed.
	replaced string
}

// gate takes a call with effects to its end. Each turn of the loop judges anew, on the policy and the requests as they
// are then; it ends with an answer to the agent.
func (c *call) gate() {
	g := &gated{call: c}
	for {
		if c.request.Context().Err() != nil {
			return // the agent has gone: nothing may run for it any more
		}
		changed := c.server.Changed()
		var ok bool
		if g.judged, ok = c.judge(); !ok {
			c.reply.notice(notice{code: "ServerGone", text: "the server is no longer governed; nothing was executed."})
			return
		}
		if g.decision.Effect == policy.Deny {
			g.cancelKnown(v1alpha1.CancelPolicyChanged)
			c.refuse(g.judged, g.known, denial(g.decision))
			return
		}
		definition, err := c.server.define(c.request.Context(), c.message.Call.Name, c.Clock.Now())
		if err != nil {
			c.refuse(g.judged, nil, undefined())
			return
		}
		// What the server said just now may have changed the verdict: it is drift from then on.
		if g.judged, ok = c.judge(); !ok || g.decision.Effect == policy.Deny {
			continue
		}
		if g.want, err = c.describe(g.judged, definition); err != nil {
			c.refuse(g.judged, nil, notice{code: "ArgumentsNotReadable", text: "the arguments cannot be judged: " + err.Error()})
			return
		}
		if g.until.IsZero() {
			g.until = c.started.Add(hold(g.snap.Server))
		}
		if g.turn() {
			return
		}
		if !g.wait(changed) {
			return
		}
	}
}

func hold(server *v1alpha1.GovernedServer) time.Duration {
	if server.Spec.Approvals.Hold == nil {
		return 0
	}
	return server.Spec.Approvals.Hold.Duration
}

// turn does the next step of the call and tells whether the agent has its answer.
func (g *gated) turn() (done bool) {
	same := g.requests()
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
		g.known = request
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

// requests returns all requests of this action: those of the snapshot, and in place of the one that this call knows
// better, that one.
func (g *gated) requests() []*v1alpha1.ApprovalRequest {
	same := slices.Clone(g.snap.SameAction(g.want.ActionHash))
	if g.known == nil || g.known.Spec.ActionHash != g.want.ActionHash {
		return same
	}
	i := slices.IndexFunc(same, func(r *v1alpha1.ApprovalRequest) bool { return r.UID == g.known.UID })
	switch {
	case i < 0:
		return append(same, g.known)
	case newer(g.known, same[i]):
		same[i] = g.known
	}
	return same
}

// newer compares versions of one object; they are ordered numbers (KEP-5504). What cannot be read is not newer.
func newer(a, b *v1alpha1.ApprovalRequest) bool {
	va, errA := strconv.ParseUint(a.ResourceVersion, 10, 64)
	vb, errB := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && va > vb
}

// wait sleeps until something changed or a sign of life is due; false says that the agent has gone.
func (g *gated) wait(changed <-chan struct{}) bool {
	left := min(g.until.Sub(g.Clock.Now()), progressEvery)
	timer := g.Clock.NewTimer(max(left, 0))
	defer timer.Stop()
	g.Metrics.holding(g.server.Key, 1)
	defer g.Metrics.holding(g.server.Key, -1)
	select {
	case <-g.request.Context().Done():
		return false
	case <-changed:
		return true
	case <-timer.C():
		if g.Clock.Now().Before(g.until) && g.known != nil {
			g.ticks++
			g.reply.progress(g.ticks, "waiting for a person to decide on request "+g.known.Name)
		}
		return true
	}
}

// ask opens a request for the call, unless too many already wait.
func (g *gated) ask(attempt int32) (done bool) {
	limit := g.snap.Server.Spec.Approvals.MaxPending
	release, ok := g.server.reserve(g.snap, g.Requester.Username, int(limit))
	if !ok {
		g.refuse(g.judged, nil, notice{code: "TooManyPending", retryAfter: 60, text: fmt.Sprintf(
			"%d calls already wait for a person, which is the limit. Wait until some are decided, then send this call again.", limit)})
		return true
	}
	ctx, cancel := context.WithTimeout(g.request.Context(), apiTimeout)
	defer cancel()
	g.cancelOutdated(ctx)
	spec := g.want
	spec.Attempt = attempt
	name := func(n int32) string { return action.RequestName(g.server.Key.Name, spec.ActionHash, int(n)) }
	created, err := g.Approvals.Create(ctx, g.server.Key.Namespace, spec, name)
	release(created)
	if err != nil {
		g.refuseAPI(err)
		return true
	}
	g.known = created
	// The next turn looks at it as at any other: it may be one that was there already.
	return !g.Clock.Now().Before(g.until) && g.pending(created)
}

// cancelOutdated ends open requests of this requester for the tool as it was before.
func (g *gated) cancelOutdated(ctx context.Context) {
	for _, r := range g.snap.OfTool(g.want.Tool) {
		if r.Spec.Requester.Username != g.want.Requester.Username || !approval.Outdated(r, g.want) {
			continue
		}
		if err := g.Approvals.Cancel(ctx, r, v1alpha1.CancelToolChanged); err == nil && r.Spec.Arguments == g.want.Arguments {
			g.replaced = r.Name
		}
	}
}

// cancelKnown ends the request that the call waited for.
func (g *gated) cancelKnown(reason v1alpha1.CancellationReason) {
	if g.known == nil {
		return
	}
	ctx, cancel := g.detached(apiTimeout)
	defer cancel()
	// The request cannot be used any more either way: it is judged anew whenever somebody tries.
	if err := g.Approvals.Cancel(ctx, g.known, reason); err != nil {
		g.Metrics.apiFailed(g.server.Key, "cancel")
	}
}

// use spends an approval, unless something about it is not as it must be.
func (g *gated) use(request *v1alpha1.ApprovalRequest) (done bool) {
	g.known = request
	if !approval.Same(request.Spec, g.want) || request.Status.Decision != v1alpha1.DecisionApproved {
		g.refuse(g.judged, request, notice{code: "RequestMismatch",
			text: "the request that was approved is not the one that this gateway would have made for this call. Nothing was executed; tell the people who run this server."})
		return true
	}
	if g.decision.Effect == policy.RequireApproval && approval.Stricter(g.want, request.Spec) {
		g.cancelKnown(v1alpha1.CancelPolicyChanged)
		g.replaced = request.Name
		return g.reread(request)
	}
	if g.Receipts.Executed(string(request.UID)) {
		g.refuse(g.judged, request, notice{code: "ApprovalUsed",
			text: "this approval was already used for a call. Nothing was executed now; tell the people who run this server."})
		return true
	}
	if g.request.Context().Err() != nil {
		return true
	}
	ctx, cancel := g.detached(apiTimeout)
	defer cancel()
	claimed, err := g.Approvals.Claim(ctx, request, g.snap.Server.Spec.CallTimeout.Duration)
	if errors.Is(err, approval.ErrTaken) {
		return g.reread(request)
	}
	if err != nil {
		g.refuseAPI(err)
		return true
	}
	g.execute(claimed)
	return true
}

// reread looks at a request live, so that the next turn knows better than the snapshot.
func (g *gated) reread(request *v1alpha1.ApprovalRequest) (done bool) {
	ctx, cancel := context.WithTimeout(g.request.Context(), apiTimeout)
	defer cancel()
	current, err := g.Approvals.Get(ctx, client.ObjectKeyFromObject(request))
	if err != nil || current.UID != request.UID {
		g.refuseAPI(cmp.Or(err, approval.ErrGone))
		return true
	}
	g.known = current
	return g.turn()
}

// runUnattended lets a call run on the strength of a promotion. An open request of the same action is withdrawn, so
// that nobody is asked about what has run.
func (g *gated) runUnattended(open *v1alpha1.ApprovalRequest) (done bool) {
	if open != nil {
		g.known = open
		g.cancelKnown(v1alpha1.CancelWithdrawn)
	}
	g.execute(nil)
	return true
}

// refuseAPI answers when the Kubernetes API cannot be asked. Nothing was sent.
func (g *gated) refuseAPI(err error) {
	g.Metrics.apiFailed(g.server.Key, "request")
	n := notice{code: "ApprovalUnavailable", retryAfter: 30,
		text: "the gateway cannot reach the Kubernetes API to ask a person. Nothing was executed. Send the call again later."}
	if errors.Is(err, approval.ErrGone) {
		n = notice{code: "RequestGone", text: "the request for this call was deleted. Nothing was executed. Send the call again to ask anew."}
	}
	g.refuse(g.judged, nil, n)
}
