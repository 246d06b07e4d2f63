// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// overSSE makes the server of the rig one of HTTP+SSE.
func (r *rig) overSSE() {
	r.t.Helper()
	r.edit(func() {
		r.governed.Spec.Endpoint.URL, r.governed.Spec.Endpoint.Transport = r.upstream.URL+"/sse", v1alpha1.TransportSSE
	})
	r.server.Dial(&endpoint.Upstream{URL: r.upstream.URL + "/sse", SSE: true, Headers: http.Header{"X-Configured": {"yes"}},
		Guard: netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}, r.server.Snapshot().EndpointDigest)
}

// real is a server of mcp-go with tools that count how often they run.
type real struct {
	*server.MCPServer
	sse *server.SSEServer

	mu  sync.Mutex
	ran map[string]int
}

// newRealSSE puts a real server of HTTP+SSE behind a rig, with the tools of the rig.
func newRealSSE(t *testing.T) (*rig, *real) {
	t.Helper()
	r := newRig(t)
	s := &real{MCPServer: server.NewMCPServer("billing", "1", server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true)), ran: map[string]int{}}
	for _, d := range r.listed {
		s.AddTool(mcp.NewToolWithRawSchema(d.Name, "x", d.InputSchema), s.run)
	}
	s.AddResource(mcp.NewResource("file:///report", "report"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		s.count("file:///report")
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: "file:///report", Text: "text"}}, nil
	})
	s.AddPrompt(mcp.NewPrompt("summary"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		s.count("summary")
		return &mcp.GetPromptResult{}, nil
	})
	s.sse = server.NewSSEServer(s.MCPServer)
	r.upstream.answers(s.sse.ServeHTTP)
	t.Cleanup(s.sse.CloseSessions)
	r.edit(func() { r.relearn(s.tools(t)) })
	r.overSSE()
	return r, s
}

// run is what every tool does: it counts, tells of progress, and says what it was.
func (s *real) run(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.count(request.Params.Name)
	if err := s.SendNotificationToClient(ctx, "notifications/message", map[string]any{"level": "error", "data": "runs " + request.Params.Name}); err != nil {
		return nil, err
	}
	return mcp.NewToolResultText("did " + request.Params.Name), nil
}

func (s *real) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[what]++
}

func (s *real) runs(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[what]
}

