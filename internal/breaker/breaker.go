// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package breaker spares a server that fails, and finds out by itself when it works again. It does no I/O and starts
// nothing: time is what it is told.
package breaker

import (
	"sync"
	"time"
)

// State is what a breaker does with calls.
type State int

const (
	// Closed: calls pass.
	Closed State = iota
	// Open: calls are refused.
	Open
	// HalfOpen: one call at a time passes, to find out whether the server works again.
	HalfOpen
)

// Outcome is what a call says of the server. The zero value says nothing.
type Outcome int

const (
	// Unknown: the call ended for a reason of its own, its caller has gone say.
	Unknown Outcome = iota
	// Worked: the server answered.
	Worked
	// Failed: the server was not reached, or said that it failed.
	Failed
)

// Breaker opens after so many failures in a row, and then lets a probe through after each rest. A probe of which nothing
// is heard for a rest is given up: the next call is one. So whatever becomes of probes, none keeps others from being made.
type Breaker struct {
	// Failures in a row open the breaker; at least 1.
	Failures int
	// Rest is how long the server is left alone.
	Rest time.Duration

	mu     sync.Mutex
	failed int       // in a row, while closed
	open   bool      // until a probe has worked
	until  time.Time // no probe before that
	epoch  int       // counts the times that it opened or closed: what passed in another one says nothing of this one
	probe  int       // numbers the probes; the last one holds the place until it is done or given up
}

// Pass is the leave of one call to go; Done takes it back.
type Pass struct{ epoch, probe int }

// Admit lets a call through, or says how long to wait.
func (b *Breaker) Admit(now time.Time) (pass Pass, wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return Pass{epoch: b.epoch}, 0, true
	}
	if wait := b.until.Sub(now); wait > 0 {
		return Pass{}, wait, false
	}
	b.probe++
	b.until = now.Add(b.Rest)
	return Pass{epoch: b.epoch, probe: b.probe}, 0, true
}

// Done tells what a call that was let through says of the server.
func (b *Breaker) Done(pass Pass, now time.Time, outcome Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case pass.epoch != b.epoch:
	case !b.open && outcome == Worked:
		b.failed = 0
	case !b.open && outcome == Failed:
		if b.failed++; b.failed >= b.Failures {
			b.turn(true)
			b.until = now.Add(b.Rest)
		}
	case b.open && outcome == Worked: // however late: the server works
		b.turn(false)
	case pass.probe != b.probe: // it was given up; another one is under way
	case b.open && outcome == Failed:
		b.until = now.Add(b.Rest)
	case b.open:
		b.until = now
	}
}

func (b *Breaker) turn(open bool) {
	b.open, b.failed = open, 0
	b.epoch++
	b.probe = 0
}

// State returns the state, and how long a call has to wait now.
func (b *Breaker) State(now time.Time) (State, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return Closed, 0
	case b.probe > 0 && now.Before(b.until):
		return HalfOpen, b.until.Sub(now)
	default:
		return Open, max(b.until.Sub(now), 0)
	}
}
