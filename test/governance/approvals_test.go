// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const note = `{"invoiceId":"a","note":"n"}`

// approve has the one pending request approved and returns it.
func (w *world) approve() *v1alpha1.ApprovalRequest {
	w.t.Helper()
	r := w.theRequest(v1alpha1.PhasePending)
	w.decide(r.Name, v1alpha1.DecisionApproved)
	w.eventually("the request is approved", func() error { return wantPhase(w.request(r.Name), v1alpha1.PhaseApproved) })
	return r
}

func wantPhase(r *v1alpha1.ApprovalRequest, want v1alpha1.Phase) error {
	if got := r.CurrentPhase(); got != want {
		return fmt.Errorf("request %s is %s, want %s", r.Name, got, want)
	}
	return nil
}

// used sends an approved call until the gateway has seen the yes.
func (d *door) used(name, arguments string) {
	d.w.t.Helper()
	d.w.eventually("the approved call runs", func() error {
		got := d.call(name, arguments)
		if got.Error != nil {
			d.w.t.Errorf("the approved call: %s", got.raw)
		}
		return wantServerAnswer(got)
	})
}

// sees waits until the gateway shows a phase of the request of an action.
func (d *door) sees(r *v1alpha1.ApprovalRequest, phase v1alpha1.Phase) {
	d.w.t.Helper()
	d.w.eventually(d.name+" sees "+string(phase), func() error {
		seen := d.server.Snapshot().Request(r.Spec.ActionHash, string(r.UID))
		if seen == nil {
			return errors.New("not seen")
		}
		return wantPhase(seen, phase)
	})
}

func (w *world) wantCancelled(name string, reason v1alpha1.CancellationReason) {
	w.t.Helper()
	r := w.request(name)
	if r.CurrentPhase() != v1alpha1.PhaseCancelled || r.Status.Cancellation.Reason != reason {
		w.t.Errorf("request %s is %s %+v, want Cancelled for %s", name, r.CurrentPhase(), r.Status.Cancellation, reason)
	}
}

func TestTheServerGetsTheBytesThatWereApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	body := func(n string) string {
		return `{"jsonrpc":"2.0", "id":"x\u00e9", "method":"tools/call","params":{"name":"update_invoice","arguments":{"invoiceId":"a","note":"n","n":` + n + `}}}`
	}
	if got := d.post(t.Context(), body("9007199254740993")); got.code() != "ApprovalPending" || string(got.ID) != `"x\u00e9"` {
		t.Fatalf("got %s", got.raw)
	}
	w.approve()
	if got := d.post(t.Context(), body("9007199254740992")); got.code() != "ApprovalPending" {
		t.Errorf("a number next to the approved one: %s", got.raw)
	}
	w.executions("update_invoice", 0)
	w.eventually("the approved call runs", func() error {
		return wantServerAnswer(d.post(t.Context(), body("9007199254740993"), "X-Tenant", "other", "Authorization", "Bearer a", "Cookie", "c"))
	})
	last := w.lastCall()
	if last.body != body("9007199254740993") || last.query != "" {
		t.Errorf("the server got %s, query %q", last.body, last.query)
	}
	for _, name := range []string{"X-Tenant", "Authorization", "Cookie"} {
		if last.header.Get(name) != "" {
			t.Errorf("the server got %s", name)
		}
	}
	if last.header.Get("Mcp-Session-Id") != d.session {
		t.Error("the session was not passed")
	}
	w.executions("update_invoice", 1)
}

func TestAnythingMoreInTheCallIsAnotherAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	call := func(rest string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":` + note + rest + `}}`
	}
	first := d.post(t.Context(), call("")).request()
	w.decide(first, v1alpha1.DecisionApproved)
	w.eventually("approved", func() error { return wantPhase(w.request(first), v1alpha1.PhaseApproved) })
	d.sees(w.request(first), v1alpha1.PhaseApproved)
	for _, rest := range []string{`,"dryRun":false`, `,"_meta":{"tenant":"b"}`} {
		if got := d.post(t.Context(), call(rest)); got.code() != "ApprovalPending" || got.request() == first {
			t.Errorf("%s: %s", rest, got.raw)
		}
	}
	w.executions("update_invoice", 0)
	if err := wantServerAnswer(d.post(t.Context(), call(`,"_meta":{"progressToken":"p","traceparent":"00-1"}`))); err != nil {
		t.Errorf("with a token and a trace: %v", err)
	}
	w.executions("update_invoice", 1)
}
