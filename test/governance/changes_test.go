// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/hack/demo/billing"
)

func TestAChangedToolEndsItsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	old := w.approve()
	d.sees(old, v1alpha1.PhaseApproved)

	// The server gives every client another definition; the manager has not looked yet.
	w.billing.Redescribe("update_invoice", "Change the note of an invoice. Everything is different.")
	if got := d.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(got.raw, `"tidewaiter.dev/tier":"Irreversible"`) {
		t.Errorf("the list does not show the drift as the strictest tier: %s", got.raw)
	}
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || got.request() == old.Name || !strings.Contains(got.raw, old.Name+" was cancelled") {
		t.Errorf("after the change: %s", got.raw)
	}
	w.wantCancelled(old.Name, v1alpha1.CancelToolChanged)
	if r := w.request(got.request()); r.Spec.Tier != v1alpha1.TierIrreversible || r.Spec.ApproveVerbs[0] != v1alpha1.VerbApproveIrreversible {
		t.Errorf("a drifted tool is asked as %s, %v", r.Spec.Tier, r.Spec.ApproveVerbs)
	}
	w.executions("update_invoice", 0)

	// Once discovered and approved anew, it runs.
	w.discover()
	w.decide(got.request(), v1alpha1.DecisionApproved)
	d.used("update_invoice", note)
	w.executions("update_invoice", 1)
}

func TestAToolThatChangedBeforeItsFirstCallIsStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	w.billing.Redescribe("update_invoice", "Not what was classified.")
	d := w.openDoor("gw")
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || w.request(got.request()).Spec.Tier != v1alpha1.TierIrreversible {
		t.Errorf("got %s", got.raw)
	}
	w.executions("update_invoice", 0)
	if got := d.call("send_invoice", `{"invoiceId":"a"}`); w.request(got.request()).Spec.Tier != v1alpha1.TierIrreversible {
		t.Errorf("the control: %s", got.raw)
	}
}

func TestAMovedEndpointEndsItsApprovals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	old := w.approve()
	d.sees(old, v1alpha1.PhaseApproved)

	production := billing.New()
	moved := httptest.NewServer(production.Handler())
	t.Cleanup(moved.Close)
	server := w.governed()
	server.Spec.Endpoint.URL = moved.URL + "/mcp"
	if err := w.person.Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateway knows", func() error {
		if got := d.call("get_invoice", `{"invoiceId":"a"}`); got.code() != "ToolUnknown" {
			return errorString(got.raw)
		}
		return nil
	})
	if got := d.call("update_invoice", note); got.code() != "ToolUnknown" {
		t.Errorf("before the new endpoint was discovered: %s", got.raw)
	}
	w.wantCancelled(old.Name, v1alpha1.CancelToolChanged)
	w.discover()
	var got answer
	w.eventually("people are asked anew", func() error {
		if got = d.call("update_invoice", note); got.code() != "ApprovalPending" {
			return errorString(got.raw)
		}
		return nil
	})
	if got.request() == old.Name || w.request(got.request()).Spec.EndpointDigest == old.Spec.EndpointDigest {
		t.Errorf("asked as before: %s", got.raw)
	}
	w.executions("update_invoice", 0)
	if n := production.Executions()["update_invoice"]; n != 0 {
		t.Errorf("the new endpoint ran it %d times", n)
	}
	w.eventually("a session of the new server", d.initialize)
	w.decide(got.request(), v1alpha1.DecisionApproved)
	d.used("update_invoice", note)
	if n := production.Executions()["update_invoice"]; n != 1 {
		t.Errorf("the new endpoint ran it %d times, want 1", n)
	}
}

func TestAPolicyThatAsksForMoreEndsTheApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	old := w.approve()
	d.sees(old, v1alpha1.PhaseApproved)
	raise := w.policy("raise", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{"update_*"}, Tier: v1alpha1.TierIrreversible, Reason: "auditors read notes"}}
	})
	w.eventually("the gateway knows the policy", func() error { return d.wantListed("update_invoice", "Irreversible") })
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || !strings.Contains(got.raw, old.Name+" was cancelled") {
		t.Errorf("got %s", got.raw)
	}
	w.wantCancelled(old.Name, v1alpha1.CancelPolicyChanged)
	r := w.request(got.request())
	if r.Spec.GatedBy != "ToolPolicy/raise spec.tiers[0]" || r.Spec.Tier != v1alpha1.TierIrreversible {
		t.Errorf("asked by %s as %s", r.Spec.GatedBy, r.Spec.Tier)
	}
	w.executions("update_invoice", 0)

	// The way back ends nothing: the stricter yes still counts.
	w.decide(r.Name, v1alpha1.DecisionApproved)
	if err := w.person.Delete(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateway knows", func() error { return d.wantListed("update_invoice", "Reversible") })
	d.used("update_invoice", note)
	w.executions("update_invoice", 1)
}

// wantListed checks the tier that a list shows.
func (d *door) wantListed(tool, tier string) error {
	got := d.post(d.w.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).raw
	_, after, _ := strings.Cut(got, `"name":"`+tool+`"`)
	entry, _, _ := strings.Cut(after, `"tidewaiter.dev/behaviour"`)
	if !strings.Contains(entry, `"tidewaiter.dev/tier":"`+tier+`"`) {
		return fmt.Errorf("%s is listed as %s", tool, entry)
	}
	return nil
}

// policy writes a ToolPolicy for the server as the person.
func (w *world) policy(name string, edit func(*v1alpha1.ToolPolicySpec)) *v1alpha1.ToolPolicy {
	w.t.Helper()
	p := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	p.Spec.Targets = []string{"billing"}
	edit(&p.Spec)
	if err := w.person.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return p
}
