// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"fmt"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// saysNotInForce waits until the status of a policy gives this reason for its only entry, none for "".
func (w *world) saysNotInForce(p *v1alpha1.ToolPolicy, want string) {
	w.t.Helper()
	w.eventually("the status says "+want, func() error {
		current := &v1alpha1.ToolPolicy{}
		if err := w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(p), current); err != nil {
			return err
		}
		got := ""
		for _, line := range current.Status.NotInForce {
			got += string(line.Reason)
		}
		if got != want {
			return fmt.Errorf("notInForce says %q, want %q", got, want)
		}
		return nil
	})
}

// repromote has a promotion speak of the definition that the tool has now.
func (w *world) repromote(p *v1alpha1.ToolPolicy, digest string) {
	w.t.Helper()
	// The manager writes the status of the same object meanwhile: a patch does not mind.
	before := p.DeepCopy()
	p.Spec.Autonomy[0].Digest = digest
	if err := w.person.Patch(w.t.Context(), p, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func TestAPromotionIsWorthWhatTheRecordOfItsDefinitionIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	first := w.digest("update_invoice")
	gated := func(when string) {
		t.Helper()
		w.eventually("the gateway knows: "+when, func() error { return d.wantBehaviour("update_invoice", "RequiresApproval") })
		before := w.billing.Executions()["update_invoice"]
		if got := d.call("update_invoice", note); got.code() != "ApprovalPending" {
			t.Errorf("%s: %s", when, got.raw)
		}
		w.executions("update_invoice", before)
	}

	// Git is applied before anything has happened.
	promotion := w.promote("update_invoice")
	w.saysNotInForce(promotion, v1alpha1.NotInForceRecord)
	gated("without a record")
	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	d.runs("update_invoice", note)
	w.saysNotInForce(promotion, "")

	w.billing.Redescribe("update_invoice", "Change the note of an invoice, and mail it.")
	w.discover()
	gated("another definition")
	w.saysNotInForce(promotion, v1alpha1.NotInForceDigestDiffers)
	w.repromote(promotion, w.digest("update_invoice"))
	w.saysNotInForce(promotion, v1alpha1.NotInForceRecord)
	gated("accepted, but with the record of the first definition")
	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	d.runs("update_invoice", note)

	// The first definition is back; what was earned since is not its own.
	w.billing.Redescribe("update_invoice", "Change the note of an invoice. The old note is kept.",
		mcp.WithString("invoiceId", mcp.Required(), mcp.Description("Number of the invoice")), mcp.WithString("note", mcp.Required()))
	w.discover()
	if got := w.digest("update_invoice"); got != first {
		t.Fatalf("the digest of the same words is %s, was %s", got, first)
	}
	w.repromote(promotion, first)
	gated("the first definition, with the record of the second")
	w.earn("update_invoice", func(r *v1alpha1.ToolRecord) { r.Denied = 1 })
	gated("the first definition, once denied")
	w.earn("update_invoice", func(*v1alpha1.ToolRecord) {})
	d.runs("update_invoice", note)
}
