// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*rig)
		want    string
		runs    bool
	}{
		"yes":                  {func(r *rig) { r.decide(v1alpha1.DecisionApproved) }, "", true},
		"no":                   {func(r *rig) { r.decide(v1alpha1.DecisionDenied) }, "ApprovalDenied", false},
		"not now":              {func(r *rig) { r.decide(v1alpha1.DecisionDismissed) }, "ApprovalDismissed", false},
		"the tool is promoted": {(*rig).promote, "", true},
		"the request is deleted": {func(r *rig) {
			if err := r.api.Delete(context.Background(), r.request()); err != nil {
				r.t.Error(err)
			}
			r.edit(nil)
		}, "RequestGone", false},
		"the server is deleted": {func(r *rig) { r.edit(func() { r.governed = nil }) }, "ServerGone", false},
		"the tool is gone":      {func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) }, "ToolUnknown", false},
		"another used it": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseSucceeded })
		}, "ApprovalUsed", false},
		"another lost it": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseAmbiguous })
		}, codeAmbiguous, false},
		"it expires": {func(r *rig) { r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseExpired }) }, "ApprovalExpired", false},
		"nothing":    {func(r *rig) { r.clock.Step(46 * time.Second) }, codePending, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(45 * time.Second)
			body := toolCall("update_invoice", `{"n":1}`)
			answers := r.later(t.Context(), body)
			r.held()
			r.edit(nil) // the watch has shown the request
			tc.happens(r)
			got := <-answers
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.runs {
				r.ran(body)
			} else {
				r.nothingSent()
			}
		})
	}
}

func TestPendingRequestsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.MaxPending = 3 })
	codes := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			got := r.post(toolCall("update_invoice", fmt.Sprintf(`{"n":%d}`, i)))
			mu.Lock()
			defer mu.Unlock()
			codes[got.code()]++
		})
	}
	all.Wait()
	if n := len(r.requests()); n != 3 || codes[codePending] != 3 || codes["TooManyPending"] != 37 {
		t.Errorf("%d requests, answers by code %v", n, codes)
	}
	r.nothingSent()
	// The place of one that ended is free again.
	request := r.requests()[0]
	request.Status.Phase = v1alpha1.PhaseDismissed
	if err := r.api.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
	if got := r.post(toolCall("update_invoice", `{"n":99}`)); got.code() != codePending {
		t.Errorf("after one ended: %s", got.body)
	}
}

func TestARequestThatIsBeingOpenedCountsAsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.MaxPending = 1 })
	opening, open := make(chan struct{}), make(chan struct{})
	r.creates = func(_ *v1alpha1.ApprovalRequest, create func() error) error {
		close(opening)
		<-open
		return create() // the watch does not show it yet
	}
	first := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`))
	<-opening
	if got := r.post(toolCall("update_invoice", `{"n":2}`)); got.code() != "TooManyPending" {
		t.Errorf("while the first is being opened: %s", got.body)
	}
	close(open)
	if got := <-first; got.code() != codePending {
		t.Errorf("the first: %s", got.body)
	}
	if got := r.post(toolCall("update_invoice", `{"n":3}`)); got.code() != "TooManyPending" {
		t.Errorf("before the watch shows the first: %s", got.body)
	}
}

func TestForgedRequestsAreNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := toolCall("update_invoice", `{"n":1}`)
	r.creates = func(o *v1alpha1.ApprovalRequest, create func() error) error {
		o.Spec.Arguments = `{"n":0}` // the display is harmless, the hash another's
		defer r.edit(nil)
		return create()
	}
	r.post(body)
	r.decide(v1alpha1.DecisionApproved)
	if got := r.post(body); got.code() != "RequestMismatch" {
		t.Errorf("got %s", got.body)
	}
	r.nothingSent()
}

func TestFreshness(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tc := range []struct {
		promoted bool
		age      time.Duration
		want     string
	}{
		{false, 0, "Fresh"}, {false, 91 * time.Second, "Fresh"}, {false, 5 * time.Minute, "Fresh"}, {false, 5*time.Minute + 1, "Stale"},
		{true, 90 * time.Second, "Fresh"}, {true, 90*time.Second + 1, "Unproven"}, {true, 5 * time.Minute, "Unproven"}, {true, 5*time.Minute + 1, "Stale"},
	} {
		if tc.promoted {
			r.promote()
		}
		r.clock.SetTime(noon.Add(tc.age))
		got := map[int]string{0: "Stale", 1: "Unproven", 2: "Fresh"}[int(r.server.Freshness())]
		if got != tc.want {
			t.Errorf("promoted %v, age %v: %s, want %s", tc.promoted, tc.age, got, tc.want)
		}
	}
	fresh := &Server{Key: billing, Clock: r.clock, MaxStaleness: time.Hour}
	if got := fresh.Freshness(); got != 0 {
		t.Errorf("without a snapshot: %d", got)
	}
	fresh.view.Swap(r.server.Snapshot())
	if got := fresh.Freshness(); got != 0 {
		t.Errorf("without a proof: %d", got)
	}
}
