// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func tellAtOnce(s *v1alpha1.GovernedServer) { s.Spec.Approvals.Hold = duration(0) }

func TestReadsPassAndEffectsWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	before := w.billing.Executions()["get_invoice"]

	if got := d.call("get_invoice", `{"invoiceId":"a"}`); got.isError() {
		t.Errorf("a read was refused: %s", got.raw)
	}
	w.executions("get_invoice", before+1)

	got := d.call("delete_account", `{"force":true}`)
	if got.code() != "ApprovalPending" || !got.Result.IsError {
		t.Fatalf("an irreversible call was not held: %s", got.raw)
	}
	w.executions("delete_account", 0)
	r := w.request(got.request())
	if r.Spec.BlastRadius.Scope != v1alpha1.BlastUnbounded || r.Spec.ApproveVerbs[0] != v1alpha1.VerbApproveIrreversible {
		t.Errorf("request: blast radius %+v, verbs %v", r.Spec.BlastRadius, r.Spec.ApproveVerbs)
	}

	w.decide(r.Name, v1alpha1.DecisionApproved)
	w.theRequest(v1alpha1.PhaseApproved)
	w.eventually("the re-sent call runs", func() error {
		return wantServerAnswer(d.call("delete_account", `{"force":true}`))
	})
	w.executions("delete_account", 1)
	if got := w.request(r.Name); got.CurrentPhase() != v1alpha1.PhaseSucceeded || got.Status.Execution.Outcome != v1alpha1.OutcomeSucceeded {
		t.Errorf("request after the call: %s %+v", got.CurrentPhase(), got.Status.Execution)
	}

	// Approved, executed, the same call again: a new request is needed.
	got = d.call("delete_account", `{"force":true}`)
	if got.code() != "ApprovalPending" || got.request() == r.Name {
		t.Errorf("the same call after its execution: %s", got.raw)
	}
	w.executions("delete_account", 1)
}

func TestHeldCallRunsWithinASecondOfItsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.openDoor("gw")
	answers := make(chan answer, 1)
	go func() { answers <- d.call("update_invoice", `{"invoiceId":"a","note":"n"}`) }()
	r := w.theRequest(v1alpha1.PhasePending)
	w.decide(r.Name, v1alpha1.DecisionApproved)
	decided := time.Now()
	got := <-answers
	if err := wantServerAnswer(got); err != nil {
		t.Fatal(err)
	}
	t.Logf("answer %v after the approval", time.Since(decided))
	w.executions("update_invoice", 1)
}

func TestDenialAnswersTheSameCallUntilItExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.openDoor("gw")
	answers := make(chan answer, 1)
	go func() { answers <- d.call("update_invoice", `{"invoiceId":"a","note":"n"}`) }()
	r := w.theRequest(v1alpha1.PhasePending)
	w.decide(r.Name, v1alpha1.DecisionDenied)
	if got := <-answers; got.code() != "ApprovalDenied" || !strings.Contains(got.raw, "looked at it") {
		t.Errorf("the held call: %s", got.raw)
	}
	if got := d.call("update_invoice", `{"invoiceId":"a","note":"n"}`); got.code() != "ApprovalDenied" || got.request() != r.Name {
		t.Errorf("the call sent again: %s", got.raw)
	}
	if n := len(w.requests()); n != 1 {
		t.Errorf("requests: got %d, want 1", n)
	}
	w.executions("update_invoice", 0)
}

func TestAnotherActionDoesNotUseTheApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	r := d.call("update_invoice", `{"invoiceId":"o1","note":"500"}`).request()
	w.decide(r, v1alpha1.DecisionApproved)
	w.theRequest(v1alpha1.PhaseApproved)
	if got := d.call("update_invoice", `{"invoiceId":"o1","note":"5000"}`); got.code() != "ApprovalPending" || got.request() == r {
		t.Errorf("other arguments: %s", got.raw)
	}
	w.executions("update_invoice", 0)
	// The honest twin: the same arguments in another order, with other white space, another id and progress token.
	w.eventually("the approved call runs", func() error {
		return wantServerAnswer(d.post(t.Context(), `{"jsonrpc":"2.0", "id":"x", "method":"tools/call", "params":{"_meta":{"progressToken":7}, "arguments":{ "note":"500", "invoiceId":"o1" }, "name":"update_invoice"}}`))
	})
	w.executions("update_invoice", 1)
}

func TestTwoGatewaysEightCallsOneExecution(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doors := []*door{w.openDoor("gw-a"), w.openDoor("gw-b")}
	var calls sync.WaitGroup
	answers := make(chan answer, 8)
	for i := range 8 {
		calls.Go(func() { answers <- doors[i%2].call("delete_account", `{"accountId":"acc_1"}`) })
	}
	r := w.theRequest(v1alpha1.PhasePending)
	w.decide(r.Name, v1alpha1.DecisionApproved)
	calls.Wait()
	close(answers)
	codes := map[string]int{}
	for got := range answers {
		codes[got.code()]++
		if got.code() == "" && wantServerAnswer(got) != nil {
			t.Errorf("neither the server's nor the gateway's answer: %s", got.raw)
		}
	}
	if codes[""] != 1 || codes["ApprovalUsed"] != 7 {
		t.Errorf("answers by code: %v, want one of the server and seven that say it was used", codes)
	}
	w.executions("delete_account", 1)
}

func wantServerAnswer(a answer) error {
	if a.isError() || a.code() != "" {
		return errorString(a.raw)
	}
	return nil
}

type errorString string

func (e errorString) Error() string { return string(e) }
