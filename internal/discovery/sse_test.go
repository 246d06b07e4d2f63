// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// overSSE starts a real server of HTTP+SSE.
func overSSE(t *testing.T, s *server.MCPServer) Target {
	t.Helper()
	return sseTarget(t, server.NewSSEServer(s))
}

func sseTarget(t *testing.T, handler http.Handler) Target {
	t.Helper()
	target := targetOf(t, strings.Replace(serve(t, handler), "/mcp", "/sse", 1))
	target.SSE = true
	return target
}

func TestARealServerOfHTTPAndSSEIsListedCalledAndWatched(t *testing.T) {
	t.Parallel()
	const says = "List first."
	s := withTools(billing(server.WithInstructions(says), server.WithPaginationLimit(100)))
	names := make([]string, 250)
	for i := range names {
		names[i] = fmt.Sprintf("tool_%03d", i)
	}
	withTools(s, names...)
	target := overSSE(t, s)
	got, err := Tools(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(names, namesOf(got)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Info{"billing", "1.2.3", "2025-11-25", says, tool.DigestOf(says)}, got.Server); diff != "" || !got.Announces || got.Gaps != nil {
		t.Errorf("announces %t, gaps %q, server (-want +got):\n%s", got.Announces, got.Gaps, diff)
	}

	var calls atomic.Int32
	s.AddTool(mcp.NewTool("count_rows"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls.Add(1)
		return mcp.NewToolResultText("matches 40,213 rows"), nil
	})
	if got, err := Call(t.Context(), target, ToolCall{Tool: "count_rows", Arguments: []byte(`{}`)}); err != nil || !strings.Contains(string(got), "40,213") || calls.Load() != 1 {
		t.Errorf("got %s, %v after %d calls", got, err, calls.Load())
	}

	changes, stop := watching(t, target)
	receive(t, changes, "that the stream stands")
	s.AddTool(mcp.NewTool("send_invoice"), nil)
	receive(t, changes, "a new tool")
	if err := stop(); err == nil {
		t.Error("Watch returned nil")
	}
}

func TestAWatchEndsWithItsEventStream(t *testing.T) {
	t.Parallel()
	s := server.NewSSEServer(withTools(billing(), "get_invoice"))
	done := make(chan error, 1)
	target := sseTarget(t, s)
	changes := make(chan struct{}, 8)
	go func() { done <- Watch(t.Context(), target, func() { changes <- struct{}{} }) }()
	receive(t, changes, "that the stream stands")
	s.CloseSessions()
	select {
	case err := <-done:
		if got := fault(err); got == nil || got.Kind != Unreachable || got.Cause != "the server ends its stream of changes" {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Watch goes on without a stream")
	}
}

// oldScript is a server of HTTP+SSE whose words a test writes itself.
type oldScript struct {
	// endpoint is what the first event says; HOST in it stands for the server's own.
	endpoint string
	// list answers tools/list with the text of an event, "" ends the stream.
	list func(id json.RawMessage) string
	// post sees each message first and answers it if it returns true.
	post func(w http.ResponseWriter, method string) bool

	events chan string
}

func (s *oldScript) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.stream(w, r)
		return
	}
	var message struct {
		ID     json.RawMessage
		Method string
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &message)
	if s.post != nil && s.post(w, message.Method) {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	switch message.Method {
	case "initialize":
		s.events <- fmt.Sprintf("event: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":%s,\"result\":{\"protocolVersion\":\"2024-11-05\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"script\",\"version\":\"1\"}}}\r\n\r\n", message.ID)
	case "tools/list":
		s.events <- s.list(message.ID)
	}
}

func (s *oldScript) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if s.endpoint != "" {
		fmt.Fprintf(w, ": hello\n\nevent: endpoint\ndata: %s\n\n", strings.ReplaceAll(s.endpoint, "HOST", r.Host))
	}
	for {
		http.NewResponseController(w).Flush()
		select {
		case event := <-s.events:
			if event == "" {
				return
			}
			_, _ = io.WriteString(w, event)
		case <-r.Context().Done():
			return
		}
	}
}

func listing(result string) func(json.RawMessage) string {
	return func(id json.RawMessage) string {
		return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", id, result)
	}
}

