// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestSecretsAreShownNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	arguments := `{"invoiceId":"a","note":"n","password":"correct horse battery"}`
	got := d.call("update_invoice", arguments)
	r := w.request(got.request())
	if strings.Contains(r.Spec.Arguments, "horse") || !strings.Contains(r.Spec.Arguments, "password") || !strings.Contains(r.Spec.Arguments, `"n"`) {
		t.Errorf("shown: %s", r.Spec.Arguments)
	}
	w.decide(r.Name, v1alpha1.DecisionApproved)
	d.used("update_invoice", arguments)
	if !strings.Contains(w.lastCall().body, "correct horse battery") {
		t.Error("the server did not get what was sent")
	}
	d.stop()
	d.wantReceipts("horse")
	var events eventsv1.EventList
	if err := w.admin.List(t.Context(), &events, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		if strings.Contains(events.Items[i].String(), "horse") {
			t.Errorf("an Event shows it: %s", events.Items[i].Note)
		}
	}
}

func TestWhatIsHiddenIsSaidAndTakesTheStricterVerb(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	filler := make([]string, 200)
	for i := range filler {
		filler[i] = fmt.Sprintf(`"f%03d":"%s"`, i, strings.Repeat("x", 100))
	}
	r := w.request(d.call("update_invoice", `{`+strings.Join(filler, ",")+`,"invoiceId":"a","note":"n","everything":true}`).request())
	if r.Spec.BlastRadius.Scope != v1alpha1.BlastUnknown || len(r.Spec.ApproveVerbs) != 1 || r.Spec.ApproveVerbs[0] != v1alpha1.VerbApproveIrreversible {
		t.Errorf("radius %+v, verbs %v", r.Spec.BlastRadius, r.Spec.ApproveVerbs)
	}
	control := w.request(d.call("update_invoice", note).request())
	if control.Spec.ApproveVerbs[0] != v1alpha1.VerbApprove {
		t.Errorf("the control: verbs %v", control.Spec.ApproveVerbs)
	}
}

func TestANameThatIsTakenGivesWayToTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	honest := w.request(d.call("update_invoice", note).request())
	w.decide(honest.Name, v1alpha1.DecisionDismissed)
	d.sees(honest, v1alpha1.PhaseDismissed)
	// The name that the next attempt would get is taken by another action.
	squatter := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: strings.TrimSuffix(honest.Name, "1") + "2"}, Spec: *honest.Spec.DeepCopy()}
	squatter.Spec.ActionHash, squatter.Spec.Arguments = "sha256:"+strings.Repeat("0", 64), `{"harmless":true}`
	if err := w.gateway.Create(t.Context(), squatter); err != nil {
		t.Fatal(err)
	}
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || got.request() == squatter.Name || w.request(got.request()).Spec.ActionHash != honest.Spec.ActionHash {
		t.Errorf("got %s", got.raw)
	}
}
