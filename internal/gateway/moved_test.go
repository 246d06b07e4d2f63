// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// A task is one of the server that made it: what another server says under the same id is about something else.
func TestAnotherServerHasNoSayOnATask(t *testing.T) {
	t.Parallel()
	const said = `data: {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1","status":"completed","result":{"content":[]}}}` + "\n\n"
	for name, send := range map[string]func(*rig) got{
		"a result": func(r *rig) got { r.upstream.answers(answerJSON(`{"content":[]}`)); return r.post(about("result", "")) },
		"by itself": func(r *rig) got {
			r.upstream.answers(answerWith("text/event-stream", said))
			return r.do(r.t.Context(), http.MethodGet, "")
		},
		"beside another": func(r *rig) got {
			r.upstream.answers(answerWith("text/event-stream", said))
			return r.post(about("get", ""))
		},
	} {
		for moved, want := range map[bool]v1alpha1.Phase{false: v1alpha1.PhaseSucceeded, true: v1alpha1.PhaseExecuting} {
			r := newRig(t)
			r.tasked(taskOf2026)
			if moved {
				r.moves()
			}
			if got := send(r); got.status != http.StatusOK {
				t.Errorf("%s: HTTP %d %s", name, got.status, got.body)
			}
			r.gateway.follow(t.Context())
			if phase := r.request().CurrentPhase(); phase != want {
				t.Errorf("%s, another server: %t: the request is %s, want %s", name, moved, phase, want)
			}
		}
	}
}

// Whoever listens to a server that is not the governed one any more would hear nothing of the one that is.
func TestAStreamEndsWithTheEndpointThatItComesFrom(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ method, body string }{
		"the stream of GET": {http.MethodGet, ""},
		"a subscription":    {http.MethodPost, message("subscriptions/listen")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			next := make(chan string)
			defer close(next)
			r.upstream.answers(streaming(next))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, tc.method, r.front.URL+"/mcp", strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			hears := func(event string) {
				t.Helper()
				next <- event
				if got, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(event)))); err != nil || string(got) != event {
					t.Fatalf("heard %q, %v", got, err)
				}
			}
			hears(": 1\n\n")
			same := r.server.upstream.Load().own()
			same.Headers = http.Header{"X-Configured": {"new"}} // another Secret, say
			r.server.Dial(&same, r.server.dials())
			hears(": 2\n\n")
			r.moves()
			if rest, err := io.ReadAll(resp.Body); err == nil || len(rest) > 0 || ctx.Err() != nil {
				t.Errorf("after the server has moved: %q, %v", rest, err)
			}
			r.until("nothing is left of the stream", func() bool {
				r.server.mu.Lock()
				defer r.server.mu.Unlock()
				return len(r.server.listeners) == 0
			})
		})
	}
}

// What a server said of its tools is no word on those of the server that took its place, however late it comes.
func TestALateListOfAnotherServerTeachesNothing(t *testing.T) {
	t.Parallel()
	const list = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get_invoice","description":"something else"}]}}`
	for moved, want := range map[bool]bool{false: true, true: false} {
		r := newRig(t)
		r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
			if moved {
				r.moves()
			}
			answerWith("application/json", list)(w, rq)
		})
		if got := r.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); got.status != http.StatusOK {
			t.Fatal(got)
		}
		if _, learned := r.server.Snapshot().Definitions["get_invoice"]; learned != want {
			t.Errorf("the server moved meanwhile: %t; what it said of its tool counts: %t", moved, learned)
		}
	}
}

// An id is the same however it is spelt: servers read it, and write it their own way.
func TestAnAnswerIsFoundHoweverItsIDIsSpelt(t *testing.T) {
	t.Parallel()
	for agent, server := range map[string]string{`"a\/b"`: `"a/b"`, `"a/b"`: `"a\/b"`, `"\u00fc"`: `"ü"`, `"ü"`: `"\u00FC"`, `1`: `1`} {
		for _, kind := range []string{"application/json", "text/event-stream"} {
			r := newRig(t)
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, server)
			if kind == "text/event-stream" {
				answer = "data: " + answer + "\n\n"
			}
			body := withID(agent, r.approved("update_invoice"))
			r.upstream.answers(answerWith(kind, answer))
			if got := r.post(body); got.body != answer || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
				t.Errorf("%s answered as %s by %s: the request is %s, %s", agent, server, kind, r.request().CurrentPhase(), got.body)
			}
		}
	}
	for _, other := range []string{`"1"`, `2`, `"A"`} {
		r := newRig(t)
		body := r.approved("update_invoice")
		r.upstream.answers(answerWith("application/json", `{"jsonrpc":"2.0","id":`+other+`,"result":{"content":[]}}`))
		if r.post(body); r.request().CurrentPhase() != v1alpha1.PhaseAmbiguous {
			t.Errorf("answered as %s the request is %s", other, r.request().CurrentPhase())
		}
	}
}
