// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/breaker"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
)

const toolFails = `{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`

// breaks has the server fail until it is left alone.
func (r *rig) breaks() {
	r.t.Helper()
	r.upstream.answers(answerStatus(http.StatusInternalServerError, "text/plain", "down"))
	for range r.gateway.Limits.Failures {
		if got := r.post(ping); got.status != http.StatusInternalServerError {
			r.t.Fatalf("HTTP %d: %s", got.status, got.body)
		}
	}
	r.health(breaker.Open)
}

func (r *rig) health(want breaker.State) {
	r.t.Helper()
	if is := testutil.ToFloat64(r.gateway.Metrics.breaker.WithLabelValues(billing.Namespace, billing.Name)); is != float64(want) {
		r.t.Errorf("the metric says %v, want %v", is, want)
	}
}

func TestAServerThatFailsIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.breaks()
	failed := len(r.upstream.requests())
	r.upstream.answers(nil)
	if got := r.post(ping); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "10" ||
		!strings.Contains(got.body, `"id":1,"error"`) || !strings.Contains(got.body, `"data":{"code":"ServerUnavailable","retryAfterSeconds":10}`) {
		t.Errorf("HTTP %d, Retry-After %q: %s", got.status, got.header.Get("Retry-After"), got.body)
	}
	if got := r.do(t.Context(), http.MethodGet, ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("a stream: HTTP %d", got.status)
	}
	r.clock.Step(9 * time.Second)
	if got := r.post(toolCall("get_invoice", `{}`)); got.code() != codeResting || got.retryAfter() != 1 {
		t.Errorf("a read: %s", got.body)
	}
	if n := len(r.upstream.requests()); n != failed {
		t.Errorf("the server got %d messages while it was left alone", n-failed)
	}
	r.clock.Step(time.Second)
	if got := r.post(toolCall("get_invoice", `{}`)); got.code() != "" || got.status != http.StatusOK {
		t.Errorf("after the rest: %s", got.body)
	}
	r.health(breaker.Closed)
	if got := r.post(ping); got.status != http.StatusOK {
		t.Errorf("HTTP %d", got.status)
	}
}

func TestWhatIsNoFailureOfAServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		method string
		opens  bool
	}{
		"an error of the tool":                 {answerWith("application/json", toolFails), http.MethodPost, false},
		"an error of JSON-RPC":                 {answerStatus(http.StatusBadRequest, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"x"}}`), http.MethodPost, false},
		"a session that is not known":          {answerStatus(http.StatusNotFound, "text/plain", "x"), http.MethodPost, false},
		"what it does not offer":               {answerStatus(http.StatusNotImplemented, "text/plain", "x"), http.MethodPost, false},
		"a stream that it cannot give":         {answerStatus(http.StatusInternalServerError, "text/plain", "x"), http.MethodGet, false},
		"an error of HTTP":                     {answerStatus(http.StatusServiceUnavailable, "text/plain", "x"), http.MethodPost, true},
		"a connection that breaks":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.MethodPost, true},
		"a connection that breaks on a stream": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.MethodGet, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.upstream.answers(tc.answer)
			body := toolCall("get_invoice", `{}`)
			if tc.method == http.MethodGet {
				body = ""
			}
			for range r.gateway.Limits.Failures {
				r.do(t.Context(), tc.method, body)
			}
			if opened := r.gateway.rests(r.server) > 0; opened != tc.opens {
				t.Errorf("left alone: %v, want %v", opened, tc.opens)
			}
		})
	}
}

func TestClientsThatGoSayNothingOfAServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	arrived := make(chan struct{})
	r.upstream.answers(func(_ http.ResponseWriter, rq *http.Request) {
		arrived <- struct{}{}
		<-rq.Context().Done()
	})
	for n := range 2 * r.gateway.Limits.Failures {
		ctx, leave := context.WithCancel(t.Context())
		answer := r.later(ctx, ping)
		<-arrived
		leave()
		<-answer
		r.until("it is given up", func() bool { return len(r.upstream.requests()) == n+1 })
	}
	if wait := r.gateway.rests(r.server); wait > 0 {
		t.Errorf("left alone for %s", wait)
	}
}

// A probe that hangs keeps nobody from making the next, and does not end with it.
func TestAProbeThatHangsOrDiesWedgesNothing(t *testing.T) {
	t.Parallel()
	for name, probe := range map[string]func(rq *http.Request){
		"hangs": func(rq *http.Request) { <-rq.Context().Done() },
		"dies":  func(*http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.breaks()
			r.clock.Step(r.gateway.Limits.Rest)
			arrived := make(chan struct{})
			r.upstream.answers(func(_ http.ResponseWriter, rq *http.Request) {
				close(arrived)
				probe(rq)
			})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			answer := r.later(ctx, ping)
			<-arrived
			if name == "dies" {
				if got := <-answer; got.status != http.StatusBadGateway {
					t.Errorf("the probe: HTTP %d", got.status)
				}
			}
			r.upstream.answers(nil)
			if got := r.post(ping); got.status != http.StatusServiceUnavailable {
				t.Errorf("beside the probe: HTTP %d", got.status)
			}
			r.clock.Step(r.gateway.Limits.Rest)
			if got := r.post(ping); got.status != http.StatusOK {
				t.Errorf("a rest later: HTTP %d %s", got.status, got.body)
			}
			if wait := r.gateway.rests(r.server); wait > 0 {
				t.Errorf("left alone for %s", wait)
			}
		})
	}
}

func TestNoApprovalIsSpentOnAServerThatIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	approved := r.approved("delete_account")
	unattended := toolCall("update_invoice", `{"n":2}`)
	r.breaks()
	r.upstream.answers(nil)
	before := len(r.upstream.requests())
	refused := func(when string) {
		t.Helper()
		for _, body := range []string{approved, unattended} {
			if got := r.post(body); got.code() != codeResting || got.retryAfter() == 0 {
				t.Errorf("%s: %s", when, got.body)
			}
		}
		if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseApproved {
			t.Errorf("%s: the request is %s", when, phase)
		}
		if n := len(r.upstream.requests()); n != before {
			t.Errorf("%s: the server got a call", when)
		}
	}
	refused("while it is left alone")
	r.clock.Step(r.gateway.Limits.Rest)
	r.edit(func() { r.listErr = errors.New("down") })
	refused("while it does not even list its tools")
	r.clock.Step(r.gateway.Limits.Rest)
	r.edit(func() { r.listErr = nil })
	for _, body := range []string{approved, unattended} {
		if got := r.post(body); got.code() != "" || got.status != http.StatusOK {
			t.Errorf("once it works: %s", got.body)
		}
	}
	if n := len(r.upstream.requests()); n != before+2 {
		t.Errorf("the server got %d calls, want each once", n-before)
	}
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseSucceeded {
		t.Errorf("the request is %s", phase)
	}
}

func TestARoundWaitsForAServerThatIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begun(later)
	r.breaks()
	r.upstream.answers(answerJSON(`{"resultType":"complete","content":[]}`))
	before := len(r.upstream.requests())
	if got := r.post(callOf(3, goesOn)); got.code() != codeResting || len(r.upstream.requests()) != before {
		t.Errorf("while it is left alone: %s", got.body)
	}
	r.clock.Step(r.gateway.Limits.Rest)
	if got := r.post(callOf(3, goesOn)); got.code() != "" || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("once it works: %s, the request is %s", got.body, r.request().CurrentPhase())
	}
}

// oneShot is a server that reads one request a connection and does with it what comes next.
type oneShot struct {
	net.Listener
	requests atomic.Int64
}

// scripted puts it in place of the rig's server; the last step is repeated.
func (r *rig) scripted(steps ...string) *oneShot {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	s := &oneShot{Listener: listener}
	r.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				rq, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				io.Copy(io.Discard, rq.Body)
				n := s.requests.Add(1)
				io.WriteString(conn, steps[min(int(n), len(steps))-1])
			}()
		}
	}()
	old := r.server.upstream.Load()
	up := old.own()
	up.URL = "http://" + listener.Addr().String() + "/mcp"
	r.server.Dial(&up, old.digest)
	return s
}

func TestOnlyAReadIsSentAgainAndOnlyBeforeItWasAnswered(t *testing.T) {
	t.Parallel()
	body := `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	whole := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	read, effect := toolCall("get_invoice", `{}`), toolCall("update_invoice", `{"n":1}`)
	for name, tc := range map[string]struct {
		body  string
		steps []string
		want  int64 // requests that the server got
		ok    bool
	}{
		"a read, answered":                       {read, []string{whole}, 1, true},
		"a read, the connection breaks":          {read, []string{"", whole}, 2, true},
		"a read, it breaks twice":                {read, []string{"", "", whole}, 2, false},
		"a read, a byte of the answer came":      {read, []string{"H", whole}, 1, false},
		"a read, half the answer came":           {read, []string{whole[:len(whole)-5], whole}, 1, false},
		"a read that becomes a task":             {strings.Replace(read, `"arguments"`, `"task":{},"arguments"`, 1), []string{"", whole}, 1, false},
		"another message":                        {ping, []string{"", whole}, 1, false},
		"a call with effects":                    {effect, []string{"", whole}, 1, false},
		"a call with effects, a byte of it came": {effect, []string{"H", whole}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.promote()
			s := r.scripted(tc.steps...)
			got := r.post(tc.body)
			if ok := got.err == nil && got.status == http.StatusOK && got.code() == ""; ok != tc.ok {
				t.Errorf("HTTP %d %v: %s", got.status, got.err, got.body)
			}
			if n := s.requests.Load(); n != tc.want {
				t.Errorf("the server got it %d times, want %d", n, tc.want)
			}
			if n := testutil.ToFloat64(r.gateway.Metrics.retries.WithLabelValues(billing.Namespace, billing.Name)); n != float64(tc.want-1) {
				t.Errorf("%v retries counted", n)
			}
		})
	}
}

