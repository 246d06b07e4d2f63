// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestAnOutcomeThatIsLearnedLateIsRecordedOnceTheAPITakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasked(taskOf2025)
	down := true
	r.updates = func(_ *v1alpha1.ApprovalRequest, update func() error) error {
		if down {
			return errors.New("down")
		}
		return update()
	}
	r.upstream.answers(answerJSON(`{"content":[]}`))
	r.post(about("result", ""))
	r.gateway.follow(t.Context())
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
		t.Errorf("while the API is down the request is %s", phase)
	}
	down = false
	r.gateway.follow(t.Context())
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseSucceeded || len(r.server.late) > 0 {
		t.Errorf("afterwards it is %s, %d are left", phase, len(r.server.late))
	}
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasked(taskOf2025)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.gateway.Follow(ctx) }()
	r.until("it follows", r.clock.HasWaiters)
	r.clock.Step(time.Minute)
	r.until("the call is given up", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseAmbiguous })
	cancel()
	if err := <-ended; err == nil {
		t.Error("it ended without a reason")
	}
}
