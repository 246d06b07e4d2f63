// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// waiting are the calls that have not left yet, so that their clients can cancel them. The zero value has none.
type waiting struct {
	mu    sync.Mutex
	calls map[waitingFor][]*call
}

// waitingFor names a call as its client does. An id belongs to a session: without one nobody can tell whose it is, and a
// client cancels by closing its connection.
type waitingFor struct {
	session string
	caller  snapshot.Caller
	id      string
}

// cancellable lets the client of the call cancel it as long as it has not left. ended has to be called once it is over.
func (c *call) cancellable() (ended func()) {
	session := c.request.Header.Get(sessionHeader)
	if session == "" {
		return func() {}
	}
	c.name = waitingFor{session, c.owner(), wire.IDOf(c.message.ID)}
	ctx, cancel := context.WithCancel(c.request.Context())
	c.request = c.request.WithContext(ctx)
	c.cancel = func() {
		c.cancelled = true
		cancel()
	}
	w := &c.server.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[waitingFor][]*call{}
	}
	w.calls[c.name] = append(w.calls[c.name], c)
	return func() {
		cancelled := c.departs() && c.cancelled
		cancel()
		if j, ok := c.judge(); cancelled && ok && !c.reply.answered {
			c.refuse(j, nil, notice{code: "Cancelled", text: "the client cancelled this call while it waited. Nothing was executed."})
		}
	}
}

// departs tells that the call can be cancelled no more, and whether it could be until now.
func (c *call) departs() bool {
	w := &c.server.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.calls[c.name]), func(o *call) bool { return o == c })
	if len(left) == len(w.calls[c.name]) {
		return false
	}
	if w.calls[c.name] = left; len(left) == 0 {
		delete(w.calls, c.name)
	}
	return true
}

// cancels ends the calls that a notification of their client cancels, and tells whether there were any.
func (m *other) cancels() bool {
	session, id := m.request.Header.Get(sessionHeader), m.message.CancelledID()
	if session == "" || id == "" {
		return false
	}
	w := &m.server.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls[waitingFor{session, m.owner(), id}]
	for _, c := range calls {
		c.cancel()
	}
	return len(calls) > 0
}
