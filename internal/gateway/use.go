// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// use spends an approval, unless something about it is not as it must be.
func (g *gated) use(request *v1alpha1.ApprovalRequest) (done bool) {
	g.know(request)
	if !approval.Same(request.Spec, g.want) {
		g.refuse(g.judged, request, notice{code: "RequestMismatch",
			text: "the request that was approved is not the one that this gateway would have made for this call. Nothing was executed; tell the people who run this server."})
		return true
	}
	if g.decision.Effect == policy.RequireApproval && approval.Stricter(g.want, request.Spec) {
		return g.askAnew(request, v1alpha1.CancelPolicyChanged)
	}
	voted, refusal := g.votes(request)
	g.reportVoid(request)
	if refusal != nil {
		g.refuse(g.judged, request, *refusal)
		return true
	}
	if !voted {
		return g.askAnew(request, v1alpha1.CancelVotesVoid)
	}
	if g.Receipts.Executed(string(request.UID)) {
		return g.usedBefore(request)
	}
	if g.leftAlone() { // and the approval stays
		return true
	}
	switch same, err := g.recheck(request, askAgain); {
	case g.clientGone():
		return true
	case err != nil:
		g.refuse(g.judged, request, notForeseen(err, "The approval stays: send the call again later."))
		return true
	case !same:
		return g.askAnew(request, v1alpha1.CancelStateChanged)
	}
	ctx, cancel := g.detached(2 * apiTimeout)
	defer cancel()
	claimed, err := g.Approvals.Claim(ctx, request, g.limit()+rechecking(request))
	switch {
	case err == nil:
		g.execute(claimed)
	case errors.Is(err, approval.ErrTaken):
		return g.reread(request)
	default:
		g.giveBack(claimed, err)
	}
	return true
}

// giveBack answers for a claim of which nobody knows whether it arrived, and sees to it that it does not stand: nothing
// was sent on it.
func (g *gated) giveBack(claimed *v1alpha1.ApprovalRequest, err error) {
	e := &execution{gated: g, fate: g.newFate(claimed)}
	e.mayStand, e.result = true, &approval.Result{
		Outcome: v1alpha1.OutcomeNotSent, Message: "the Kubernetes API did not say whether it took the gateway's claim", At: e.sentAt}
	e.end(func() { g.refuseAPI(err) })
}

// usedBefore answers for an approval that stands in the receipts as used. Mostly an identical call used it a moment ago,
// and the request tells how that ended. One that is Approved all the same was set back, and stays refused.
func (g *gated) usedBefore(request *v1alpha1.ApprovalRequest) (done bool) {
	current, err := g.live(request)
	switch {
	case err != nil:
		g.refuseAPI(err)
		return true
	case current.CurrentPhase() == v1alpha1.PhaseApproved:
		g.refuse(g.judged, current, notice{code: codeUsed, text: fmt.Sprintf(
			"the approval %s was used for a call before, as the receipts of this gateway say, yet the Kubernetes API holds it for unused: it may have been set back to an older state. "+
				"How that call ended is not known here. Nothing was executed now. Do not send the call again; tell the people who run this server.", current.Name)})
		return true
	}
	g.know(current)
	return g.turn()
}

// reread looks at a request live, so that the next turn knows better than the snapshot.
func (g *gated) reread(request *v1alpha1.ApprovalRequest) (done bool) {
	current, err := g.live(request)
	if err != nil {
		g.refuseAPI(err)
		return true
	}
	g.know(current)
	return g.turn()
}

// live reads a request as the API has it now.
func (g *gated) live(request *v1alpha1.ApprovalRequest) (*v1alpha1.ApprovalRequest, error) {
	ctx, cancel := context.WithTimeout(g.request.Context(), apiTimeout)
	defer cancel()
	current, err := g.Approvals.Get(ctx, client.ObjectKeyFromObject(request))
	if err == nil && current.UID != request.UID {
		err = approval.ErrGone
	}
	return current, err
}
