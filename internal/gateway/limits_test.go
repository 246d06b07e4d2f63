// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// retryAfter is what the gateway tells programs to wait, in seconds.
func (g got) retryAfter() int {
	var message struct {
		Result struct {
			Meta struct {
				Decision struct{ RetryAfterSeconds int } `json:"tidewaiter.dev/decision"`
			} `json:"_meta"`
		}
	}
	if json.Unmarshal([]byte(g.body), &message) != nil {
		return -1
	}
	return message.Result.Meta.Decision.RetryAfterSeconds
}

func TestPeopleAreAskedSoOftenAnHour(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.edit(func() { r.governed.Spec.Approvals.MaxPerHour, r.governed.Spec.Approvals.MaxPending = 5, 1000 })
	codes := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			got := r.as("crane", toolCall("update_invoice", fmt.Sprintf(`{"n":%d}`, i)))
			mu.Lock()
			defer mu.Unlock()
			codes[got.code()]++
		})
	}
	all.Wait()
	if n := len(r.requests()); n != 5 || codes[codePending] != 5 || codes["TooManyPerHour"] != 35 {
		t.Fatalf("%d requests, answers by code %v", n, codes)
	}
	for who, tool := range map[string]string{"winch": "update_invoice", "crane": "delete_account", "crane for carol": "update_invoice"} {
		if got := r.as(who, toolCall(tool, `{"n":100}`)); got.code() != codePending {
			t.Errorf("%s about %s: %s", who, tool, got.body)
		}
	}
	wait := func(d time.Duration, want string, retryAfter int) {
		t.Helper()
		r.clock.Step(d)
		r.server.Prove(r.clock.Now())
		got := r.as("crane", toolCall("update_invoice", `{"n":101}`))
		if got.code() != want || got.retryAfter() != retryAfter {
			t.Errorf("code %q after %d s, want %q after %d s: %s", got.code(), got.retryAfter(), want, retryAfter, got.body)
		}
	}
	wait(20*time.Minute+500*time.Millisecond, "TooManyPerHour", 2400)
	wait(39*time.Minute+59*time.Second, "TooManyPerHour", 1)
	wait(500*time.Millisecond, codePending, 15)
}

func TestARequestThatTheWatchBringsBeforeItsAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.edit(func() { r.governed.Spec.Approvals.MaxPerHour, r.governed.Spec.Approvals.MaxPending = 2, 3 })
	brought, answer := make(chan struct{}), make(chan struct{})
	var waited atomic.Bool
	r.creates = func(_ *v1alpha1.ApprovalRequest, create func() error) error {
		err := create()
		r.edit(nil)
		if !waited.Swap(true) {
			close(brought)
			<-answer
		}
		return err
	}
	opened := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`), "Authorization", "Bearer crane")
	<-brought
	if got := r.as("crane", toolCall("update_invoice", `{"n":2}`)); got.code() != codePending {
		t.Errorf("within the limit: %s", got.body)
	}
	if got := r.as("crane", toolCall("update_invoice", `{"n":3}`)); got.code() != "TooManyPerHour" {
		t.Errorf("one beyond the limit: %s", got.body)
	}
	if got := r.as("crane", toolCall("delete_account", `{"n":1}`)); got.code() != codePending {
		t.Errorf("another tool, within the limit of what waits: %s", got.body)
	}
	if got := r.as("crane", toolCall("delete_account", `{"n":2}`)); got.code() != "TooManyPending" {
		t.Errorf("one that waits beyond the limit: %s", got.body)
	}
	close(answer)
	if got := <-opened; got.code() != codePending {
		t.Errorf("the first: %s", got.body)
	}
}

func TestARequestThatIsBeingOpenedCountsForTheHour(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.edit(func() { r.governed.Spec.Approvals.MaxPerHour, r.governed.Spec.Approvals.MaxPending = 1, 1 })
	opening, open := make(chan struct{}), make(chan struct{})
	r.creates = func(o *v1alpha1.ApprovalRequest, create func() error) error {
		if o.Spec.Requester.Username == "crane" {
			close(opening)
			<-open
		}
		return create() // the watch does not show it yet
	}
	first := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`), "Authorization", "Bearer crane")
	<-opening
	if got := r.as("crane", toolCall("update_invoice", `{"n":2}`)); got.code() != "TooManyPerHour" {
		t.Errorf("while the first is being opened: %s", got.body)
	}
	if got := r.as("winch", toolCall("update_invoice", `{"n":2}`)); got.code() != codePending {
		t.Errorf("another caller: %s", got.body)
	}
	close(open)
	if got := <-first; got.code() != codePending {
		t.Errorf("the first: %s", got.body)
	}
	if got := r.as("crane", toolCall("update_invoice", `{"n":3}`)); got.code() != "TooManyPerHour" {
		t.Errorf("before the watch shows the first: %s", got.body)
	}
}

func TestCallsOfOneActionTakeOnePlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.MaxPerHour, r.governed.Spec.Approvals.MaxPending = 1, 1 })
	opening, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.creates = func(_ *v1alpha1.ApprovalRequest, create func() error) error {
		once.Do(func() {
			close(opening)
			<-open
		})
		return create() // the watch does not show it yet
	}
	first := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`))
	<-opening
	second := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`))
	if got := r.post(toolCall("update_invoice", `{"n":2}`)); got.code() != "TooManyPerHour" {
		t.Errorf("another action: %s", got.body)
	}
	close(open)
	for range 2 {
		select {
		case got := <-first:
			if got.code() != codePending {
				t.Errorf("the first: %s", got.body)
			}
		case got := <-second:
			if got.code() != codePending {
				t.Errorf("the same again: %s", got.body)
			}
		}
	}
}

func TestPlacesThatAreNotUsedAreGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.MaxPerHour = 1 })
	r.creates = func(*v1alpha1.ApprovalRequest, func() error) error { return fmt.Errorf("down") }
	for range 3 {
		if got := r.post(toolCall("update_invoice", `{"n":1}`)); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
	}
	if got := len(r.server.openings); got != 0 {
		t.Errorf("%d places are held", got)
	}
}

func TestAfterDenialsPeopleAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	ask := func(who string, n int, want string, retryAfter int) {
		t.Helper()
		r.server.Prove(r.clock.Now())
		got := r.as(who, toolCall("update_invoice", fmt.Sprintf(`{"n":%d}`, n)))
		if got.code() != want || got.retryAfter() != retryAfter {
			t.Errorf("%s: code %q after %d s, want %q after %d s: %s", who, got.code(), got.retryAfter(), want, retryAfter, got.body)
		}
	}
	deny := func() {
		for _, request := range r.requests() {
			if request.CurrentPhase() == v1alpha1.PhasePending && request.Spec.Requester.Username == "crane" {
				r.decideOn(&request, v1alpha1.DecisionDenied, "alice")
			}
		}
	}
	ask("crane", 1, codePending, 15)
	deny()
	ask("crane", 1, "ApprovalDenied", 0)
	ask("crane", 2, "BackingOff", 60)
	ask("winch", 2, codePending, 15)
	r.clock.Step(59 * time.Second)
	ask("crane", 2, "BackingOff", 1)
	r.clock.Step(time.Second)
	ask("crane", 2, codePending, 15)
	deny()
	ask("crane", 3, "BackingOff", 120)
	r.clock.Step(2 * time.Minute)
	ask("crane", 3, codePending, 15)
	r.nothingSent()
}

