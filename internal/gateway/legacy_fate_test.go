// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// approved has a call of the agent approved, and returns it.
func (a *legacyAgent) approved(name string) string {
	a.r.t.Helper()
	body := toolCall(name, `{"n":1}`)
	a.sends(body)
	if got := a.answer(); got.code() != codePending {
		a.r.t.Fatalf("not asked: %s", got.body)
	}
	a.r.decide(v1alpha1.DecisionApproved)
	return body
}

// becomes waits for the end of the only request.
func (r *rig) becomes(phase v1alpha1.Phase) {
	r.t.Helper()
	r.until("the request is "+string(phase), func() bool { return r.request().CurrentPhase() == phase })
}

func TestAnApprovedCallEndsAsTheServerSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		posts  http.HandlerFunc
		answer string // of the server by the stream; "" for none
		want   v1alpha1.Phase
		says   string
	}{
		"a result":                 {nil, `"result":{"content":[{"type":"text","text":"done"}]}`, v1alpha1.PhaseSucceeded, "done"},
		"an error of the tool":     {nil, `"result":{"content":[],"isError":true}`, v1alpha1.PhaseFailed, "isError"},
		"an unknown tool":          {nil, `"error":{"code":-32602,"message":"unknown tool"}`, v1alpha1.PhaseFailed, "unknown tool"},
		"an error":                 {nil, `"error":{"code":-32603,"message":"broken"}`, v1alpha1.PhaseAmbiguous, "broken"},
		"a result twice":           {nil, `"result":{},"result":{}`, v1alpha1.PhaseAmbiguous, `"result":{}`},
		"a question":               {nil, `"result":{"resultType":"input_required"}`, v1alpha1.PhaseAmbiguous, "input_required"},
		"credentials are refused":  {answerStatus(http.StatusUnauthorized, "text/plain", "no"), "", v1alpha1.PhaseFailed, "HTTP 401"},
		"a fault of the server":    {answerStatus(http.StatusInternalServerError, "text/plain", "no"), "", v1alpha1.PhaseAmbiguous, "HTTP 500"},
		"a connection that breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", v1alpha1.PhaseAmbiguous, codeAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			s.posts = tc.posts
			a := r.listens("X-Tenant", "7")
			body := a.approved("update_invoice")
			a.sends(body)
			got := s.got(1)
			if got.body != body || got.header.Get("X-Tenant") != "" || got.header.Get("X-Configured") != "yes" {
				t.Errorf("the server got %+v", got)
			}
			if tc.answer != "" {
				s.say("data: {\"jsonrpc\":\"2.0\",\"id\":1," + tc.answer + "}\r\n\r\n")
			}
			if answer := a.answer(); !strings.Contains(answer.body, tc.says) || !strings.Contains(answer.body, `"id":1`) {
				t.Errorf("the agent is told %s", answer.body)
			}
			r.becomes(tc.want)
			if n := len(s.posted()); n != 1 {
				t.Errorf("the server got %d messages", n)
			}
		})
	}
}

func TestAStreamThatBreaksLeavesTheFateOfItsCallsUnknown(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	body := a.approved("update_invoice")
	a.sends(body)
	a.sends(withID("2", toolCall("get_invoice", `{}`)))
	s.got(2)
	s.say("")
	for range 2 {
		switch got := a.answer(); {
		case strings.Contains(got.body, `"id":1`) && got.code() == codeAmbiguous:
		case strings.Contains(got.body, `"id":2`) && strings.Contains(got.body, "-32603"):
		default:
			t.Errorf("the agent is told %s", got.body)
		}
	}
	if got := a.next(); got != "end: unexpected EOF" {
		t.Errorf("the stream goes on with %q", got)
	}
	r.becomes(v1alpha1.PhaseAmbiguous)
	if got := a.post(ping); got.status != http.StatusNotFound {
		t.Errorf("a message after the end: HTTP %d", got.status)
	}
	again := r.listens()
	again.sends(body)
	if got := again.answer(); got.code() != codeAmbiguous {
		t.Errorf("the same call on another stream: %s", got.body)
	}
	if n := len(s.posted()); n != 2 {
		t.Errorf("the server got %d messages", n)
	}
}

func TestWhatHasLeftIsFollowedWithoutItsAgent(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	a.sends(a.approved("update_invoice"))
	s.got(1)
	a.leave()
	r.until("the gateway sees the agent go", func() bool {
		r.server.legacy.mu.Lock()
		defer r.server.legacy.mu.Unlock()
		for stream := range r.server.legacy.open {
			return stream.agent.Err() != nil
		}
		return false
	})
	s.answers("1", `{"content":[]}`)
	r.becomes(v1alpha1.PhaseSucceeded)
	<-s.closed // and then nothing keeps the server's stream
}

