// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// errMoved ends the stream of a server that names another address for messages than at first: the agent would send its
// messages past the gateway.
var errMoved = errors.New("the server names another address for messages")

// pump relays what the server sends until its stream ends; a stream that was ended here is no error. It goes on when the
// agent has gone, as long as calls that have left wait for their answers.
func (s *legacyStream) pump(events *wire.Splitter) error {
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && s.done():
			return nil
		case err != nil:
			return err
		case !event.Whole: // nobody can tell whether more would have come
			continue
		}
		if err := s.receive(event); err != nil {
			return err
		}
	}
}

// done tells whether the stream was ended here.
func (s *legacyStream) done() bool {
	select {
	case <-s.drained:
		return true
	default:
		return false
	}
}

// receive passes an event on: answers to whoever waits for them, and other messages to the agent.
func (s *legacyStream) receive(event wire.Event) error {
	if event.NamesEndpoint() {
		return errMoved
	}
	if len(event.Data) == 0 {
		s.tell(event.Raw)
		return nil
	}
	message, err := wire.ScanIncoming(event.Data)
	if err == nil && (!message.Response || message.ID == "") {
		s.tell(rewriteEvent(event, s.listFilter(s.server, s.digest, s.caller, nil)))
		return nil
	}
	// What cannot be read beyond doubt goes no further, unless it is the answer that somebody waits for, who knows what to
	// make of it. An answer that nobody asked for goes nowhere: the server cannot answer a call that is held.
	p := s.take(message.ID)
	if p == nil {
		return nil
	}
	defer close(p.done)
	if p.transform == nil {
		p.answer = bytes.Clone(event.Data)
		return nil
	}
	s.tell(rewriteEvent(event, p.transform))
	return nil
}

// begin sets what the stream is written to; nil for nothing any more.
func (s *legacyStream) begin(w http.ResponseWriter) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.w, s.used = w, s.Clock.Now()
}

// touch notes that something passed.
func (s *legacyStream) touch() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.used = s.Clock.Now()
}

func (s *legacyStream) lastUsed() time.Time {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.used
}

// tell sends whole events to the agent. One that reads nothing for a while has gone: what becomes of its calls, and of
// the server's stream, must not depend on it.
func (s *legacyStream) tell(events []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.used = s.Clock.Now()
	if s.w == nil {
		return
	}
	if err := writeNow(s.w, events); err != nil {
		s.w = nil
		s.leave()
	}
}
