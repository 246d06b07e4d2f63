// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// FuzzParse reads policies that no API server has looked at: each has an answer for every call.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		`{"targets":["billing"],"rules":[{"name":"r","tools":["get_[","*"],"when":"args.n > 1","decision":"Deny"}]}`,
		`{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]},"mode":"Odd","callers":[{"kind":"Group"}]}`,
		`{"targets":["billing"],"pins":[{"digest":"x"}],"preview":[{"tools":["?"],"call":{"args":"{'a':args}"}}],"autonomy":[{"when":"'"}],"tiers":[{}]}`,
	} {
		f.Add([]byte(spec), `{"n":1}`, "ToolPolicy")
	}
	f.Fuzz(func(t *testing.T, spec []byte, arguments, name string) {
		p := policyOf(name, v1alpha1.ToolPolicySpec{})
		if json.Unmarshal(spec, &p.Spec) != nil {
			return
		}
		if p.Spec.NamespaceSelector != nil {
			p.Namespace = home
		}
		s := compile(server(), []v1alpha1.ToolPolicy{p}, endpoint, Facts{})
		for _, tool := range []string{"get_invoice", "update_invoice", "wipe_ledger"} {
			call := Call{Tool: tool, Arguments: expr.NewArguments([]byte(arguments)), Principal: ann, Freshness: Fresh}
			d, steps := s.Decide(call), s.Explain(call)
			if strictest, loosest := s.Range(tool, ann); d.Effect < strictest || d.Effect > loosest {
				t.Errorf("%v is not between %v and %v", d.Effect, strictest, loosest)
			}
			if last := steps[len(steps)-1]; last.Says != d.Effect.String()+": "+string(d.Reason) {
				t.Errorf("the derivation ends with %v, the verdict is %v", last, d.Effect)
			}
			if d.Effect == Allow && d.Tier == v1alpha1.TierIrreversible {
				t.Errorf("an Irreversible tool was allowed by %s", d.GatedBy)
			}
		}
		s.NotInForce(&p)
	})
}
