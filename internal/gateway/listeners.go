// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

// listener is a stream that an agent listens on: it has no end of its own.
type listener struct {
	endpoint string // digest of the one that it comes from
	end      func()
}

// dials returns the digest of the endpoint that is dialled, "" for none.
func (s *Server) dials() string {
	if up := s.upstream.Load(); up != nil {
		return up.digest
	}
	return ""
}

// listens has a stream ended once the endpoint that it comes from is not dialled any more: its agent would never hear
// of the server that is governed now. left has to be called when the stream has ended.
func (s *Server) listens(endpoint string, end func()) (left func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if endpoint != s.dials() { // it changed just now
		end()
	}
	l := &listener{endpoint, end}
	if s.listeners == nil {
		s.listeners = map[*listener]bool{}
	}
	s.listeners[l] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}
}

// endListeners ends the streams of every other endpoint than the one that is dialled.
func (s *Server) endListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if l.endpoint != s.dials() {
			l.end()
		}
	}
}
