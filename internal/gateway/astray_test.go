// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// messages of every kind that goes its own way through the gateway.
func everyWay(r *rig) map[string]struct{ method, body string } {
	return map[string]struct{ method, body string }{
		"a read":           {http.MethodPost, toolCall("get_invoice", `{}`)},
		"an effect":        {http.MethodPost, r.approved("delete_account")},
		"a list":           {http.MethodPost, listCall},
		"another method":   {http.MethodPost, ping},
		"a task":           {http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}`},
		"a stream":         {http.MethodGet, ""},
		"end of a session": {http.MethodDelete, ""},
	}
}

// A server takes the connection for another protocol, unasked, and then says nothing: net/http leaves such a connection to
// the gateway alone, and no time limit ends it. A status that HTTP does not know it does not pass on, but panics.
func TestAnAnswerThatIsNoneHoldsNothing(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{
		"another protocol": "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other",
		"no status":        "042 Fine",
		"status zero":      "000 Fine\r\nContent-Length: 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			r.upstream.answers(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 "+begin+"\r\nContent-Type: application/json\r\n\r\n")
				<-over
			})
			r.gateway.Limits.Failures = 1000
			for name, tc := range everyWay(r) {
				answer := make(chan got, 1)
				go func() { answer <- r.do(t.Context(), tc.method, tc.body) }()
				var got got
				r.until(name+" has its answer", func() bool {
					select {
					case got = <-answer:
						return true
					default:
						return false
					}
				})
				if got.status != http.StatusBadGateway && got.code() != codeAmbiguous {
					t.Errorf("%s: HTTP %d %v: %s", name, got.status, got.err, got.body)
				}
			}
			if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseAmbiguous {
				t.Errorf("the request is %s", phase)
			}
		})
	}
}

func TestARedirectDoesNotReachTheAgent(t *testing.T) {
	t.Parallel()
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		for _, kind := range []string{"application/json", "text/event-stream", "text/html", ""} {
			t.Run(fmt.Sprint(status, " ", kind), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
					w.Header().Set("Location", r.upstream.URL+"/past-the-gateway")
					answerStatus(status, kind, "moved")(w, rq)
				})
				for name, tc := range everyWay(r) {
					got := r.do(t.Context(), tc.method, tc.body)
					if got.status != http.StatusBadGateway || got.header.Get("Location") != "" || !strings.Contains(got.body, "is a redirect") {
						t.Errorf("%s: HTTP %d, %v: %s", name, got.status, got.header, got.body)
					}
				}
				if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseAmbiguous {
					t.Errorf("the request is %s", phase)
				}
			})
		}
	}
	r := newRig(t) // what sends nobody anywhere passes
	r.upstream.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	if got := r.do(t.Context(), http.MethodGet, ""); got.status != http.StatusNotModified {
		t.Errorf("HTTP %d: %s", got.status, got.body)
	}
}