func TestWhileACallIsHeldOnAStream(t *testing.T) {
	t.Parallel()
	withToken := strings.Replace(toolCall("update_invoice", `{"n":1}`), `"params":{`, `"params":{"_meta":{"progressToken":"t"},`, 1)
	cancels := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
	}
	for name, tc := range map[string]struct {
		happens func(*rig, *legacyAgent, *script)
		sent    int // messages that reach the server
		answers string
	}{
		"a yes": {func(r *rig, _ *legacyAgent, s *script) {
			r.decide(v1alpha1.DecisionApproved)
			s.got(1)
			s.answers("1", `{"content":[]}`)
		}, 1, `"result":{"content":[]}`},
		"a no":          {func(r *rig, _ *legacyAgent, _ *script) { r.decide(v1alpha1.DecisionDenied) }, 0, "ApprovalDenied"},
		"time":          {func(r *rig, _ *legacyAgent, _ *script) { r.clock.Step(time.Minute) }, 0, codePending},
		"signs of life": {func(r *rig, _ *legacyAgent, _ *script) { r.clock.Step(progressEvery) }, 0, "notifications/progress"},
		"a cancellation": {func(r *rig, a *legacyAgent, _ *script) {
			a.sends(cancels("1"))
			r.until("the call ends", func() bool { return a.free("1") })
			r.decide(v1alpha1.DecisionApproved)
		}, 0, ""},
		"another call's cancellation": {func(r *rig, a *legacyAgent, s *script) {
			a.sends(cancels(`"1"`)) // the server's to ignore
			s.got(1)
			r.decide(v1alpha1.DecisionApproved)
			s.got(2)
			s.answers("1", `{"content":[]}`)
		}, 2, `"result":{"content":[]}`},
		"its agent goes": {func(r *rig, a *legacyAgent, s *script) {
			a.leave()
			<-s.closed
			r.decide(v1alpha1.DecisionApproved)
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			r.hold(45 * time.Second)
			a := r.listens()
			a.sends(withToken)
			r.held()
			r.until("it waits", func() bool {
				return testutil.ToFloat64(r.gateway.Metrics.held.WithLabelValues(billing.Namespace, billing.Name)) == 1
			})
			tc.happens(r, a, s)
			if tc.answers != "" {
				if got := a.answer(); !strings.Contains(got.body, tc.answers) {
					t.Errorf("the agent is told %s", got.body)
				}
			} else {
				// Nothing was used up: on another stream the call runs.
				if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseApproved {
					t.Errorf("the request is %s", phase)
				}
			}
			if n := len(s.posted()); n != tc.sent {
				t.Errorf("the server got %d messages, want %d", n, tc.sent)
			}
		})
	}
}

// free tells whether no request with an id is under way on the agent's stream.
func (a *legacyAgent) free(id string) bool {
	_, own, _ := strings.Cut(a.path, "sessionId=")
	s := a.r.server.legacy.find(own, callerOfRig().owner())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting["number "+id] == nil
}

