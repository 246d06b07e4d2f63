// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// ErrNoStream says that a server offers no stream of changes; asking again at once is of no use.
var ErrNoStream = errors.New("the server offers no stream of changes")

// maxEvent is how long one line of a stream of changes may be, in bytes.
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
	readEvents(resp.Body, func(data string) {
		var message struct{ Method string }
		if json.Unmarshal([]byte(data), &message) == nil && message.Method == string(mcp.MethodNotificationToolsListChanged) {
			changed()
		}
	})
	if fault := s.line.fault(); fault != nil {
		return fault
	}
	return unreachable("the server ends its stream of changes")
}

// readEvents hands over the data of each event of a stream until it ends or a line is longer than maxEvent. Of an event
// with more data only the beginning is kept; those looked for are short.
func readEvents(stream io.Reader, handle func(data string)) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 4<<10), maxEvent)
	var data strings.Builder
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			handle(data.String())
			data.Reset()
			continue
		}
		if part, ok := strings.CutPrefix(line, "data:"); ok && data.Len()+len(part) <= maxEvent {
			data.WriteString(strings.TrimPrefix(part, " "))
			data.WriteByte('\n')
		}
	}
}
