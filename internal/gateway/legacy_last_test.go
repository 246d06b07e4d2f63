// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// stream is the agent's at the gateway.
func (a *legacyAgent) stream() *legacyStream {
	_, id, _ := strings.Cut(a.path, "sessionId=")
	return a.r.server.legacy.find(id, callerOfRig().owner())
}

// After the last look at a call the server is not sent what its agent has cancelled, and was told so, nor anything for an
// agent that has gone.
func TestOverStreamsWhatIsCancelledAtTheLastLookIsNotSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*legacyAgent)
		sent    int
		want    v1alpha1.Phase
	}{
		"nothing happens":     {func(*legacyAgent) {}, 1, v1alpha1.PhaseSucceeded},
		"its agent cancels":   {func(a *legacyAgent) { a.sends(cancelOf("1")) }, 0, v1alpha1.PhaseFailed},
		"another call's does": {func(a *legacyAgent) { a.sends(cancelOf("7")) }, 2, v1alpha1.PhaseSucceeded},
		"its agent goes": {func(a *legacyAgent) {
			s := a.stream()
			a.leave()
			a.r.until("the gateway sees the agent go", func() bool { return s.agent.Err() != nil })
		}, 0, v1alpha1.PhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			var claimed atomic.Bool
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				if o.Status.Phase == v1alpha1.PhaseExecuting {
					claimed.Store(true)
				}
				return update()
			}
			var a *legacyAgent
			r.gateway.Votes = func(ctx context.Context, request *v1alpha1.ApprovalRequest) (vote.Tally, error) {
				tally, err := r.count(ctx, request)
				if claimed.Load() {
					tc.happens(a)
				}
				return tally, err
			}
			a = r.listens()
			a.sends(a.approved("update_invoice"))
			if tc.sent > 0 {
				s.got(tc.sent)
				s.answers("1", `{"content":[]}`)
			}
			r.becomes(tc.want)
			if n := len(s.posted()); n != tc.sent {
				t.Errorf("the server got %d messages, want %d", n, tc.sent)
			}
		})
	}
}

// A stream that waits for what has left takes nothing new, however long the server takes.
func TestAStreamThatEndsTakesNoMoreMessages(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	stopping, stop := context.WithCancel(t.Context())
	defer stop()
	r.gateway.Stopping = stopping
	a := r.listens()
	a.sends(a.approved("update_invoice"))
	s.got(1)
	a.sends(withID("2", toolCall("get_invoice", `{}`)))
	s.got(2)
	stop()
	stream := a.stream()
	r.until("the stream is closed", func() bool {
		stream.mu.Lock()
		defer stream.mu.Unlock()
		return stream.closed
	})
	for _, body := range []string{withID("3", ping), withID("4", toolCall("get_invoice", `{}`))} {
		if got := a.post(body); got.status != http.StatusNotFound {
			t.Errorf("HTTP %d %s", got.status, got.body)
		}
	}
	for _, id := range []string{"2", "1"} {
		s.answers(id, `{"content":[]}`)
		if got := a.answer(); !strings.Contains(got.body, `"id":`+id) {
			t.Errorf("the agent is told %s", got.body)
		}
	}
	r.becomes(v1alpha1.PhaseSucceeded)
	if got := a.next(); got != "end: EOF" {
		t.Errorf("the stream goes on with %q", got)
	}
	if n := len(s.posted()); n != 2 {
		t.Errorf("the server got %d messages", n)
	}
}

// A call that is held cannot run on a stream that its server has ended: the agent learns of it at once, and not when the
// hold is over.
func TestWhatIsHeldEndsWithTheStreamOfItsServer(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.hold(45 * time.Second)
	a := r.listens()
	a.sends(toolCall("update_invoice", `{"n":1}`))
	r.held()
	s.say("")
	if got := a.next(); got != "end: unexpected EOF" {
		t.Errorf("the stream goes on with %q", got)
	}
	r.decide(v1alpha1.DecisionApproved)
	again := r.listens()
	again.sends(toolCall("update_invoice", `{"n":1}`))
	s.got(1)
	s.answers("1", `{"content":[]}`)
	again.answer()
	r.becomes(v1alpha1.PhaseSucceeded)
}

