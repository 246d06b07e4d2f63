// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// ErrNoStream says that a server offers no stream of changes; asking again at once is of no use.
var ErrNoStream = errors.New("the server offers no stream of changes")

// maxEvent is how long one event of a stream of changes may be, in bytes.
const maxEvent = 1 << 20

// Watch keeps a session open and calls changed each time the server says that its list of tools has changed. It returns
// when the stream ends, which streams do, and never nil; whoever calls it again waits in between. changed is called
// once as soon as the stream stands, since a change may have come before it, and it must not block.
func Watch(ctx context.Context, target Target, changed func()) error {
	s, err := connect(ctx, target, true)
	if err != nil {
		return err
	}
	defer s.close()
	if !s.announces() {
		return ErrNoStream
	}
	if target.SSE {
		return s.follow(ctx, changed)
	}
	if mcp.IsModernProtocol(s.client.ProtocolVersion()) {
		return s.subscribe(ctx, changed)
	}
	return s.listen(ctx, changed)
}

// subscribe follows a subscription of the revisions without sessions.
func (s *session) subscribe(ctx context.Context, changed func()) error {
	s.client.OnNotification(func(n mcp.JSONRPCNotification) {
		switch n.Method {
		case string(mcp.MethodNotificationSubscriptionsAcknowledged), string(mcp.MethodNotificationToolsListChanged):
			changed()
		}
	})
	err := s.client.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true})
	if err == nil {
		return unreachable("the server ends its stream of changes")
	}
	if errors.Is(err, mcp.ErrMethodNotFound) {
		return ErrNoStream
	}
	return s.explain(ctx, err)
}

// listen follows the stream of a session, as the revisions before 2026-07-28 have it.
func (s *session) listen(ctx context.Context, changed func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return protocolError("the server's address is no URL")
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set(transport.HeaderKeyProtocolVersion, s.client.ProtocolVersion())
	if id := s.client.GetTransport().GetSessionId(); id != "" {
		req.Header.Set(transport.HeaderKeySessionID, id)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return s.explain(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is left to read
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusMethodNotAllowed, resp.StatusCode == http.StatusNotFound:
		return ErrNoStream
	case resp.StatusCode != http.StatusOK:
		return s.explain(ctx, nil)
	case mediaType != "text/event-stream":
		return ErrNoStream
	}
	changed()
	events := wire.NewSplitter(resp.Body, maxEvent)
	for event, err := events.Next(); err == nil; event, err = events.Next() {
		var message struct{ Method string }
		if event.Whole && json.Unmarshal(event.Data, &message) == nil && message.Method == string(mcp.MethodNotificationToolsListChanged) {
			changed()
		}
	}
	if fault := s.line.fault(); fault != nil {
		return fault
	}
	return unreachable("the server ends its stream of changes")
}
