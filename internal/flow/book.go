// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// maxOpen bounds the flows of one book that have not ended, and maxOwn those of one caller, whomever it acts for.
	maxOpen = 1024
	maxOwn  = maxOpen / 2
	// maxTasks bounds the tasks whose callers are remembered after their end, and those of calls without effects; the one
	// that was used longest ago is forgotten. A task that runs is not: the open flows have their own bound.
	maxTasks = 8192
)

// Book holds the flows of one server. It is safe for concurrent use; the zero value is empty.
type Book[T any] struct {
	mu   sync.Mutex
	open []*Flow[T]
	// The tasks, by the digest of their id: of open flows, of those that have ended, and of calls without effects.
	running map[taskKey]*Flow[T]
	over    *lru.Cache // *Flow[T]
	free    *lru.Cache // nothing but the keys
}

// taskKey is the digest of the id of a task.
type taskKey [sha256.Size]byte

// Keep has a flow wait for what the server said comes next: another round, or the end of a task. It returns false where
// there is no room for one more, or where another flow runs as a task of that id.
func (b *Book[T]) Keep(f *Flow[T], next wire.Next, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isNew := !slices.Contains(b.open, f)
	if isNew && (len(b.open) >= maxOpen || b.ownedBy(f.Owner.Username) >= maxOwn) {
		return false
	}
	if next.Task.ID != "" {
		if _, known := b.task(next.Task.ID); known {
			return false
		}
		if b.running == nil {
			b.running = map[taskKey]*Flow[T]{}
		}
		f.stage, f.task = tasked, sha256.Sum256([]byte(next.Task.ID))
		b.running[f.task] = f
		f.hear(next.Task, now)
	} else {
		f.stage, f.awaits, f.asks = waiting, stateOf(next.State, next.HasState), next.Asks
	}
	if isNew {
		b.open = append(b.open, f)
	}
	return true
}

// ownedBy counts the open flows of a caller.
func (b *Book[T]) ownedBy(username string) (n int) {
	for _, f := range b.open {
		if f.Owner.Username == username {
			n++
		}
	}
	return n
}

// Take returns the flow that a round goes on with, which from then on waits for no other: at most one message is sent for
// each round. Without one it says why. A flow whose time is up takes no more of them.
func (b *Book[T]) Take(call Call, round wire.Round, now time.Time) (*Flow[T], Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	why := Unknown
	for _, f := range b.open {
		switch f.fits(call, round, now) {
		case Taken:
			f.stage = sent
			return f, Taken
		case Unasked:
			why = Unasked
		case Unknown:
		}
	}
	return nil, why
}

// Release has a flow wait for the same round again: nothing of it was sent.
func (b *Book[T]) Release(f *Flow[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.stage == sent {
		f.stage = waiting
	}
}

// End says that a flow has ended. Whose its task was is still remembered, so that nobody else is given the result.
func (b *Book[T]) End(f *Flow[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(f)
}

func (b *Book[T]) end(f *Flow[T]) {
	if b.running[f.task] == f {
		delete(b.running, f.task)
		if b.over == nil {
			b.over = lru.New(maxTasks)
		}
		b.over.Add(f.task, f)
	}
	b.open = slices.DeleteFunc(b.open, func(other *Flow[T]) bool { return other == f })
}

// Free remembers the task of a call without effects, which no one watches over.
func (b *Book[T]) Free(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.task(id); known {
		return
	}
	if b.free == nil {
		b.free = lru.New(maxTasks)
	}
	b.free.Add(taskKey(sha256.Sum256([]byte(id))), nil)
}

// Task returns the flow that runs, or ran, as a task; nil for a task of a call without effects. known is false for an id
// that is not remembered.
func (b *Book[T]) Task(id string) (f *Flow[T], known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.task(id)
}

func (b *Book[T]) task(id string) (*Flow[T], bool) {
	if id == "" {
		return nil, false
	}
	key := taskKey(sha256.Sum256([]byte(id)))
	if f := b.running[key]; f != nil {
		return f, true
	}
	if b.over != nil {
		if f, known := b.over.Get(key); known {
			return f.(*Flow[T]), true
		}
	}
	if b.free == nil {
		return nil, false
	}
	_, known := b.free.Get(key)
	return nil, known
}

// Hides tells whether a caller may not know of a task: it is one of a call with effects of somebody else.
func (b *Book[T]) Hides(id string, from snapshot.Caller) bool {
	f, _ := b.Task(id)
	return f != nil && f.Owner != from
}

// Hear takes in what the server says of a task, and returns the flow that it ended, nil for none. A flow that counts as
// lost can still end with what is sure.
func (b *Book[T]) Hear(s wire.TaskState, now time.Time) (*Flow[T], Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, _ := b.task(s.ID)
	if f == nil {
		return nil, Open
	}
	return b.close(f, f.hear(s, now))
}

// HearResult takes in the result of the call that a task runs, and returns the flow that it ended, nil for none.
func (b *Book[T]) HearResult(id string, result wire.Answer) (*Flow[T], Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, _ := b.task(id)
	if f == nil {
		return nil, Open
	}
	return b.close(f, endingOf(result))
}

func (b *Book[T]) close(f *Flow[T], ending Ending) (*Flow[T], Ending) {
	if ending == Open {
		return nil, Open
	}
	b.end(f)
	return f, ending
}

// Overdue is a flow that has ended by the time that went by.
type Overdue[T any] struct {
	Flow   *Flow[T]
	Ending Ending
}

// Overdue ends the flows that nothing more is to be heard of, and returns them. A round that is under way has a deadline
// of its own.
func (b *Book[T]) Overdue(now time.Time) []Overdue[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Overdue[T]
	for _, f := range slices.Clone(b.open) {
		if ending := f.due(now); f.stage != sent && ending != Open {
			b.end(f)
			all = append(all, Overdue[T]{f, ending})
		}
	}
	return all
}
