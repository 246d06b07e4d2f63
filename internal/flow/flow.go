// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flow says which later messages belong to a call that did not end with its answer, and how such a call ends; it
// sends nothing, decides nothing about tools and does no I/O.
package flow

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// Call is what a later message has to be part of: an action, and whose it is.
type Call struct {
	Owner snapshot.Caller
	// Action is the hash of the call without what only later rounds have.
	Action string
}

// Flow is a call with effects that has left and has not ended with its answer. Of says what became of it so far, for
// whoever keeps that.
type Flow[T any] struct {
	Call
	Of T
	// Deadline is when it counts as lost.
	Deadline time.Time

	stage stage
	// task is the one that it runs as, if it does.
	task taskKey
	// awaits is what the next round has to repeat, asks the names that it may answer, in their order.
	awaits state
	asks   []string
	// said is the last word of the server on its task, at a time.
	said   word
	saidAt time.Time
}

// stage is where a flow is that has not ended. The zero stage takes no round.
type stage int

const (
	begun   stage = iota
	waiting       // for the caller, who sends the next round
	sent          // a round is under way
	tasked        // it runs as a task
)

// state is a requestState as it is remembered; the zero value is none.
type state struct {
	digest [sha256.Size]byte
	there  bool
}

func stateOf(text string, there bool) state {
	if !there {
		return state{}
	}
	return state{sha256.Sum256([]byte(text)), true}
}

// Refusal is why a round does not go on with any call.
type Refusal string

const (
	// Taken: it goes on with a call.
	Taken Refusal = ""
	// Unknown: no call of the caller waits for it: another tool or other arguments, a state that the server did not give
	// for this very call, a round that was sent before, or a call that has ended.
	Unknown Refusal = "Unknown"
	// Unasked: it answers what the server did not ask.
	Unasked Refusal = "Unasked"
)

// fits tells whether a round is the one that the flow waits for.
func (f *Flow[T]) fits(call Call, round wire.Round, now time.Time) Refusal {
	switch {
	case f.stage != waiting || !now.Before(f.Deadline) || f.Call != call || f.awaits != stateOf(round.State, round.HasState):
		return Unknown
	case slices.ContainsFunc(round.Answers, func(name string) bool { return !slices.Contains(f.asks, name) }):
		return Unasked
	default:
		return Taken
	}
}

// word is what a server says of a task.
type word int

const (
	nothing   word = iota
	completed      // without what the call came to
	failed         // likewise
)

// Ending is how a task ended, as far as it is known.
type Ending int

const (
	// Open: it has not ended, or more is to be learned of how it did.
	Open Ending = iota
	// Succeeded: the tool answered without an error.
	Succeeded
	// ToolError: the tool answered with an error.
	ToolError
	// Unclear: it has ended, and nobody knows with what effect.
	Unclear
)

// endingOf says how the call of a task ended by its result. What is no final result does not end it.
func endingOf(result wire.Answer) Ending {
	switch {
	case !result.Complete:
		return Open
	case result.IsError:
		return ToolError
	default:
		return Succeeded
	}
}

// hear takes in what the server says of the task, and returns how it ended. A task that was cancelled may have taken
// effect all the same, or in part. Of one that completed or failed without its result, the result is waited for: it may
// say that the tool failed.
func (f *Flow[T]) hear(s wire.TaskState, now time.Time) Ending {
	var said word
	switch s.Status {
	case "completed":
		said = completed
		if s.Result != nil {
			if ending := endingOf(*s.Result); ending != Open {
				return ending
			}
			return Unclear
		}
	case "failed":
		said = failed
	case "cancelled":
		return Unclear
	default:
		return Open
	}
	if f.said == nothing {
		f.said, f.saidAt = said, now
	}
	return Open
}

// patience is how long the result of a task is waited for that is said to have ended.
const patience = 10 * time.Second

// due says how a flow ends at a time if nothing more is heard: Open as long as there is time.
func (f *Flow[T]) due(now time.Time) Ending {
	late := !now.Before(f.Deadline)
	switch {
	case f.said == nothing && !late, f.said != nothing && !late && now.Sub(f.saidAt) < patience:
		return Open
	case f.said == completed:
		return Succeeded
	default:
		return Unclear
	}
}
