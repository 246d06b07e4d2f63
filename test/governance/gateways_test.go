// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
)

func TestAYesThroughOneGatewayFreesTheCallOnAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.openDoor("gw-a"), w.openDoor("gw-b")
	answers := make(chan answer, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		answers <- a.post(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":`+note+`}}`)
	}()
	r := w.theRequest(v1alpha1.PhasePending)
	leave()
	<-answers
	w.decide(r.Name, v1alpha1.DecisionApproved)
	b.sees(r, v1alpha1.PhaseApproved)
	a.sees(r, v1alpha1.PhaseApproved)
	w.executions("update_invoice", 0) // the client has gone: nothing runs for it
	go func() { answers <- b.call("update_invoice", note) }()
	if err := wantServerAnswer(<-answers); err != nil {
		t.Error(err)
	}
	w.executions("update_invoice", 1)
}

func TestACallOfADeadGatewayIsUnclearUntilAPersonSettlesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.CallTimeout.Duration = time.Second })
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	r := w.approve()
	// A gateway that dies between its claim and its call.
	dead := &approval.Store{Client: w.gateway, Clock: clock.RealClock{}, Gateway: "dead", NewClaim: uuid.NewString}
	if _, err := dead.Claim(t.Context(), w.request(r.Name), time.Second); err != nil {
		t.Fatal(err)
	}
	w.eventually("unclear", func() error { return wantPhase(w.request(r.Name), v1alpha1.PhaseAmbiguous) })
	d.sees(r, v1alpha1.PhaseAmbiguous)
	if got := d.call("update_invoice", note); got.code() != "OutcomeUnknown" || got.request() != r.Name {
		t.Errorf("sent again: %s", got.raw)
	}
	settle := func(reason string) error {
		current := w.request(r.Name)
		patch := client.MergeFrom(current.DeepCopy())
		current.Status.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionNotExecuted, Reason: reason, By: "approver-" + w.namespace, Time: metav1.Now()}
		return w.person.Status().Patch(t.Context(), current, patch)
	}
	if err := settle(" "); err == nil {
		t.Error("settled without a reason")
	}
	if err := settle("the server's log shows no call"); err != nil {
		t.Fatal(err)
	}
	d.sees(r, v1alpha1.PhaseFailed)
	got := d.call("update_invoice", note)
	if got.code() != "ApprovalPending" || got.request() == r.Name || !strings.Contains(got.raw, "asked before") {
		t.Errorf("after it was settled: %s", got.raw)
	}
	w.executions("update_invoice", 0)
}

func TestADeletedRequestIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	d.call("update_invoice", note)
	r := w.approve()
	if err := w.person.Delete(t.Context(), w.request(r.Name)); !apierrors.IsForbidden(err) {
		t.Errorf("deleted by a person: %v", err)
	}
	if err := w.gateway.Delete(t.Context(), w.request(r.Name)); !apierrors.IsForbidden(err) {
		t.Errorf("deleted by a gateway: %v", err)
	}
	if err := w.manager.Delete(t.Context(), w.request(r.Name)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"RequestGone", "ApprovalPending"} {
		if got := d.call("update_invoice", note); got.code() != "RequestGone" && got.code() != "ApprovalPending" {
			t.Errorf("got %s, want %s", got.raw, want)
		}
	}
	w.executions("update_invoice", 0)
}
