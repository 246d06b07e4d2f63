// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestAnApprovalIsVoidAfterItsExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Approvals.TTL.Duration = 10 * time.Minute })
	now := testclock.NewFakeClock(time.Now())
	w.pulse = func() { now.Step(100 * time.Millisecond) }
	d := w.openDoor("gw", withClock(now))
	d.call("update_invoice", note)
	used := w.approve()
	d.sees(used, v1alpha1.PhaseApproved)
	if err := wantServerAnswer(d.call("update_invoice", note)); err != nil {
		t.Errorf("in time: %v", err)
	}
	w.executions("update_invoice", 1)

	d.call("update_invoice", `{"invoiceId":"b","note":"n"}`)
	late := w.approve()
	d.sees(late, v1alpha1.PhaseApproved)
	now.SetTime(late.ExpiresAt())
	d.server.Prove(now.Now())
	if got := d.call("update_invoice", `{"invoiceId":"b","note":"n"}`); got.code() != "ApprovalExpired" || got.request() != late.Name {
		t.Errorf("at its expiry: %s", got.raw)
	}
	w.executions("update_invoice", 1)
}

func TestARequestIsBornPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	first := w.request(d.call("update_invoice", note).request())
	forged := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: first.Name + "x"}, Spec: *first.Spec.DeepCopy()}
	forged.Spec.Attempt = 2
	forged.Status = v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhaseApproved, Decision: v1alpha1.DecisionApproved}
	if err := w.gateway.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if got := w.request(forged.Name); got.CurrentPhase() != v1alpha1.PhasePending || got.Status.Decision != "" {
		t.Errorf("created as %s, %s", got.CurrentPhase(), got.Status.Decision)
	}
	d.sees(forged, v1alpha1.PhasePending)
	if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
		t.Errorf("got %s", got.raw)
	}
	w.executions("update_invoice", 0)
}

func TestARequestThatShowsSomethingElseIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	honest := w.request(d.call("delete_account", `{"force":true}`).request())
	w.decide(honest.Name, v1alpha1.DecisionDismissed)
	d.sees(honest, v1alpha1.PhaseDismissed)

	// A holder of serve asks for the same action under a harmless display.
	forged := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: strings.TrimSuffix(honest.Name, "1") + "2"}, Spec: *honest.Spec.DeepCopy()}
	forged.Spec.Attempt, forged.Spec.Arguments = 2, `{"accountId":"test"}`
	if err := w.gateway.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	w.approve()
	d.sees(forged, v1alpha1.PhaseApproved)
	if got := d.call("delete_account", `{"force":true}`); got.code() != "RequestMismatch" {
		t.Errorf("got %s", got.raw)
	}
	w.executions("delete_account", 0)
}

func TestAnHonestApprovalSurvivesItsGatewayAndUnrelatedPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.openDoor("gw-a")
	ctx, die := context.WithCancel(t.Context())
	gone := make(chan answer, 1)
	go func() {
		gone <- first.post(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_account","arguments":{"accountId":"a"}}}`)
	}()
	r := w.theRequest(v1alpha1.PhasePending)
	die()
	<-gone
	first.stop()
	w.decide(r.Name, v1alpha1.DecisionApproved)
	w.eventually("approved", func() error { return wantPhase(w.request(r.Name), v1alpha1.PhaseApproved) })
	w.executions("delete_account", 0)
	w.policy("unrelated", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{"get_*"}, Tier: v1alpha1.TierReversible, Reason: "r"}}
	})
	second := w.openQuietDoor("gw-b")
	second.sees(r, v1alpha1.PhaseApproved)
	second.used("delete_account", `{"accountId":"a"}`)
	w.executions("delete_account", 1)
	if got := w.request(r.Name).Status.Execution.Gateway; got != "gw-b" {
		t.Errorf("executed by %s", got)
	}
}

func TestPendingRequestsOfARequesterAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Approvals.MaxPending = 5 })
	d := w.openDoor("gw")
	codes := map[string]int{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for worker := range 16 {
		calls.Go(func() {
			for i := worker; i < 1000; i += 16 {
				got := d.call("update_invoice", fmt.Sprintf(`{"invoiceId":"a","note":"n","dummy":%d}`, i))
				mu.Lock()
				codes[got.code()]++
				mu.Unlock()
				if got.code() == "TooManyPending" && !strings.Contains(got.raw, "retryAfterSeconds") {
					t.Errorf("no advice: %s", got.raw)
				}
			}
		})
	}
	calls.Wait()
	if n := len(w.requests()); n != 5 || codes["ApprovalPending"] != 5 || codes["TooManyPending"] != 995 {
		t.Errorf("%d requests, answers by code %v", n, codes)
	}
	w.executions("update_invoice", 0)
	if err := wantServerAnswer(d.call("get_invoice", `{"invoiceId":"a"}`)); err != nil {
		t.Errorf("a read meanwhile: %v", err)
	}
}
