// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// TestTheSameCallSentAgainMeetsHowTheFirstEnded has the watch stay behind: what this gateway wrote itself it knows.
func TestTheSameCallSentAgainMeetsHowTheFirstEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shown  v1alpha1.Phase // what the watch has brought last
		answer http.HandlerFunc
		want   string // code of the call that is sent again
		asked  int    // requests then
	}{
		"it succeeded, the watch shows it running":    {v1alpha1.PhaseExecuting, answerJSON(`{}`), codePending, 2},
		"it succeeded, the watch shows it approved":   {v1alpha1.PhaseApproved, answerJSON(`{}`), codePending, 2},
		"it was cut off, the watch shows it running":  {v1alpha1.PhaseExecuting, cutOff("application/json", "{"), codeAmbiguous, 1},
		"it was cut off, the watch shows it approved": {v1alpha1.PhaseApproved, cutOff("application/json", "{"), codeAmbiguous, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice")
			r.upstream.answers(tc.answer)
			var shown []v1alpha1.ApprovalRequest
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				before := r.requests()
				err := update()
				if before[0].CurrentPhase() == v1alpha1.PhaseApproved || tc.shown == v1alpha1.PhaseExecuting {
					shown = before
				}
				r.show(shown)
				return err
			}
			r.post(body)
			r.ran(body)
			got := r.post(body)
			if n := len(r.requests()); got.code() != tc.want || n != tc.asked {
				t.Errorf("code %q and %d requests, want %q and %d: %s", got.code(), n, tc.want, tc.asked, got.body)
			}
			r.ran(body)
		})
	}
}

func TestApprovalsAreUsedOnlyAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*rig) // between the yes and the use
		want string     // code; "" runs
		// phase of the approved request afterwards, and why if it was cancelled
		phase  v1alpha1.Phase
		reason v1alpha1.CancellationReason
	}{
		"nothing happened": {nil, "", v1alpha1.PhaseSucceeded, ""},
		"an unrelated policy came": {func(r *rig) {
			r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("get_invoice", v1alpha1.TierReversible)} })
		}, "", v1alpha1.PhaseSucceeded, ""},
		"the tool was promoted": {(*rig).promote, "", v1alpha1.PhaseSucceeded, ""},
		"59 minutes passed":     {func(r *rig) { r.clock.Step(59*time.Minute + 59*time.Second); r.server.Prove(r.clock.Now()) }, "", v1alpha1.PhaseSucceeded, ""},
		"an hour passed":        {func(r *rig) { r.clock.Step(time.Hour); r.server.Prove(r.clock.Now()) }, "ApprovalExpired", v1alpha1.PhaseApproved, ""},
		"the tier was raised": {func(r *rig) {
			r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("update_invoice", v1alpha1.TierIrreversible)} })
		}, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"the tool changed":       {func(r *rig) { r.redefine("update_invoice", true); r.clock.Step(2 * time.Second) }, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelToolChanged},
		"the tool is gone":       {func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) }, "ToolUnknown", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"the endpoint moved":     {(*rig).move, "ToolUnknown", v1alpha1.PhaseCancelled, v1alpha1.CancelToolChanged},
		"the gateway lost touch": {func(r *rig) { r.clock.Step(6 * time.Minute) }, "PolicyStale", v1alpha1.PhaseApproved, ""},
		"another said no": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Decision = v1alpha1.DecisionDenied })
		}, "ApprovalDenied", v1alpha1.PhaseApproved, ""},
		"the phase was forged":         {func(r *rig) { r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Decision = "" }) }, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelVotesVoid},
		"another gateway uses it":      {func(r *rig) { r.setStatus(executingUntil(noon.Add(time.Minute))) }, codePending, v1alpha1.PhaseExecuting, ""},
		"another gateway died with it": {func(r *rig) { r.setStatus(executingUntil(noon)) }, codeAmbiguous, v1alpha1.PhaseExecuting, ""},
		"a call of it was lost": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseAmbiguous })
		}, codeAmbiguous, v1alpha1.PhaseAmbiguous, ""},
		"these receipts say that it was used": {(*rig).usedBefore, "ApprovalUsed", v1alpha1.PhaseApproved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice")
			approvedName := r.request().Name
			if tc.edit != nil {
				tc.edit(r)
			}
			got := r.post(body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(body)
			} else {
				r.nothingSent()
			}
			for _, request := range r.requests() {
				if request.Name != approvedName {
					continue
				}
				var reason v1alpha1.CancellationReason
				if request.Status.Cancellation != nil {
					reason = request.Status.Cancellation.Reason
				}
				if request.CurrentPhase() != tc.phase || reason != tc.reason {
					t.Errorf("the request is %s (%s), want %s (%s)", request.CurrentPhase(), reason, tc.phase, tc.reason)
				}
			}
			if tc.phase == v1alpha1.PhaseCancelled && tc.want == codePending && !strings.Contains(got.body, approvedName+" was cancelled") {
				t.Errorf("the caller is not told which: %s", got.body)
			}
		})
	}
}

