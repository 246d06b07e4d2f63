// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// stage is the world with the real server in it, behind a gateway.
type stage struct {
	*world
	passed *counter
	// direct is where the server is, gateway where agents are sent.
	direct, gateway, receipts string
	// token is the agent's, for the gateway.
	token string
}

// newStage starts everything and registers the server as the approver.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{world: newWorld(t)}
	s.direct = s.everything(t)
	s.passed = newCounter(t, s.direct)
	s.register(t, "everything", s.passed.url, v1alpha1.TransportStreamableHTTP)
	s.gateway, s.receipts = s.front(t, "everything")
	s.token = s.plane.ServiceAccount(t, s.namespace, "agent", s.gateway).BearerToken
	return s
}

// everything starts the reference server of the protocol, and returns where it is.
func (w *world) everything(t *testing.T) string {
	t.Helper()
	url, port := freeEndpoint(t)
	// SIGINT is the one signal that it handles. Without a session a GET is a bad request to it.
	start(t, syscall.SIGINT, []string{"PORT=" + port}, w.node, w.program("mcp-server-everything"), "streamableHttp").
		awaitHTTP(t, url, http.StatusBadRequest)
	return url
}

// everythingSSE starts the reference server on HTTP+SSE.
func (w *world) everythingSSE(t *testing.T) string {
	t.Helper()
	url, port := freeEndpoint(t)
	url = strings.TrimSuffix(url, "/mcp") + "/sse"
	start(t, syscall.SIGTERM, []string{"PORT=" + port}, w.node, w.program("mcp-server-everything"), "sse").awaitHTTP(t, url, http.StatusOK)
	return url
}

// counter passes everything on to a server as it is, and counts the calls of each tool that reach it.
type counter struct {
	url string

	mu    sync.Mutex
	calls map[string]int
}

func newCounter(t *testing.T, server string) *counter {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{calls: map[string]int{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.count(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	c.url = front.URL + "/mcp"
	return c
}

func (c *counter) count(body []byte) {
	var message struct {
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal(body, &message) != nil || message.Method != "tools/call" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[message.Params.Name]++
}

// want fails unless this many calls of a tool have reached the server through the gateway.
func (c *counter) want(t *testing.T, tool string, calls int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.calls[tool]; got != calls {
		t.Errorf("calls of %s that reached the server: got %d, want %d", tool, got, calls)
	}
}
