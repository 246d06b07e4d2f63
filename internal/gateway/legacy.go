// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// HTTP+SSE, the transport of revision 2024-11-05: a GET opens a stream, whose first event names the address to POST
// messages to; all answers come by the stream. The gateway keeps one stream of the server for each of an agent:
//
//	agent ── GET ──▶ legacyStream ── GET ──▶ server      answers ◀── pump ◀── events
//	agent ── POST ─▶ judged as ever ── POST ─▶ server
//
// A stream is the session: when either side ends it, what is held for it ends, and the agent opens another.

const (
	// legacyOpening bounds the time until a server has said where messages go.
	legacyOpening = 10 * time.Second
	// legacyLifetime is how long a stream may last.
	legacyLifetime = 24 * time.Hour
)

// legacyStreams are the streams of one server. The zero value has none.
type legacyStreams struct {
	mu   sync.Mutex
	open map[*legacyStream]snapshot.Caller
}

func (l *legacyStreams) add(s *legacyStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*legacyStream]snapshot.Caller{}
	}
	l.open[s] = s.owner()
}

func (l *legacyStreams) remove(s *legacyStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s)
}

// find returns the stream with an id if it is the caller's.
func (l *legacyStreams) find(id string, caller snapshot.Caller) *legacyStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, owner := range l.open {
		if s.id == id && owner == caller {
			return s
		}
	}
	return nil
}

// speaksSSE tells whether the server speaks HTTP+SSE. The GovernedServer says so, neither agent nor server.
func (s *Server) speaksSSE() bool {
	snap := s.Snapshot()
	return snap != nil && snap.Server.Spec.Endpoint.Transport == v1alpha1.TransportSSE
}

// serveLegacy relays one request of an agent to a server of HTTP+SSE.
func (g *Gateway) serveLegacy(w *patient, r *http.Request, server *Server, who caller) {
	switch r.Method {
	case http.MethodGet:
		g.openLegacy(w, r, server, who)
	case http.MethodPost:
		g.postLegacy(w, r, server, who)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "this server speaks HTTP+SSE: GET opens a stream, POST sends a message", http.StatusMethodNotAllowed)
	}
}