func raise(tool string, tier v1alpha1.Tier) v1alpha1.ToolPolicy {
	return v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: "raise", UID: "raise"},
		Spec:       v1alpha1.ToolPolicySpec{Targets: []string{billing.Name}, Tiers: []v1alpha1.TierOverride{{Tools: []string{tool}, Tier: tier, Reason: "r"}}},
	}
}

// move is what a person does; the manager has not discovered the new endpoint yet.
func (r *rig) move() {
	r.edit(func() {
		r.governed.Status.EndpointDigest = r.server.Snapshot().EndpointDigest
		r.governed.Spec.Endpoint.URL = "https://production.example.com/mcp"
		r.governed.Generation++
	})
}

func (r *rig) setStatus(edit func(*v1alpha1.ApprovalRequestStatus)) {
	request := r.request()
	edit(&request.Status)
	if err := r.api.Status().Update(context.Background(), request); err != nil {
		r.t.Fatal(err)
	}
}

func executingUntil(deadline time.Time) func(*v1alpha1.ApprovalRequestStatus) {
	return func(s *v1alpha1.ApprovalRequestStatus) {
		at := metav1.NewMicroTime(deadline)
		s.Phase, s.Execution = v1alpha1.PhaseExecuting, &v1alpha1.Execution{Claim: "theirs", Deadline: &at}
	}
}

func (r *rig) usedBefore() {
	_, err := r.gateway.Receipts.Append(receipt.Receipt{Kind: receipt.KindDecision, Verdict: receipt.VerdictAllow, RequestUID: string(r.request().UID)}, receipt.Sync)
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestTheLastLookStopsWhatChangedWhileTheClaimWasWritten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*rig)
		want   string
	}{
		"nothing":            {func(*rig) {}, ""},
		"the tool is gone":   {func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) }, "ToolUnknown"},
		"the server is gone": {func(r *rig) { r.edit(func() { r.governed = nil }) }, "ServerGone"},
		"the tier rose": {func(r *rig) {
			r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("*", v1alpha1.TierIrreversible)} })
		}, "PolicyChanged"},
		"the definition changed": {func(r *rig) { r.redefine("update_invoice", true) }, "PolicyChanged"},
		"the approval expired":   {func(r *rig) { r.clock.Step(2 * time.Hour); r.server.Prove(r.clock.Now()) }, "ApprovalExpired"},
		"the API fell silent":    {func(r *rig) { r.clock.Step(6 * time.Minute) }, "PolicyStale"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice")
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				err := update()
				if o.Status.Phase == v1alpha1.PhaseExecuting {
					tc.change(r)
				}
				return err
			}
			got := r.post(body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			want := v1alpha1.PhaseFailed
			if tc.want == "" {
				want = v1alpha1.PhaseSucceeded
				r.ran(body)
			} else {
				r.nothingSent()
			}
			if request := r.request(); request.CurrentPhase() != want {
				t.Errorf("the request is %s, want %s", request.CurrentPhase(), want)
			}
		})
	}
}

func TestACallGoesOnlyToTheEndpointItWasJudgedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	body := r.approved("delete_account")
	old := r.server.Snapshot().EndpointDigest
	r.server.upstream.Store(r.dialled("sha256:another")) // the snapshot still speaks of the old one
	if got := r.post(toolCall("get_invoice", `{}`)); got.status != http.StatusBadGateway {
		t.Errorf("a read: HTTP %d %s", got.status, got.body)
	}
	for _, call := range []string{toolCall("update_invoice", `{}`), body} {
		if got := r.post(call); got.code() != "DefinitionUnavailable" {
			t.Errorf("%s: %s", call, got.body)
		}
	}
	if request := r.request(); request.CurrentPhase() != v1alpha1.PhaseApproved {
		t.Errorf("the approved request is %s", request.CurrentPhase())
	}
	r.server.upstream.Store(r.dialled(old))
	r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
		if o.Status.Phase == v1alpha1.PhaseExecuting {
			r.server.upstream.Store(r.dialled("sha256:another"))
		}
		return update()
	}
	if got := r.post(body); got.status != http.StatusBadGateway {
		t.Errorf("moved while the claim was written: HTTP %d %s", got.status, got.body)
	}
	if request := r.request(); request.CurrentPhase() != v1alpha1.PhaseFailed {
		t.Errorf("the approved request is %s", request.CurrentPhase())
	}
	r.nothingSent()
}

// dialled returns the rig's upstream as that of another endpoint.
func (r *rig) dialled(digest string) *dialled {
	next := *r.server.upstream.Load()
	next.digest = digest
	return &next
}

func TestARevocationCountsWhileTheReceiptIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	r.gateway.NewID = func() string { return "id" }
	// The receipt's clock is read while the receipt is written: the very last moment before the last look.
	r.receiptClock(func() { r.edit(func() { r.policies = nil }) })
	if got := r.post(toolCall("update_invoice", `{}`)); got.code() != "PolicyChanged" {
		t.Errorf("revoked while the receipt was written: %s", got.body)
	}
	r.nothingSent()
}
