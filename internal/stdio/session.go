// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxKept is how many messages are kept for a stream that is slow, or not open yet.
const maxKept = 64

// session is one client and the process that is its server.
type session struct {
	id       string
	process  *process
	clock    clock.PassiveClock
	stopping context.Context
	started  time.Time
	over     chan struct{} // closed when the process says nothing more

	mu      sync.Mutex
	used    time.Time
	spoke   bool               // the process has answered something
	waiting map[string]*waiter // by the id of the request
	posts   []*waiter          // the same, oldest first
	stream  chan []byte        // nil while nobody listens
	kept    [][]byte           // for the next stream
}

// waiter is a request that is under way.
type waiter struct {
	key   string
	token string
	// said are messages that belong to the request; the last one is the answer.
	said chan reply
	gone chan struct{}
}

type reply struct {
	line []byte
	last bool
}

// pass gives a message to the process, and the client what comes of it.
func (c *session) pass(w http.ResponseWriter, r *http.Request, m message) {
	c.touch()
	if !m.isRequest() {
		if err := c.process.write(m.line, c.clock.Now()); err != nil {
			refuse(w, r, http.StatusNotFound, nil, "the session has ended: initialize again")
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	waits, ok := c.join(m)
	if !ok {
		refuse(w, r, http.StatusBadRequest, m.ID, "another request with this id is under way in the session")
		return
	}
	defer c.leave(waits)
	if err := c.process.write(m.line, c.clock.Now()); err != nil {
		refuse(w, r, http.StatusBadGateway, m.ID, "the MCP server has ended")
		return
	}
	c.relay(w, r, m, waits)
}

// relay writes what belongs to a request: one answer as JSON, or a stream where more comes first.
func (c *session) relay(w http.ResponseWriter, r *http.Request, m message, waits *waiter) {
	streams := false
	for {
		select {
		case said := <-waits.said:
			switch {
			case said.last && !streams:
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(said.line) // a client that has gone misses it
				return
			case !streams:
				streams = true
				beginStream(w)
			}
			if !writeEvent(w, said.line) || said.last {
				return
			}
		case <-r.Context().Done():
			return
		case <-c.over:
			select { // what it said last may be the answer
			case said := <-waits.said:
				waits.said <- said
				continue
			default:
			}
			if !streams {
				refuse(w, r, http.StatusBadGateway, m.ID, "the MCP server ended before it answered")
			}
			return
		}
	}
}

// listen gives a client what belongs to none of its requests.
func (c *session) listen(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	if c.stream != nil {
		c.mu.Unlock()
		refuse(w, r, http.StatusConflict, nil, "a stream of this session is open already")
		return
	}
	stream := make(chan []byte, 2*maxKept)
	for _, line := range c.kept {
		stream <- line
	}
	c.stream, c.kept = stream, nil
	c.mu.Unlock()
	defer c.hangUp(stream)
	beginStream(w)
	for {
		select {
		case line, open := <-stream:
			if !open || !writeEvent(w, line) {
				return
			}
		case <-r.Context().Done():
			return
		case <-c.stopping.Done():
			return
		case <-c.over:
			return
		}
	}
}

func (c *session) hangUp(stream chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == stream {
		c.stream = nil
	}
	c.used = c.clock.Now()
}

// follow reads what the process says until it says nothing more.
func (c *session) follow() {
	defer close(c.over)
	for line, ok := c.process.read(); ok; line, ok = c.process.read() {
		if m, err := read(line); err == nil { // what is no message, some servers print it, is dropped
			c.route(m)
		}
	}
}

// route finds who waits for a message.
func (c *session) route(m message) {
	c.mu.Lock()
	c.spoke = true
	var to *waiter
	switch {
	case m.isAnswer():
		if to = c.waiting[m.key()]; to != nil {
			c.forget(to) // what comes later is none of it
		}
	case m.isRequest() || m.belongsToRequest():
		to = c.asking(m.progressOf())
	}
	if to == nil {
		if !m.isAnswer() {
			c.tell(m.line)
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	select {
	case to.said <- reply{m.line, m.isAnswer()}:
	case <-to.gone:
	}
}

// asking returns the request that a message of the server belongs to: the one with its progress token, or the newest.
func (c *session) asking(token string) *waiter {
	for _, p := range c.posts {
		if token != "" && p.token == token {
			return p
		}
	}
	if token != "" || len(c.posts) == 0 {
		return nil
	}
	return c.posts[len(c.posts)-1]
}

// tell puts a message on the stream. A stream that nobody reads is ended, and opened again by who wants it.
func (c *session) tell(line []byte) {
	if c.stream == nil {
		if len(c.kept) < maxKept {
			c.kept = append(c.kept, line)
		}
		return
	}
	select {
	case c.stream <- line:
	default:
		close(c.stream)
		c.stream = nil
	}
}

func (c *session) join(m message) (*waiter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := m.key()
	if c.waiting[key] != nil {
		return nil, false
	}
	waits := &waiter{key: key, token: m.progressToken(), said: make(chan reply, 1), gone: make(chan struct{})}
	c.waiting[key] = waits
	c.posts = append(c.posts, waits)
	return waits, true
}

func (c *session) leave(waits *waiter) {
	close(waits.gone)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(waits)
	c.used = c.clock.Now()
}

// forget takes a request off those that are under way; the caller holds mu.
func (c *session) forget(waits *waiter) {
	if c.waiting[waits.key] == waits {
		delete(c.waiting, waits.key)
	}
	c.posts = slices.DeleteFunc(c.posts, func(p *waiter) bool { return p == waits })
}

func (c *session) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.clock.Now()
}

func (c *session) lastUsed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// idle tells whether nothing of the session is under way.
func (c *session) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.posts) == 0 && c.stream == nil
}

func (c *session) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spoke
}

func beginStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the next write finds out
}

func writeEvent(w http.ResponseWriter, line []byte) bool {
	_, err := w.Write(bytes.Join([][]byte{[]byte("event: message\ndata: "), line, []byte("\n\n")}, nil))
	return err == nil && http.NewResponseController(w).Flush() == nil
}
