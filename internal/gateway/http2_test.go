// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// secure serves a handler by TLS, and by HTTP/2 to who can speak it.
func secure(t testing.TB, ca *authority.Authority, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// overTLS has the gateway reach its server at an address by TLS.
func (r *rig) overTLS(ca *authority.Authority, address string) {
	up := r.server.upstream.Load().Upstream
	up.URL, up.TLS = address+"/mcp", &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	r.server.Dial(&up, r.server.Snapshot().EndpointDigest)
}

// overHTTP2 puts TLS and HTTP/2 on both sides of the gateway.
func (r *rig) overHTTP2() {
	ca := authority.New(r.t)
	r.overTLS(ca, secure(r.t, ca, r.upstream.Config.Handler).URL)
	r.front = secure(r.t, ca, r.gateway)
	r.agents = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}
	r.t.Cleanup(r.agents.CloseIdleConnections)
}

// peers has every request say which connection it came on, and by which protocol.
func (r *rig) peers() func() (all []string, protocols map[string]int) {
	var mu sync.Mutex
	var all []string
	protocols := map[string]int{}
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		mu.Lock()
		all, protocols[rq.Proto] = append(all, rq.RemoteAddr), protocols[rq.Proto]+1
		mu.Unlock()
		answerJSON(`{"content":[]}`)(w, rq)
	})
	return func() ([]string, map[string]int) {
		mu.Lock()
		defer mu.Unlock()
		return all, protocols
	}
}

func TestHTTP2ChangesNothingOfWhatPasses(t *testing.T) {
	t.Parallel()
	agentSends := []string{
		"Authorization", "Bearer agent", "Cookie", "session=1", "X-Tenant", "a", "Traceparent", "00-1", "Mcp-Session-Id", "s",
		"Mcp-Tenant", "b", "Proxy-Authorization", "Basic x", "X-Configured", "no", "Forwarded", "for=1", "User-Agent", "agent",
	}
	for name, body := range map[string]string{
		"a read":            toolCall("get_invoice", `{"n" : 1}`),
		"another method":    ping,
		"an unattended one": toolCall("update_invoice", `{"n" : 1}`),
	} {
		var seen [2]sent
		for i, way := range []func(*rig){func(*rig) {}, (*rig).overHTTP2} {
			r := newRig(t)
			r.promote()
			way(r)
			_, protocols := r.peers()()
			if got := r.post(body, agentSends...); got.status != http.StatusOK {
				t.Fatalf("%s: HTTP %d %v: %s", name, got.status, got.err, got.body)
			}
			if i == 1 && protocols["HTTP/2.0"] != 1 {
				t.Errorf("%s went by %v", name, protocols)
			}
			seen[i] = r.upstream.requests()[0]
		}
		seen[0].header.Del("Connection") // HTTP/2 has no such thing
		if diff := cmp.Diff(seen[0], seen[1], cmp.AllowUnexported(sent{})); diff != "" {
			t.Errorf("%s (-HTTP/1 +HTTP/2):\n%s", name, diff)
		}
	}
}

func TestOverHTTP2EachCallWithEffectsHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tool        string
		connections int
	}{
		"reads share one":            {"get_invoice", 1},
		"calls with effects do not ": {"update_invoice", 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.promote()
			r.overHTTP2()
			peers := r.peers()
			if got := r.post(toolCall("get_invoice", `{}`)); got.status != http.StatusOK {
				t.Fatal(got)
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if got := r.post(toolCall(tc.tool, `{"n":1}`)); got.status != http.StatusOK || got.code() != "" {
						t.Errorf("HTTP %d %v: %s", got.status, got.err, got.body)
					}
				})
			}
			all.Wait()
			connections := map[string]bool{}
			came, _ := peers()
			for _, peer := range came[1:] {
				connections[peer] = true
			}
			if len(came) != 9 || len(connections) != tc.connections {
				t.Errorf("%d requests came on %d connections, want 9 on %d", len(came), len(connections), tc.connections)
			}
			if tc.connections > 1 && connections[came[0]] {
				t.Error("a call with effects went on the connection of a read")
			}
		})
	}
}

