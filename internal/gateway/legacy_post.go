// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// maxLegacyRequests bounds the requests of one stream that wait for an answer, and maxLegacyBytes the messages of the
	// calls among them: the agent keeps no connection for each, as it does elsewhere.
	maxLegacyRequests = 256
	maxLegacyBytes    = 32 << 20
)

// Why a request does not get its answer by the stream.
var (
	errStreamEnded = errors.New("the server's event stream has ended")
	errCancelled   = errors.New("the agent has cancelled the call, or has gone")
)

// legacyRequest is a request of an agent until it has its answer.
type legacyRequest struct {
	stream *legacyStream
	id     string
	size   int
	cancel context.CancelFunc // ends a call that is held; nil for what is no call
	place  taken              // until it has its answer, or for a call until its end
	held   *holding           // its bytes, for a call until its end

	// The stream's mu guards sent and cancelled.
	sent      bool // it is with the server, or on its way
	cancelled bool // by the agent, before it was sent

	// transform is given the answer, and the agent what it returns; nil leaves the answer to who waits for it.
	transform func([]byte) []byte
	done      chan struct{} // closed when the answer was passed on, or is in answer
	answer    []byte
}

// postLegacy judges one message of the agent, as any other is; its answer goes to the stream.
func (g *Gateway) postLegacy(w *patient, r *http.Request, server *Server, who caller) {
	ids := r.URL.Query()["sessionId"]
	if len(ids) != 1 {
		// A client that speaks both transports tries a POST first, and takes this for a word to open a stream.
		w.Header().Set("Allow", "GET")
		g.refuseMessage(w, server, codeNoStream, &wire.Refusal{Status: http.StatusMethodNotAllowed, Code: mcp.INVALID_REQUEST,
			Message: speaker + "this server speaks HTTP+SSE, the transport of revision 2024-11-05: open a stream with GET, and post messages to the address that its first event names"})
		return
	}
	s := server.legacy.find(ids[0], who.owner())
	if s == nil {
		g.refuseMessage(w, server, codeForeignSession, foreignSession())
		return
	}
	message, held, ok := g.receive(w, r, server, who)
	if !ok {
		return
	}
	s.touch()
	if id := message.CancelledID(); id != "" && s.cancelHeld(id) {
		held.free()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	p := &legacyRequest{stream: s, id: wire.IDOf(message.ID), held: held, done: make(chan struct{})}
	a := arrival{Gateway: g, caller: who, server: server, message: message, request: r, legacy: p, span: g.Tracer.Serve(r, server.Key, message)}
	if message.Call != nil {
		s.start(w, a)
		return
	}
	defer held.free()
	defer a.span.End()
	m := other{arrival: a}
	if message.Kind != wire.Request {
		t, ok := g.takePlace(w, server, who, telling, nil)
		if !ok {
			return
		}
		defer t.leave()
		m.serve(w)
		return
	}
	if s.admit(w, a) {
		m.serve(w)
		s.settle(p)
	}
}

// start takes a call, whose answer goes to the stream.
func (s *legacyStream) start(w http.ResponseWriter, a arrival) {
	p := a.legacy
	p.size = len(a.message.Raw)
	ctx, cancel := context.WithCancel(s.agent)
	p.cancel = cancel
	if !s.admit(w, a) {
		cancel()
		p.held.free()
		a.span.End()
		return
	}
	a.request = a.request.WithContext(ctx)
	c := a.call(legacyWriter{p})
	c.reply.events, c.reply.committed = true, true // all that the agent is told comes as events
	w.WriteHeader(http.StatusAccepted)
	go s.run(c) // it outlives its POST; its stream waits for it
}

// admit notes a request that has no answer yet, or refuses it.
func (s *legacyStream) admit(w http.ResponseWriter, a arrival) bool {
	t, ok := a.takePlace(w, a.server, a.caller, awaiting, a.message.ID)
	if !ok {
		return false
	}
	a.legacy.place = t
	code, refusal := s.enter(a.legacy)
	if refusal != nil {
		t.leave()
		a.span.Refused(refusal.Code)
		a.refuseMessage(w, a.server, code, refusal)
	}
	return refusal == nil
}

// run takes a call to its end. A fault in it ends the call and nothing else, as in a handler of HTTP.
func (s *legacyStream) run(c *call) {
	defer s.leaveCall(c.legacy)
	defer c.span.End()
	defer func() {
		if fault := recover(); fault != nil {
			log.FromContext(c.request.Context()).Error(fmt.Errorf("panic: %v\n%s", fault, debug.Stack()), "call failed", "server", s.server.Key.String())
			c.reply.refuse(&wire.Refusal{Code: mcp.INTERNAL_ERROR, Message: speaker + "the call failed inside the gateway"})
		}
	}()
	c.serve()
}

// enter notes a request that has no answer yet. Two with one id at a time would be told apart by nobody.
func (s *legacyStream) enter(p *legacyRequest) (code string, refusal *wire.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, taken := s.waiting[p.id]
	switch {
	case s.closed:
		return codeForeignSession, foreignSession()
	case taken: // with a null id: an answer with this one would be taken for that of the other request
		return codeSameID, &wire.Refusal{Status: http.StatusBadRequest, Code: mcp.INVALID_REQUEST,
			Message: speaker + "a request with this id has no answer yet; give each request an id of its own"}
	case len(s.waiting) >= maxLegacyRequests || s.size+p.size > maxLegacyBytes:
		return codeTooManyRequests, &wire.Refusal{Status: http.StatusTooManyRequests, Code: mcp.INTERNAL_ERROR, Message: fmt.Sprintf(
			speaker+"%d requests, or calls of %d bytes together, have no answer yet, which is the limit of a stream; wait for some", maxLegacyRequests, maxLegacyBytes)}
	}
	s.waiting[p.id] = p
	s.size += p.size
	if p.cancel != nil {
		s.running++
	}
	return "", nil
}

// leaveCall notes that a call has come to its end.
func (s *legacyStream) leaveCall(p *legacyRequest) {
	p.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.place.leave()
	p.held.free()
	if s.waiting[p.id] == p {
		delete(s.waiting, p.id)
	}
	s.size -= p.size
	s.running--
	s.drain()
}

// drop waits no more for the answer to a request; the caller holds mu.
func (s *legacyStream) drop(p *legacyRequest) {
	delete(s.waiting, p.id)
	if p.cancel == nil { // a call goes on to its end
		p.place.leave()
	}
}

// abandon drops what had no answer when the stream ended.
func (s *legacyStream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.waiting {
		s.drop(p)
	}
}

// take returns the request with an id if it was sent and has no answer yet; there is one taker.
func (s *legacyStream) take(id string) *legacyRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.waiting[id]
	if p == nil || !p.sent {
		return nil
	}
	s.drop(p)
	return p
}

