// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

// guard lets tests reach their own servers and nothing else that is special.
func guard() netguard.Policy {
	return netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func targetOf(t *testing.T, url string) Target {
	t.Helper()
	transport := guard().Transport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	return Target{URL: url, Transport: transport}
}

// billing is a real MCP server.
func billing(options ...server.ServerOption) *server.MCPServer {
	options = append([]server.ServerOption{server.WithToolCapabilities(true)}, options...)
	return server.NewMCPServer("billing", "1.2.3", options...)
}

func withTools(s *server.MCPServer, names ...string) *server.MCPServer {
	for _, name := range names {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription("Does "+name)), nil)
	}
	return s
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	running := httptest.NewServer(handler)
	t.Cleanup(running.Close)
	t.Cleanup(running.CloseClientConnections)
	return running.URL + "/mcp"
}

func serveMCP(t *testing.T, s *server.MCPServer, options ...server.StreamableHTTPOption) string {
	t.Helper()
	return serve(t, server.NewStreamableHTTPServer(s, options...))
}

// script is a server of the 2025 revisions whose answers to tools/list a test writes itself.
type script struct {
	// list answers tools/list with the text of a result.
	list func(cursor string, call int) string
	// before sees each request first and answers it if it returns true.
	before func(w http.ResponseWriter, r *http.Request, method string) bool
	// sse makes every answer an event stream, its data split over lines of text.
	sse bool

	mu       sync.Mutex
	lists    int
	sessions int
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var message struct {
		ID     json.RawMessage
		Method string
		Params struct{ Cursor string }
	}
	_ = json.Unmarshal(body, &message)
	if s.before != nil && s.before(w, r, message.Method) {
		return
	}
	switch message.Method {
	case "initialize":
		s.mu.Lock()
		s.sessions++
		w.Header().Set("Mcp-Session-Id", fmt.Sprintf("session-%d", s.sessions))
		s.mu.Unlock()
		s.answer(w, message.ID, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"script","version":"1"}}`)
	case "tools/list":
		s.mu.Lock()
		s.lists++
		call := s.lists
		s.mu.Unlock()
		s.answer(w, message.ID, s.list(message.Params.Cursor, call))
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *script) answer(w http.ResponseWriter, id json.RawMessage, result string) {
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	if !s.sse {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	comma := strings.Index(text, ",") + 1
	_, _ = fmt.Fprintf(w, ": hello\r\n\r\nevent: message\r\nid: 7\r\ndata: %s\r\ndata: %s\r\n\r\n", text[:comma], text[comma:])
}

func (s *script) listed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// entries returns n tools as JSON, named with the prefix.
func entries(prefix string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"name":"%s%05d","inputSchema":{"type":"object"}}`, prefix, i)
	}
	return strings.Join(all, ",")
}

func listOf(tools, next string) string {
	if next == "" {
		return `{"tools":[` + tools + `]}`
	}
	return `{"tools":[` + tools + `],"nextCursor":"` + next + `"}`
}
