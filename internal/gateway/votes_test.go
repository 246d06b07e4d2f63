// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// another is a key that no root has vouched for.
var another = ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", 32)))

func TestNothingRunsButOnValidVotesOfEnoughPersons(t *testing.T) {
	t.Parallel()
	const yes = v1alpha1.DecisionApproved
	for name, tc := range map[string]struct {
		required int32
		vote     func(*rig, *v1alpha1.ApprovalRequest)
		want     string // code; "" runs
	}{
		"one of one": {1, func(r *rig, a *v1alpha1.ApprovalRequest) { r.cast(a, votingKey, "alice", yes) }, ""},
		"two of two": {2, func(r *rig, a *v1alpha1.ApprovalRequest) {
			r.cast(a, votingKey, "alice", yes)
			r.cast(a, votingKey, "bob", yes)
		}, ""},
		"one, and a void one beside it": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			r.cast(a, another, "mallory", yes)
			r.cast(a, votingKey, "alice", yes)
		}, ""},
		"a status written by hand": {1, func(*rig, *v1alpha1.ApprovalRequest) {}, codePending},
		"a vote written by hand": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			a.Status.Votes = []v1alpha1.Vote{{Username: "alice", Decision: yes, Time: metav1.NewTime(noon), KeyID: vote.KeyID(half(votingKey)), Signature: "AAAA"}}
		}, codePending},
		"one of two": {2, func(r *rig, a *v1alpha1.ApprovalRequest) { r.cast(a, votingKey, "alice", yes) }, codePending},
		"one person twice": {2, func(r *rig, a *v1alpha1.ApprovalRequest) {
			r.cast(a, votingKey, "alice", yes)
			r.cast(a, votingKey, "alice", yes)
		}, codePending},
		"the requester": {1, func(r *rig, a *v1alpha1.ApprovalRequest) { r.cast(a, votingKey, agent, yes) }, codePending},
		"another key":   {1, func(r *rig, a *v1alpha1.ApprovalRequest) { r.cast(a, another, "alice", yes) }, codePending},
		"a key since removed": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			r.cast(a, votingKey, "alice", yes)
			r.keys = published(another)
		}, codePending},
		"a vote on another request": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			other := a.DeepCopy()
			other.Name, other.UID = "billing-other-1", "uid-other"
			r.cast(other, votingKey, "alice", yes)
			a.Status.Votes = other.Status.Votes
		}, codePending},
		"a vote on the same, before it was restored": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			before := a.DeepCopy()
			before.UID = "uid-before"
			r.cast(before, votingKey, "alice", yes)
			a.Status.Votes = before.Status.Votes
		}, codePending},
		"a vote on another spec": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			shown := a.DeepCopy()
			shown.Spec.Arguments = `{"n":0}`
			r.cast(shown, votingKey, "alice", yes)
			a.Status.Votes = shown.Status.Votes
		}, codePending},
		"a no beside a yes": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			r.cast(a, votingKey, "alice", yes)
			r.cast(a, votingKey, "bob", v1alpha1.DecisionDenied)
		}, "ApprovalDenied"},
		"the keys are not known now": {1, func(r *rig, a *v1alpha1.ApprovalRequest) {
			r.cast(a, votingKey, "alice", yes)
			r.keysErr = errors.New("down")
		}, codeUnverified},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.edit(func() {
				r.governed.Spec.Approvals.Required = v1alpha1.RequiredApprovals{Reversible: tc.required, Irreversible: tc.required}
			})
			body := toolCall("delete_account", `{"n":1}`)
			if got := r.post(body); got.code() != codePending {
				t.Fatalf("not asked: %s", got.body)
			}
			request := r.request()
			if request.Spec.RequiredApprovals != tc.required {
				t.Fatalf("asked of %d persons, want %d", request.Spec.RequiredApprovals, tc.required)
			}
			tc.vote(r, request)
			r.decideOn(request, yes)
			got := r.post(body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(body)
				return
			}
			r.nothingSent()
			wantPhase := v1alpha1.PhaseApproved // it stays, for when the keys are known
			if tc.want == codePending {
				wantPhase = v1alpha1.PhaseCancelled
				if !strings.Contains(got.body, request.Name+" was cancelled, since the votes on it are not valid") || len(r.requests()) != 2 {
					t.Errorf("%d requests, and the caller is told: %s", len(r.requests()), got.body)
				}
			}
			stored := r.find(request.Name)
			if stored.CurrentPhase() != wantPhase || wantPhase == v1alpha1.PhaseCancelled && stored.Status.Cancellation.Reason != v1alpha1.CancelVotesVoid {
				t.Errorf("the request is %s (%+v), want %s", stored.CurrentPhase(), stored.Status.Cancellation, wantPhase)
			}
		})
	}
}