// tools returns what the server says of its tools.
func (s *real) tools(t *testing.T) []tool.Descriptor {
	t.Helper()
	answer, err := json.Marshal(s.HandleMessage(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal(answer, &list); err != nil || len(list.Result.Tools) == 0 {
		t.Fatalf("tools of the server: %v, %s", err, answer)
	}
	var all []tool.Descriptor
	for _, raw := range list.Result.Tools {
		d, err := tool.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// relearn has the manager and the gateway know the tools as a server says them.
func (r *rig) relearn(tools []tool.Descriptor) {
	r.listed = tools
	for _, d := range tools {
		for i, known := range r.governed.Status.Tools {
			if known.Name == d.Name {
				r.governed.Status.Tools[i].Digest = d.Digest()
			}
		}
	}
}

// script is a server of HTTP+SSE whose events a test writes itself.
type script struct {
	r *rig
	// begins is what every stream begins with.
	begins string
	// posts answers messages; nil takes them.
	posts http.HandlerFunc

	events chan string   // goes to the stream that is open; "" breaks it off
	opened chan struct{} // gets a value for each stream
	closed chan struct{} // gets a value when a stream has ended
}

func newScript(t testing.TB) (*rig, *script) {
	t.Helper()
	r := newRig(t)
	s := &script{r: r, begins: "event: endpoint\ndata: /message?sessionId=theirs\n\n", events: make(chan string), opened: make(chan struct{}, 64), closed: make(chan struct{}, 64)}
	r.upstream.answers(s.ServeHTTP)
	r.overSSE()
	return r, s
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if s.posts != nil {
			s.posts(w, r)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	defer func() { s.closed <- struct{}{} }()
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, s.begins)
	http.NewResponseController(w).Flush()
	s.opened <- struct{}{}
	for {
		select {
		case event := <-s.events:
			if event == "" {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, event)
			http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// say sends text on the stream, as it is.
func (s *script) say(text string) {
	s.r.t.Helper()
	select {
	case s.events <- text:
	case <-time.After(45 * time.Second):
		s.r.t.Fatalf("nobody reads %.80q", text)
	}
}

// answers sends the result of a request.
func (s *script) answers(id, result string) {
	s.say(fmt.Sprintf("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", id, result))
}

// posted returns the messages that the server got.
func (s *script) posted() []sent {
	var all []sent
	for _, request := range s.r.upstream.requests() {
		if request.method == http.MethodPost {
			all = append(all, request)
		}
	}
	return all
}

// got waits until the server has n messages, and returns the last.
func (s *script) got(n int) sent {
	s.r.t.Helper()
	s.r.until(fmt.Sprintf("%d messages at the server", n), func() bool { return len(s.posted()) >= n })
	return s.posted()[n-1]
}

// legacyAgent is an agent with an open stream.
type legacyAgent struct {
	r       *rig
	headers []string
	path    string // where it posts to
	blocks  chan string
	leave   context.CancelFunc
}

// listens opens a stream at the gateway.
func (r *rig) listens(headers ...string) *legacyAgent {
	r.t.Helper()
	a, got := r.opens(headers...)
	if a == nil {
		r.t.Fatalf("no stream: HTTP %d %s %v", got.status, got.body, got.err)
	}
	return a
}

// opens opens a stream, or returns what was answered instead.
func (r *rig) opens(headers ...string) (*legacyAgent, got) {
	r.t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	r.t.Cleanup(leave)
	resp, err := r.open(ctx, http.MethodGet, "/mcp?tenant=7", "", append([]string{"Accept", "text/event-stream"}, headers...)...)
	if err != nil {
		return nil, got{err: err}
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		return nil, read(resp, nil)
	}
	a := &legacyAgent{r: r, headers: headers, blocks: make(chan string, 4096), leave: leave}
	go a.read(resp.Body)
	first := a.next()
	path, ok := strings.CutPrefix(first, "event: endpoint\ndata: ")
	if !ok {
		r.t.Fatalf("the stream begins with %q", first)
	}
	a.path = strings.TrimSpace(path)
	return a, got{}
}

// read takes the stream apart at blank lines; what was sent before a stream breaks off is a block too, and so is how it
// ended.
func (a *legacyAgent) read(body io.ReadCloser) {
	defer close(a.blocks)
	defer body.Close()
	lines := bufio.NewReader(body)
	block := ""
	for {
		line, err := lines.ReadString('\n')
		block += line
		if err != nil {
			if block != "" {
				a.blocks <- block
			}
			a.blocks <- "end: " + err.Error()
			return
		}
		if strings.TrimRight(line, "\r\n") == "" {
			a.blocks <- block
			block = ""
		}
	}
}

// next returns the next block of the stream.
func (a *legacyAgent) next() string {
	a.r.t.Helper()
	select {
	case block := <-a.blocks:
		return block
	case <-time.After(45 * time.Second):
		a.r.t.Fatal("nothing comes by the stream")
		return ""
	}
}

// answer returns the message of the next block.
func (a *legacyAgent) answer() got {
	a.r.t.Helper()
	block := a.next()
	data, ok := strings.CutPrefix(block, "event: message\ndata: ")
	if !ok {
		a.r.t.Fatalf("no message: %q", block)
	}
	return got{body: strings.TrimSpace(data)}
}

// post sends a message.
func (a *legacyAgent) post(body string, headers ...string) got {
	a.r.t.Helper()
	return a.r.postTo(a.path, body, append(headers, a.headers...)...)
}

func (r *rig) postTo(path, body string, headers ...string) got {
	return read(r.open(context.Background(), http.MethodPost, path, body, headers...))
}

// sends posts a message that has to be taken.
func (a *legacyAgent) sends(body string, headers ...string) {
	a.r.t.Helper()
	if got := a.post(body, headers...); got.status != http.StatusAccepted || got.body != "" {
		a.r.t.Fatalf("HTTP %d %s %v", got.status, got.body, got.err)
	}
}

func withID(id, body string) string { return strings.Replace(body, `"id":1`, `"id":`+id, 1) }

func callerOfRig() caller { return caller{requester: v1alpha1.Requester{Username: agent}} }
