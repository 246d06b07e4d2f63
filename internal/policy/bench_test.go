// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// manyRules returns policies with so many rules over all tools, none of which matches a call of ann.
func manyRules(count int, when string) []v1alpha1.ToolPolicy {
	var all []v1alpha1.ToolPolicy
	for i := range count {
		if i%100 == 0 {
			all = append(all, policyOf(fmt.Sprint("p", i/100), v1alpha1.ToolPolicySpec{}))
		}
		r := on("*_invoice", refuse, func(r *v1alpha1.Rule) { r.Name, r.When = fmt.Sprint("r", i), when })
		if when == "" {
			r.Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "mallory"}}
		}
		last := &all[len(all)-1].Spec
		last.Rules = append(last.Rules, r)
	}
	return all
}

func BenchmarkDecide(b *testing.B) {
	for _, count := range []int{0, 10, 50, 500} {
		for name, when := range map[string]string{"": "", "/when": "args.amount > 1000"} {
			if count == 0 && when != "" {
				continue
			}
			b.Run(fmt.Sprintf("rules=%d%s", count, name), func(b *testing.B) {
				s := compile(server(), manyRules(count, when), endpoint, Facts{})
				call := Call{Tool: "get_invoice", Arguments: expr.NewArguments(nil), Principal: ann, Freshness: Fresh}
				b.ReportAllocs()
				for b.Loop() {
					if when != "" { // arguments are read once a call
						call.Arguments = expr.NewArguments([]byte(`{"amount":10}`))
					}
					if s.Decide(call).Effect != Allow {
						b.Fatal("not allowed")
					}
				}
			})
		}
	}
}

// BenchmarkCompile joins a large server with many policies, as after every change of one.
func BenchmarkCompile(b *testing.B) {
	s := server(func(s *v1alpha1.GovernedServer) {
		for i := range 997 {
			s.Status.Tools = append(s.Status.Tools, v1alpha1.ToolStatus{Name: fmt.Sprintf("get_thing_%d", i), ClassifiedTier: v1alpha1.TierRead, Digest: digestA})
		}
	})
	in := Inputs{Server: s, EndpointDigest: endpoint, OperatorNamespace: home}
	for i := range 500 {
		p := policyOf(fmt.Sprint("p", i), v1alpha1.ToolPolicySpec{Rules: []v1alpha1.Rule{on(fmt.Sprintf("get_thing_%d update_*_%d", i, i), require)}})
		in.Policies = append(in.Policies, Parse(&p))
	}
	b.ReportAllocs()
	for b.Loop() {
		Compile(in)
	}
}

func TestWithoutAnExpressionADecisionAllocatesNothing(t *testing.T) {
	arguments := expr.NewArguments([]byte(`{"amount":10}`))
	rules := append(manyRules(500, ""), policyOf("verb", ruled(on("update_*", require, needs(2, "approve-a")))),
		policyOf("callers", v1alpha1.ToolPolicySpec{Callers: []v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "ops"}}}))
	for name, policies := range map[string][]v1alpha1.ToolPolicy{
		"no rules": nil, "a promotion": {policyOf("p", promote("update_invoice", digestA))}, "many rules": rules,
		"rules with when for other tools": {policyOf("p", ruled(on("wipe_*", refuse, provided("args.amount > 1"))))},
	} {
		s := compile(server(), policies, endpoint, Facts{})
		for _, tool := range []string{"get_invoice", "update_invoice", "unheard_of"} {
			call := Call{Tool: tool, Arguments: arguments, Principal: ann, Freshness: Fresh}
			if n := testing.AllocsPerRun(100, func() { s.Decide(call) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, tool, n)
			}
		}
	}
}
