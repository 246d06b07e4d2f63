// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

// cancelOutdated ends open requests of this requester for the tool as it was before.
func (g *gated) cancelOutdated(ctx context.Context) {
	for _, r := range g.snap.OfTool(g.want.Tool) {
		if snapshot.CallerOf(r.Spec.Requester) != g.owner() || !approval.Outdated(r, g.want) {
			continue
		}
		if err := g.Approvals.Cancel(ctx, r, v1alpha1.CancelToolChanged); err == nil && r.Spec.Arguments == g.want.Arguments {
			g.replaced = wasCancelled(r.Name, v1alpha1.CancelToolChanged, g.decision)
		}
	}
}

// withdraw ends the open requests of a call that is denied now, so that a yes to one of them is void for good, and returns
// them; known may be one that the snapshot does not show yet, or nil. A gateway that has only lost touch ends none.
func (c *call) withdraw(ctx context.Context, j judged, known *v1alpha1.ApprovalRequest) []*v1alpha1.ApprovalRequest {
	if j.decision.Reason == policy.ReasonPolicyStale {
		return nil
	}
	open := c.own(j)
	if known != nil && !slices.ContainsFunc(open, func(r *v1alpha1.ApprovalRequest) bool { return r.UID == known.UID }) {
		open = append(open, known)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	for _, r := range open {
		reason := v1alpha1.CancelPolicyChanged
		if r.Spec.EndpointDigest != j.snap.EndpointDigest {
			reason = v1alpha1.CancelToolChanged
		}
		if err := c.Approvals.Cancel(ctx, r, reason); err != nil {
			// It cannot be used either way: it is judged anew whenever somebody tries.
			c.Metrics.writeFailed(c.server.Key, "cancel")
		}
	}
	return open
}

// cancelKnown ends the request that the call waits for.
func (g *gated) cancelKnown(reason v1alpha1.CancellationReason) error {
	ctx, cancel := g.detached(apiTimeout)
	defer cancel()
	err := g.Approvals.Cancel(ctx, g.known, reason)
	if err != nil {
		g.Metrics.writeFailed(g.server.Key, "cancel")
	}
	return err
}
