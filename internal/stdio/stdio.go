// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stdio puts streamable HTTP in front of an MCP server that speaks by its standard input and output. Every session
// has a process of its own, as such servers expect; messages pass as they are, and nothing is judged here.
package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// Path is where the server is reached.
	Path = "/mcp"

	sessionHeader = "Mcp-Session-Id"
	// maxMessage bounds one message either way, in bytes.
	maxMessage = 64 << 20
	// steadyAfter is how long a process must have run for its end to be no failure to start.
	steadyAfter = 10 * time.Second
	// minRest and maxRest bound the wait before a server that failed to start is started again.
	minRest, maxRest = time.Second, time.Minute
)

// Server is an http.Handler; all exported fields are set before the first request.
type Server struct {
	// Command is the program and its arguments.
	Command []string
	// Stderr takes what the processes say besides.
	Stderr io.Writer
	Clock  clock.PassiveClock
	// NewID returns a random value that nobody else can have.
	NewID func() string
	// MaxSessions is how many processes may run. One more ends the session that was used longest ago, if nothing of it is
	// under way.
	MaxSessions int
	// Stopping ends when the server is to stop: streams on which clients only listen end then.
	Stopping context.Context

	mu       sync.Mutex
	sessions map[string]*session
	failures int
	again    time.Time
	running  sync.WaitGroup
}

// ServeHTTP passes one message of a client on, or opens its stream, or ends its session.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != Path:
		http.Error(w, "no such path; the server is at "+Path, http.StatusNotFound)
		return
	case !isLoopback(r.Host): // a page in a browser of this machine, by a name of its own
		http.Error(w, "this Host may not use the server", http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r)
	case http.MethodGet, http.MethodDelete:
		known := s.session(r.Header.Get(sessionHeader))
		switch {
		case known == nil:
			refuse(w, r, http.StatusNotFound, nil, "the session is not known: initialize again")
		case r.Method == http.MethodGet:
			known.listen(w, r)
		default:
			s.end(known)
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// post passes one message on, and its answer back.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		refuse(w, r, http.StatusRequestEntityTooLarge, nil, "the message cannot be read, or is larger than 64 MiB")
		return
	}
	m, err := read(body)
	if err != nil {
		refuse(w, r, http.StatusBadRequest, nil, err.Error())
		return
	}
	id := r.Header.Get(sessionHeader)
	known := s.session(id)
	switch {
	case id == "" && m.Method == "initialize" && m.isRequest():
		s.initialize(w, r, m)
	case id == "":
		refuse(w, r, http.StatusBadRequest, m.ID, "a session is needed: initialize first")
	case known == nil:
		refuse(w, r, http.StatusNotFound, m.ID, "the session is not known: initialize again")
	default:
		known.pass(w, r, m)
	}
}

// initialize starts a process for a new session.
func (s *Server) initialize(w http.ResponseWriter, r *http.Request, m message) {
	fresh, wait, err := s.begin(r.Context())
	if err != nil {
		log.FromContext(r.Context()).Error(err, "server not started")
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
		refuse(w, r, http.StatusServiceUnavailable, m.ID, "the MCP server cannot be started now: try again later")
		return
	}
	w.Header().Set(sessionHeader, fresh.id)
	fresh.pass(w, r, m)
}

var errFull = errors.New("all sessions are in use")

// begin starts a session, or says how long to wait before the next try.
func (s *Server) begin(ctx context.Context) (*session, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait := s.again.Sub(s.Clock.Now()); wait > 0 {
		return nil, wait, fmt.Errorf("it failed %d times in a row", s.failures)
	}
	if len(s.sessions) >= s.MaxSessions {
		idle := s.idlest()
		if idle == nil {
			return nil, minRest, errFull
		}
		delete(s.sessions, idle.id)
		s.running.Go(idle.process.stop)
	}
	p, err := start(s.Command, s.Stderr)
	if err != nil {
		return nil, s.failed(), fmt.Errorf("start %s: %w", s.Command[0], err)
	}
	fresh := &session{id: s.NewID(), process: p, clock: s.Clock, stopping: s.Stopping, started: s.Clock.Now(), used: s.Clock.Now(), waiting: map[string]*waiter{}, over: make(chan struct{})}
	if s.sessions == nil {
		s.sessions = map[string]*session{}
	}
	s.sessions[fresh.id] = fresh
	logger := log.FromContext(ctx)
	s.running.Go(func() {
		fresh.follow()
		s.ended(fresh)
		logger.V(1).Info("process ended", "duration", s.Clock.Since(fresh.started).String(), "reason", p.state())
	})
	return fresh, 0, nil
}

// idlest returns the session that was used longest ago of those with nothing under way.
func (s *Server) idlest() *session {
	var found *session
	for _, candidate := range s.sessions {
		if candidate.idle() && (found == nil || candidate.lastUsed().Before(found.lastUsed())) {
			found = candidate
		}
	}
	return found
}

// ended notes the end of a process. One that ends by itself soon after its start is started again later and later.
func (s *Server) ended(gone *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, gone.id)
	switch {
	case !gone.process.told() && s.Clock.Since(gone.started) < steadyAfter:
		s.failed()
	case gone.answered():
		s.failures = 0
	}
}

// failed doubles the wait before the next start.
func (s *Server) failed() time.Duration {
	wait := min(maxRest, minRest<<min(s.failures, 10))
	s.failures++
	s.again = s.Clock.Now().Add(wait)
	return wait
}

func (s *Server) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// end ends a session that its client is done with.
func (s *Server) end(known *session) {
	s.mu.Lock()
	delete(s.sessions, known.id)
	s.mu.Unlock()
	s.running.Go(known.process.stop)
}

// Close ends all processes and returns when they are gone. No request may be under way.
func (s *Server) Close() {
	s.mu.Lock()
	for _, known := range s.sessions {
		s.running.Go(known.process.stop)
	}
	s.mu.Unlock()
	s.running.Wait()
}
