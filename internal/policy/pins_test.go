// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

func pins(all ...v1alpha1.Pin) v1alpha1.ToolPolicySpec { return v1alpha1.ToolPolicySpec{Pins: all} }

func pin(tool, digest string) v1alpha1.Pin { return v1alpha1.Pin{Tool: tool, Digest: digest} }

func was(tool, digest string, tier v1alpha1.Tier) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) {
		s.Status.Accepted = append(s.Status.Accepted, v1alpha1.AcceptedTool{Tool: tool, Digest: digest, Tier: tier})
	}
}

func TestDefinitionsThatNobodyAccepted(t *testing.T) {
	t.Parallel()
	enforce := func(s *v1alpha1.GovernedServer) { s.Spec.Pinning = v1alpha1.PinningEnforce }
	off := func(s *v1alpha1.GovernedServer) { s.Spec.Pinning = v1alpha1.PinningOff }
	odd := func(s *v1alpha1.GovernedServer) { s.Spec.Pinning = "Warn" }
	instructions := func(now, accepted string) func(*v1alpha1.GovernedServer) {
		return func(s *v1alpha1.GovernedServer) {
			s.Status.Server = &v1alpha1.ServerInfo{InstructionsDigest: now, AcceptedInstructionsDigest: accepted}
		}
	}
	lower := tier(v1alpha1.TierOverride{Tool: "update_invoice", Digest: digestA, Tier: v1alpha1.TierRead})
	tests := map[string]struct {
		edits    []func(*v1alpha1.GovernedServer)
		policies []v1alpha1.ToolPolicySpec
		facts    Facts
		tool     string
		want     string // effect, reason, tier, source
		drift    []Drift
	}{
		"first contact is trusted":               {edits: []func(*v1alpha1.GovernedServer){enforce}, tool: "get_invoice", want: "Allow ReadTool Read "},
		"Report: the tier only rises":            {edits: []func(*v1alpha1.GovernedServer){was("get_invoice", digestB, v1alpha1.TierIrreversible)}, tool: "get_invoice", want: "RequireApproval ApprovalRequired Irreversible Ratchet", drift: []Drift{{"get_invoice", digestA, digestB, "status.accepted"}}},
		"Report: a tier that rose stays":         {edits: []func(*v1alpha1.GovernedServer){was("update_invoice", digestB, v1alpha1.TierRead)}, tool: "update_invoice", want: "RequireApproval ApprovalRequired Reversible ", drift: []Drift{{"update_invoice", digestA, digestB, "status.accepted"}}},
		"a ratchet without a tier is strict":     {edits: []func(*v1alpha1.GovernedServer){was("get_invoice", digestB, "")}, tool: "get_invoice", want: "RequireApproval ApprovalRequired Irreversible Ratchet", drift: []Drift{{"get_invoice", digestA, digestB, "status.accepted"}}},
		"Report takes autonomy":                  {edits: []func(*v1alpha1.GovernedServer){was("update_invoice", digestB, v1alpha1.TierRead)}, policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA)}, tool: "update_invoice", want: "RequireApproval ApprovalRequired Reversible ", drift: []Drift{{"update_invoice", digestA, digestB, "status.accepted"}}},
		"Report: nothing lowers it":              {edits: []func(*v1alpha1.GovernedServer){was("update_invoice", digestB, v1alpha1.TierRead)}, policies: []v1alpha1.ToolPolicySpec{lower}, tool: "update_invoice", want: "RequireApproval ApprovalRequired Reversible ", drift: []Drift{{"update_invoice", digestA, digestB, "status.accepted"}}},
		"a pin lets it be lowered":               {edits: []func(*v1alpha1.GovernedServer){was("update_invoice", digestB, v1alpha1.TierRead)}, policies: []v1alpha1.ToolPolicySpec{lower, pins(pin("update_invoice", digestA))}, tool: "update_invoice", want: "Allow ReadTool Read Override"},
		"a pin ends the ratchet":                 {edits: []func(*v1alpha1.GovernedServer){was("get_invoice", digestB, v1alpha1.TierIrreversible)}, policies: []v1alpha1.ToolPolicySpec{pins(pin("get_invoice", digestB), pin("get_invoice", digestA))}, tool: "get_invoice", want: "Allow ReadTool Read "},
		"the old definition is back":             {edits: []func(*v1alpha1.GovernedServer){enforce, was("get_invoice", digestA, v1alpha1.TierIrreversible)}, tool: "get_invoice", want: "Allow ReadTool Read "},
		"Enforce refuses":                        {edits: []func(*v1alpha1.GovernedServer){enforce, was("get_invoice", digestB, v1alpha1.TierRead)}, tool: "get_invoice", want: "Deny DefinitionNotAccepted Read ", drift: []Drift{{"get_invoice", digestA, digestB, "status.accepted"}}},
		"a word that is none is Enforce":         {edits: []func(*v1alpha1.GovernedServer){odd, was("get_invoice", digestB, v1alpha1.TierRead)}, tool: "get_invoice", want: "Deny DefinitionNotAccepted Read ", drift: []Drift{{"get_invoice", digestA, digestB, "status.accepted"}}},
		"Enforce refuses a new tool":             {edits: []func(*v1alpha1.GovernedServer){enforce, was("get_invoice", "", v1alpha1.TierRead)}, tool: "get_invoice", want: "Deny DefinitionNotAccepted Read ", drift: []Drift{{"get_invoice", digestA, "", "status.accepted"}}},
		"Enforce lets other tools be":            {edits: []func(*v1alpha1.GovernedServer){enforce, was("wipe_ledger", digestB, v1alpha1.TierRead)}, tool: "get_invoice", want: "Allow ReadTool Read ", drift: []Drift{{"wipe_ledger", digestA, digestB, "status.accepted"}}},
		"Off looks at none of that":              {edits: []func(*v1alpha1.GovernedServer){off, was("get_invoice", digestB, v1alpha1.TierIrreversible), instructions(digestA, digestB)}, policies: []v1alpha1.ToolPolicySpec{pins(pin("get_invoice", digestB))}, tool: "get_invoice", want: "Allow ReadTool Read "},
		"each policy that pins names it":         {edits: []func(*v1alpha1.GovernedServer){enforce}, policies: []v1alpha1.ToolPolicySpec{pins(pin("get_invoice", digestA)), pins(pin("get_invoice", digestA), pin("get_invoice", digestB))}, tool: "get_invoice", want: "Allow ReadTool Read "},
		"one that pins does not":                 {edits: []func(*v1alpha1.GovernedServer){enforce}, policies: []v1alpha1.ToolPolicySpec{pins(pin("get_invoice", digestA)), pins(pin("get_invoice", digestB))}, tool: "get_invoice", want: "Deny DefinitionNotAccepted Read ", drift: []Drift{{"get_invoice", digestA, digestB, "ToolPolicy/p1 spec.pins"}}},
		"a pin does not wait for a change":       {policies: []v1alpha1.ToolPolicySpec{promote("update_invoice", digestA), pins(pin("update_invoice", digestB))}, tool: "update_invoice", want: "RequireApproval ApprovalRequired Reversible ", drift: []Drift{{"update_invoice", digestA, digestB, "ToolPolicy/p1 spec.pins"}}},
		"what the gateway saw is not accepted":   {edits: []func(*v1alpha1.GovernedServer){enforce}, facts: Facts{Drifted: map[string]bool{"get_invoice": true}}, tool: "get_invoice", want: "Deny DefinitionNotAccepted Irreversible Ratchet", drift: []Drift{{"get_invoice", digestA, digestA, "status.tools"}}},
		"Enforce: other instructions refuse all": {edits: []func(*v1alpha1.GovernedServer){enforce, instructions(digestA, digestB)}, tool: "get_invoice", want: "Deny InstructionsNotAccepted Read ", drift: []Drift{{"", digestA, digestB, "status.server"}}},
		"Report: other instructions":             {edits: []func(*v1alpha1.GovernedServer){instructions(digestA, digestB)}, tool: "get_invoice", want: "Allow ReadTool Read ", drift: []Drift{{"", digestA, digestB, "status.server"}}},
		"instructions that are pinned":           {edits: []func(*v1alpha1.GovernedServer){enforce, instructions(digestA, digestB)}, policies: []v1alpha1.ToolPolicySpec{pins(pin("", digestA))}, tool: "get_invoice", want: "Allow ReadTool Read "},
		"other instructions are pinned":          {edits: []func(*v1alpha1.GovernedServer){enforce, instructions(digestA, "")}, policies: []v1alpha1.ToolPolicySpec{pins(pin("", digestB))}, tool: "get_invoice", want: "Deny InstructionsNotAccepted Read ", drift: []Drift{{"", digestA, digestB, "ToolPolicy/p0 spec.pins"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var policies []v1alpha1.ToolPolicy
			for i, spec := range tc.policies {
				policies = append(policies, policyOf(fmt.Sprint("p", i), spec))
			}
			s := compile(server(tc.edits...), policies, endpoint, tc.facts)
			d := ask(s, tc.tool, "", ann)
			standing, _ := s.Standing(tc.tool)
			if got := fmt.Sprintf("%v %s %s %s", d.Effect, d.Reason, d.Tier, standing.Source); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if diff := cmp.Diff(tc.drift, s.Drift()); diff != "" {
				t.Errorf("drift (-want +got):\n%s", diff)
			}
			for _, drift := range tc.drift {
				if standing, listed := s.Standing(drift.Tool); listed && (standing.Accepted || standing.AcceptedDigest != drift.Accepted || standing.Autonomy == v1alpha1.AutonomyEligible) {
					t.Errorf("%s stands as accepted: %+v", drift.Tool, standing)
				}
			}
		})
	}
}