// find returns the request of a name.
func (r *rig) find(name string) *v1alpha1.ApprovalRequest {
	r.t.Helper()
	found := &v1alpha1.ApprovalRequest{}
	if err := r.api.Get(context.Background(), types.NamespacedName{Namespace: billing.Namespace, Name: name}, found); err != nil {
		r.t.Fatal(err)
	}
	return found
}

func TestAnApprovalWaitsUntilTheKeysAreKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := r.approved("update_invoice")
	r.edit(func() { r.keysErr = errors.New("down") })
	for range 2 {
		if got := r.post(body); got.code() != codeUnverified {
			t.Errorf("got %s", got.body)
		}
	}
	r.nothingSent()
	r.edit(func() { r.keysErr = nil })
	if got := r.post(body); got.code() != "" {
		t.Errorf("got %s", got.body)
	}
	r.ran(body)
}

func TestAKeyThatIsRemovedWhileTheClaimIsWrittenCountsNoMore(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*rig){
		"":              func(*rig) {},
		"VotesVoid":     func(r *rig) { r.edit(func() { r.keys = published(another) }) },
		codeUnverified:  func(r *rig) { r.edit(func() { r.keysErr = errors.New("down") }) },
		"PolicyChanged": func(r *rig) { r.edit(func() { r.governed.Spec.Approvals.Required.Reversible = 2 }) },
	} {
		r := newRig(t)
		body := r.approved("update_invoice")
		r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
			if o.Status.Phase == v1alpha1.PhaseExecuting {
				change(r)
			}
			return update()
		}
		if got := r.post(body); got.code() != want {
			t.Errorf("code %q, want %q: %s", got.code(), want, got.body)
		}
		if want == "" {
			r.ran(body)
			continue
		}
		r.nothingSent()
		if got := r.request().Status.Execution.Outcome; got != v1alpha1.OutcomeNotSent {
			t.Errorf("%s: outcome %s", want, got)
		}
	}
}

func TestMorePersonsThanWereAskedAreAskedAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := r.approved("update_invoice")
	first := r.request().Name
	r.edit(func() { r.governed.Spec.Approvals.Required.Reversible = 2 })
	if got := r.post(body); got.code() != codePending {
		t.Errorf("got %s", got.body)
	}
	r.nothingSent()
	if got := r.find(first).Status.Cancellation; got == nil || got.Reason != v1alpha1.CancelPolicyChanged {
		t.Errorf("the first request: %+v", got)
	}
	for _, request := range r.requests() {
		if request.Name != first {
			r.decideOn(&request, v1alpha1.DecisionApproved, "alice", "bob")
		}
	}
	if got := r.post(body); got.code() != "" {
		t.Errorf("approved by two: %s", got.body)
	}
	r.ran(body)
}

func TestReceiptsSayWhoApprovedAndByWhichKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.Required.Reversible = 2 })
	body := toolCall("update_invoice", `{"n":1}`)
	r.post(body)
	request := r.request()
	r.cast(request, another, "mallory", v1alpha1.DecisionApproved)
	r.decideOn(request, v1alpha1.DecisionApproved, "alice", "bob")
	r.post(body)
	r.ran(body)
	id := vote.KeyID(half(votingKey))
	found := 0
	for _, line := range r.receiptLines() {
		if line.RequestUID == "" || line.Verdict != receipt.VerdictAllow {
			if len(line.ApprovedBy)+len(line.KeyIDs) > 0 {
				t.Errorf("%s %s says that %v approved", line.Kind, line.Code, line.ApprovedBy)
			}
			continue
		}
		found++
		if diff := cmp.Diff([][]string{{"alice", "bob"}, {id, id}}, [][]string{line.ApprovedBy, line.KeyIDs}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line.Kind, diff)
		}
	}
	if found != 2 {
		t.Errorf("%d receipts of the call, want its decision and its outcome", found)
	}
	if got := testutil.ToFloat64(r.gateway.Metrics.void.WithLabelValues(billing.Namespace, billing.Name)); got == 0 {
		t.Error("the void vote is not counted")
	}
}

// receiptLines returns the receipts that are on disk once the writer is closed.
func (r *rig) receiptLines() []receipt.Receipt {
	r.t.Helper()
	if err := r.gateway.Receipts.Close(); err != nil {
		r.t.Fatal(err)
	}
	text, err := os.ReadFile(r.receipts)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []receipt.Receipt
	for line := range strings.Lines(string(text)) {
		var one receipt.Receipt
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}
