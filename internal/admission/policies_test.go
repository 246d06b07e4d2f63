// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
)

// nothing is a cluster in which a policy meets nothing.
func nothing(_ context.Context, p *policy.Policy) (*survey.Survey, error) {
	return &survey.Survey{Findings: p.Check(nil)}, nil
}

// writing is the write of a policy with some rules.
func writing(t testing.TB, rules ...v1alpha1.Rule) admission.Request {
	t.Helper()
	p := fixture.With(fixture.ToolPolicy("shop", "p", "billing"), func(p *v1alpha1.ToolPolicy) { p.Spec.Rules = rules })
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "shop", Object: runtime.RawExtension{Raw: raw}}}
}

// padded fills a write up with white space.
func padded(req admission.Request, size int) admission.Request {
	req.Object.Raw = append(req.Object.Raw, bytes.Repeat([]byte(" "), size-len(req.Object.Raw))...)
	return req
}

func denying(name, when string) v1alpha1.Rule {
	return v1alpha1.Rule{Name: name, Tools: []string{"*"}, When: when, Decision: v1alpha1.EffectDeny}
}

func TestAPolicyIsNeverRefusedAndItsMistakesAreTold(t *testing.T) {
	t.Parallel()
	var many []v1alpha1.Rule
	for i := range 20 {
		many = append(many, denying(fmt.Sprintf("r%d", i), fmt.Sprintf("args.a%d >", i)))
	}
	failing := func(context.Context, *policy.Policy) (*survey.Survey, error) { return nil, errors.New("down") }
	misplaced := func(context.Context, *policy.Policy) (*survey.Survey, error) {
		return &survey.Survey{Misplaced: true}, nil
	}
	for name, tc := range map[string]struct {
		survey func(context.Context, *policy.Policy) (*survey.Survey, error)
		req    admission.Request
		count  int
		has    string
	}{
		"a right one":                     {nothing, writing(t, denying("r", "args.amount > 5")), 0, ""},
		"an expression with a mistake":    {nothing, writing(t, denying("r", "args.amount >")), 1, "spec.rules[0].when 1:"},
		"a rule that is never reached":    {nothing, writing(t, denying("r", ""), denying("late", "args.n > 1")), 1, "spec.rules[1]: rule r comes first"},
		"a cluster that cannot be read":   {failing, writing(t, denying("r", ""), denying("late", "")), 1, "never reached"},
		"a baseline in another namespace": {misplaced, writing(t), 1, "operator's namespace only"},
		"more mistakes than are told":     {nothing, writing(t, many...), maxWarnings, "and 11 more"},
		"an object that is none":          {nothing, admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte("[")}}}, 0, ""},
		"an object that is too large":     {nothing, padded(writing(t, denying("r", "args.amount >")), maxPolicy+1), 0, ""},
		"an object that is just not":      {nothing, padded(writing(t, denying("r", "args.amount >")), maxPolicy), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := (&Policies{Survey: tc.survey}).hint(t.Context(), tc.req)
			if !answer.Allowed || len(answer.Warnings) != tc.count || !strings.Contains(strings.Join(answer.Warnings, "\n"), tc.has) {
				t.Errorf("allowed is %t with %q, want %d warnings with %q", answer.Allowed, answer.Warnings, tc.count, tc.has)
			}
		})
	}
}

func TestAWarningIsOneShortLineWithoutHiddenLetters(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 300)
	got := warnings([]policy.Problem{{Field: "spec.rules[0].when", Message: "1:1: \u202e\n" + long}}, &survey.Survey{})
	if len(got) != 1 || len(got[0]) > maxWarning || strings.ContainsAny(got[0], "\n\u202e") {
		t.Errorf("got %q", got)
	}
	mixed := &survey.Survey{Findings: []policy.Finding{
		{Field: "a", Severity: policy.SeverityWarning, Message: "w"}, {Field: "b", Severity: policy.SeverityError, Message: "e"},
	}}
	if diff := cmp.Diff([]string{"b: e", "a: w"}, warnings(nil, mixed)); diff != "" {
		t.Errorf("mistakes come first (-want +got):\n%s", diff)
	}
}
