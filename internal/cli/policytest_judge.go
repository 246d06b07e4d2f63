// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// principal is the caller as a gateway would know it. A ServiceAccount has the groups that the API server gives one.
func (c testCaller) principal() expr.Principal {
	p := expr.Principal{Username: c.Username, Groups: slices.Clone(c.Groups), ActsFor: c.ActsFor}
	if c.ServiceAccount != "" {
		p.Username = "system:serviceaccount:" + strings.Replace(c.ServiceAccount, "/", ":", 1)
	}
	if p.Username == "" {
		p.Username = "agent"
	}
	if account, ok := strings.CutPrefix(p.Username, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			p.Namespace, p.ServiceAccount = namespace, name
			p.Groups = append(p.Groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
		}
	}
	return p
}

// call is what the verdict is asked about: the gateway's snapshot is fresh.
func (c *testCase) call() policy.Call {
	return policy.Call{Tool: c.Call.Tool, Arguments: expr.NewArguments(c.Call.Args), Principal: c.As.principal(), Freshness: policy.Fresh}
}

// mismatches gathers what of a verdict is not as it was expected.
type mismatches []mismatch

// mismatch is one part of a verdict that is not as expected.
type mismatch struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

func (c *mismatches) text(field string, want *string, got string) {
	if want != nil && *want != got {
		*c = append(*c, mismatch{field, fmt.Sprintf("%q", *want), fmt.Sprintf("%q", got)})
	}
}

func (c *mismatches) list(field string, want *[]string, got []string) {
	if want == nil {
		return
	}
	wanted, found := slices.Sorted(slices.Values(*want)), slices.Sorted(slices.Values(got))
	if !slices.Equal(wanted, found) {
		*c = append(*c, mismatch{field, fmt.Sprintf("%q", wanted), fmt.Sprintf("%q", found)})
	}
}

// compare compares a verdict with what a case expects of it.
func (e *expected) compare(d policy.Decision, rule string) mismatches {
	var c mismatches
	c.text("verdict", e.Verdict, d.Effect.String())
	observed := ""
	if d.Observed != nil {
		observed = d.Observed.Effect.String()
	}
	c.text("observed", e.Observed, observed)
	c.text("reason", e.Reason, string(d.Reason))
	if e.Rule != nil && *e.Rule != rule && !strings.HasSuffix(rule, "/"+*e.Rule) || e.Rule != nil && *e.Rule == "" && rule != "" {
		c = append(c, mismatch{"rule", fmt.Sprintf("%q", *e.Rule), fmt.Sprintf("%q", rule)})
	}
	c.text("tier", e.Tier, string(d.Tier))
	if e.Required != nil && *e.Required != d.RequiredApprovals {
		c = append(c, mismatch{"required", fmt.Sprint(*e.Required), fmt.Sprint(d.RequiredApprovals)})
	}
	c.list("verbs", e.Verbs, d.Verbs)
	c.text("message", e.Message, d.Message)
	c.list("controls", e.Controls, d.Controls)
	if e.Uncertain != nil && *e.Uncertain != (d.Uncertain != "") {
		c = append(c, mismatch{"uncertain", fmt.Sprint(*e.Uncertain), fmt.Sprintf("%v %s", d.Uncertain != "", d.Uncertain)})
	}
	return c
}

// comparePreview compares the call that would be made to show what this one affects.
func (e *expected) comparePreview(s *policy.Server, call policy.Call) mismatches {
	if e.Preview == nil {
		return nil
	}
	var c mismatches
	preview, found, err := s.Preview(call)
	if err != nil {
		return mismatches{{"preview", "a call", err.Error()}}
	}
	if !found {
		return mismatches{{"preview", "a call", "none"}}
	}
	c.text("preview.tool", e.Preview.Tool, preview.Tool)
	if e.Preview.Args != nil {
		if want, got := canonical(e.Preview.Args), canonical(preview.Arguments); want != got {
			c = append(c, mismatch{"preview.args", want, got})
		}
	}
	return c
}

// canonical writes JSON so that what means the same is the same text.
func canonical(raw []byte) string {
	value, err := strictjson.Scan(raw)
	if err != nil {
		return string(raw)
	}
	return string(value.AppendCanonical(nil))
}

// rulesOf lists the rules of the policies of a file with tests.
func rulesOf(s *suite) []coveredRule {
	var all []coveredRule
	for _, p := range s.policies {
		for _, r := range p.Policy.Spec.Rules {
			all = append(all, coveredRule{File: p.file, Policy: nameOf(p.Policy), Rule: r.Name})
		}
	}
	return all
}

// decidingRule is the rule that decided a call, as POLICY/RULE, and "" where none did.
func decidingRule(d policy.Decision, rules []coveredRule) string {
	if d.Observed != nil {
		d = *d.Observed
	}
	for _, r := range rules {
		if d.GatedBy == "ToolPolicy/"+r.Policy+" rule "+r.Rule {
			return r.name()
		}
	}
	return ""
}

// runSuites runs all tests.
func runSuites(suites []*suite) *testReport {
	report := &testReport{APIVersion: viewVersion, Kind: "PolicyTestReport", Tests: []testResult{}}
	for _, s := range suites {
		rules := rulesOf(s)
		report.Coverage.add(rules)
		for i := range s.Cases {
			c := &s.Cases[i]
			world := s.worlds[c.Server]
			d := world.Decide(c.call())
			rule := decidingRule(d, rules)
			report.Coverage.count(rules, rule)
			result := testResult{File: s.path, Name: c.Name, Tool: c.Call.Tool, Verdict: d.Effect.String(), By: rule}
			if result.By == "" {
				result.By = strings.TrimSpace(string(d.Reason) + " " + d.GatedBy)
			}
			result.Mismatches = append(c.Expect.compare(d, rule), c.Expect.comparePreview(world, c.call())...)
			if result.Passed = len(result.Mismatches) == 0; result.Passed {
				report.Passed++
			} else {
				report.Failed++
				result.Steps = world.Explain(c.call())
			}
			report.Tests = append(report.Tests, result)
		}
	}
	report.Coverage.sum()
	return report
}
