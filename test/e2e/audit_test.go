// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestTheAuditFindsWhatIsLostAndWhatRanTooOften(t *testing.T) {
	t.Parallel()
	request := func(phase v1alpha1.Phase, decision v1alpha1.Decision) v1alpha1.ApprovalRequest {
		r := v1alpha1.ApprovalRequest{}
		r.Name, r.Status.Phase, r.Status.Decision = "billing-1", phase, decision
		return r
	}
	pending := request(v1alpha1.PhasePending, "")
	succeeded := request(v1alpha1.PhaseSucceeded, v1alpha1.DecisionApproved)
	ambiguous := request(v1alpha1.PhaseAmbiguous, v1alpha1.DecisionApproved)
	for name, tc := range map[string]struct {
		ran      int
		requests []v1alpha1.ApprovalRequest
		fault    string
	}{
		"an approval that ran once":                 {1, []v1alpha1.ApprovalRequest{succeeded}, ""},
		"two approvals, each of which ran":          {2, []v1alpha1.ApprovalRequest{succeeded, succeeded}, ""},
		"one that waits":                            {0, []v1alpha1.ApprovalRequest{pending}, ""},
		"one of unclear end that ran":               {1, []v1alpha1.ApprovalRequest{ambiguous}, ""},
		"one of unclear end that did not run":       {0, []v1alpha1.ApprovalRequest{ambiguous}, ""},
		"an approval that ran twice":                {2, []v1alpha1.ApprovalRequest{succeeded}, "ran 2 times, with 1 approvals"},
		"one of unclear end that ran twice":         {2, []v1alpha1.ApprovalRequest{ambiguous}, "ran 2 times"},
		"one that is said to have run, and did not": {0, []v1alpha1.ApprovalRequest{succeeded}, "ran 0 times"},
		"one that nobody approved, and ran":         {1, []v1alpha1.ApprovalRequest{pending}, "with 0 approvals"},
		"an approval that was lost":                 {0, []v1alpha1.ApprovalRequest{request(v1alpha1.PhaseExpired, v1alpha1.DecisionApproved)}, "was not used: it is Expired"},
		"one that was approved and not used":        {0, []v1alpha1.ApprovalRequest{request(v1alpha1.PhaseApproved, v1alpha1.DecisionApproved)}, "was not used"},
		"what nobody was asked about":               {1, nil, "nobody was asked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			executions := make([]execution, tc.ran)
			for i := range executions {
				executions[i].Arguments = map[string]any{"note": "x"}
			}
			requests := map[string][]v1alpha1.ApprovalRequest{}
			if tc.requests != nil {
				requests["x"] = tc.requests
			}
			seen, err := audit(executions, requests)
			if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
				t.Errorf("%s\ngot %v, want %q", seen, err, tc.fault)
			}
		})
	}
}