// openLegacy opens a stream of the server for an agent, and serves it to its end.
func (g *Gateway) openLegacy(w http.ResponseWriter, r *http.Request, server *Server, who caller) {
	up := server.upstream.Load()
	if up == nil {
		writeUpstreamError(w, nil, errNoUpstream)
		return
	}
	if !g.keepsPace(w, server, who, nil) {
		return
	}
	t, ok := g.takePlace(w, server, who, listening, nil)
	if !ok {
		return
	}
	defer t.leave()
	agent, leave := context.WithCancel(r.Context())
	defer leave()
	s := &legacyStream{
		Gateway: g, caller: who, server: server, id: g.NewID(), digest: up.digest, agent: agent, leave: leave,
		ended: make(chan struct{}), drained: make(chan struct{}), waiting: map[string]*legacyRequest{},
	}
	server.legacy.add(s)
	defer server.legacy.remove(s)
	ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
	defer end()
	resp, events, ok := s.dial(ctx, end, w, r)
	if !ok {
		return
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	s.serve(w, r, events, end)
}

// dial opens the server's stream and reads where messages go; it answers the agent when that fails.
func (s *legacyStream) dial(ctx context.Context, end func(), w http.ResponseWriter, r *http.Request) (*http.Response, *wire.Splitter, bool) {
	opening, stop := context.WithTimeout(r.Context(), legacyOpening)
	defer stop()
	opened := context.AfterFunc(opening, end) //nolint:contextcheck // made of that of r just now
	resp, _, err := s.send(ctx, s.server, outbound{request: r, caller: s.owner(), headers: allHeaders, endpoint: s.digest})
	if err != nil {
		writeUpstreamError(w, nil, cmp.Or(opening.Err(), err))
		return nil, nil, false
	}
	if resp.StatusCode != http.StatusOK || readableAs(resp.Header) != kindEvents || isEncoded(resp.Header) {
		if resp.StatusCode == http.StatusOK {
			end() // what is no stream may have no end either
			discard(resp)
			writeRefusal(w, badAnswer("is no event stream; its GovernedServer says that it speaks HTTP+SSE"))
		} else {
			relay{Gateway: s.Gateway, server: s.server}.run(w, resp)
		}
		return nil, nil, false
	}
	events := wire.NewSplitter(resp.Body, int(s.Limits.Event))
	s.target, err = firstEndpoint(events, resp.Request.URL)
	if !opened() {
		err = opening.Err()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		writeUpstreamError(w, nil, err)
	case err != nil:
		writeRefusal(w, badAnswer("does not begin with an address of its own for messages"))
	default:
		copyHeader(w.Header(), resp.Header)
		return resp, events, true
	}
	end()
	discard(resp)
	return nil, nil, false
}

// firstEndpoint reads the first event of a stream that is more than a comment.
func firstEndpoint(events *wire.Splitter, stream *url.URL) (*url.URL, error) {
	for {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		if len(event.Data) > 0 || event.NamesEndpoint() {
			return wire.EndpointOf(event, stream)
		}
	}
}

// legacyStream is one stream of an agent and that of the server behind it.
type legacyStream struct {
	*Gateway
	caller
	server *Server
	id     string
	digest string   // of the endpoint that was dialled
	target *url.URL // where the server takes messages

	agent context.Context    // ends when nothing may begin for the agent any more
	leave context.CancelFunc // ends agent
	ended chan struct{}      // closed when nothing comes from the server any more

	writing sync.Mutex // guards the fields below
	w       http.ResponseWriter
	used    time.Time // when something passed last

	mu      sync.Mutex                // guards the fields below
	waiting map[string]*legacyRequest // requests of the agent that have no answer yet
	size    int                       // bytes of the calls among them
	running int                       // calls under way
	closed  bool                      // it takes no messages any more
	drained chan struct{}             // closed when it is closed and no call is under way
}

// serve relays the stream until either side ends it, and then waits for the calls that have left. end ends the server's
// side.
func (s *legacyStream) serve(w http.ResponseWriter, r *http.Request, events *wire.Splitter, end func()) {
	dies := s.Clock.Now().Add(legacyLifetime)
	s.begin(w)
	defer s.begin(nil)
	w.WriteHeader(http.StatusOK)
	// Also where the gateway is reached under another host or prefix: a path is resolved against what the agent asked for.
	s.tell([]byte("event: endpoint\ndata: " + r.URL.EscapedPath() + "?sessionId=" + s.id + "\n\n"))
	_, silent := s.server.announcing(audience{principal: s.principal}, func(event []byte) bool {
		s.tell(event)
		return true
	})
	defer silent()
	var keeper sync.WaitGroup
	keeper.Go(func() { s.keep(dies, end) })
	err := s.pump(events)
	s.close()
	close(s.ended)
	s.leave() // what is held cannot run on this stream; sent again on another it finds its approval
	keeper.Wait()
	<-s.drained
	s.abandon()
	if errors.Is(err, wire.ErrEventTooLarge) {
		s.Metrics.cutShort(s.server.Key, codeEventTooLarge)
	}
	if err != nil {
		if s.server.unreached.due(s.Clock.Now()) {
			log.FromContext(r.Context()).Error(err, "event stream of the MCP server broke off", "server", s.server.Key.String())
		}
		panic(http.ErrAbortHandler) // the agent must not take a torn stream for a whole one
	}
}

// keep ends the stream when it has to end; first come the calls that are under way.
func (s *legacyStream) keep(dies time.Time, end func()) {
	for s.lasts(dies) {
	}
	s.close()
	select {
	case <-s.ended:
	case <-s.drained:
		end()
	}
}

// lasts waits until something may have ended the stream, and tells whether nothing has: not the server, the agent, nor
// the gateway, nor time, nor another endpoint of the server.
func (s *legacyStream) lasts(dies time.Time) bool {
	changed := s.server.Changed()
	if snap := s.server.Snapshot(); snap != nil && snap.EndpointDigest != s.digest {
		return false
	}
	now, until := s.Clock.Now(), s.lastUsed().Add(s.Limits.StreamIdle)
	if dies.Before(until) {
		until = dies
	}
	if !now.Before(until) {
		return false
	}
	timer := s.Clock.NewTimer(until.Sub(now))
	defer timer.Stop()
	if !s.Clock.Now().Before(until) { // it passed before there was a timer
		return false
	}
	select {
	case <-s.ended:
	case <-s.agent.Done():
	case <-s.Stopping.Done():
	case <-changed:
		return true
	case <-timer.C():
		return true
	}
	return false
}

// close takes no more messages.
func (s *legacyStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.drain()
	}
}

// drain notes that no call is under way, if that is the end; the caller holds mu.
func (s *legacyStream) drain() {
	if s.closed && s.running == 0 {
		close(s.drained)
	}
}
