// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
)

// rig is a wrapped server behind real HTTP.
type rig struct {
	*Server
	url   string
	clock *clocktesting.FakePassiveClock
}

func newRig(t *testing.T, command []string, edits ...func(*Server)) *rig {
	t.Helper()
	stopping, stop := context.WithCancel(t.Context())
	now := clocktesting.NewFakePassiveClock(time.Now())
	s := &Server{Command: command, Stderr: os.Stderr, Clock: now, NewID: uuid.NewString, MaxSessions: 8, Stopping: stopping}
	for _, edit := range edits {
		edit(s)
	}
	front := httptest.NewServer(s)
	t.Cleanup(func() {
		stop()
		front.Close()
		s.Close()
	})
	return &rig{Server: s, url: front.URL + Path, clock: now}
}

// client is a real one, with a session.
func (r *rig) client(t *testing.T, options ...transport.StreamableHTTPCOption) *client.Client {
	t.Helper()
	c, err := client.NewStreamableHttpClient(r.url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hello := mcp.InitializeRequest{}
	hello.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}
	if _, err := c.Initialize(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	return c
}

func call(ctx context.Context, c *client.Client, tool string) (string, error) {
	request := mcp.CallToolRequest{}
	request.Params.Name = tool
	result, err := c.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	return result.Content[0].(mcp.TextContent).Text, nil
}

// send posts one message and returns status, headers and body.
func (r *rig) send(t *testing.T, session, message string, edits ...func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	if session != "" {
		req.Header.Set(sessionHeader, session)
	}
	for _, edit := range edits {
		edit(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`

func (r *rig) session(t *testing.T) string {
	t.Helper()
	status, header, body := r.send(t, "", hello)
	if status != http.StatusOK {
		t.Fatalf("initialize: %d %s", status, body)
	}
	return header.Get(sessionHeader)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func exists(pid string) bool { return exec.Command("kill", "-0", pid).Run() == nil }

func TestARealClientUsesARealServer(t *testing.T) {
	t.Parallel()
	c := newRig(t, as("mcp")).client(t)
	tools, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
	if err != nil || len(tools.Tools) != 6 {
		t.Fatalf("got %v, %v, want six tools", tools, err)
	}
	if text, err := call(t.Context(), c, "get_pid"); err != nil || text == "" {
		t.Errorf("a call: %q, %v", text, err)
	}
}

func TestEverySessionHasAProcessOfItsOwnThatEndsWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("mcp"))
	one, two := r.client(t), r.client(t)
	first, err := call(t.Context(), one, "get_pid")
	if err != nil {
		t.Fatal(err)
	}
	second, err := call(t.Context(), two, "get_pid")
	if err != nil || first == second {
		t.Fatalf("processes %s and %s (%v), want two", first, second, err)
	}
	child, err := call(t.Context(), one, "fork")
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the process, and what it started, is gone", func() bool { return !exists(first) && !exists(child) })
	if again, err := call(t.Context(), two, "get_pid"); err != nil || again != second {
		t.Errorf("the other session has process %s, %v, want %s as before", again, err, second)
	}
}

func TestProgressComesWithItsRequestAndChangesByTheStream(t *testing.T) {
	t.Parallel()
	c := newRig(t, as("mcp")).client(t, transport.WithContinuousListening()) //nolint:staticcheck // the stream of a session is what is tested
	heard := make(chan string, 10)
	c.OnNotification(func(n mcp.JSONRPCNotification) { heard <- n.Method })
	request := mcp.CallToolRequest{}
	request.Params.Name, request.Params.Meta = "work", &mcp.Meta{ProgressToken: "p1"}
	if _, err := c.CallTool(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "notifications/progress" {
		t.Errorf("heard %s, want the progress", got)
	}
	if _, err := call(t.Context(), c, "grow"); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "notifications/tools/list_changed" {
		t.Errorf("heard %s, want the change", got)
	}
}

func TestAProcessThatEndsEndsItsSessionAndTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("mcp"))
	id := r.session(t)
	r.clock.SetTime(r.clock.Now().Add(time.Hour)) // it has run for long, so it may be started again at once
	status, _, body := r.send(t, id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"crash"}}`)
	if status != http.StatusBadGateway || !strings.Contains(body, "ended before it answered") {
		t.Errorf("the call in flight: %d %s, want 502", status, body)
	}
	until(t, "the session is gone", func() bool {
		status, _, _ := r.send(t, id, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		return status == http.StatusNotFound
	})
	if status, _, body := r.send(t, r.session(t), `{"jsonrpc":"2.0","id":3,"method":"ping"}`); status != http.StatusOK {
		t.Errorf("a new session: %d %s", status, body)
	}
}

func TestAServerThatFailsToStartIsStartedLaterAndLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("broken"))
	for _, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		if status, _, body := r.send(t, "", hello); status != http.StatusBadGateway {
			t.Fatalf("a start: %d %s, want 502", status, body)
		}
		until(t, "its end is noted", func() bool { return r.count() == 0 })
		status, header, _ := r.send(t, "", hello)
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") != fmt.Sprint(int(rest.Seconds())) {
			t.Fatalf("while it rests: %d, Retry-After %s, want 503 and %s", status, header.Get("Retry-After"), rest)
		}
		r.clock.SetTime(r.clock.Now().Add(rest))
	}
}

func TestACommandThatDoesNotExistIsNoProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, []string{"/no/such/server"})
	if status, _, body := r.send(t, "", hello); status != http.StatusServiceUnavailable || strings.Contains(body, "/no/such") {
		t.Errorf("got %d %s, want 503 that names no file", status, body)
	}
}