func TestHeldCallsAreBoundedByTheirSize(t *testing.T) {
	t.Parallel()
	body := toolCall("update_invoice", `{"n":1}`)
	size := int64(len(body))
	for name, tc := range map[string]struct {
		own, others int64 // that are held already
		want        string
	}{
		"as much as all may hold":         {0, maxHeld - size, codePending},
		"a byte too much for all":         {0, maxHeld - size + 1, "TooManyHeld"},
		"as much as one caller may hold":  {maxHeld/2 - size, 0, codePending},
		"a byte too much for one caller":  {maxHeld/2 - size + 1, 0, "TooManyHeld"},
		"another caller holds its share":  {0, maxHeld / 2, codePending},
		"a byte too much for both of two": {maxHeld/2 - size, maxHeld/2 + 1, "TooManyHeld"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.authenticated()
			for who, size := range map[string]int64{"crane": tc.own, "winch": tc.others / 2, "derrick": tc.others - tc.others/2} {
				if held := r.gateway.callers.holding(who, ofEffects); !held.grow(size) {
					t.Fatalf("%s may not hold %d bytes", who, size)
				}
			}
			got := r.as("crane", body)
			if got.code() != tc.want || tc.want == "TooManyHeld" && got.retryAfter() != 10 {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if got := r.as("crane", toolCall("get_invoice", `{}`)); got.code() != "" {
				t.Errorf("a read: %s", got.body)
			}
			// The answer may arrive before the call is over.
			r.until("what the call held is free again", func() bool { return r.gateway.callers.holds(ofEffects) == tc.own+tc.others })
		})
	}
	r := newRig(t)
	if held := r.gateway.callers.holding("crane", ofEffects); !held.grow(maxHeld) {
		t.Error("a single message is too large, though no limit of messages is against it")
	}
}

// Messages take memory while they arrive and until they have their answer. All of them together, and those of one caller,
// have so much.
func TestMessagesUnderWayAreBoundedByTheirSize(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"a read": toolCall("get_invoice", `{}`), "another method": ping, "what has no answer": cancelled} {
		for length, sized := range map[string]bool{"of known length": true, "of unknown length": false} {
			t.Run(name+" "+length, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.authenticated()
				as := func(who string) got {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.front.URL+"/mcp", io.MultiReader(strings.NewReader(body)))
					if err != nil {
						t.Fatal(err)
					}
					if sized {
						req.ContentLength = int64(len(body))
					}
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("Authorization", "Bearer "+who)
					return read(http.DefaultTransport.RoundTrip(req))
				}
				size := int64(len(body))
				crane := r.gateway.callers.holding("crane", ofAll)
				if !crane.grow(maxUnderWay/2 - size + 1) {
					t.Fatal("a caller may not hold what is its own")
				}
				r.limitedBy(as("crane"), http.StatusTooManyRequests, codeTooManyCalls, "null", 1)
				if got := as("winch"); got.status >= http.StatusBadRequest {
					t.Errorf("another caller: HTTP %d %s", got.status, got.body)
				}
				r.until("what passed is free", func() bool { return r.gateway.callers.holds(ofAll) == crane.size })
				winch := r.gateway.callers.holding("winch", ofAll)
				if !winch.grow(maxUnderWay - crane.size - size + 1) {
					t.Fatal("another may not hold what is left")
				}
				r.limitedBy(as("bollard"), http.StatusServiceUnavailable, codeBusy, "null", 1)
				crane.free()
				if got := as("crane"); got.status >= http.StatusBadRequest {
					t.Errorf("once there is room: HTTP %d %s", got.status, got.body)
				}
				winch.free()
				r.until("everything is free", func() bool { return r.gateway.callers.holds(ofAll) == 0 })
			})
		}
	}
}

// Over HTTP+SSE a call outlives its POST, and its bytes are held as long.
func TestOverHTTPAndSSEBytesAreFreeOnceACallHasEnded(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	call := withID("1", toolCall("get_invoice", `{}`))
	a.sends(call)
	s.got(1)
	if got := r.gateway.callers.holds(ofAll); got != int64(len(call)) {
		t.Errorf("%d bytes are held for a call of %d", got, len(call))
	}
	s.answers("1", `{"content":[]}`)
	a.answer()
	a.sends(withID("2", ping))
	r.until("everything is free", func() bool { return r.gateway.callers.holds(ofAll) == 0 })
}
