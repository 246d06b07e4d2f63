// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// got is what an agent got.
type got struct {
	status int
	header http.Header
	body   string
	err    error
}

// code is what the gateway says for programs.
func (g got) code() string {
	var message struct {
		Result struct {
			Meta struct {
				Decision struct{ Code string } `json:"tidewaiter.dev/decision"`
			} `json:"_meta"`
		}
	}
	text := g.body
	if strings.HasPrefix(g.header.Get("Content-Type"), "text/event-stream") {
		_, text, _ = cutLast(text, "data: ")
	}
	if json.Unmarshal([]byte(text), &message) != nil {
		return ""
	}
	return message.Result.Meta.Decision.Code
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+len(sep):], true
}

func toolCall(name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
}

func (r *rig) post(body string, headers ...string) got {
	return r.do(context.Background(), http.MethodPost, body, headers...)
}

func (r *rig) do(ctx context.Context, method, body string, headers ...string) got {
	return read(r.open(ctx, method, "/mcp?tenant=7", body, headers...))
}

// open sends a request, and returns the answer as soon as it begins.
func (r *rig) open(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.front.URL+path, reader)
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	if r.agents != nil {
		return r.agents.RoundTrip(req)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// read takes an answer to its end.
func read(resp *http.Response, err error) got {
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return got{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
}

// later sends a call and returns where its answer will be.
func (r *rig) later(ctx context.Context, body string, headers ...string) <-chan got {
	answers := make(chan got, 1)
	go func() { answers <- r.do(ctx, http.MethodPost, body, headers...) }()
	return answers
}

// until polls for what other goroutines do.
func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(45 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			r.t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

// held waits until a call waits for a person.
func (r *rig) held() {
	r.t.Helper()
	r.until("a held call", func() bool { return r.clock.HasWaiters() && len(r.requests()) > 0 })
}
