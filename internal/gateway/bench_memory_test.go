// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

// inUse is what the process uses of memory for objects and stacks, in bytes.
func inUse() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held the first time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkHeld is what 1,000 calls that wait for a person take: connections, stacks and all. Their clients are bare
// connections, so that next to nothing of it is theirs.
func BenchmarkHeld(b *testing.B) {
	const calls = 1000
	for b.Loop() {
		r := newRig(b)
		r.hold(time.Hour)
		empty := inUse()
		b.ReportMetric(empty, "idle-B")
		var conns []net.Conn
		for i := range calls {
			conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, conn)
			body := strings.Replace(toolCall("update_invoice", `{"n":1}`), `"id":1`, `"id":`+strconv.Itoa(i+1), 1)
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
				r.front.Listener.Addr(), len(body), body)
			if i == 0 {
				r.held() // the request of all of them
			}
		}
		r.until("all calls are held", func() bool {
			return r.gateway.callers.holds(ofEffects) >= calls*int64(len(toolCall("update_invoice", `{"n":1}`)))
		})
		b.ReportMetric((inUse()-empty)/calls, "B/held")
		for _, conn := range conns {
			conn.Close()
		}
		r.until("all calls have ended", func() bool { return r.gateway.callers.holds(ofEffects) == 0 })
	}
}

// BenchmarkSessions is what the gateway keeps of a session between its messages: whose it is.
func BenchmarkSessions(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		before := inUse()
		for i := range r.gateway.Limits.Sessions {
			resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{sessionHeader: {"session-" + strconv.Itoa(i)}}}
			r.server.sessions.note(resp, snapshot.Caller{Username: "system:serviceaccount:shop:" + strconv.Itoa(i%100)}, r.gateway.Limits.Sessions, func() {})
		}
		b.ReportMetric((inUse()-before)/float64(r.gateway.Limits.Sessions), "B/session")
		runtime.KeepAlive(r)
	}
}