// forget gives a request up that was not answered; false says that it was.
func (s *legacyStream) forget(p *legacyRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[p.id] != p {
		return false
	}
	s.drop(p)
	return true
}

// settle gives up a request that was refused.
func (s *legacyStream) settle(p *legacyRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.sent && s.waiting[p.id] == p {
		s.drop(p)
	}
}

// cancelHeld ends a call that the server has not got, and tells whether there is one. What the server has is the
// server's to cancel; nobody waits for the answer to what is no call then.
func (s *legacyStream) cancelHeld(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.waiting[id]
	switch {
	case p == nil:
		return false
	case p.cancel == nil:
		s.drop(p)
		return false
	case p.sent:
		return false
	}
	p.cancelled = true
	p.cancel()
	return true
}

// post sends a message to where the server takes them. An answer of the server by the stream may come before this ends.
func (p *legacyRequest) post(ctx context.Context, out outbound, transform func([]byte) []byte) (resp *http.Response, sent bool, err error) {
	s := p.stream
	s.mu.Lock()
	if p.cancelled || p.cancel != nil && s.agent.Err() != nil {
		s.mu.Unlock()
		return nil, false, errCancelled
	}
	p.sent, p.transform = true, transform
	s.mu.Unlock()
	if out.endpoint != "" && out.endpoint != s.digest {
		return nil, false, errNoUpstream // it was judged for another endpoint than that of the stream
	}
	out.to, out.endpoint = s.target, s.digest
	return s.send(ctx, s.server, out)
}

