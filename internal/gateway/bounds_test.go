// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// limited is how a gateway refuses for a limit.
type limited struct {
	ID    json.RawMessage
	Error struct {
		Code int
		Data struct {
			Code              string
			RetryAfterSeconds int
		}
	}
}

func (r *rig) limitedBy(got got, status int, code, id string, retryAfter int) {
	r.t.Helper()
	var is limited
	if err := json.Unmarshal([]byte(got.body), &is); err != nil || got.err != nil {
		r.t.Errorf("HTTP %d %v: %s", got.status, got.err, got.body)
		return
	}
	if got.status != status || is.Error.Code != codeByPolicy || is.Error.Data.Code != code || string(is.ID) != id ||
		is.Error.Data.RetryAfterSeconds != retryAfter || got.header.Get("Retry-After") != strconv.Itoa(retryAfter) {
		r.t.Errorf("HTTP %d, Retry-After %q, %s; want HTTP %d with %s for id %s after %d s", got.status, got.header.Get("Retry-After"), got.body, status, code, id, retryAfter)
	}
	if refused := testutil.ToFloat64(r.gateway.Metrics.refusals.WithLabelValues(billing.Namespace, billing.Name, code)); refused == 0 {
		r.t.Errorf("no metric counts %s", code)
	}
}

func (r *rig) underWay(p place, want int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d under way", want), func() bool {
		r.gateway.callers.mu.Lock()
		defer r.gateway.callers.mu.Unlock()
		return r.gateway.callers.all[p] == want
	})
}

func numbered(id int, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, id, name)
}

const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`

func TestACallerHasSoManyCallsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.gateway.Limits.CallerCalls, r.gateway.Limits.Calls = 2, 4
	end := make(chan struct{})
	answer := answerJSON(`{"content":[]}`)
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		body, _ := io.ReadAll(rq.Body)
		if strings.Contains(string(body), "get_invoice") {
			<-end
		}
		rq.Body = io.NopCloser(strings.NewReader(string(body)))
		answer(w, rq)
	})
	var under []<-chan got
	begin := func(who string) {
		under = append(under, r.later(t.Context(), numbered(1, "get_invoice"), "Authorization", "Bearer "+who))
		r.underWay(awaiting, len(under))
	}
	begin("crane")
	begin("crane for carol")
	r.limitedBy(r.as("crane", numbered(9007199254740993, "get_invoice")), http.StatusTooManyRequests, codeTooManyCalls, "9007199254740993", 1)
	r.limitedBy(r.as("crane for dave", `{"jsonrpc":"2.0","id":"p","method":"ping"}`), http.StatusTooManyRequests, codeTooManyCalls, `"p"`, 1)
	if got := r.as("crane", cancelled); got.status != http.StatusAccepted {
		t.Errorf("what may end a call: HTTP %d %s", got.status, got.body)
	}
	if got := r.as("winch", ping); got.status != http.StatusOK {
		t.Errorf("another caller: HTTP %d %s", got.status, got.body)
	}
	begin("winch")
	begin("winch")
	r.limitedBy(r.as("bollard", ping), http.StatusServiceUnavailable, codeBusy, "1", 1)
	close(end)
	for _, call := range under {
		if got := <-call; got.status != http.StatusOK || got.err != nil {
			t.Errorf("a call that was under way: HTTP %d %v", got.status, got.err)
		}
	}
	r.underWay(awaiting, 0)
	if got := r.as("crane", ping); got.status != http.StatusOK {
		t.Errorf("once they ended: HTTP %d", got.status)
	}
}

func TestACallerListensOnSoManyStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.gateway.Limits.CallerStreams, r.gateway.Limits.Streams = 1, 2
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-rq.Context().Done()
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	listen := func(who string) {
		if resp, err := r.open(ctx, http.MethodGet, "/mcp", "", "Authorization", "Bearer "+who); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", who, resp, err)
		}
	}
	listen("crane")
	r.limitedBy(r.do(ctx, http.MethodGet, "", "Authorization", "Bearer crane"), http.StatusTooManyRequests, codeTooManyStreams, "null", 1)
	r.limitedBy(r.as("crane", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`), http.StatusTooManyRequests, codeTooManyStreams, "1", 1)
	listen("winch")
	r.limitedBy(r.do(ctx, http.MethodGet, "", "Authorization", "Bearer bollard"), http.StatusServiceUnavailable, codeBusy, "null", 1)
	leave()
	r.underWay(listening, 0)
}

func TestACallerSendsSoManyMessagesASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.gateway.Limits.CallerRate = 2
	for _, who := range []string{"crane", "crane for carol", "winch"} {
		if got := r.as(who, ping); got.status != http.StatusOK {
			t.Errorf("%s: HTTP %d", who, got.status)
		}
	}
	r.limitedBy(r.as("crane for dave", numbered(0, "get_invoice")), http.StatusTooManyRequests, codeRateLimited, "0", 1)
	r.limitedBy(r.do(t.Context(), http.MethodGet, "", "Authorization", "Bearer crane"), http.StatusTooManyRequests, codeRateLimited, "null", 1)
	r.limitedBy(r.as("crane", `{"id":7,"jsonrpc":"2.0","jsonrpc":"2.0"}`), http.StatusTooManyRequests, codeRateLimited, "7", 1)
	if got := r.as("winch", ping); got.status != http.StatusOK {
		t.Errorf("another caller: HTTP %d", got.status)
	}
	r.clock.Step(500 * time.Millisecond)
	if got := r.as("crane", ping); got.status != http.StatusOK {
		t.Errorf("half a second later: HTTP %d", got.status)
	}
	r.limitedBy(r.as("crane", ping), http.StatusTooManyRequests, codeRateLimited, "1", 1)
	if n := len(r.upstream.requests()); n != 5 {
		t.Errorf("the server got %d messages, want 5", n)
	}
}

func TestOnlySoManyCallersAreRemembered(t *testing.T) {
	t.Parallel()
	var c callers
	l, code := c.enter("busy", awaiting, 1, 1<<20)
	if code != "" {
		t.Fatal(code)
	}
	for i := range 3 * maxIdleCallers {
		c.pace(fmt.Sprint("caller-", i), 5, noon)
		if idle := len(c.by) - c.busy; idle > maxIdleCallers {
			t.Fatalf("%d idle callers are remembered", idle)
		}
	}
	if _, code := c.enter("busy", awaiting, 1, 1<<20); code != codeTooManyCalls {
		t.Errorf("who has something under way was forgotten: %q", code)
	}
	c.leave(l, awaiting)
	if _, code := c.enter("busy", awaiting, 1, 1<<20); code != "" || c.busy != 1 {
		t.Errorf("%q, %d callers are busy", code, c.busy)
	}
}

func TestTakingAPlaceAllocatesNothing(t *testing.T) { // alone, since it counts allocations
	r := newRig(t)
	who := caller{requester: v1alpha1.Requester{Username: "crane"}}
	take := func() {
		p, ok := r.gateway.takePlace(nil, r.server, who, awaiting, nil)
		if !ok {
			t.Fatal("refused")
		}
		p.leave()
	}
	take()
	if got := testing.AllocsPerRun(100, take); got > 0 {
		t.Errorf("%v allocations a place", got)
	}
}

