// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// build returns the snapshot of a server with one promoted tool, and some requests of it.
func build(t *testing.T, definition string, requests ...*v1alpha1.ApprovalRequest) *Snapshot {
	t.Helper()
	server := fixture.GovernedServer("finance", "billing")
	server.UID = "uid"
	server.Spec.Autonomy.CleanApprovals = 3
	classified, err := tool.Parse([]byte(`{"name":"refund_invoice"}`))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := tool.Parse([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	if server.Status.EndpointDigest, err = tool.EndpointDigest(server.Spec.Endpoint); err != nil {
		t.Fatal(err)
	}
	server.Status.Tools = []v1alpha1.ToolStatus{{Name: "refund_invoice", ClassifiedTier: v1alpha1.TierReversible, Digest: classified.Digest()}}
	server.Status.Records = []v1alpha1.ToolRecord{{Tool: "refund_invoice", Digest: classified.Digest(), EndpointDigest: server.Status.EndpointDigest, Approved: 3}}
	promotion := fixture.ToolPolicy("finance", "team", "billing")
	promotion.Spec.Tiers = nil
	promotion.Spec.Autonomy = []v1alpha1.AutonomyRule{{Tool: "refund_invoice", Digest: classified.Digest(), Mode: v1alpha1.ModeUnattended}}
	s, err := Build(Inputs{Server: &server, Policies: []*policy.Policy{policy.Parse(&promotion)}, Requests: requests, Definitions: map[string]tool.Descriptor{seen.Name: seen}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(n int, edit func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
	r := fixture.ApprovalRequest("finance", "billing", n)
	r.Spec.ServerRef.UID = "uid"
	edit(&r)
	return &r
}

func TestWhatAGatewaySeesItselfCountsAtOnce(t *testing.T) {
	t.Parallel()
	same := `{"name":"refund_invoice"}`
	for name, tc := range map[string]struct {
		definition string
		edit       func(*v1alpha1.ApprovalRequest)
		want       policy.Reason
	}{
		"nothing":                    {same, func(*v1alpha1.ApprovalRequest) {}, policy.ReasonUnattended},
		"a success":                  {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseSucceeded }, policy.ReasonUnattended},
		"a denial":                   {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseDenied }, policy.ReasonApprovalRequired},
		"a denial without its phase": {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Decision = v1alpha1.DecisionDenied }, policy.ReasonApprovalRequired},
		"a denial that is but a vote": {same, func(r *v1alpha1.ApprovalRequest) {
			r.Status.Votes = []v1alpha1.Vote{{Decision: v1alpha1.DecisionDenied}}
		}, policy.ReasonApprovalRequired},
		"a denial of another definition": {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase, r.Spec.ToolDigest = v1alpha1.PhaseDenied, "old" }, policy.ReasonApprovalRequired},
		"a denial of another tool":       {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase, r.Spec.Tool = v1alpha1.PhaseDenied, "x" }, policy.ReasonUnattended},
		"a denial at an earlier server":  {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase, r.Spec.ServerRef.UID = v1alpha1.PhaseDenied, "x" }, policy.ReasonUnattended},
		"not now":                        {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Decision = v1alpha1.DecisionDismissed }, policy.ReasonUnattended},
		"an unclear outcome":             {same, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseAmbiguous }, policy.ReasonApprovalRequired},
		"another definition":             {`{"name":"refund_invoice","description":"x"}`, func(*v1alpha1.ApprovalRequest) {}, policy.ReasonApprovalRequired},
		"a definition of another tool":   {`{"name":"x"}`, func(*v1alpha1.ApprovalRequest) {}, policy.ReasonUnattended},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := build(t, tc.definition, request(1, tc.edit)).Policy.Decide(policy.Call{Tool: "refund_invoice", Freshness: policy.Fresh})
			if got.Reason != tc.want {
				t.Errorf("reason %s, want %s", got.Reason, tc.want)
			}
		})
	}
}

func TestPendingCountsWhatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := build(t, `{"name":"refund_invoice"}`,
		request(1, func(*v1alpha1.ApprovalRequest) {}),
		request(2, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhasePending }),
		request(3, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseApproved }),
		request(4, func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.Username = "another" }),
		request(5, func(r *v1alpha1.ApprovalRequest) { r.Spec.ServerRef.UID = "earlier" }),
		request(6, func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.ActsFor = "carol" }),
	)
	for caller, want := range map[Caller]int{
		{"system:serviceaccount:agents:bookkeeper", ""}: 2, {"system:serviceaccount:agents:bookkeeper", "carol"}: 1, {"another", ""}: 1, {"carol", ""}: 0,
	} {
		if got := s.Pending(caller); got != want {
			t.Errorf("%v: %d pending, want %d", caller, got, want)
		}
	}
}

func TestAStoreHoldsNothingAtFirst(t *testing.T) {
	t.Parallel()
	var s Store
	if s.Load() != nil {
		t.Error("a new store holds a snapshot")
	}
	first := build(t, `{"name":"refund_invoice"}`)
	s.Swap(first)
	if s.Load() != first {
		t.Error("the snapshot was not put into force")
	}
	s.Swap(nil)
	if s.Load() != nil {
		t.Error("the snapshot was not taken away")
	}
}
