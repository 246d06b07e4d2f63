// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// neverEnding are answers that never end: how they begin, and what comes again and again.
var neverEnding = map[string]struct{ kind, begin, again string }{
	"JSON, one string":          {"application/json", `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`, strings.Repeat("x", 32<<10)},
	"JSON, ever more":           {"application/json", `{"jsonrpc":"2.0","id":1,"result":{"content":[`, strings.Repeat(`{"type":"text","text":"a"},`, 1000)},
	"JSON, ever deeper":         {"application/json", "", strings.Repeat(`{"a":`, 1000)},
	"JSON, blanks":              {"application/json", "", strings.Repeat(" \n", 1000)},
	"JSON, many messages":       {"application/json", "", strings.Repeat(`{"jsonrpc":"2.0","id":1,"result":{}}`, 100)},
	"events":                    {"text/event-stream", "", `data: {"method":"notifications/message","params":{"data":"` + strings.Repeat("x", 32<<10) + "\"}}\n\n"},
	"one event of many lines":   {"text/event-stream", "", strings.Repeat("data: {}\n", 1000)},
	"one event of one line":     {"text/event-stream", "data: ", strings.Repeat("x", 32<<10)},
	"a comment":                 {"text/event-stream", ":", strings.Repeat("x", 32<<10)},
	"bytes of another kind":     {"application/octet-stream", "", strings.Repeat("\x00", 32<<10)},
	"bytes without saying what": {"", "", strings.Repeat("\xff", 32<<10)},
}

// An answer that never ends leaves nothing behind in the gateway, whether the agent leaves early or reads what it gets.
// The test runs alone, since it counts goroutines and memory.
func TestAnswersThatNeverEndLeaveNothingBehind(t *testing.T) {
	r := newRig(t)
	r.gateway.Limits.Answer, r.gateway.Limits.Event = 1<<20, 256<<10
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		answer := neverEnding[rq.Header.Get("X-Answer")]
		if answer.kind != "" {
			w.Header().Set("Content-Type", answer.kind)
		}
		_, err := io.WriteString(w, answer.begin)
		for err == nil && rq.Context().Err() == nil {
			_, err = io.WriteString(w, answer.again)
		}
	})
	const enough = 3 << 20 // more than an answer, or an event, may have
	ask := func(name, body string, most int64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := r.open(ctx, http.MethodPost, "/mcp", body, "X-Answer", name)
		if err != nil {
			return // it was broken off before it began
		}
		defer resp.Body.Close()
		n, _ := io.CopyN(io.Discard, resp.Body, most)
		// A stream goes on while every event of it is small, or nobody has to read it: a client knows no end of one.
		stream := name == "events" || neverEnding[name].kind == "text/event-stream" && body == ping
		if n == enough != (stream && most == enough) {
			t.Errorf("%s, %.60s: the agent gets %d bytes", name, body, n)
		}
	}
	round := func() {
		for name := range neverEnding {
			for _, body := range []string{toolCall("get_invoice", `{}`), listCall, ping} {
				ask(name, body, 1<<10)
				ask(name, body, enough)
			}
		}
		r.underWay(awaiting, 0)
	}
	held := func() (goroutines int, bytes uint64) {
		r.upstream.CloseClientConnections()
		runtime.GC()
		runtime.GC() // what pools keep outlives the first
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	round()
	goroutines, bytes := held()
	round()
	r.until("no more goroutines, and hardly more memory, than before", func() bool {
		g, b := held()
		return g <= goroutines+5 && b <= bytes+4<<20
	})
}
