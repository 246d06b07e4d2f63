// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/failpoint"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
)

// outbound is a request to the server.
type outbound struct {
	request *http.Request
	// caller is whose request it is.
	caller  snapshot.Caller
	body    []byte
	headers headerPolicy
	// to is where it goes; nil for the server's endpoint.
	to *url.URL
	// endpoint is the digest of the endpoint that a call was judged for; it goes to no other. "" goes to any.
	endpoint string
	// effect says that the call must not be sent twice: it makes a connection of its own.
	effect bool
	// again says that the call reads, and may be sent a second time if the connection breaks before it was answered.
	again bool
	// written is told how often the request was written; nil if nobody asks.
	written *written
	// span is that of the message, nil without one.
	span *tracing.Span
}

// attempt is one sending of a request, and what the connection tells of it.
type attempt struct {
	httptrace.ClientTrace
	// connected tells that a connection was there that a byte could have left on; wrote, that the headers have; answered,
	// that a byte has come back.
	connected, wrote, answered atomic.Bool
}

// unwritten tells of a request that was refused on this side of a connection: a server of HTTP/2 says how large headers may
// be, for one, and what an agent makes larger says nothing of the server.
func (a *attempt) unwritten() bool { return a.connected.Load() && !a.wrote.Load() }

// send sends a request to a server that is not left alone, and returns its answer. A call that reads, and whose
// connection broke before a byte of the answer came, is sent once more, on a connection of its own. While sent is false
// the server has seen nothing.
func (g *Gateway) send(ctx context.Context, server *Server, out outbound) (resp *http.Response, sent bool, err error) {
	pass, wait, ok := server.health.breaker(g.Limits).Admit(g.Clock.Now())
	if !ok && !out.effect { // one with effects was asked about before its approval was spent
		g.Metrics.refused(server.Key, codeResting)
		return nil, false, restingError{wait}
	}
	last := &attempt{}
	up := server.upstream.Load()
	if up == nil || out.endpoint != "" && out.endpoint != up.digest {
		err = errNoUpstream
	} else {
		transport := up.pool
		if out.effect {
			transport = up.fresh()
			failpoint.Hit(failpoint.Sending)
		}
		resp, err = server.try(ctx, up, transport, out, last)
		sent = last.connected.Load()
		if err != nil && out.again && last.wrote.Load() && !last.answered.Load() && ctx.Err() == nil {
			g.Metrics.retried(server.Key)
			last = &attempt{}
			resp, err = server.try(ctx, up, up.fresh(), out, last)
		}
	}
	g.healthy(server, pass, outcomeFor(ctx, resp, err, last.unwritten()))
	if err == nil {
		server.sessions.note(resp, out.caller, g.Limits.Sessions, func() { g.Metrics.sessionForgotten(server.Key) })
	}
	return resp, sent, err
}

// try sends a request once.
func (s *Server) try(ctx context.Context, up *dialled, transport *http.Transport, out outbound, a *attempt) (*http.Response, error) {
	a.GotConn = func(httptrace.GotConnInfo) { a.connected.Store(true) }
	a.WroteHeaders = func() { a.wrote.Store(true) }
	if out.written != nil {
		out.written.watch(&a.ClientTrace)
	}
	if out.again {
		a.GotFirstResponseByte = func() { a.answered.Store(true) }
	}
	ctx = httptrace.WithClientTrace(ctx, &a.ClientTrace)
	// The agent's path and query stay behind: where a call goes is the GovernedServer's to say.
	to := cmp.Or(out.to, up.url)
	req := (&http.Request{
		Method: out.request.Method, URL: to, Host: to.Host, Header: outboundHeader(out.request.Header, up.Headers, out.headers),
	}).WithContext(ctx)
	if body := out.span.Send(req, out.body); body != nil {
		// Without GetBody the transport cannot send a call a second time.
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := netguard.Plain(transport.RoundTrip(req))
	out.span.Received(resp, err)
	if err != nil && ctx.Err() == nil && s.unreached.due(s.Clock.Now()) { // the agent is not told why
		log.FromContext(ctx).Error(err, "MCP server not reached", "server", s.Key.String())
	}
	return resp, err
}