func TestOneSessionMoreEndsTheOneThatWasUsedLongestAgo(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("mcp"), func(s *Server) { s.MaxSessions = 2 })
	old := r.session(t)
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	busy := r.session(t)
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	fresh := r.session(t)
	for id, want := range map[string]int{old: http.StatusNotFound, busy: http.StatusOK, fresh: http.StatusOK} {
		if status, _, body := r.send(t, id, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); status != want {
			t.Errorf("got %d %s, want %d", status, body, want)
		}
	}
}

func TestASessionWithACallUnderWayIsNotEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("mcp"), func(s *Server) { s.MaxSessions = 1 })
	c := r.client(t)
	until(t, "initialize is over", func() bool { return r.underWay() == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := call(ctx, c, "hang"); done <- err }()
	until(t, "the call is under way", func() bool { return r.underWay() == 1 })
	if status, header, _ := r.send(t, "", hello); status != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" {
		t.Errorf("a session more: %d, want 503", status)
	}
	cancel()
	<-done
	until(t, "there is room", func() bool { status, _, _ := r.send(t, "", hello); return status == http.StatusOK })
}

func TestWhatIsNoMessageOfASessionIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("echo"))
	id := r.session(t)
	for name, tc := range map[string]struct {
		session, message string
		edit             func(*http.Request)
		want             int
	}{
		"a request of the session":      {id, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, nil, http.StatusOK},
		"a notification of the session": {id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, http.StatusAccepted},
		"an answer to the server":       {id, `{"jsonrpc":"2.0","id":2,"result":{}}`, nil, http.StatusAccepted},
		"no session":                    {"", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, nil, http.StatusBadRequest},
		"another session":               {"other", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, nil, http.StatusNotFound},
		"a batch":                       {id, `[{"jsonrpc":"2.0","id":2,"method":"ping"}]`, nil, http.StatusBadRequest},
		"no JSON":                       {id, `ping`, nil, http.StatusBadRequest},
		"an id that is none":            {id, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, nil, http.StatusBadRequest},
		"a name that is not loopback's": {id, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, func(r *http.Request) { r.Host = "evil.example.com" }, http.StatusForbidden},
		"another path":                  {id, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, func(r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		"another method of HTTP":        {id, "", func(r *http.Request) { r.Method = http.MethodPut }, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			edit := func(*http.Request) {}
			if tc.edit != nil {
				edit = tc.edit
			}
			if status, _, body := r.send(t, tc.session, tc.message, edit); status != tc.want {
				t.Errorf("got %d %s, want %d", status, body, tc.want)
			}
		})
	}
}

// What a server prints that is no message is dropped, and a message keeps its bytes but for the breaks between its lines.
func TestMessagesPassByteForByte(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("echo"))
	id := r.session(t)
	_, _, body := r.send(t, id, "{\"jsonrpc\":\"2.0\",\r\n \"id\":7,\"method\":\"x\",\n\"params\":{\"n\":1.50,\"n\":\"\\u00e9\\n\"}}\n")
	want := `{"jsonrpc":"2.0","id":7,"result":{"got":"{\"jsonrpc\":\"2.0\",   \"id\":7,\"method\":\"x\", \"params\":{\"n\":1.50,\"n\":\"\\u00e9\\n\"}}"}}`
	if strings.TrimSpace(body) != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

func TestASecondRequestWithTheSameIDIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, as("mcp"))
	id := r.session(t)
	until(t, "initialize is over", func() bool { return r.underWay() == 0 })
	hang := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hang"}}`
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.send(t, id, hang)
	}()
	until(t, "the first is under way", func() bool { return r.underWay() == 1 })
	if status, _, body := r.send(t, id, hang); status != http.StatusBadRequest {
		t.Errorf("the second: %d %s, want 400", status, body)
	}
	r.send(t, id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	r.end(r.Server.session(id))
	<-done
}

func TestAProcessThatIgnoresEverythingIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, []string{"/bin/sh", "-c", `trap "" TERM; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; while :; do sleep 1; done`})
	known := r.Server.session(r.session(t))
	r.end(known)
	select {
	case <-known.process.exited:
	case <-time.After(time.Minute):
		t.Fatal("it still runs")
	}
}

func TestOrphansAreBuried(t *testing.T) {
	t.Parallel()
	command := as("supervisor")
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	// Without a supervisor the orphan goes to whoever buries the orphans of this machine, or to nobody; so only the
	// supervisor's own failures are told apart here.
	command = as("broken")
	if err := exec.CommandContext(t.Context(), command[0], command[1:]...).Run(); err == nil {
		t.Error("a part that fails must fail the test")
	}
}

// underWay counts the requests.
func (r *rig) underWay() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, known := range r.sessions {
		known.mu.Lock()
		n += len(known.posts)
		known.mu.Unlock()
	}
	return n
}

// count counts the sessions.
func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{hello, `{"id":"a","method":"x"}`, `{"method":"n"}`, `{"id":1,"result":{}}`, "{\n\"id\":1.0,\r\n\"method\":\"x\"}", `{}`, `[]`, `{"id":null,"method":"x"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := read(text)
		if err != nil {
			return
		}
		if strings.ContainsAny(string(m.line), "\n\r") {
			t.Errorf("%q has a line break", m.line)
		}
		if again, err := read(m.line); err != nil || again.key() != m.key() || again.Method != m.Method {
			t.Errorf("%q is another message than %q", m.line, text)
		}
		if m.isRequest() && m.key() == "" {
			t.Errorf("%q is a request without an id", text)
		}
	})
}
