// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// requestsOnTheWire are messages as clients of all kinds send them; %d is one that nothing else has.
var requestsOnTheWire = map[string]string{
	"a read":               toolCall("get_invoice", `{"n":%d}`),
	"an effect":            toolCall("update_invoice", `{"n":%d}`),
	"one that waits":       toolCall("delete_account", `{"n":%d}`),
	"a list":               listCall,
	"another method":       ping,
	"what has no answer":   cancelled,
	"a message of 16 KiB":  toolCall("get_invoice", `{"n":%d,"x":"`+strings.Repeat("x", 16<<10)+`"}`),
	"what cannot be read":  `{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call"}`,
	"half a message":       `{"jsonrpc":"2.0",`,
	"several messages":     "[" + ping + "," + ping + "]",
	"nothing":              "",
	"an id of many digits": `{"jsonrpc":"2.0","id":` + strings.Repeat("9", 300) + `,"method":"ping"}`,
}

// framed is a body as HTTP/1.1 sends it in several ways, one of them a lie.
func framed(way int, body string) string {
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	switch way {
	case 0:
		return head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	case 1:
		return head + fmt.Sprintf("Transfer-Encoding: chunked\r\nTrailer: X-After\r\n\r\n%x\r\n%s\r\n0\r\nX-After: 1\r\n\r\n", max(len(body), 1), body+strings.Repeat(" ", 1-min(len(body), 1)))
	case 2:
		return head + fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	case 3:
		return head + fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	case 4:
		return head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body)+7, body) // more was said than comes
	default:
		one := head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
		return one + one // the next before the answer
	}
}

// Clients go at every moment: while they send, while they wait, while they read, or before any of it. Nothing of theirs is
// counted as under way then, and no effect happens more often than it was asked for.
func TestClientsThatGoAtAnyMomentLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	r.hold(45e9)
	r.edit(func() { r.governed.Spec.Approvals.MaxPending, r.governed.Spec.Approvals.MaxPerHour = 10000, 10000 })
	r.gateway.Limits.Failures = 1000
	var mu sync.Mutex
	times := map[string]int{}
	inner := answerJSON(`{"content":[]}`)
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		body, _ := io.ReadAll(rq.Body)
		mu.Lock()
		times[string(body)]++
		mu.Unlock()
		rq.Body = io.NopCloser(strings.NewReader(string(body)))
		inner(w, rq)
	})
	asked := map[string]int{}
	var all sync.WaitGroup
	n := 0
	for name, message := range requestsOnTheWire {
		for way := range 6 {
			for range 6 {
				n++
				body := strings.Replace(message, "%d", fmt.Sprint(n), 1)
				text := framed(way, body)
				if asked[body]++; way == 5 {
					asked[body]++
				}
				sent := len(text) // some all of it, and others any part
				if rand.IntN(2) == 0 {
					sent = rand.IntN(len(text))
				}
				reads := rand.IntN(3) * 40
				all.Go(func() {
					conn := r.dial(r.front)
					defer conn.Close()
					if _, err := io.WriteString(conn, text[:sent]); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if sent == len(text) && way != 4 && name != "one that waits" {
						io.CopyN(io.Discard, conn, int64(reads))
					}
				})
			}
		}
	}
	all.Wait()
	for p := range places {
		r.underWay(p, 0)
	}
	for w := range weighed {
		r.until("no byte is held", func() bool { return r.gateway.callers.holds(w) == 0 })
	}
	r.until("no call waits", func() bool {
		r.server.waiting.mu.Lock()
		defer r.server.waiting.mu.Unlock()
		return len(r.server.waiting.calls) == 0
	})
	if got := r.post(ping); got.status != http.StatusOK {
		t.Errorf("afterwards: HTTP %d %s", got.status, got.body)
	}
	mu.Lock()
	defer mu.Unlock()
	for body, n := range times {
		if strings.Contains(body, "update_invoice") && n > asked[strings.TrimSpace(body)] || strings.Contains(body, "delete_account") {
			t.Errorf("the server got %d times: %.100s", n, body)
		}
	}
}