// exchange sends a call and returns the server's answer, as if it had come by the response of the POST. An answer that
// was passed on by transform has no body. sent is as of send.
func (p *legacyRequest) exchange(ctx context.Context, out outbound, transform func([]byte) []byte) (resp *http.Response, sent bool, err error) {
	resp, sent, err = p.post(ctx, out, transform)
	switch {
	case err == nil && resp.StatusCode >= http.StatusMultipleChoices:
		if p.stream.forget(p) {
			return resp, sent, nil
		}
		discard(resp)
		<-p.done // it was answered all the same
	case err == nil:
		discard(resp)
		if err := p.wait(ctx); err != nil {
			out.span.Received(nil, err)
			return nil, true, err
		}
	case !sent || p.stream.forget(p):
		return nil, sent, err
	default:
		<-p.done
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(p.answer)),
	}, true, nil
}

// wait waits for the answer of a request that was sent.
func (p *legacyRequest) wait(ctx context.Context) error {
	var ended error
	select {
	case <-p.done:
		return nil
	case <-p.stream.ended:
		ended = errStreamEnded
	case <-ctx.Done():
	}
	if p.stream.forget(p) {
		return cmp.Or(ended, ctx.Err())
	}
	<-p.done
	return nil
}

// discard gives up a body that nobody reads; a short one is read, so that its connection can be used again.
func discard(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, 4<<10) //nolint:errcheck // nobody reads it
	resp.Body.Close()                      //nolint:errcheck // given up
}

// passRead lets a Read call through. Its answer passes in its place among the events of the server.
func (p *legacyRequest) passRead(ctx context.Context, c *call, out outbound) {
	resp, _, err := p.exchange(ctx, out, c.span.Watch(sanitize(c.message.ID)))
	switch {
	case err != nil:
		c.reply.refuse(upstreamRefusal(err))
	case resp.StatusCode >= http.StatusMultipleChoices:
		discard(resp)
		c.reply.refuse(badAnswer(fmt.Sprintf("is HTTP %d", resp.StatusCode)))
	}
}

// relay passes a message that is no call. The answer of the server to its POST is the agent's; what the message asks for
// comes by the stream. A server that sends nothing for so long is given up.
func (p *legacyRequest) relay(w http.ResponseWriter, m *other, silence time.Duration) {
	ctx, pulse, end := withPulse(m.request.Context(), silence)
	defer end()
	answer, transform := relay{Gateway: m.Gateway, server: m.server, id: m.message.ID, pulse: pulse, span: m.span}, func(message []byte) []byte { return message }
	if known, _ := wire.Lookup(m.message.Method); known.Governed {
		transform = m.listFilter(m.server, p.stream.digest, m.caller, m.message.ID)
		answer.transform = transform
	}
	resp, _, err := p.post(ctx, outbound{request: m.request, caller: m.owner(), body: m.message.Raw, headers: allHeaders, span: m.span}, transform)
	switch {
	case err != nil:
		p.stream.forget(p)
		m.refuseUpstream(w, pulse.explain(err))
	case resp.StatusCode >= http.StatusMultipleChoices:
		p.stream.forget(p)
		answer.run(w, resp)
	default:
		discard(resp)
		w.WriteHeader(http.StatusAccepted)
	}
}

// say answers a request that is no call in place of the server.
func (p *legacyRequest) say(w http.ResponseWriter, message []byte) {
	p.stream.forget(p)
	legacyWriter{p}.Write(eventOf(message)) //nolint:errcheck // the agent has gone; there is nobody to tell
	w.WriteHeader(http.StatusAccepted)
}

// legacyWriter puts what a call is answered on the agent's stream.
type legacyWriter struct{ request *legacyRequest }

// Header returns one that nobody reads.
func (legacyWriter) Header() http.Header { return http.Header{} }

// WriteHeader does nothing: the stream has its status.
func (legacyWriter) WriteHeader(int) {}

// Write sends whole events, unless the agent has cancelled the request.
func (w legacyWriter) Write(events []byte) (int, error) {
	s := w.request.stream
	s.mu.Lock()
	cancelled := w.request.cancelled
	s.mu.Unlock()
	if cancelled {
		return 0, errCancelled
	}
	s.tell(events)
	return len(events), nil
}
