// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// grace is the longest from a decision to the receipt of its outcome: callTimeout, or what a task may take, on a machine
// that has much to do.
const grace = 15 * time.Second

// checkReceipts pairs decisions with outcomes. A decision without one is right only if its gateway was killed soon after it.
func (a *accounts) checkReceipts() {
	for gateway, chain := range a.receipts {
		outcomes, ends := map[string]string{}, make([]time.Time, len(chain))
		for i, r := range slices.Backward(chain) {
			if r.Kind == receipt.KindOutcome {
				outcomes[r.CallID] = r.Outcome
			}
			// The last receipt of a life is the last that is known of it; the last life ended in order.
			switch {
			case i == len(chain)-1:
				ends[i] = r.Time.Add(2 * grace)
			case chain[i+1].Kind == receipt.KindOpened:
				ends[i] = r.Time
			default:
				ends[i] = ends[i+1]
			}
		}
		for i := range chain {
			r := &chain[i]
			if !leaves(r) {
				continue
			}
			d := dispatch{gateway: gateway, outcome: outcomes[r.CallID]}
			if d.outcome == "" {
				a.unended++
				if lived := ends[i].Sub(r.Time); lived > grace {
					a.mismatch("receipt %d of %s has no outcome, and the gateway was not killed soon after it", r.Seq, gateway)
				}
			}
			a.dispatched(r, d)
		}
		a.checkUnclear(gateway, chain)
	}
}

// dispatched notes a dispatch with what let it leave.
func (a *accounts) dispatched(r *receipt.Receipt, d dispatch) {
	if r.RequestUID != "" {
		a.dispatches[r.RequestUID] = append(a.dispatches[r.RequestUID], d)
		return
	}
	key := a.keys[r.ActionHash]
	if key == "" {
		a.mismatch("receipt %d of %s is about an action that no agent sent", r.Seq, d.gateway)
	}
	a.unattended[key] = append(a.unattended[key], d)
	a.causes[key]++
}

// leaves tells whether a receipt let a call with effects leave.
func leaves(r *receipt.Receipt) bool {
	return r.Kind == receipt.KindDecision && r.Verdict == receipt.VerdictAllow && r.Tier != string(v1alpha1.TierRead)
}

// checkUnclear looks for calls that left without a person though nobody knew what had become of the same call before, as
// the gateway itself had written down.
func (a *accounts) checkUnclear(gateway string, chain []receipt.Receipt) {
	flights, unclear := map[string]*receipt.Receipt{}, map[string]time.Time{} // by call, and by action
	for i := range chain {
		switch r := &chain[i]; {
		case r.Kind == receipt.KindOpened:
			for _, f := range flights {
				unclear[f.ActionHash] = f.Time
			}
			clear(flights)
		case leaves(r) && r.RequestUID != "":
			delete(unclear, r.ActionHash)
		case leaves(r):
			// What was under way at the same time knew nothing of it.
			if since, is := unclear[r.ActionHash]; is && r.Time.Sub(since) > time.Second {
				a.mismatch("receipt %d of %s let %s leave again, and nobody knows whether it ran before", r.Seq, gateway, a.keys[r.ActionHash])
			}
			flights[r.CallID] = r
		case r.Kind == receipt.KindOutcome && r.RequestUID == "":
			delete(flights, r.CallID)
			if r.Outcome == string(v1alpha1.OutcomeUnclear) {
				unclear[r.ActionHash] = r.Time
			}
		}
	}
}

// checkReads counts reads: their receipts are written in batches, so some die with a gateway, and none in another way.
func (a *accounts) checkReads(ran int) {
	recorded, kills := 0, 0
	for _, chain := range a.receipts {
		for i, r := range chain {
			if r.Kind == receipt.KindDecision && r.Verdict == receipt.VerdictAllow && r.Tier == string(v1alpha1.TierRead) {
				recorded++
			}
			if r.Kind == receipt.KindOpened && i > 0 {
				kills++
			}
		}
	}
	if a.lostReads = max(ran-recorded, 0); a.lostReads > 0 && kills == 0 {
		a.mismatch("%d reads have no receipt, and no gateway was killed", a.lostReads)
	}
}
