// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
)

// openBooth starts a control plane with the webhook of votes for one test alone.
func openBooth(t *testing.T) (*booth.Booth, site) {
	t.Helper()
	on := startPlane(t)
	b, err := booth.Open(t.Context(), on, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b, site{on, b.Root}
}

// asked makes a call that waits and returns its request.
func (d *door) asked(arguments string) *v1alpha1.ApprovalRequest {
	d.w.t.Helper()
	got := d.call("update_invoice", arguments)
	if got.code() != "ApprovalPending" {
		d.w.t.Fatalf("got %s, want it to wait", got.raw)
	}
	return d.w.request(got.request())
}

func invoice(id string) string { return fmt.Sprintf(`{"invoiceId":%q,"note":"n"}`, id) }

// switchAdmissionOff does what a cluster-admin can: no policy and no webhook looks at anything any more.
func (w *world) switchAdmissionOff() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, kind := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&admissionregistrationv1.MutatingWebhookConfiguration{},
		&admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		if err := w.admin.DeleteAllOf(ctx, kind); err != nil {
			w.t.Fatal(err)
		}
	}
	// One that is decided could be written without a change that anything looks at.
	all := w.requests()
	probe := all[slices.IndexFunc(all, func(r v1alpha1.ApprovalRequest) bool { return r.CurrentPhase() == v1alpha1.PhasePending })]
	w.eventually("nothing looks at a status any more", func() error {
		forged := probe.DeepCopy()
		forged.Status.Phase, forged.Status.Decision = v1alpha1.PhaseApproved, v1alpha1.DecisionApproved
		return w.admin.Status().Update(ctx, forged, client.DryRunAll)
	})
}

// With admission switched off, anything can be written, and approves nothing.
func TestWithoutAdmissionNothingButSignedVotesApproves(t *testing.T) {
	t.Parallel()
	b, on := openBooth(t)
	w := newWorldOn(t, on, tellAtOnce)
	d := w.openDoor("gw")

	honest := d.asked(invoice("honest"))
	w.decide(honest.Name, v1alpha1.DecisionApproved)
	approved := w.request(honest.Name)
	byHand, copied, restored, unsigned, byRequester := d.asked(invoice("by-hand")), d.asked(invoice("copied")), d.asked(invoice("restored")), d.asked(invoice("unsigned")), d.asked(invoice("own"))
	w.decide(restored.Name, v1alpha1.DecisionApproved)
	backup := w.request(restored.Name)
	w.switchAdmissionOff()

	write := func(r *v1alpha1.ApprovalRequest, votes ...v1alpha1.Vote) {
		t.Helper()
		forged := w.request(r.Name)
		forged.Status.Phase, forged.Status.Decision, forged.Status.Votes = v1alpha1.PhaseApproved, v1alpha1.DecisionApproved, votes
		if err := w.admin.Status().Update(t.Context(), forged); err != nil {
			t.Fatal(err)
		}
	}
	vote := v1alpha1.Vote{Username: "approver-" + w.namespace, Decision: v1alpha1.DecisionApproved, Time: metav1.Now()}
	write(byHand)
	write(unsigned, vote)
	write(copied, approved.Status.Votes...)
	own := vote
	own.Username = byRequester.Spec.Requester.Username
	signed, err := b.Key.Sign(w.request(byRequester.Name), own) // as if the webhook had been talked into it
	if err != nil {
		t.Fatal(err)
	}
	write(byRequester, signed)

	// A request is deleted, and comes back from a backup with its old status.
	if err := w.admin.Delete(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	again := backup.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Namespace: backup.Namespace, Name: backup.Name, Labels: backup.Labels}
	if err := w.admin.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	restored = again
	write(restored, backup.Status.Votes...)

	for id, r := range map[string]*v1alpha1.ApprovalRequest{"by-hand": byHand, "unsigned": unsigned, "copied": copied, "restored": restored, "own": byRequester} {
		d.sees(r, v1alpha1.PhaseApproved)
		if got := d.call("update_invoice", invoice(id)); got.code() != "ApprovalPending" || got.request() == r.Name {
			t.Errorf("%s: %s, want a person to be asked anew", id, got.raw)
		}
		w.wantCancelled(r.Name, v1alpha1.CancelVotesVoid)
	}
	w.executions("update_invoice", 0)

	// The twin: the vote that was given is good, whatever was switched off since.
	d.sees(honest, v1alpha1.PhaseApproved)
	if err := wantServerAnswer(d.call("update_invoice", invoice("honest"))); err != nil {
		t.Error(err)
	}
	w.executions("update_invoice", 1)
}

// A database that is set back gives nothing back: what ran does not run again, and the runbook voids the rest.
func TestARestoredDatabaseRunsNothingTwice(t *testing.T) {
	t.Parallel()
	o := startOperator(t, startPlane(t), 2, 10)
	w := newWorldOn(t, o.site, tellAtOnce)
	d := w.openDoor("gw")
	used, unused, voided := d.asked(invoice("used")), d.asked(invoice("unused")), d.asked(invoice("voided"))
	for _, r := range []*v1alpha1.ApprovalRequest{used, unused, voided} {
		w.decide(r.Name, v1alpha1.DecisionApproved)
		d.sees(r, v1alpha1.PhaseApproved)
	}
	backup := o.site.Backup(t)
	w.eventually("the approved call runs", func() error { return wantServerAnswer(d.call("update_invoice", invoice("used"))) })
	w.executions("update_invoice", 1)
	d.stop()
	o.site.Restore(t, backup)
	w.eventually("the API is back", func() error {
		return w.admin.Get(t.Context(), client.ObjectKeyFromObject(used), &v1alpha1.ApprovalRequest{})
	})
	if phase := w.request(used.Name).CurrentPhase(); phase != v1alpha1.PhaseApproved {
		t.Fatalf("the request is %s after the restore, want Approved again: nothing is tested", phase)
	}

	d = w.openDoor("gw", withReceipts(d.path))
	d.sees(used, v1alpha1.PhaseApproved)
	if got := d.call("update_invoice", invoice("used")); got.code() != "ApprovalUsed" {
		t.Errorf("sent again after the restore: %s", got.raw)
	}
	w.executions("update_invoice", 1)
	// The twin: an approval that nobody used before is still one.
	d.sees(unused, v1alpha1.PhaseApproved)
	if err := wantServerAnswer(d.call("update_invoice", invoice("unused"))); err != nil {
		t.Error(err)
	}
	w.executions("update_invoice", 2)

	// Until the voting key is removed, which is what to do after a restore.
	o.removeKey(w.request(voided.Name).Status.Votes[0].KeyID)
	w.eventually("the gateway knows", func() error {
		tally, err := d.keyring.Count(t.Context(), w.request(voided.Name))
		if err == nil && len(tally.Void) == 0 {
			return errorString("the vote counts")
		}
		return err
	})
	if got := d.call("update_invoice", invoice("voided")); got.code() != "ApprovalPending" || got.request() == voided.Name {
		t.Errorf("under a removed key: %s", got.raw)
	}
	w.wantCancelled(voided.Name, v1alpha1.CancelVotesVoid)
	w.executions("update_invoice", 2)
	// Votes go on, under another key.
	w.decide(w.theRequest(v1alpha1.PhasePending).Name, v1alpha1.DecisionApproved)
	w.eventually("the new vote is good", func() error { return wantServerAnswer(d.call("update_invoice", invoice("voided"))) })
	w.executions("update_invoice", 3)
}
