// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestFailuresOfTheAPI(t *testing.T) {
	t.Parallel()
	down := errors.New("the server is currently unable to handle the request")
	phaseFails := func(phase v1alpha1.Phase) func(*rig) {
		return func(r *rig) {
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				if o.Status.Phase == phase {
					return down
				}
				return update()
			}
		}
	}
	t.Run("asking", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.creates = func(*v1alpha1.ApprovalRequest, func() error) error { return down }
		if got := r.post(toolCall("update_invoice", `{}`)); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
	})
	t.Run("claiming", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		phaseFails(v1alpha1.PhaseExecuting)(r)
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
		r.updates = nil
		if got := r.post(body); got.code() != "" {
			t.Errorf("once it works again: %s", got.body)
		}
		r.ran(body)
	})
	t.Run("claiming, and nobody can tell", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
			err := update()
			if o.Status.Phase == v1alpha1.PhaseExecuting {
				return down
			}
			return err
		}
		reads := 0
		r.gets = func(get func() error) error {
			if reads++; reads == 1 {
				return down
			}
			return get()
		}
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.until("given back", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseFailed })
		r.nothingSent()
	})
	t.Run("cancelling for a stricter policy does not turn in circles", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		phaseFails(v1alpha1.PhaseCancelled)(r)
		r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("*", v1alpha1.TierIrreversible)} })
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
	})
	t.Run("withdrawing what needs no person any more", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := toolCall("update_invoice", `{"n":1}`)
		if got := r.post(body); got.code() != codePending {
			t.Fatalf("got %s", got.body)
		}
		phaseFails(v1alpha1.PhaseCancelled)(r)
		r.promote()
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
		r.updates = nil
		if got := r.post(body); got.code() != "" {
			t.Errorf("once it works again: %s", got.body)
		}
		r.ran(body)
		if request := r.request(); request.Status.Cancellation == nil || request.Status.Cancellation.Reason != v1alpha1.CancelWithdrawn {
			t.Errorf("the request is %s", request.CurrentPhase())
		}
	})
	t.Run("recording the outcome keeps no agent waiting", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		var works atomic.Bool
		r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
			if o.Status.Phase == v1alpha1.PhaseSucceeded && !works.Load() {
				return down
			}
			return update()
		}
		got := r.post(body)
		if got.code() != "" || got.err != nil || got.status != 200 {
			t.Fatalf("got %+v", got)
		}
		r.ran(body)
		if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
			t.Errorf("the request is %s", phase)
		}
		// The connection is busy with the record; another call does not wait for it.
		if got := r.post(toolCall("get_invoice", `{}`)); got.status != 200 {
			t.Errorf("a read meanwhile: %+v", got)
		}
		works.Store(true)
		r.until("the outcome is recorded", func() bool {
			r.clock.Step(outcomeRetry)
			return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded
		})
	})
}

func TestReceiptsComeBeforeEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	body := r.approved("delete_account")
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{toolCall("get_invoice", `{}`), toolCall("update_invoice", `{}`), body, toolCall("other", `{}`)} {
		if got := r.post(call); got.code() != "ReceiptNotWritten" {
			t.Errorf("%s: %s", call, got.body)
		}
	}
	r.nothingSent()
	if r.gateway.Ready() == nil {
		t.Error("ready although nothing can be recorded")
	}
	request := r.request()
	if request.CurrentPhase() != v1alpha1.PhaseFailed || request.Status.Execution.Outcome != v1alpha1.OutcomeNotSent {
		t.Errorf("the approved request is %s", request.CurrentPhase())
	}
}