func TestOverHTTP2AStreamIsPassedEventByEvent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ method, body string }{
		"a stream":            {http.MethodGet, ""},
		"another method":      {http.MethodPost, ping},
		"a read":              {http.MethodPost, toolCall("get_invoice", `{}`)},
		"a call with effects": {http.MethodPost, toolCall("update_invoice", `{"n":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.promote()
			r.overHTTP2()
			next := make(chan string)
			r.upstream.answers(streaming(next))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			resp, err := r.open(ctx, tc.method, "/mcp", tc.body)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			// The next event comes only once the one before has arrived.
			for _, event := range []string{"data: 1\n\n", ": alive\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n"} {
				next <- event
				got := make([]byte, len(event))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
					t.Fatalf("got %q, %v, want %q", got, err, event)
				}
			}
			close(next)
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 || resp.ProtoMajor != 2 {
				t.Errorf("at the end %q, %v, by %s", rest, err, resp.Proto)
			}
		})
	}
}

// A connection of HTTP/1 that waits for the end of a call takes no other; one of HTTP/2 does, and stays.
func TestOnlyAConnectionThatTakesNoOtherRequestIsEnded(t *testing.T) {
	t.Parallel()
	message := wire.Message{Call: &wire.Call{}}
	for major, want := range map[int]string{1: "close", 2: ""} {
		w := httptest.NewRecorder()
		newReply(w, &http.Request{ProtoMajor: major, Header: http.Header{}}, message, nil).last()
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("HTTP/%d: Connection: %q, want %q", major, got, want)
		}
	}
}

func TestOverHTTP2RecordingTheOutcomeKeepsNoAgentWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.overHTTP2()
	body := r.approved("update_invoice")
	var works atomic.Bool
	var tries atomic.Int32
	r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
		if o.Status.Phase == v1alpha1.PhaseSucceeded && !works.Load() {
			tries.Add(1)
			return apierrors.NewServiceUnavailable("down")
		}
		return update()
	}
	if got := r.post(body); got.code() != "" || got.err != nil || got.status != http.StatusOK {
		t.Fatalf("got %+v", got)
	}
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
		t.Errorf("the request is %s", phase)
	}
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.gateway.Finish(soon); err == nil {
		t.Error("the gateway says that all is on record")
	}
	finished := make(chan bool, 1)
	go func() { finished <- r.gateway.Finish(t.Context()) == nil && works.Load() }()
	r.until("somebody tries to record the outcome again", func() bool {
		r.clock.Step(outcomeRetry)
		return tries.Load() > 3
	})
	works.Store(true)
	r.until("the outcome is recorded", func() bool {
		r.clock.Step(outcomeRetry)
		return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded
	})
	if !<-finished {
		t.Error("the gateway said that all is on record before it was")
	}
	r.ran(body)
}

func TestOverHTTP2NothingRunsForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hold(45 * time.Second)
	r.overHTTP2()
	body := toolCall("update_invoice", `{"n":1}`)
	r.runsOnceItsAgentIsBack(body)
}

func TestOverHTTP2AClientThatReadsNothingDoesNotHideWhatBecameOfItsCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.overHTTP2()
	body := r.approved("update_invoice")
	progress := `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"` + strings.Repeat("x", 1<<20) + "\"}}\n\n"
	r.upstream.answers(answerWith("text/event-stream", strings.Repeat(progress, 8)+"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"))
	resp, err := r.open(t.Context(), http.MethodPost, "/mcp", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.until("the outcome is recorded", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded })
	// The connection goes on for others.
	if got := r.post(toolCall("get_invoice", `{}`)); got.status != http.StatusOK {
		t.Errorf("a read meanwhile: %+v", got.status)
	}
}
