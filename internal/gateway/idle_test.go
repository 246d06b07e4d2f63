// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestItIsQuietOnceNothingHasBeenUnderWayForAWhile(t *testing.T) {
	t.Parallel()
	var q quiet
	for _, look := range []struct {
		at         time.Duration
		busy, want bool
	}{
		{0, false, false}, {time.Second, false, false}, {idleFor, true, false}, {10 * idleFor, true, false},
		{11*idleFor - time.Nanosecond, false, false}, {11 * idleFor, false, true},
	} {
		if got := q.lasts(noon.Add(look.at), look.busy); got != look.want {
			t.Errorf("after %s, busy %v: quiet %v, want %v", look.at, look.busy, got, look.want)
		}
	}
}

// An agent that only listens keeps nobody from stopping.
func TestCallsKeepAGatewayBusyAndStreamsDoNot(t *testing.T) {
	t.Parallel()
	g := newRig(t).gateway
	for p, want := range map[place]bool{reading: true, awaiting: true, telling: true, listening: false} {
		l, _ := g.callers.enter("agent", p, 10, 10)
		if got := g.callers.busyWith(reading, awaiting, telling); got != want {
			t.Errorf("place %d makes it busy: %v, want %v", p, got, want)
		}
		g.callers.leave(l, p)
		if g.callers.busyWith(reading, awaiting, telling) {
			t.Errorf("it is busy when place %d was left", p)
		}
	}
}

func TestAnIdleGatewayIsAwaited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := make(chan error, 1)
	go func() { done <- r.gateway.AwaitIdle(t.Context()) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(time.Millisecond):
			r.clock.Step(idleEvery)
		}
	}
}

func TestWaitingForAnIdleGatewayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := newRig(t).gateway
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.AwaitIdle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
