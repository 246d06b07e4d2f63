// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// runsOnceItsAgentIsBack has the agent of a held call go before a person approves it: nothing is sent for who has gone, and
// the call runs once it comes again.
func (r *rig) runsOnceItsAgentIsBack(body string) {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	answers := r.later(ctx, body)
	r.held()
	leave() // over HTTP/2 it ends the stream, and leaves the connection
	<-answers
	r.until("the hold ended", func() bool { return !r.clock.HasWaiters() })
	r.decide(v1alpha1.DecisionApproved)
	r.nothingSent()
	if got := r.post(body); got.code() != "" {
		r.t.Errorf("sent again: %s", got.body)
	}
	r.ran(body)
}

func TestNothingRunsForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hold(45 * time.Second)
	body := toolCall("update_invoice", `{"n":1}`)
	r.runsOnceItsAgentIsBack(body)
}

func TestNobodyIsAskedAndNothingSpentForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"gone": true, "there": false} {
		r := newRig(t)
		body := r.approved("update_invoice")
		other := toolCall("delete_account", `{"n":2}`)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		make := func(body string) *gated {
			message, refusal := wire.Parse([]byte(body))
			if refusal != nil {
				t.Fatal(refusal)
			}
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
			c := arrival{Gateway: r.gateway, caller: callerOfRig(), server: r.server, message: message, request: request}.call(httptest.NewRecorder())
			j, _ := c.judge()
			want, err := c.describe(j, j.snap.Definitions[message.Call.Name])
			if err != nil {
				t.Fatal(err)
			}
			return &gated{call: c, judged: j, want: want}
		}
		use, ask := make(body), make(other)
		if gone {
			leave()
		}
		use.use(r.request())
		ask.gate()
		phases := map[v1alpha1.Phase]int{}
		for _, request := range r.requests() {
			phases[request.CurrentPhase()]++
		}
		want := map[v1alpha1.Phase]int{v1alpha1.PhaseSucceeded: 1, v1alpha1.PhasePending: 1}
		if gone {
			want = map[v1alpha1.Phase]int{v1alpha1.PhaseApproved: 1}
			r.nothingSent()
		}
		if !maps.Equal(phases, want) {
			t.Errorf("%s: requests by phase %v, want %v", name, phases, want)
		}
	}
}

func TestAClientThatGoesWhileTheClaimIsWrittenGetsNothingExecuted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := r.approved("update_invoice")
	ctx, leave := context.WithCancel(t.Context())
	r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
		if o.Status.Phase == v1alpha1.PhaseExecuting {
			leave()
			r.until("the gateway sees that the client has gone", func() bool { return r.gone.Load() })
		}
		return update()
	}
	r.watchClient()
	r.do(ctx, http.MethodPost, body)
	r.until("the outcome is recorded", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseFailed })
	if got := r.request().Status.Execution.Outcome; got != v1alpha1.OutcomeNotSent {
		t.Errorf("outcome %s", got)
	}
	r.nothingSent()
}
