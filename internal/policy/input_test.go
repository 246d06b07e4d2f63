// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// input has a rule say something of answers in the middle of a call.
func input(says v1alpha1.InputRule) func(*v1alpha1.Rule) {
	return func(r *v1alpha1.Rule) { r.InputResponses = says }
}

func TestAnswersInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	const yes, no = v1alpha1.InputAllow, v1alpha1.InputDeny
	staging := provided("args.env == 'staging'")
	for name, tc := range map[string]struct {
		policies  []v1alpha1.ToolPolicySpec
		arguments string
		want      bool
	}{
		"nobody says anything":                       {nil, `{}`, false},
		"a rule that says nothing of them":           {[]v1alpha1.ToolPolicySpec{ruled(on("*", require))}, `{}`, false},
		"a rule that allows them":                    {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, input(yes)))}, `{}`, true},
		"one that lets the call run, too":            {[]v1alpha1.ToolPolicySpec{ruled(on("*", allow, input(yes)))}, `{}`, true},
		"a rule for another tool":                    {[]v1alpha1.ToolPolicySpec{ruled(on("get_*", require, input(yes)))}, `{}`, false},
		"a rule that comes first and says nothing":   {[]v1alpha1.ToolPolicySpec{ruled(on("update_*", require), on("*", require, input(yes)))}, `{}`, false},
		"another policy says nothing":                {[]v1alpha1.ToolPolicySpec{ruled(on("*", require)), ruled(on("*", require, input(yes)))}, `{}`, true},
		"another policy refuses them":                {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, input(yes))), ruled(on("*", allow, input(no)))}, `{}`, false},
		"another refuses them, and is read before":   {[]v1alpha1.ToolPolicySpec{ruled(on("*", allow, input(no))), ruled(on("*", require, input(yes)))}, `{}`, false},
		"a condition that holds":                     {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, staging, input(yes)))}, `{"env":"staging"}`, true},
		"a condition that does not":                  {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, staging, input(yes)))}, `{"env":"prod"}`, false},
		"a condition that cannot be evaluated":       {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, staging, input(yes)))}, `{}`, false},
		"one that cannot, before one that does":      {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, staging), on("*", require, input(yes)))}, `{}`, false},
		"one that cannot, and says the same":         {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, staging, input(yes)), on("*", require, input(yes)))}, `{}`, true},
		"a refusal that cannot be evaluated":         {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, staging, input(no))), ruled(on("*", require, input(yes)))}, `{}`, false},
		"a call that is denied":                      {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, input(yes))), ruled(on("*", refuse))}, `{}`, false},
		"a word that is none counts as a refusal":    {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, input("allow"))), ruled(on("*", require, input(yes)))}, `{}`, false},
		"a caller that another policy does not name": {[]v1alpha1.ToolPolicySpec{ruled(on("*", require, input(yes))), {Callers: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "eve"}}}}, `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []v1alpha1.ToolPolicy
			for i, spec := range tc.policies {
				all = append(all, policyOf(fmt.Sprint("p", i), spec))
			}
			if got := ask(decided(server(), all, Facts{}), "update_invoice", tc.arguments, ann); got.Input != tc.want {
				t.Errorf("%t, want %t: %+v", got.Input, tc.want, got)
			}
		})
	}
	object := server(func(s *v1alpha1.GovernedServer) { s.Spec.Mode = v1alpha1.ModeObserve })
	got := ask(decided(object, []v1alpha1.ToolPolicy{policyOf("p", ruled(on("*", require, input(yes))))}, Facts{}), "update_invoice", `{}`, ann)
	if got.Observed == nil || !got.Observed.Input {
		t.Errorf("in Observe: %+v", got)
	}
}

func TestADerivationSaysWhatIsSaidOfAnswers(t *testing.T) {
	t.Parallel()
	s := decided(server(), []v1alpha1.ToolPolicy{policyOf("p", ruled(on("*", require, input(v1alpha1.InputAllow))))}, Facts{})
	steps := fmt.Sprint(s.Explain(Call{Tool: "update_invoice", Arguments: expr.NewArguments([]byte(`{}`)), Principal: ann, Freshness: Fresh}))
	if !strings.Contains(steps, "RequireApproval; answers in the middle of the call: Allow") {
		t.Error(steps)
	}
}