// dial opens a connection on which every byte is the test's to send.
func (r *rig) dial(front *httptest.Server) net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestASlowWriterHoldsNothingButItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	front := httptest.NewUnstartedServer(r.gateway)
	front.Config.ReadTimeout = 300 * time.Millisecond // as --receive-timeout does
	front.Start()
	t.Cleanup(front.Close)
	slow := r.dial(front)
	fmt.Fprintf(slow, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if got := r.post(ping); got.status != http.StatusOK {
		t.Errorf("another: HTTP %d", got.status)
	}
	resp, err := http.ReadResponse(bufio.NewReader(slow), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := read(resp, nil)
	if got.status != http.StatusRequestTimeout || !strings.Contains(got.body, "did not arrive in time") {
		t.Errorf("HTTP %d %s", got.status, got.body)
	}
	r.underWay(reading, 0)
	if n := testutil.ToFloat64(r.gateway.Metrics.refusals.WithLabelValues(billing.Namespace, billing.Name, codeTooSlow)); n != 1 {
		t.Errorf("%v counted", n)
	}
	if n := len(r.upstream.requests()); n != 1 {
		t.Errorf("the server got %d messages", n)
	}
}

func TestASlowReaderHoldsNothingButItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway.Limits.ClientStall = 300 * time.Millisecond
	next := make(chan string)
	left := make(chan struct{})
	r.upstream.answers(flooding(left, streaming(next)))
	resp := r.dial(r.front)
	fmt.Fprint(resp, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: flood\r\n\r\n") // and reads nothing
	reader := r.dial(r.front)
	fmt.Fprint(reader, "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
	lines := bufio.NewReader(reader)
	for i := range 20 {
		want := fmt.Sprintf("data: %d\n", i)
		next <- want + "\n"
		for line := ""; line != want; {
			var err error
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatalf("the stream of another: %v", err)
			}
		}
	}
	<-left // the server is not read for who reads nothing
	r.underWay(listening, 1)
	if n := r.cut(codeClientStalled); n != 1 {
		t.Errorf("%v counted", n)
	}
	close(next)
	r.underWay(listening, 0)
}

func TestAStreamOnWhichNothingPassesEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway.Limits.StreamIdle = 2 * time.Second
	r.edit(func() { r.governed.Spec.CallTimeout.Duration = time.Hour })
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		<-rq.Context().Done()
	})
	for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`} {
		if got := r.do(t.Context(), method, body); got.err != nil || got.body != "data: 1\n\n" {
			t.Errorf("%s: %v %q", method, got.err, got.body)
		}
	}
	if n := r.cut(codeStreamIdle); n != 2 {
		t.Errorf("%v counted", n)
	}
}

func TestAServerThatSendsNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.CallTimeout.Duration = time.Second })
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		if rq.Header.Get("X-Begin") != "" {
			answerWith("text/event-stream", ": x\n\n")(w, rq)
			http.NewResponseController(w).Flush()
		}
		<-rq.Context().Done()
	})
	for _, body := range []string{ping, toolCall("get_invoice", `{}`), listCall} {
		if got := r.post(body); got.status != http.StatusGatewayTimeout || !strings.Contains(got.body, "did not answer in time") {
			t.Errorf("%s: HTTP %d %s", body, got.status, got.body)
		}
		if got := r.post(body, "X-Begin", "yes"); got.err == nil {
			t.Errorf("%s: an answer that broke off passed as whole: %q", body, got.body)
		}
	}
	r.underWay(awaiting, 0)
}

func TestEveryByteIsASignOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, pulse, end := withPulse(t.Context(), time.Minute)
		defer end()
		body := pulse.of(io.NopCloser(strings.NewReader("abc")))
		for range 3 {
			<-time.After(59 * time.Second)
			if _, err := body.Read(make([]byte, 1)); err != nil || ctx.Err() != nil {
				t.Fatalf("%v, given up: %v", err, ctx.Err())
			}
		}
		<-time.After(59 * time.Second)
		body.Read(make([]byte, 1)) // nothing, which is none
		<-time.After(2 * time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("a server that sends nothing is not given up")
		}
	})
}

// Streams that ended leave nothing running. It runs alone, since it counts goroutines.
func TestStreamsThatEndLeaveNothingRunning(t *testing.T) {
	r := newRig(t)
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		<-rq.Context().Done()
	})
	cycle := func() {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		for range 10 {
			resp, err := r.open(ctx, http.MethodGet, "/mcp", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		leave()
		r.underWay(listening, 0)
	}
	cycle()
	r.upstream.CloseClientConnections()
	before := runtime.NumGoroutine()
	for range 5 {
		cycle()
	}
	r.until("as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before+5 })
}

func TestOverHTTP2OnlyWhoReadsNothingIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.overHTTP2()
	r.gateway.Limits.ClientStall = 1500 * time.Millisecond
	left := make(chan struct{})
	r.upstream.answers(flooding(left, func(w http.ResponseWriter, rq *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		io.WriteString(w, "data: 1\n\n")
		flush.Flush()
		<-time.After(2 * time.Second) // longer than a client may stall
		io.WriteString(w, "data: 2\n\n")
	}))
	resp, err := r.open(t.Context(), http.MethodGet, "/mcp", "", "Last-Event-ID", "flood")
	if err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close() // and reads nothing
	if got := r.do(t.Context(), http.MethodGet, ""); got.err != nil || got.body != "data: 1\n\ndata: 2\n\n" {
		t.Errorf("who reads what there is: %v %q", got.err, got.body)
	}
	<-left
	r.until("it is counted", func() bool { return r.cut(codeClientStalled) == 1 })
	r.underWay(listening, 0)
}