func TestCallsOfAStreamAreBoundedByTheirSize(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := &legacyStream{Gateway: r.gateway, waiting: map[string]*legacyRequest{}}
	enters := func(id string, size int, want string) *legacyRequest {
		t.Helper()
		held := r.gateway.callers.holding(callerOfRig().requester.Username, ofAll)
		p := &legacyRequest{stream: s, id: id, size: size, held: &held, cancel: func() {}}
		var ok bool
		if p.place, ok = r.gateway.takePlace(httptest.NewRecorder(), r.server, callerOfRig(), awaiting, nil); !ok {
			t.Fatal("no place")
		}
		if code, _ := s.enter(p); code != want {
			t.Errorf("a call of %d bytes: %q, want %q", size, code, want)
		}
		return p
	}
	first := enters("1", maxLegacyBytes-10, "")
	enters("2", 11, codeTooManyRequests)
	enters("3", 10, "")
	enters("4", 1, codeTooManyRequests)
	s.leaveCall(first)
	enters("5", maxLegacyBytes-10, "")
}

// What was judged for one endpoint does not go to that of the stream if it is another, whichever of them is dialled.
func TestAMessageOfAStreamGoesOnlyWhereItWasJudgedFor(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	stream := r.listens().stream()
	for endpoint, want := range map[string]error{stream.digest: nil, "sha256:another": errNoUpstream} {
		before := len(s.posted())
		p := &legacyRequest{stream: stream, id: endpoint, done: make(chan struct{})}
		resp, sent, err := p.post(t.Context(), outbound{
			request: httptest.NewRequest(http.MethodPost, "/mcp", nil), caller: stream.owner(), body: []byte(ping), headers: allHeaders, endpoint: endpoint}, nil)
		if err == nil {
			discard(resp)
		}
		if !errors.Is(err, want) || sent != (want == nil) || len(s.posted())-before != map[bool]int{true: 1}[sent] {
			t.Errorf("%s: %v, sent: %t; the server got %d messages", endpoint, err, sent, len(s.posted())-before)
		}
	}
}

// No task is governed over HTTP+SSE, and a message about one goes where all others go.
func TestOverStreamsAMessageAboutATaskGoesToTheAddressForMessages(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	a.sends(about("get", ""))
	if got := s.got(1); got.target != "/message?sessionId=theirs" {
		t.Errorf("the server got it at %s", got.target)
	}
}

// Whoever asked for tools over a stream may read the answer to the POST as well.
func TestOverStreamsAListInAnAnswerToAPostIsFiltered(t *testing.T) {
	t.Parallel()
	const list = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"drop_table","inputSchema":{"type":"object"}}]}}`
	for body, passes := range map[string]bool{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`: false, ping: true} {
		r, s := newScript(t)
		s.posts = answerStatus(http.StatusBadRequest, "application/json", list)
		if got := r.listens().post(body); got.status != http.StatusBadRequest || strings.Contains(got.body, "drop_table") != passes {
			t.Errorf("%s: HTTP %d %s", body, got.status, got.body)
		}
	}
}

// What says that it is encoded is read by clients otherwise than here.
func TestAStreamThatIsEncodedIsNoStream(t *testing.T) {
	t.Parallel()
	for coding, want := range map[string]int{"gzip": http.StatusBadGateway, "identity": http.StatusOK} {
		r, s := newScript(t)
		r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
			w.Header().Set("Content-Encoding", coding)
			s.ServeHTTP(w, rq)
		})
		a, got := r.opens()
		if (a != nil) != (want == http.StatusOK) || a == nil && got.status != want {
			t.Errorf("%s: HTTP %d %s, a stream: %t", coding, got.status, got.body, a != nil)
		}
	}
}

// Signs of life do not count: an agent must not wait for ever.
func TestAServerThatNeverSaysWhereMessagesGoIsGivenUp(t *testing.T) {
	t.Parallel()
	r, _ := newScript(t)
	left := make(chan struct{})
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		defer close(left)
		w.Header().Set("Content-Type", "text/event-stream")
		for rq.Context().Err() == nil {
			if _, err := io.WriteString(w, ": alive\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-rq.Context().Done():
			case <-time.After(time.Second):
			}
		}
	})
	answered := make(chan got, 1)
	go func() {
		_, got := r.opens()
		answered <- got
	}()
	select {
	case got := <-answered:
		if got.status != http.StatusGatewayTimeout {
			t.Errorf("HTTP %d %s", got.status, got.body)
		}
	case <-time.After(3 * legacyOpening):
		t.Fatal("the agent still waits")
	}
	<-left
}