func TestWhatOfRulesPinsAndPreviewsIsNotInForce(t *testing.T) {
	t.Parallel()
	call := func(tool string) v1alpha1.PreviewCall { return v1alpha1.PreviewCall{Tool: tool} }
	spec := v1alpha1.ToolPolicySpec{
		Rules: []v1alpha1.Rule{on("get_*", refuse), on("send_*", refuse), on("*", refuse, provided("args.n >")), on("get_[", refuse)},
		Pins:  []v1alpha1.Pin{pin("get_invoice", digestA), pin("get_invoice", digestB), pin("no_such", digestA), pin("", digestA)},
		Preview: []v1alpha1.PreviewRule{
			{Tools: []string{"wipe_*"}, Call: call("get_invoice")}, {Tools: []string{"send_*"}, Call: call("get_invoice")}, {Tools: []string{"wipe_*"}, Call: call("no_such")},
			{Tools: []string{"wipe_*"}, Call: call("update_invoice")}, {Tools: []string{"wipe_*"}, Call: v1alpha1.PreviewCall{Tool: "get_invoice", Args: "{"}},
		},
		Tiers:    []v1alpha1.TierOverride{{Tools: []string{"["}, Tier: v1alpha1.TierRead}},
		Autonomy: []v1alpha1.AutonomyRule{{Tool: "update_invoice", Digest: digestA, Mode: v1alpha1.ModeUnattended, When: "args.n >"}},
	}
	want := []string{
		"spec.rules[1] ToolUnknown", "spec.rules[2] Invalid", "spec.rules[3] Invalid",
		"spec.pins[1] DigestDiffers", "spec.pins[2] ToolUnknown", "spec.pins[3] DigestDiffers",
		"spec.preview[1] ToolUnknown", "spec.preview[2] ToolUnknown", "spec.preview[3] NotRead", "spec.preview[4] Invalid",
		"spec.tiers[0] Invalid", "spec.autonomy[0] Invalid",
	}
	for server, p := range map[string]v1alpha1.ToolPolicy{"billing": policyOf("p", spec), "shop/billing": baseline("p", "", spec)} {
		s := compile(unpinned(), []v1alpha1.ToolPolicy{p}, endpoint, Facts{})
		for _, asked := range []*v1alpha1.ToolPolicy{&p, p.DeepCopy()} {
			var got []string
			for _, line := range s.NotInForce(asked) {
				got = append(got, line.Field+" "+line.Reason)
				if line.Server != server || line.Message == "" {
					t.Errorf("a line of %s: %+v", server, line)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		}
	}
}

// unpinned is the server, where pins do not matter.
func unpinned() *v1alpha1.GovernedServer {
	return server(func(s *v1alpha1.GovernedServer) { s.Spec.Pinning = v1alpha1.PinningOff })
}

func TestPreview(t *testing.T) {
	t.Parallel()
	rule := func(tools, tool, args string) v1alpha1.PreviewRule {
		return v1alpha1.PreviewRule{Tools: []string{tools}, Call: v1alpha1.PreviewCall{Tool: tool, Args: args}, Recheck: true}
	}
	previews := func(all ...v1alpha1.PreviewRule) v1alpha1.ToolPolicySpec {
		return v1alpha1.ToolPolicySpec{Preview: all}
	}
	const found = `get_invoice {} ToolPolicy/p spec.preview[0]`
	for name, tc := range map[string]struct {
		mode     v1alpha1.Mode
		policies []v1alpha1.ToolPolicy
		tool     string
		want     string // tool, arguments, by; "" for none
		failure  string
	}{
		"no policy asks for one":               {},
		"the entry names another tool":         {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("get_*", "get_invoice", "")))}},
		"without arguments":                    {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("wipe_*", "get_invoice", "")))}, want: found},
		"with arguments of the call":           {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("wipe_*", "get_invoice", "{'filter': args.filter}")))}, want: `get_invoice {"filter":"a"} ToolPolicy/p spec.preview[0]`},
		"the first entry that names the tool":  {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("wipe_*", "get_invoice", ""), rule("*", "get_invoice", "{'n': 1}")))}, want: found},
		"the first policy by name":             {policies: []v1alpha1.ToolPolicy{policyOf("q", previews(rule("*", "get_invoice", "{'n': 1}"))), policyOf("p", previews(rule("wipe_*", "get_invoice", "")))}, want: found},
		"a baseline before it":                 {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("*", "get_invoice", "{'n': 1}"))), baseline("z", "", previews(rule("wipe_*", "get_invoice", "")))}, want: `get_invoice {} ToolPolicy/tidewaiter-system/z spec.preview[0]`},
		"arguments that do not compile":        {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("*", "get_invoice", "{")))}, want: "get_invoice  ToolPolicy/p spec.preview[0]", failure: "args does not compile"},
		"arguments that cannot be evaluated":   {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("*", "get_invoice", "{'n': args.absent}")))}, want: "get_invoice  ToolPolicy/p spec.preview[0]", failure: "args cannot be evaluated"},
		"a tool that is not Read":              {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("*", "update_invoice", "")))}, want: "update_invoice  ToolPolicy/p spec.preview[0]", failure: "update_invoice is Reversible"},
		"a tool that is not there":             {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("*", "no_such", "")))}, want: "no_such  ToolPolicy/p spec.preview[0]", failure: "lists no tool"},
		"a tool that the caller may not call":  {policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("wipe_*", "get_invoice", ""))), policyOf("q", ruled(on("get_*", refuse)))}, want: "get_invoice  ToolPolicy/p spec.preview[0]", failure: "RuleDenied"},
		"nor in Observe":                       {mode: v1alpha1.ModeObserve, policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("wipe_*", "get_invoice", ""))), policyOf("q", ruled(on("get_*", refuse)))}, want: "get_invoice  ToolPolicy/p spec.preview[0]", failure: "RuleDenied"},
		"a call that nobody knows, no preview": {tool: "unheard_of", policies: []v1alpha1.ToolPolicy{policyOf("p", previews(rule("*", "get_invoice", "")))}},
	} {
		call := Call{Tool: "wipe_ledger", Arguments: expr.NewArguments([]byte(`{"filter":"a"}`)), Principal: ann, Freshness: Fresh}
		if tc.tool != "" {
			call.Tool = tc.tool
		}
		p, isThere, err := compile(server(inMode(tc.mode)), tc.policies, endpoint, Facts{}).Preview(call)
		got := ""
		if isThere {
			got = fmt.Sprintf("%s %s %s", p.Tool, p.Arguments, p.By)
		}
		if got != tc.want || isThere != p.Recheck {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
			t.Errorf("%s: %v, want %q", name, err, tc.failure)
		}
	}
}