func TestWhatAServerOfHTTPAndSSEMayNotDo(t *testing.T) {
	t.Parallel()
	honest := func() *oldScript {
		return &oldScript{endpoint: "/message?sessionId=1", list: listing(listOf(entries("a", 2), "")), events: make(chan string, 8)}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a message went to another host") }))
	t.Cleanup(elsewhere.Close)
	for name, tc := range map[string]struct {
		edit   func(*oldScript)
		target func(Target) Target
		kind   Kind // "" lists two tools
		cause  string
	}{
		"an honest server":    {edit: func(*oldScript) {}},
		"an absolute address": {edit: func(s *oldScript) { s.endpoint = "http://HOST/message?sessionId=1" }},
		"another host":        {edit: func(s *oldScript) { s.endpoint = elsewhere.URL + "/message" }, kind: ProtocolError, cause: "the server does not say in time to which address of its own messages go"},
		"another scheme":      {edit: func(s *oldScript) { s.endpoint = "https://HOST/message" }, kind: ProtocolError, cause: "the server wants its messages at another address than its own"},
		"no address":          {edit: func(s *oldScript) { s.endpoint = "" }, kind: ProtocolError, cause: "the server does not say in time to which address of its own messages go"},
		"messages are redirected": {edit: func(s *oldScript) {
			s.post = answers(func(w http.ResponseWriter) { w.Header().Set("Location", elsewhere.URL); w.WriteHeader(307) })
		}, kind: Unreachable, cause: "the server answers with HTTP status 307, a redirect, which is not followed"},
		"messages are refused": {edit: func(s *oldScript) { s.post = answers(func(w http.ResponseWriter) { w.WriteHeader(401) }) }, kind: Unauthorized, cause: "the server refuses the credentials with HTTP status 401"},
		"the stream ends":      {edit: func(s *oldScript) { s.list = func(json.RawMessage) string { return "" } }, kind: Unreachable, cause: "the server ends its event stream"},
		"an endless event":     {edit: func(s *oldScript) { s.list = listing(`{"x":"` + strings.Repeat("y", maxAnswer) + `"`) }, kind: ProtocolError, cause: "the server's answer is too large"},
		"no list":              {edit: func(s *oldScript) { s.list = listing(`{"tools":null}`) }, kind: ProtocolError, cause: "the server's answer to tools/list is no list of tools"},
		"an address that may not be dialled": {edit: func(*oldScript) {}, target: func(t Target) Target { t.URL = "http://169.254.169.254/sse"; return t },
			kind: AddressForbidden, cause: "the server's address is refused: metadata service address may not be dialled unless --allow-address lists it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := honest()
			tc.edit(s)
			target := sseTarget(t, s)
			if tc.target != nil {
				target = tc.target(target)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			result, err := Tools(ctx, target)
			if tc.kind == "" {
				if err != nil || len(result.Tools) != 2 {
					t.Errorf("got %v, %v", result, err)
				}
				return
			}
			if got := fault(err); got == nil || got.Kind != tc.kind || got.Cause != tc.cause {
				t.Errorf("got %v, want %s %q", err, tc.kind, tc.cause)
			}
		})
	}
}

func answers(answer func(http.ResponseWriter)) func(http.ResponseWriter, string) bool {
	return func(w http.ResponseWriter, _ string) bool {
		answer(w)
		return true
	}
}

func TestAllAnswersOfAStreamAreBoundedTogether(t *testing.T) {
	t.Parallel()
	s := &oldScript{endpoint: "/message", events: make(chan string, 8)}
	page := 0
	s.list = func(id json.RawMessage) string {
		page++
		return listing(fmt.Sprintf(`{"tools":[],"nextCursor":"%d","x":"%s"}`, page, strings.Repeat("y", maxAnswer-1<<10)))(id)
	}
	if _, err := Tools(t.Context(), sseTarget(t, s)); fault(err) == nil || fault(err).Cause != "the server's answer is too large" {
		t.Errorf("after %d pages: %v", page, err)
	}
}

func TestAServerOfAnotherTransportIsNamed(t *testing.T) {
	t.Parallel()
	target := targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })))
	target.SSE = true
	if _, err := Tools(t.Context(), target); fault(err) == nil || fault(err).Cause != "the server's answer is no event stream" {
		t.Errorf("got %v", err)
	}
}
