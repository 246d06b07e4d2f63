// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/internal/identity"
)

// What has no answer takes up memory and a connection all the same, until a slow server has it. Nobody sends any number of
// it, and what else they have under way leaves room for it.
func TestWhatHasNoAnswerIsBoundedToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.gateway.Limits.CallerCalls, r.gateway.Limits.Calls = 2, 4
	slow := make(chan struct{})
	r.upstream.answers(func(w http.ResponseWriter, _ *http.Request) {
		<-slow
		w.WriteHeader(http.StatusAccepted)
	})
	const note, answer = `{"jsonrpc":"2.0","method":"notifications/progress"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`
	var under []<-chan got
	begin := func(who, method, body string, p place, n int) {
		t.Helper()
		answered := make(chan got, 1)
		go func() { answered <- r.do(t.Context(), method, body, "Authorization", "Bearer "+who) }()
		under = append(under, answered)
		r.underWay(p, n)
	}
	begin("crane", http.MethodPost, ping, awaiting, 1)
	begin("crane", http.MethodPost, ping, awaiting, 2)
	begin("crane", http.MethodPost, note, telling, 1)
	begin("crane for carol", http.MethodDelete, "", telling, 2)
	for _, body := range []string{note, answer} {
		r.limitedBy(r.as("crane", body), http.StatusTooManyRequests, codeTooManyCalls, "null", 1)
	}
	r.limitedBy(r.do(t.Context(), http.MethodDelete, "", "Authorization", "Bearer crane"), http.StatusTooManyRequests, codeTooManyCalls, "null", 1)
	begin("winch", http.MethodPost, answer, telling, 3)
	begin("winch", http.MethodDelete, "", telling, 4)
	r.limitedBy(r.as("bollard", note), http.StatusServiceUnavailable, codeBusy, "null", 1)
	close(slow)
	for _, one := range under {
		if got := <-one; got.status != http.StatusAccepted || got.err != nil {
			t.Errorf("what was under way: HTTP %d %v %s", got.status, got.err, got.body)
		}
	}
	r.underWay(telling, 0)
	r.underWay(awaiting, 0)
	if got := r.as("crane", note); got.status != http.StatusAccepted {
		t.Errorf("once they ended: HTTP %d", got.status)
	}
}

func TestTheEndOfASessionIsNotWaitedForAsAStreamIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.CallTimeout = metav1.Duration{Duration: 200 * time.Millisecond} })
	r.upstream.answers(func(_ http.ResponseWriter, rq *http.Request) { <-rq.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got := r.do(ctx, http.MethodDelete, ""); got.status != http.StatusGatewayTimeout {
		t.Errorf("HTTP %d %v: %s", got.status, got.err, got.body)
	}
}

func TestWhatHasNoAnswerIsBoundedOverHTTPAndSSE(t *testing.T) {
	t.Parallel()
	r, _ := newScript(t)
	r.gateway.Limits.CallerCalls = 1
	const note = `{"jsonrpc":"2.0","method":"notifications/progress"}`
	a := r.listens()
	taken, ok := r.gateway.takePlace(nil, r.server, callerOf(identity.Caller{Username: agent}), telling, nil)
	if !ok {
		t.Fatal("refused")
	}
	r.limitedBy(a.post(note), http.StatusTooManyRequests, codeTooManyCalls, "null", 1)
	taken.leave()
	a.sends(note)
	r.underWay(telling, 0)
}
