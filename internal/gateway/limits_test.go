// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"sync"
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
	r := newRig(t)
	body := toolCall("update_invoice", `{"n":1}`)
	others := int64(maxHeld - len(body))
	settles := func(want int64) { // the answer may arrive before the call is over
		t.Helper()
		r.until("what the call held is free again", func() bool { return r.gateway.held.Load() == want })
	}
	r.gateway.held.Add(others + 1)
	if got := r.post(body); got.code() != "TooManyHeld" || got.retryAfter() != 10 {
		t.Errorf("a byte too much: %s", got.body)
	}
	settles(others + 1)
	if got := r.post(toolCall("get_invoice", `{}`)); got.code() != "" {
		t.Errorf("a read: %s", got.body)
	}
	r.gateway.held.Add(-1)
	if got := r.post(body); got.code() != codePending {
		t.Errorf("as much as may be: %s", got.body)
	}
	settles(others)
}
