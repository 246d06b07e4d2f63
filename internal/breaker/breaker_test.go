// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package breaker_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/breaker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bench is a breaker with a clock.
type bench struct {
	t *testing.T
	*breaker.Breaker
	now time.Time
}

func newBench(t *testing.T) *bench {
	return &bench{t, &breaker.Breaker{Failures: 3, Rest: 10 * time.Second}, noon}
}

func (b *bench) call(outcome breaker.Outcome) {
	b.t.Helper()
	b.Done(b.passes(), b.now, outcome)
}

func (b *bench) passes() breaker.Pass {
	b.t.Helper()
	pass, wait, ok := b.Admit(b.now)
	if !ok || wait != 0 {
		b.t.Fatalf("refused for %s", wait)
	}
	return pass
}

func (b *bench) refuses(want time.Duration) {
	b.t.Helper()
	if _, wait, ok := b.Admit(b.now); ok || wait != want {
		b.t.Errorf("admitted %v, wait %s; want a refusal for %s", ok, wait, want)
	}
}

func (b *bench) is(want breaker.State, wait time.Duration) {
	b.t.Helper()
	if state, left := b.State(b.now); state != want || left != wait {
		b.t.Errorf("state %d for %s, want %d for %s", state, left, want, wait)
	}
}

// opened has failed as often as it takes.
func (b *bench) opened() {
	b.t.Helper()
	for range 3 {
		b.call(breaker.Failed)
	}
	b.refuses(10 * time.Second)
}

func TestFailuresInARowOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 5 {
		b.call(breaker.Failed)
		b.call(breaker.Failed)
		b.call(breaker.Worked)
	}
	b.is(breaker.Closed, 0)
	b.call(breaker.Failed)
	b.call(breaker.Unknown)
	b.call(breaker.Failed)
	b.is(breaker.Closed, 0)
	b.call(breaker.Failed)
	b.is(breaker.Open, 10*time.Second)
	b.now = b.now.Add(9 * time.Second)
	b.refuses(time.Second)
}

func TestWhatBecomesOfAProbe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		outcome breaker.Outcome
		after   time.Duration
		then    func(*bench)
	}{
		"it works":            {breaker.Worked, 0, func(b *bench) { b.is(breaker.Closed, 0); b.call(breaker.Failed); b.is(breaker.Closed, 0) }},
		"it fails":            {breaker.Failed, time.Second, func(b *bench) { b.refuses(10 * time.Second) }},
		"its caller goes":     {breaker.Unknown, time.Second, func(b *bench) { b.is(breaker.Open, 0); b.passes() }},
		"it works too late":   {breaker.Worked, time.Minute, func(b *bench) { b.is(breaker.Closed, 0) }},
		"it fails long after": {breaker.Failed, 10 * time.Second, func(b *bench) { b.refuses(10 * time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.opened()
			b.now = b.now.Add(10 * time.Second)
			b.is(breaker.Open, 0)
			probe := b.passes()
			b.is(breaker.HalfOpen, 10*time.Second)
			b.refuses(10 * time.Second)
			b.now = b.now.Add(tc.after)
			b.Done(probe, b.now, tc.outcome)
			tc.then(b)
		})
	}
}

func TestAProbeThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.opened()
	b.now = b.now.Add(10 * time.Second)
	hangs := b.passes()
	b.now = b.now.Add(9 * time.Second)
	b.refuses(time.Second)
	b.now = b.now.Add(time.Second)
	second := b.passes()
	b.Done(hangs, b.now, breaker.Failed) // nobody waits for it any more: the second one keeps its place
	b.refuses(10 * time.Second)
	b.Done(second, b.now, breaker.Worked)
	b.is(breaker.Closed, 0)
}

// One that was given up works after all: so the server does, whatever becomes of the probe that took its place.
func TestAProbeThatWorksCloses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		outcome breaker.Outcome
		want    breaker.State
		wait    time.Duration
	}{
		"it works": {breaker.Worked, breaker.Closed, 0},
		"it fails": {breaker.Failed, breaker.HalfOpen, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.opened()
			b.now = b.now.Add(10 * time.Second)
			late := b.passes()
			b.now = b.now.Add(10 * time.Second)
			b.passes()
			b.Done(late, b.now, tc.outcome)
			b.is(tc.want, tc.wait)
		})
	}
}

func TestNoProbeIsUnderWayWhenABreakerOpensAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.opened()
	b.now = b.now.Add(10 * time.Second)
	b.call(breaker.Worked)
	b.opened()
	b.is(breaker.Open, 10*time.Second)
	b.now = b.now.Add(time.Minute)
	b.is(breaker.Open, 0)
	b.passes()
	b.is(breaker.HalfOpen, 10*time.Second)
}

func TestWhatPassedBeforeSaysNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := b.passes()
	b.opened()
	b.Done(old, b.now, breaker.Worked)
	b.refuses(10 * time.Second)
	b.now = b.now.Add(10 * time.Second)
	b.call(breaker.Worked)
	for range 3 {
		b.Done(old, b.now, breaker.Failed)
	}
	b.is(breaker.Closed, 0)
}

// Whatever happened, and whatever never ended: a server that works is used again after one rest.
func TestNothingWedgesABreaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := &breaker.Breaker{Failures: rapid.IntRange(1, 4).Draw(t, "failures"), Rest: 10 * time.Second}
		now := noon
		var under []breaker.Pass
		lastProbe := time.Time{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
			switch before, _ := b.State(now); rapid.IntRange(0, 2).Draw(t, "step") {
			case 0, 1:
				pass, wait, ok := b.Admit(now)
				if !ok && (wait <= 0 || wait > b.Rest) {
					t.Fatalf("refused for %s", wait)
				}
				if !ok {
					continue
				}
				if before == breaker.HalfOpen {
					t.Fatalf("a second probe %s after the first", now.Sub(lastProbe))
				}
				lastProbe = now
				under = append(under, pass)
			default:
				if len(under) > 0 {
					i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
					b.Done(under[i], now, breaker.Outcome(rapid.IntRange(0, 2).Draw(t, "outcome")))
					under = append(under[:i], under[i+1:]...)
				}
			}
		}
		now = now.Add(b.Rest)
		pass, _, ok := b.Admit(now)
		if !ok {
			t.Fatal("no probe after a rest")
		}
		b.Done(pass, now, breaker.Worked)
		if state, _ := b.State(now); state != breaker.Closed {
			t.Fatalf("state %d after a probe that worked", state)
		}
	})
}

func TestAProbeThatWasGivenUpFreesNoPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.opened()
	b.now = b.now.Add(10 * time.Second)
	late := b.passes()
	b.now = b.now.Add(10 * time.Second)
	probe := b.passes()
	for _, outcome := range []breaker.Outcome{breaker.Unknown, breaker.Failed} {
		b.now = b.now.Add(time.Second)
		b.Done(late, b.now, outcome)
	}
	b.is(breaker.HalfOpen, 8*time.Second)
	b.Done(probe, b.now, breaker.Unknown)
	b.is(breaker.Open, 0)
	b.passes()
}
