// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestAHoldShowsSignsOfLifeToWhoAskedForThem(t *testing.T) {
	t.Parallel()
	withToken := `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"update_invoice","arguments":{},"_meta":{"progressToken":"t\u00e9"}}}`
	for name, tc := range map[string]struct {
		body       string
		headers    []string
		wantEvents int
	}{
		"with a token":                 {withToken, nil, 4},
		"without one":                  {toolCall("update_invoice", `{}`), nil, 0},
		"a client that reads no event": {withToken, []string{"Accept", "application/json"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(45 * time.Second)
			answers := make(chan got, 1)
			go func() {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.front.URL+"/mcp", strings.NewReader(tc.body))
				req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
				if tc.headers != nil {
					req.Header.Set(tc.headers[0], tc.headers[1])
				}
				answers <- read(http.DefaultTransport.RoundTrip(req))
			}()
			for range 9 {
				r.held()
				r.clock.Step(2500 * time.Millisecond)
				r.edit(nil) // changes that follow each other put nothing off
				r.held()
				r.clock.Step(2500 * time.Millisecond)
			}
			got := <-answers
			if n := strings.Count(got.body, "notifications/progress"); n != tc.wantEvents {
				t.Errorf("%d signs of life, want %d: %s", n, tc.wantEvents, got.body)
			}
			last := 0.0
			for line := range strings.Lines(got.body) {
				var message struct {
					Params struct {
						ProgressToken string
						Progress      float64
					}
				}
				if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &message) != nil || message.Params.Progress == 0 {
					continue
				}
				if message.Params.ProgressToken != "té" || message.Params.Progress <= last || message.Params.Progress >= 1 {
					t.Errorf("sign %s", line)
				}
				last = message.Params.Progress
			}
			if got.code() != codePending {
				t.Errorf("after the hold: %s", got.body)
			}
			r.nothingSent()
		})
	}
}

func TestAnAnswerAfterSignsOfLifeIsStillTheServers(t *testing.T) {
	t.Parallel()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":{},"_meta":{"progressToken":1}}}`
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
		phase  v1alpha1.Phase
	}{
		"JSON over several lines": {answerWith("application/json", "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"result\":{\"content\":[]}}\n"), "data: {\"jsonrpc\":\"2.0\",  \"id\":1, \"result\":{\"content\":[]}} \n\n", v1alpha1.PhaseSucceeded},
		"events with a mark":      {answerWith("text/event-stream", "\ufeffdata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"), "\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", v1alpha1.PhaseSucceeded},
		"an error with a status":  {answerStatus(404, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`), "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no\"}}\n\n", v1alpha1.PhaseFailed},
		"no message":              {answerStatus(503, "text/plain", "busy"), "HTTP 503", v1alpha1.PhaseAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(45 * time.Second)
			r.upstream.answers(tc.answer)
			answers := r.later(t.Context(), body)
			r.held()
			r.clock.Step(11 * time.Second)
			r.held()
			r.decide(v1alpha1.DecisionApproved)
			got := <-answers
			if !strings.Contains(got.body, tc.want) || !strings.Contains(got.body, "notifications/progress") {
				t.Errorf("got %q, want it to end in %q", got.body, tc.want)
			}
			if phase := r.request().CurrentPhase(); phase != tc.phase {
				t.Errorf("the request is %s, want %s", phase, tc.phase)
			}
			r.ran(body)
		})
	}
}
