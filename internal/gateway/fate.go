// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/failpoint"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

// fate is what becomes of one call with effects, however many messages it takes, and where that is recorded. It holds
// nothing of the messages themselves but the arguments of a call whose answers a rule allows: a call can outlive its
// messages by an hour.
type fate struct {
	gateway *Gateway
	server  *Server
	claimed *v1alpha1.ApprovalRequest // nil for a call without a request
	sentAt  time.Time
	// mayStand tells that nobody knows whether the claim stands.
	mayStand bool
	// cause says in words why nothing was sent, for people.
	cause string
	// line is the receipt of the outcome, but for the outcome; set before anything is heard of the call after its answer.
	line receipt.Receipt

	mu sync.Mutex
	// kept are the arguments of a call whose caller may answer what its task asks, for the policy of that moment; nil
	// where they are not kept, and once the call is over.
	kept   []byte
	result *approval.Result // nil until the outcome is known
	stored bool
}

// settle notes the outcome, with the receipt for it. The first one holds, but a sure one takes the place of one that was
// not.
func (f *fate) settle(line receipt.Receipt, outcome v1alpha1.ExecutionOutcome, answer []byte) {
	failpoint.Hit(failpoint.AfterAnswer)
	result := &approval.Result{Outcome: outcome, Message: f.cause, At: f.gateway.Clock.Now()}
	if answer != nil {
		sum := sha256.Sum256(answer)
		result.Digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.result != nil && (f.result.Outcome != v1alpha1.OutcomeUnclear || outcome == v1alpha1.OutcomeUnclear) {
		return
	}
	f.result, f.stored, f.kept = result, false, nil
	f.gateway.Metrics.executed(f.server.Key, outcome)
	durability := receipt.Batched
	if outcome == v1alpha1.OutcomeUnclear {
		durability = receipt.Sync // the next identical call must meet it
	}
	line.Outcome, line.ResultDigest, line.Duration = string(outcome), result.Digest, result.At.Sub(f.sentAt)
	// The decision is on disk already; when this line cannot be written the call shows as sent, its outcome unknown.
	if _, err := f.gateway.Receipts.Append(line, durability); err != nil {
		f.gateway.Metrics.writeFailed(f.server.Key, "receipt")
	}
	failpoint.Hit(failpoint.AfterOutcomeReceipt)
}

// over tells whether there is an outcome.
func (f *fate) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.result != nil
}

// closed tells whether a snapshot shows that the request of the call is not being executed any more: time was up and
// people may have looked what became of it, or it is gone. What the watch has not brought yet counts as what it was.
func (f *fate) closed(snap *snapshot.Snapshot) bool {
	if f.claimed == nil {
		return false
	}
	request := snap.Request(f.claimed.Spec.ActionHash, string(f.claimed.UID))
	if request == nil {
		return true
	}
	switch request.CurrentPhase() {
	case v1alpha1.PhasePending, v1alpha1.PhaseApproved, v1alpha1.PhaseExecuting:
		return false
	default:
		return true
	}
}

// overFor is how long there has been an outcome.
func (f *fate) overFor(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Sub(f.result.At)
}

// store makes one try to record the outcome and tells whether there is nothing left to do.
func (f *fate) store(ctx context.Context) bool {
	f.mu.Lock()
	result, done := f.result, f.stored || f.result == nil || f.claimed == nil
	f.mu.Unlock()
	if done {
		return true
	}
	record := f.gateway.Approvals.Finish
	if f.mayStand {
		record = f.gateway.Approvals.GiveBack
	}
	ended, err := record(ctx, f.claimed, *result)
	stored := err == nil || errors.Is(err, approval.ErrTaken) || errors.Is(err, approval.ErrGone)
	if !stored {
		f.gateway.Metrics.writeFailed(f.server.Key, "outcome")
		return false
	}
	if err == nil {
		f.server.noteEnded(ended)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored = f.stored || f.result == result // it may have become sure meanwhile
	return f.stored
}
