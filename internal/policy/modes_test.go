// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func baseline(name string, mode v1alpha1.BaselineMode, spec v1alpha1.ToolPolicySpec) v1alpha1.ToolPolicy {
	return asBaseline(policyOf(name, spec), mode, metav1.LabelSelector{})
}

func inMode(mode v1alpha1.Mode) func(*v1alpha1.GovernedServer) {
	return func(s *v1alpha1.GovernedServer) { s.Spec.Mode = mode }
}

func TestModes(t *testing.T) {
	t.Parallel()
	callers := v1alpha1.ToolPolicySpec{Callers: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "bob"}}}
	raise := tier(v1alpha1.TierOverride{Tools: []string{"get_*"}, Tier: v1alpha1.TierIrreversible})
	tests := map[string]struct {
		mode     v1alpha1.Mode
		policies []v1alpha1.ToolPolicy
		tool     string
		stale    bool
		want     string // effect, reason, what decided, and what was observed
	}{
		"Stopped refuses reads":                            {mode: v1alpha1.ModeStopped, tool: "get_invoice", want: "Deny ServerStopped spec.mode of the server"},
		"ReadOnly lets reads run":                          {mode: v1alpha1.ModeReadOnly, tool: "get_invoice", want: "Allow ReadTool tier"},
		"ReadOnly refuses effects":                         {mode: v1alpha1.ModeReadOnly, tool: "update_invoice", want: "Deny ServerReadOnly spec.mode of the server"},
		"ReadOnly looks at the effective tier":             {mode: v1alpha1.ModeReadOnly, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{policyOf("p", raise)}, want: "Deny ServerReadOnly spec.mode of the server"},
		"a mode that is none stops":                        {mode: "Audit", tool: "get_invoice", want: "Deny ServerStopped spec.mode of the server"},
		"a baseline stops":                                 {tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", v1alpha1.BaselineStopped, v1alpha1.ToolPolicySpec{})}, want: "Deny ServerStopped ToolPolicy/tidewaiter-system/b spec.mode"},
		"a baseline stops a server that observes":          {mode: v1alpha1.ModeObserve, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", v1alpha1.BaselineStopped, v1alpha1.ToolPolicySpec{})}, want: "Deny ServerStopped ToolPolicy/tidewaiter-system/b spec.mode"},
		"a read-only baseline":                             {mode: v1alpha1.ModeObserve, tool: "update_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", v1alpha1.BaselineReadOnly, v1alpha1.ToolPolicySpec{})}, want: "Deny ServerReadOnly ToolPolicy/tidewaiter-system/b spec.mode"},
		"the strictest baseline":                           {tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("a", v1alpha1.BaselineReadOnly, v1alpha1.ToolPolicySpec{}), baseline("b", v1alpha1.BaselineStopped, v1alpha1.ToolPolicySpec{})}, want: "Deny ServerStopped ToolPolicy/tidewaiter-system/b spec.mode"},
		"a team cannot make a tool Read for a baseline":    {tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{baseline("b", v1alpha1.BaselineReadOnly, v1alpha1.ToolPolicySpec{}), policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}))}, want: "Deny ServerReadOnly ToolPolicy/tidewaiter-system/b spec.mode"},
		"nor where both are read-only":                     {mode: v1alpha1.ModeReadOnly, tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{baseline("b", v1alpha1.BaselineReadOnly, v1alpha1.ToolPolicySpec{}), policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}))}, want: "Deny ServerReadOnly ToolPolicy/tidewaiter-system/b spec.mode"},
		"for its own mode it can":                          {mode: v1alpha1.ModeReadOnly, tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}))}, want: "Allow ReadTool ToolPolicy/p spec.tiers[0]"},
		"Observe lets pass what would wait":                {mode: v1alpha1.ModeObserve, tool: "update_invoice", want: "Allow Observed spec.mode of the server (RequireApproval ApprovalRequired)"},
		"Observe lets pass what a team would refuse":       {mode: v1alpha1.ModeObserve, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{policyOf("p", ruled(on("*", refuse)))}, want: "Allow Observed spec.mode of the server (Deny RuleDenied)"},
		"Observe lets pass what is not known":              {mode: v1alpha1.ModeObserve, tool: "unheard_of", want: "Allow Observed spec.mode of the server (Deny ToolUnknown)"},
		"Observe remembers what would run":                 {mode: v1alpha1.ModeObserve, tool: "get_invoice", want: "Allow Observed spec.mode of the server (Allow ReadTool)"},
		"Observe needs a fresh snapshot for effects":       {mode: v1alpha1.ModeObserve, tool: "update_invoice", stale: true, want: "Deny PolicyStale spec.mode of the server"},
		"Observe does not loosen a baseline's Deny":        {mode: v1alpha1.ModeObserve, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("get_*", refuse)))}, want: "Deny RuleDenied ToolPolicy/tidewaiter-system/b rule r0"},
		"nor for a tool that is not known":                 {mode: v1alpha1.ModeObserve, tool: "unheard_of", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("unheard*", refuse)))}, want: "Deny RuleDenied ToolPolicy/tidewaiter-system/b rule r0"},
		"nobody is asked about a tool that is not known":   {mode: v1alpha1.ModeObserve, tool: "unheard_of", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("unheard*", require)))}, want: "Deny ToolUnknown "},
		"Observe does not loosen a baseline's approval":    {mode: v1alpha1.ModeObserve, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("get_*", require))), policyOf("p", ruled(on("*", refuse)))}, want: "RequireApproval ApprovalRequired ToolPolicy/tidewaiter-system/b rule r0"},
		"Observe does not loosen a baseline's callers":     {mode: v1alpha1.ModeObserve, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", "", callers)}, want: "Deny CallerNotAllowed ToolPolicy/tidewaiter-system/b spec.callers"},
		"Observe does not loosen the tier of a baseline":   {mode: v1alpha1.ModeObserve, tool: "get_invoice", policies: []v1alpha1.ToolPolicy{baseline("b", "", raise)}, want: "RequireApproval ApprovalRequired ToolPolicy/tidewaiter-system/b spec.tiers[0]"},
		"also for the definition that it was not made for": {mode: v1alpha1.ModeObserve, tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{baseline("b", "", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestB, Tier: v1alpha1.TierReversible}))}, want: "RequireApproval ApprovalRequired tier"},
		"a baseline's Allow binds nobody":                  {mode: v1alpha1.ModeObserve, tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("*", allow)))}, want: "Allow Observed spec.mode of the server (RequireApproval ApprovalRequired)"},
		"a team cannot hide a tier from a baseline's rule": {tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("*", refuse, provided("tool.tier == 'Irreversible'")))), policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}))}, want: "Deny RuleDenied ToolPolicy/tidewaiter-system/b rule r0"},
		"what a baseline would allow in another tier":      {tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{baseline("b", "", ruled(on("*", allow, provided("tool.tier == 'Irreversible'")))), policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}))}, want: "Allow ReadTool ToolPolicy/p spec.tiers[0]"},
		"it can from its own":                              {tool: "wipe_ledger", policies: []v1alpha1.ToolPolicy{policyOf("b", ruled(on("*", refuse, provided("tool.tier == 'Irreversible'")))), policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead}))}, want: "Allow ReadTool ToolPolicy/p spec.tiers[0]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := Call{Tool: tc.tool, Principal: ann, Freshness: Fresh}
			if tc.stale {
				call.Freshness = Unproven
			}
			d := compile(server(inMode(tc.mode)), tc.policies, endpoint, Facts{}).Decide(call)
			got := fmt.Sprintf("%v %s %s", d.Effect, d.Reason, d.GatedBy)
			if d.Observed != nil {
				got += fmt.Sprintf(" (%v %s)", d.Observed.Effect, d.Observed.Reason)
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestOtherMethods(t *testing.T) {
	t.Parallel()
	callers := v1alpha1.ToolPolicySpec{Callers: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "bob"}}}
	denied := func(s *v1alpha1.GovernedServer) { s.Spec.OtherMethods = v1alpha1.OtherMethodsDeny }
	for name, tc := range map[string]struct {
		edits     []func(*v1alpha1.GovernedServer)
		policies  []v1alpha1.ToolPolicy
		freshness Freshness
		want      string
	}{
		"pass":                             {freshness: Fresh, want: "Allow MethodPassed"},
		"pass on an unproven snapshot":     {freshness: Unproven, want: "Allow MethodPassed"},
		"not on a stale one":               {freshness: Stale, want: "Deny PolicyStale"},
		"not on one of an unknown age":     {freshness: 9, want: "Deny PolicyStale"},
		"are refused":                      {edits: []func(*v1alpha1.GovernedServer){denied}, freshness: Fresh, want: "Deny MethodDenied"},
		"a word that is none refuses":      {edits: []func(*v1alpha1.GovernedServer){func(s *v1alpha1.GovernedServer) { s.Spec.OtherMethods = "Maybe" }}, freshness: Fresh, want: "Deny MethodDenied"},
		"Stopped":                          {edits: []func(*v1alpha1.GovernedServer){inMode(v1alpha1.ModeStopped)}, freshness: Fresh, want: "Deny ServerStopped"},
		"ReadOnly lets them pass":          {edits: []func(*v1alpha1.GovernedServer){inMode(v1alpha1.ModeReadOnly)}, freshness: Fresh, want: "Allow MethodPassed"},
		"a baseline stops":                 {edits: []func(*v1alpha1.GovernedServer){inMode(v1alpha1.ModeObserve)}, policies: []v1alpha1.ToolPolicy{baseline("b", v1alpha1.BaselineStopped, v1alpha1.ToolPolicySpec{})}, freshness: Fresh, want: "Deny ServerStopped"},
		"callers":                          {policies: []v1alpha1.ToolPolicy{policyOf("p", callers)}, freshness: Fresh, want: "Deny CallerNotAllowed"},
		"Observe":                          {edits: []func(*v1alpha1.GovernedServer){inMode(v1alpha1.ModeObserve), denied}, policies: []v1alpha1.ToolPolicy{policyOf("p", callers)}, freshness: Fresh, want: "Allow Observed"},
		"callers of a baseline in Observe": {edits: []func(*v1alpha1.GovernedServer){inMode(v1alpha1.ModeObserve)}, policies: []v1alpha1.ToolPolicy{baseline("b", "", callers)}, freshness: Fresh, want: "Deny CallerNotAllowed"},
		"Observe on a stale snapshot":      {edits: []func(*v1alpha1.GovernedServer){inMode(v1alpha1.ModeObserve)}, freshness: Stale, want: "Deny PolicyStale"},
	} {
		d := compile(server(tc.edits...), tc.policies, endpoint, Facts{}).Other(ann, tc.freshness)
		if got := fmt.Sprintf("%v %s", d.Effect, d.Reason); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// Observe is a team's to choose: with it no rule of one baseline lifts what another says of a tool.
func TestInObserveTheTierOfABaselineStandsAboveItsRules(t *testing.T) {
	t.Parallel()
	irreversible := baseline("tiers", "", tier(v1alpha1.TierOverride{Tools: []string{"update_*"}, Tier: v1alpha1.TierIrreversible}))
	attended := baseline("attended", "", v1alpha1.ToolPolicySpec{Autonomy: []v1alpha1.AutonomyRule{{Tool: "update_invoice", Mode: v1alpha1.ModeAttended}}})
	open := baseline("open", "", ruled(on("*", allow)))
	for name, tc := range map[string]struct {
		policies []v1alpha1.ToolPolicy
		want     Effect
	}{
		"a tier":                           {[]v1alpha1.ToolPolicy{irreversible}, RequireApproval},
		"a tier, and a rule that allows":   {[]v1alpha1.ToolPolicy{irreversible, open}, RequireApproval},
		"attended":                         {[]v1alpha1.ToolPolicy{attended}, RequireApproval},
		"attended, and a rule that allows": {[]v1alpha1.ToolPolicy{attended, open}, RequireApproval},
		"nothing but a rule that allows":   {[]v1alpha1.ToolPolicy{open}, Allow},
		"nothing":                          {nil, Allow},
	} {
		for _, mode := range []v1alpha1.Mode{v1alpha1.ModeObserve, v1alpha1.ModeEnforce} {
			if mode == v1alpha1.ModeEnforce && tc.policies == nil {
				continue // the tier decides
			}
			got := compile(server(inMode(mode)), tc.policies, endpoint, Facts{}).Decide(Call{Tool: "update_invoice", Freshness: Fresh, Principal: ann})
			if got.Effect != tc.want {
				t.Errorf("%s, in %s: %v by %s, want %v", name, mode, got.Effect, got.GatedBy, tc.want)
			}
		}
	}
}

func TestRangeHidesWhatNobodyCouldCall(t *testing.T) {
	t.Parallel()
	policies := []v1alpha1.ToolPolicy{policyOf("p", ruled(
		on("get_*", refuse, provided("args.n > 1")), on("update_*", refuse, provided("principal.username == 'ann'")), on("wipe_*", allow)))}
	s := compile(server(), policies, endpoint, Facts{})
	for tool, want := range map[string][2]Effect{
		"get_invoice": {Deny, Allow}, "update_invoice": {Deny, Deny}, "wipe_ledger": {RequireApproval, RequireApproval}, "unheard_of": {Deny, Deny},
	} {
		if strictest, loosest := s.Range(tool, ann); [2]Effect{strictest, loosest} != want {
			t.Errorf("%s: from %v to %v, want %v", tool, strictest, loosest, want)
		}
	}
	lowered := []v1alpha1.ToolPolicy{
		baseline("b", "", ruled(on("wipe_*", refuse, provided("tool.tier == 'Irreversible'")))), policyOf("p", tier(v1alpha1.TierOverride{Tool: "wipe_ledger", Digest: digestA, Tier: v1alpha1.TierRead})),
		policyOf("q", ruled(on("get_*", refuse))), policyOf("r", ruled(on("get_*", allow))),
	}
	denied := compile(server(), lowered, endpoint, Facts{})
	for _, tool := range []string{"get_invoice", "wipe_ledger"} {
		if _, loosest := denied.Range(tool, ann); loosest != Deny {
			t.Errorf("%s: %v is said to be possible", tool, loosest)
		}
	}
	observed := compile(server(inMode(v1alpha1.ModeObserve)), append(lowered, baseline("c", "", ruled(on("*", allow)))), endpoint, Facts{})
	if _, loosest := observed.Range("wipe_ledger", ann); loosest != Deny {
		t.Errorf("in Observe %v is said to be possible, and a baseline refuses it", loosest)
	}
	if _, loosest := observed.Range("get_invoice", ann); loosest != Allow {
		t.Errorf("in Observe %v is the most, and only a team refuses it", loosest)
	}
	if strictest, loosest := s.Range("update_invoice", bot); strictest != RequireApproval || loosest != RequireApproval {
		t.Errorf("update_invoice by another: from %v to %v", strictest, loosest)
	}
}

func TestWhatMayRunWithoutAPerson(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode v1alpha1.Mode
		spec v1alpha1.ToolPolicySpec
		want bool
	}{
		"nothing":                           {want: false},
		"a promotion":                       {spec: promote("update_invoice", digestA), want: true},
		"a promotion for some calls":        {spec: promoted("args.n < 3", ""), want: true},
		"a rule for a Reversible tool":      {spec: ruled(on("update_*", allow, provided("args.n < 3"))), want: true},
		"a rule for a Read tool":            {spec: ruled(on("get_*", allow)), want: false},
		"a rule for an Irreversible tool":   {spec: ruled(on("wipe_*", allow)), want: false},
		"a rule after one that always asks": {spec: ruled(on("*", require), on("*", allow)), want: false},
		"Observe":                           {mode: v1alpha1.ModeObserve, want: true},
		"a promotion, while it is stopped":  {mode: v1alpha1.ModeStopped, spec: promote("update_invoice", digestA), want: false},
	} {
		if got := compile(server(inMode(tc.mode)), []v1alpha1.ToolPolicy{policyOf("p", tc.spec)}, endpoint, Facts{}).AnyUnattended(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestObserveAsksNobody(t *testing.T) {
	t.Parallel()
	s := compile(server(inMode(v1alpha1.ModeObserve)), nil, endpoint, Facts{})
	d := ask(s, "update_invoice", "", ann)
	if got := s.Attended(d, "doubt"); got.Effect != Allow || got.Reason != ReasonObserved {
		t.Errorf("a call that was observed became %v by %s", got.Effect, got.GatedBy)
	}
}

func TestExplainTellsTheDerivation(t *testing.T) {
	t.Parallel()
	s := compile(server(), []v1alpha1.ToolPolicy{
		policyOf("a", ruled(on("update_*", refuse, provided("args.amount > 10")), on("*", allow))), policyOf("b", ruled(on("get_*", refuse))),
	}, endpoint, Facts{})
	got := s.Explain(Call{Tool: "update_invoice", Principal: ann, Freshness: Fresh})
	for i := range got {
		if says, _, cut := strings.Cut(got[i].Says, ": it cannot be evaluated"); cut {
			got[i].Says = says
		}
	}
	want := []Step{
		{"tool", "update_invoice, definition " + digestA},
		{"tier", "the tier is Reversible: "},
		{"ToolPolicy/a rule r0", "Deny, or what follows without it"},
		{"ToolPolicy/a rule r1", "Allow"},
		{"verdict", "Deny: RuleUncertain"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// Whatever an object says, also what the API server would refuse, there is an answer, and it is no looser than the ceiling.
func TestLawNoObjectMakesItPanic(t *testing.T) {
	servers, odd := rapid.Make[v1alpha1.GovernedServerStatus](), []func(*rapid.T, *v1alpha1.ToolPolicySpec){
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) { s.Rules = rapid.Make[[]v1alpha1.Rule]().Draw(t, "rules") },
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) {
			s.Callers = rapid.Make[[]v1alpha1.Subject]().Draw(t, "callers")
		},
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) { s.Pins = rapid.Make[[]v1alpha1.Pin]().Draw(t, "pins") },
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) {
			s.Preview = rapid.Make[[]v1alpha1.PreviewRule]().Draw(t, "preview")
		},
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) {
			s.Tiers = rapid.Make[[]v1alpha1.TierOverride]().Draw(t, "tiers")
		},
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) {
			s.Autonomy = rapid.Make[[]v1alpha1.AutonomyRule]().Draw(t, "autonomy")
		},
		func(t *rapid.T, s *v1alpha1.ToolPolicySpec) {
			s.NamespaceSelector, s.Mode = rapid.Make[*metav1.LabelSelector]().Draw(t, "selector"), v1alpha1.BaselineMode(rapid.String().Draw(t, "mode"))
		},
	}
	law(t, func(t *rapid.T) {
		p := drawPolicy(t, rapid.String().Draw(t, "name"), anyConditions)
		rapid.SampledFrom(odd).Draw(t, "odd")(t, &p.Spec)
		for i := range p.Spec.Rules { // arbitrary texts hardly ever compile, and take long
			p.Spec.Rules[i].When = pick(t, "when", anyConditions...)
		}
		for i := range p.Spec.Autonomy {
			p.Spec.Autonomy[i].When = pick(t, "when", anyConditions...)
		}
		for i := range p.Spec.Preview {
			p.Spec.Preview[i].Call.Args = pick(t, "args", "", "{", "1")
		}
		if p.Spec.NamespaceSelector != nil && rapid.Bool().Draw(t, "home") {
			p.Namespace = home
		} else {
			p.Spec.Targets = append(p.Spec.Targets, "billing")
		}
		object := drawServer(t)
		if rapid.IntRange(0, 15).Draw(t, "odd status") == 0 {
			object.Status, object.Status.EndpointDigest = servers.Draw(t, "status"), endpoint
		}
		s, q := decided(object, []v1alpha1.ToolPolicy{p}, Facts{}), drawQuestion(t)
		if len(object.Status.Tools) > 0 {
			q.tool = object.Status.Tools[0].Name
		}
		d := s.Decide(q.call())
		if d.Effect == Allow && d.Observed == nil && d.Tier != v1alpha1.TierRead && d.Tier != v1alpha1.TierReversible {
			t.Fatalf("an %q tool was allowed by %s", d.Tier, d.GatedBy)
		}
		if len(d.GatedBy) > 256 {
			t.Fatalf("a request has no room for %d bytes of %s", len(d.GatedBy), d.GatedBy)
		}
		s.Explain(q.call())
		s.Range(q.tool, q.principal)
		s.Other(q.principal, q.freshness)
		if _, _, err := s.Preview(q.call()); err != nil && err.Error() == "" {
			t.Fatal("an error says nothing")
		}
		for _, line := range s.NotInForce(&p) {
			if len(line.Field) > 64 || len(line.Message) > 512 || line.Message == "" {
				t.Fatalf("not a line: %+v", line)
			}
		}
		s.Drift()
	})
}
