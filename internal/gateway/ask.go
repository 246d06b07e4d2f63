// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// ask opens a request for the call, unless a limit is against it.
func (g *gated) ask(attempt int32) (done bool) {
	release, refusal := g.server.reserve(g.owner(), g.want.Tool, g.want.ActionHash, attempt)
	if refusal != nil {
		g.refuse(g.judged, nil, *refusal)
		return true
	}
	spec := g.want
	spec.Attempt, spec.Preview = attempt, g.preview()
	if g.clientGone() {
		release(nil)
		return true // nobody is asked for an agent that waits for nothing
	}
	if now, ok := g.judge(); !ok || now.decision.Effect == policy.Deny {
		release(nil)
		return false // nor about what was stopped while the server said what it would affect: the next turn denies it
	}
	ctx, cancel := context.WithTimeout(g.request.Context(), apiTimeout)
	defer cancel()
	g.cancelOutdated(ctx)
	name := func(n int32) string { return action.RequestName(g.server.Key.Name, spec.ActionHash, int(n)) }
	created, err := g.Approvals.Create(ctx, g.server.Key.Namespace, spec, name)
	release(created)
	if err != nil {
		g.refuseAPI(err)
		return true
	}
	g.know(created)
	// The next turn looks at it as at any other: it may be one that was there already.
	return !g.Clock.Now().Before(g.until) && g.pending(created)
}

// askAnew ends an approval that cannot be used, so that a person is asked again.
func (g *gated) askAnew(request *v1alpha1.ApprovalRequest, reason v1alpha1.CancellationReason) (done bool) {
	if err := g.cancelKnown(reason); err != nil {
		g.refuseAPI(err)
		return true
	}
	return g.reread(request)
}
