// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// load is agents that call, each call with a note of its own and until it is settled, and a person who approves them.
type load struct {
	t team
	// leave tells the agents to begin no further call, and stop everybody to end.
	leave   atomic.Bool
	stop    context.CancelFunc
	calling sync.WaitGroup
	voting  sync.WaitGroup
	settled atomic.Int32
	// disturbed counts the answers that were neither the tool's nor that a person has to be waited for.
	disturbed atomic.Int32
}

// agents is how many call at a time.
const agents = 3

// pause lies between two attempts of an agent, or of the person.
const pause = 300 * time.Millisecond

// begin starts agents and person; they go on until end.
func (t team) begin(ctx context.Context) *load {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the step
	l := &load{t: t, stop: stop}
	for agent := range agents {
		l.calling.Go(func() { l.call(ctx, agent) })
	}
	l.voting.Go(func() { l.vote(ctx) })
	return l
}

// call makes one call after the other. What breaks off is sent again, as an agent would.
func (l *load) call(ctx context.Context, agent int) {
	var s *session
	for i := 0; !l.leave.Load(); i++ {
		note := fmt.Sprintf("agent %d, call %d", agent, i)
		arguments := fmt.Sprintf(`{"invoiceId":"2026-9","note":%q}`, note)
		for ctx.Err() == nil {
			if s == nil {
				s, _ = l.t.open(ctx) // without one the next attempt opens another
			}
			if s != nil {
				got, err := s.call("update_invoice", arguments, "")
				if err == nil {
					break
				}
				if got.Code != "ApprovalPending" {
					l.disturbed.Add(1)
				}
				if got == (answer{}) { // kubectl has lost the pod
					s.abandon()
					s = nil
				}
			}
			if l.isSettled(ctx, note) {
				break // the answer was lost
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		l.settled.Add(1)
	}
	if s != nil {
		s.abandon()
	}
}

// isSettled tells whether a call with a note has run, or may have.
func (l *load) isSettled(ctx context.Context, note string) bool {
	requests, err := l.t.requests(ctx)
	return err == nil && slices.ContainsFunc(requests[note], func(r v1alpha1.ApprovalRequest) bool { return ended[r.Status.Phase] })
}

// ended are the phases of an approval that was used.
var ended = map[v1alpha1.Phase]bool{v1alpha1.PhaseSucceeded: true, v1alpha1.PhaseFailed: true, v1alpha1.PhaseAmbiguous: true}

// requests are those of the team, by the notes of their calls.
func (t team) requests(ctx context.Context) (map[string][]v1alpha1.ApprovalRequest, error) {
	list := &v1alpha1.ApprovalRequestList{}
	if err := t.admin.List(ctx, list, client.InNamespace(t.Namespace)); err != nil {
		return nil, err
	}
	by := map[string][]v1alpha1.ApprovalRequest{}
	for _, request := range list.Items {
		var arguments struct{ Note string }
		if err := json.Unmarshal([]byte(request.Spec.Arguments), &arguments); err != nil {
			return nil, fmt.Errorf("read the arguments of %s: %w", request.Name, err)
		}
		by[arguments.Note] = append(by[arguments.Note], request)
	}
	return by, nil
}

// unwanted is the note of a call that nobody approves.
const unwanted = "nobody approves this"

// vote has alice approve what waits, with kubectl.
func (l *load) vote(ctx context.Context) {
	for ctx.Err() == nil {
		requests, _ := l.t.requests(ctx) // what cannot be read now is there later
		for note, of := range requests {
			for _, request := range of {
				if request.Status.Phase == v1alpha1.PhasePending && note != unwanted {
					l.t.kubectl(ctx, l.t.approval(request.Name, alice)...)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// goesOn waits until so many more calls are settled.
func (l *load) goesOn(ctx context.Context, more int32) (string, error) {
	before, began := l.settled.Load(), time.Now()
	err := l.t.until(ctx, func(context.Context) error {
		if n := l.settled.Load() - before; n < more {
			return fmt.Errorf("%d calls were settled, want %d", n, more)
		}
		return nil
	})
	return fmt.Sprintf("%d calls settled so far, the last %d in %s; %d answers were of disturbances", l.settled.Load(), more, time.Since(began).Round(100*time.Millisecond), l.disturbed.Load()), err
}

// end lets every call that has begun come to its end.
func (l *load) end(ctx context.Context) error {
	l.leave.Store(true)
	called := make(chan struct{})
	go func() {
		l.calling.Wait()
		close(called)
	}()
	defer l.voting.Wait()
	defer l.stop()
	select {
	case <-called:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the calls that have begun do not end: %w", ctx.Err())
	}
}