func TestWhatTheServerHasIsTheServersToCancel(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	a.sends(a.approved("update_invoice"))
	s.got(1)
	a.sends(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if got := s.got(2); !strings.Contains(got.body, "notifications/cancelled") {
		t.Errorf("the server got %s", got.body)
	}
	s.answers("1", `{"content":[]}`)
	r.becomes(v1alpha1.PhaseSucceeded)
}

func TestAServerThatMovesItsEndpointIsLeft(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	s.say("event: endpoint\ndata: http://127.0.0.1:1/message\n\n")
	if got := a.next(); got != "end: unexpected EOF" {
		t.Errorf("the agent is told %q", got)
	}
}

func TestAStreamEndsWhenItHasTo(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(*rig, *script, context.CancelFunc, *legacyAgent){
		"nothing passes": func(r *rig, _ *script, _ context.CancelFunc, _ *legacyAgent) {
			r.clock.Step(r.gateway.Limits.StreamIdle)
		},
		"the gateway stops": func(_ *rig, _ *script, stop context.CancelFunc, _ *legacyAgent) { stop() },
		"the server has another endpoint": func(r *rig, _ *script, _ context.CancelFunc, _ *legacyAgent) {
			r.edit(func() { r.governed.Spec.Endpoint.URL += "2" })
		},
		"the server has another transport": func(r *rig, _ *script, _ context.CancelFunc, _ *legacyAgent) {
			r.edit(func() { r.governed.Spec.Endpoint.Transport = "" })
		},
		"it has lasted as long as it may": func(r *rig, s *script, _ context.CancelFunc, a *legacyAgent) {
			for range int(legacyLifetime / time.Hour) {
				s.say(": alive\n\n")
				a.next()
				r.clock.Step(time.Hour)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			stopping, stop := context.WithCancel(t.Context())
			defer stop()
			r.gateway.Stopping = stopping
			a := r.listens()
			s.say(": alive\n\n")
			a.next()
			happens(r, s, stop, a)
			for block := a.next(); block != "end: EOF"; block = a.next() {
				if !strings.HasPrefix(block, ": alive") {
					t.Fatalf("the agent is told %q", block)
				}
			}
			<-s.closed
		})
	}
}

func TestAStreamThatIsUsedLasts(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	for range 4 {
		r.clock.Step(r.gateway.Limits.StreamIdle - time.Minute)
		a.sends(`{"jsonrpc":"2.0","method":"notifications/x"}`)
	}
	a.sends(ping)
	s.answers("1", "{}")
	a.answer()
}

func TestAFaultInACallEndsTheCallAndNothingElse(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.gateway.Votes = func(context.Context, *v1alpha1.ApprovalRequest) (vote.Tally, error) { panic("a defect") }
	a := r.listens()
	a.sends(a.approved("update_invoice"))
	if got := a.answer(); !strings.Contains(got.body, "-32603") || !strings.Contains(got.body, `"id":1`) {
		t.Errorf("the agent is told %s", got.body)
	}
	a.sends(withID("2", ping))
	s.got(1)
}

func TestACallDoesNotGoToAnotherEndpointThanItsStreams(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	up := r.server.upstream.Load().Upstream
	r.server.Dial(&endpoint.Upstream{URL: up.URL + "2", SSE: true, Guard: up.Guard}, "sha256:another")
	a.sends(toolCall("get_invoice", `{}`))
	if got := a.answer(); !strings.Contains(got.body, "endpoint cannot be used") {
		t.Errorf("a read: %s", got.body)
	}
	if got := a.post(withID("2", ping)); got.status != http.StatusBadGateway {
		t.Errorf("a ping: HTTP %d %s", got.status, got.body)
	}
	r.nothingPosted(s)
}

// A reader that stops reading is given up; neither its server nor other agents wait for it.
func TestAReaderThatStallsHoldsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ended := make(chan struct{})
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		if rq.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "event: endpoint\ndata: /message\n\n")
		http.NewResponseController(w).Flush()
		if rq.Header.Get("X-Flood") == "" {
			io.WriteString(w, "data: {\"method\":\"notifications/x\"}\n\n")
			http.NewResponseController(w).Flush()
			<-rq.Context().Done()
			return
		}
		defer close(ended)
		event := "data: {\"method\":\"notifications/x\",\"params\":{\"x\":\"" + strings.Repeat("y", 1<<20) + "\"}}\n\n"
		for rq.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	})
	r.gateway.Limits.ClientStall = time.Second
	r.overSSE()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Flood: yes\r\n\r\n")
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	other := r.listens()
	if got := other.next(); !strings.Contains(got, "notifications/x") {
		t.Errorf("the other agent is told %q", got)
	}
	select {
	case <-ended:
	case <-time.After(45 * time.Second):
		t.Error("the server's stream is kept for a reader that stalls")
	}
}

// A message that is no call waits as long as a call may take, and no longer.
func TestOverStreamsAServerThatTakesNoMessageIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, accepts := range map[string]bool{"it says nothing": false, "it takes it, and does not end its answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			r.edit(func() { r.governed.Spec.CallTimeout.Duration = 100 * time.Millisecond })
			a := r.listens()
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			s.posts = func(w http.ResponseWriter, _ *http.Request) {
				if accepts {
					w.WriteHeader(http.StatusAccepted)
					http.NewResponseController(w).Flush()
				}
				<-over
			}
			for _, body := range []string{ping, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`} {
				answered := make(chan got, 1)
				go func() { answered <- a.post(body) }()
				select {
				case got := <-answered:
					if want := map[bool]int{false: http.StatusGatewayTimeout, true: http.StatusAccepted}[accepts]; got.status != want {
						t.Errorf("HTTP %d %s %v", got.status, got.body, got.err)
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("the agent still waits for the server to take %s", body)
				}
			}
		})
	}
}