func TestAnApprovedCallIsSentOnceWhateverBreaks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := r.approved("delete_account")
	s := r.scripted("")
	if got := r.post(body, "Idempotency-Key", "1"); got.code() != codeAmbiguous {
		t.Errorf("got %s", got.body)
	}
	if got := r.post(body); got.code() != codeAmbiguous {
		t.Errorf("sent again: %s", got.body)
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("the server got it %d times", n)
	}
}

// A server of HTTP/2 says how large headers may be. Those of one agent that are larger never leave, and have nobody else
// refused.
func TestHeadersThatCannotBeSentSayNothingOfAServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ca := authority.New(t)
	small := httptest.NewUnstartedServer(r.upstream.Config.Handler)
	small.Config.MaxHeaderBytes = 4 << 10
	small.EnableHTTP2 = true
	small.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")}}
	small.StartTLS()
	t.Cleanup(small.Close)
	r.overTLS(ca, small.URL)
	if got := r.post(ping); got.status != http.StatusOK { // and the server has said what it takes
		t.Fatalf("HTTP %d: %s", got.status, got.body)
	}
	failed := 0
	for range 2 * r.gateway.Limits.Failures {
		for _, body := range []string{ping, toolCall("get_invoice", `{}`), listCall} {
			if got := r.post(body, "X-Large", strings.Repeat("x", 32<<10)); got.status == http.StatusBadGateway {
				failed++
			}
		}
	}
	if failed == 0 {
		t.Fatal("every message was sent")
	}
	if got := r.post(ping); got.status != http.StatusOK {
		t.Errorf("after %d that could not be sent: HTTP %d: %s", failed, got.status, got.body)
	}
}
