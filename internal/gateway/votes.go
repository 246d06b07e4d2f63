// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// votes tells whether enough persons have validly approved a request, and keeps who they are. A refusal says that
// nobody can tell now; the request stays as it is then.
func (g *gated) votes(request *v1alpha1.ApprovalRequest) (approved bool, refusal *notice) {
	ctx, cancel := context.WithTimeout(g.request.Context(), apiTimeout)
	defer cancel()
	tally, err := g.Votes(ctx, request)
	g.tally = tally
	if err != nil {
		log.FromContext(ctx).Error(err, "votes not verified", "approval", request.Name)
		return false, &notice{code: codeUnverified, retryAfter: 30,
			text: "the gateway cannot verify who approved this call. Nothing was executed, and the approval stays. Send the call again later; tell the people who run this gateway if it lasts."}
	}
	required := max(request.Spec.RequiredApprovals, g.want.RequiredApprovals)
	return request.Status.Decision == v1alpha1.DecisionApproved && tally.Approved(required), nil
}

// reportVoid tells people of votes that count for nothing.
func (g *gated) reportVoid(request *v1alpha1.ApprovalRequest) {
	if len(g.tally.Void) > 0 {
		g.Metrics.votesVoid(g.server.Key, len(g.tally.Void))
		log.FromContext(g.request.Context()).Error(errors.Join(g.tally.Void...), "void votes", "approval", request.Name)
	}
}

// votesAgain looks at the votes of the claimed request a last time: a key may have been removed meanwhile.
func (e *execution) votesAgain() *notice {
	approved, refusal := e.votes(e.claimed)
	if refusal == nil && !approved {
		refusal = &notice{code: "VotesVoid", retryAfter: 5,
			text: "the votes on this call ceased to be valid just before it was to leave. Nothing was executed. Send the call again to ask anew."}
	}
	return refusal
}
