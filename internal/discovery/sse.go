// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// newestOverSSE is the newest revision that is asked for over HTTP+SSE. Servers of that transport know no later one, and
// take long to say so.
const newestOverSSE = mcp.ProtocolVersion20251125

// openSSE begins to speak HTTP+SSE: it opens the stream and waits for the server to say where messages go.
func (s *session) openSSE(ctx context.Context, patience time.Duration) error {
	address, err := url.Parse(s.url)
	if err != nil {
		return protocolError("the server's address is no URL")
	}
	s.line.origin = originOf(address)
	conn, err := transport.NewSSE(s.url, transport.WithHTTPClient(s.http), transport.WithEndpointTimeout(patience),
		transport.WithSSELogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return protocolError("the server's address is no URL")
	}
	// The client does not notice for itself that nothing answers its requests any more. A stream that it gave up itself,
	// having waited long enough, is not one that the server ended.
	s.stream, s.lose = context.WithCancel(ctx)
	conn.SetConnectionLostHandler(func(err error) {
		if !errors.Is(err, context.Canceled) {
			s.lose()
		}
	})
	s.client = client.NewClient(conn)
	if err := s.client.Start(s.stream); err == nil { //nolint:contextcheck // made of ctx just now
		return nil
	}
	fault := s.explain(ctx, nil)
	if fault.Kind == ProtocolError && s.line.fault() == nil {
		fault = protocolError("the server does not say in time to which address of its own messages go")
	}
	s.close()
	return fault
}

// originOf returns the scheme and host of an address.
func originOf(address *url.URL) string { return address.Scheme + "://" + strings.ToLower(address.Host) }

// untilLost bounds a request by the stream that its answer comes by.
func (s *session) untilLost(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if s.stream == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(s.stream, cancel)
	return ctx, func() { stop(); cancel() }
}

// follow waits for news on the stream of HTTP+SSE.
func (s *session) follow(ctx context.Context, changed func()) error {
	s.client.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcp.MethodNotificationToolsListChanged {
			changed()
		}
	})
	changed()
	<-s.stream.Done()
	if fault := s.line.fault(); fault != nil && ctx.Err() == nil {
		return fault
	}
	return unreachable("the server ends its stream of changes")
}
