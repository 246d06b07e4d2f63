// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	refundSchema   = `{"type":"object","properties":{"invoice":{"type":"string"},"amount":{"type":"number"}},"required":["invoice","amount"]}`
	transferSchema = `{"type":"object","properties":{"account":{"type":"string"},"sum":{"type":"number"}},"required":["account","sum"]}`
)

func digestOf(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

// ledger is a server with a tool of each tier.
func ledger() []CheckedTool {
	tool := func(name, digit string, tier v1alpha1.Tier, schema string) CheckedTool {
		return CheckedTool{Namespace: "shop", Server: "ledger", Name: name, Digest: digestOf(digit), ClassifiedTier: tier, Tier: tier, InputSchema: []byte(schema)}
	}
	return []CheckedTool{
		tool("get_balance", "a", v1alpha1.TierRead, `{"type":"object"}`),
		tool("refund", "b", v1alpha1.TierReversible, refundSchema),
		tool("transfer", "c", v1alpha1.TierIrreversible, transferSchema),
	}
}

func aRule(name string, edit func(*v1alpha1.Rule), tools ...string) v1alpha1.Rule {
	r := v1alpha1.Rule{Name: name, Tools: tools, Decision: v1alpha1.EffectDeny}
	if edit != nil {
		edit(&r)
	}
	return r
}

func by(subjects ...v1alpha1.Subject) func(*v1alpha1.Rule) {
	return func(r *v1alpha1.Rule) { r.Subjects = subjects }
}

func when(source string) func(*v1alpha1.Rule) {
	return func(r *v1alpha1.Rule) { r.When = source }
}

var (
	ana   = v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "ana"}
	ben   = v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "ben"}
	staff = v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "staff"}
	agent = v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "shop", Name: "agent"}
)

// found returns the findings as field, reason and severity.
func found(p v1alpha1.ToolPolicySpec, tools []CheckedTool) []string {
	var all []string
	for _, f := range Parse(&v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: p}).Check(tools) {
		all = append(all, f.Field+" "+f.Reason+" "+string(f.Severity))
	}
	return all
}

func TestRulesThatAreNeverReachedAreFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		callers []v1alpha1.Subject
		rules   []v1alpha1.Rule
		want    []string
	}{
		"an earlier rule takes everything": {nil, []v1alpha1.Rule{aRule("all", nil, "*"), aRule("late", nil, "get_*")},
			[]string{"spec.rules[1] Unreachable Warning"}},
		"the other way round": {nil, []v1alpha1.Rule{aRule("late", nil, "get_*"), aRule("all", nil, "*")}, nil},
		"two earlier rules take it together": {nil, []v1alpha1.Rule{aRule("a", nil, "get_a"), aRule("b", nil, "get_b"), aRule("late", nil, "get_a", "get_b")},
			[]string{"spec.rules[2] Unreachable Warning"}},
		"the earlier rule is for some calls only":   {nil, []v1alpha1.Rule{aRule("some", when("args.n > 1"), "*"), aRule("late", nil, "get_*")}, nil},
		"the earlier rule is for some callers only": {nil, []v1alpha1.Rule{aRule("some", by(ana), "*"), aRule("late", nil, "get_*")}, nil},
		"the earlier rule is for more callers": {nil, []v1alpha1.Rule{aRule("some", by(ana, ben), "*"), aRule("late", by(ben), "get_*")},
			[]string{"spec.rules[1] Unreachable Warning"}},
		"the earlier rule is for other callers": {nil, []v1alpha1.Rule{aRule("some", by(ana), "*"), aRule("late", by(ana, ben), "get_*")}, nil},
		"the same condition may fail for both, and then both count": {nil, []v1alpha1.Rule{aRule("one", when("args.n > 1"), "b", "a"), aRule("two", when("args.n > 1"), "a", "b")},
			[]string{"spec.rules[1] SameMatch Warning"}},
		"another condition": {nil, []v1alpha1.Rule{aRule("one", when("args.n > 1"), "a"), aRule("two", when("args.n > 2"), "a")}, nil},
		"subjects who may not call at all": {[]v1alpha1.Subject{ana, agent}, []v1alpha1.Rule{aRule("one", by(ben), "a")},
			[]string{"spec.rules[0] Unreachable Warning"}},
		"a ServiceAccount by its user name": {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "system:serviceaccount:shop:agent"}},
			[]v1alpha1.Rule{aRule("one", by(agent), "a")}, nil},
		"subjects who may be in a group that may call": {[]v1alpha1.Subject{staff}, []v1alpha1.Rule{aRule("one", by(ben), "a")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, found(v1alpha1.ToolPolicySpec{Callers: tc.callers, Rules: tc.rules}, nil)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSubjectsThatNobodyCanBeAreFound(t *testing.T) {
	t.Parallel()
	account := func(namespace, name string) v1alpha1.Subject {
		return v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: namespace, Name: name}
	}
	for name, tc := range map[string]struct {
		callers []v1alpha1.Subject
		want    []string
	}{
		"a ServiceAccount":                {[]v1alpha1.Subject{agent}, nil},
		"a user with an account's name":   {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "system:serviceaccount:shop:agent"}}, nil},
		"a group with any name":           {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "Büro / Süd"}}, nil},
		"an account with its whole name":  {[]v1alpha1.Subject{account("shop", "system:serviceaccount:shop:agent")}, []string{"spec.callers[0].name NoSuchSubject Warning"}},
		"an account with capital letters": {[]v1alpha1.Subject{agent, account("shop", "Agent")}, []string{"spec.callers[1].name NoSuchSubject Warning"}},
		"an account of no namespace":      {[]v1alpha1.Subject{account("shop/agents", "agent")}, []string{"spec.callers[0].namespace NoSuchSubject Warning"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, found(v1alpha1.ToolPolicySpec{Callers: tc.callers}, nil)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEntriesThatNeedTheToolsAreCheckedAgainstThem(t *testing.T) {
	t.Parallel()
	allow := func(r *v1alpha1.Rule) { r.Decision = v1alpha1.EffectAllow }
	preview := func(tool string, tools ...string) v1alpha1.ToolPolicySpec {
		return v1alpha1.ToolPolicySpec{Preview: []v1alpha1.PreviewRule{{Tools: tools, Call: v1alpha1.PreviewCall{Tool: tool}}}}
	}
	promote := func(tool, digit string, others ...v1alpha1.AutonomyRule) v1alpha1.ToolPolicySpec {
		return v1alpha1.ToolPolicySpec{Autonomy: append(others, v1alpha1.AutonomyRule{Tool: tool, Digest: digestOf(digit), Mode: v1alpha1.ModeUnattended})}
	}
	tiers := func(o v1alpha1.TierOverride) v1alpha1.ToolPolicySpec {
		return v1alpha1.ToolPolicySpec{Tiers: []v1alpha1.TierOverride{o}}
	}
	pins := func(all ...string) (spec v1alpha1.ToolPolicySpec) {
		for i := 0; i < len(all); i += 2 {
			spec.Pins = append(spec.Pins, v1alpha1.Pin{Tool: all[i], Digest: digestOf(all[i+1])})
		}
		return spec
	}
	rules := func(r v1alpha1.Rule) v1alpha1.ToolPolicySpec {
		return v1alpha1.ToolPolicySpec{Rules: []v1alpha1.Rule{r}}
	}
	answered := func(decision v1alpha1.Effect) func(*v1alpha1.Rule) {
		return func(r *v1alpha1.Rule) { r.Decision, r.InputResponses = decision, v1alpha1.InputAllow }
	}
	for name, tc := range map[string]struct {
		spec v1alpha1.ToolPolicySpec
		want []string
	}{
		"a rule for a tool that there is":            {rules(aRule("r", nil, "ref*")), nil},
		"a rule for none":                            {rules(aRule("r", nil, "refunds", "x?")), []string{"spec.rules[0] ToolUnknown Warning"}},
		"an Allow where all are Irreversible":        {rules(aRule("r", allow, "tr*")), []string{"spec.rules[0].decision Irreversible Warning"}},
		"an Allow where one is not":                  {rules(aRule("r", allow, "*")), nil},
		"a verb that the tier asks for":              {rules(aRule("r", func(r *v1alpha1.Rule) { r.Approvals = &v1alpha1.RuleApprovals{Verb: "approve-irreversible"} }, "transfer")), []string{"spec.rules[0].approvals.verb NoEffect Warning"}},
		"answers of tools that only read":            {rules(aRule("r", answered(v1alpha1.EffectAllow), "get_*")), []string{"spec.rules[0].inputResponses NoEffect Warning"}},
		"answers of tools that are gated":            {rules(aRule("r", answered(v1alpha1.EffectRequireApproval), "get_*")), nil},
		"answers of all tools":                       {rules(aRule("r", answered(v1alpha1.EffectAllow), "*")), nil},
		"a verb beside that of the tier":             {rules(aRule("r", func(r *v1alpha1.Rule) { r.Approvals = &v1alpha1.RuleApprovals{Verb: "approve-irreversible"} }, "refund")), nil},
		"a pin of the current definition":            {pins("refund", "b"), nil},
		"a pin of another one":                       {pins("refund", "a"), []string{"spec.pins[0] DigestDiffers Warning"}},
		"a pin of another one beside the current":    {pins("refund", "a", "refund", "b"), nil},
		"a pin of a tool that there is not":          {pins("refnd", "b"), []string{"spec.pins[0] ToolUnknown Warning"}},
		"a pin of the instructions":                  {pins("", "b"), nil},
		"a preview by a Read tool":                   {preview("get_balance", "refund"), nil},
		"a preview by a tool that is not Read":       {preview("refund", "transfer"), []string{"spec.preview[0].call.tool NotRead Warning"}},
		"a preview by no tool":                       {preview("balance", "transfer"), []string{"spec.preview[0].call.tool ToolUnknown Warning"}},
		"a preview of no tool":                       {preview("get_balance", "move"), []string{"spec.preview[0] ToolUnknown Warning"}},
		"a raise by globs":                           {tiers(v1alpha1.TierOverride{Tools: []string{"*"}, Tier: v1alpha1.TierIrreversible}), nil},
		"lowering by globs":                          {tiers(v1alpha1.TierOverride{Tools: []string{"*"}, Tier: v1alpha1.TierReversible}), []string{"spec.tiers[0] NeedsDigest Warning"}},
		"lowering by the digest":                     {tiers(v1alpha1.TierOverride{Tool: "transfer", Digest: digestOf("c"), Tier: v1alpha1.TierReversible}), nil},
		"lowering by another digest":                 {tiers(v1alpha1.TierOverride{Tool: "transfer", Digest: digestOf("a"), Tier: v1alpha1.TierReversible}), []string{"spec.tiers[0] DigestDiffers Warning"}},
		"raising by another digest":                  {tiers(v1alpha1.TierOverride{Tool: "refund", Digest: digestOf("a"), Tier: v1alpha1.TierIrreversible}), nil},
		"an override of no tool":                     {tiers(v1alpha1.TierOverride{Tool: "transfers", Digest: digestOf("c"), Tier: v1alpha1.TierReversible}), []string{"spec.tiers[0] ToolUnknown Warning"}},
		"globs of an override that match nothing":    {tiers(v1alpha1.TierOverride{Tools: []string{"move*"}, Tier: v1alpha1.TierReversible}), []string{"spec.tiers[0] ToolUnknown Warning"}},
		"a promotion whose record is to be earned":   {promote("refund", "b"), nil},
		"a promotion of another definition":          {promote("refund", "a"), []string{"spec.autonomy[0] DigestDiffers Warning"}},
		"a promotion of an Irreversible tool":        {promote("transfer", "c"), []string{"spec.autonomy[0] Irreversible Warning"}},
		"a promotion of a Read tool":                 {promote("get_balance", "a"), []string{"spec.autonomy[0] Read Warning"}},
		"a promotion of no tool":                     {promote("refnd", "b"), []string{"spec.autonomy[0] ToolUnknown Warning"}},
		"a promotion beside Attended":                {promote("refund", "b", v1alpha1.AutonomyRule{Tool: "refund", Mode: v1alpha1.ModeAttended}), []string{"spec.autonomy[1] Attended Warning"}},
		"a promotion beside Attended for some calls": {promote("refund", "b", v1alpha1.AutonomyRule{Tool: "refund", Mode: v1alpha1.ModeAttended, When: "args.amount > 9"}), nil},
		"Attended for no tool":                       {v1alpha1.ToolPolicySpec{Autonomy: []v1alpha1.AutonomyRule{{Tool: "refnd", Mode: v1alpha1.ModeAttended}}}, []string{"spec.autonomy[0] ToolUnknown Warning"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, found(tc.spec, ledger())); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if got := found(tc.spec, nil); len(got) > 0 && !strings.Contains(name, "beside Attended") {
				t.Errorf("without tools: %v, want nothing", got)
			}
		})
	}
}

func TestExpressionsAreComparedWithTheSchemas(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		source string
		tools  []string
		want   []string
	}{
		"it fits":                              {"args.amount > 5", []string{"refund"}, nil},
		"a misspelt argument":                  {"args.amont > 5", []string{"refund"}, []string{"spec.rules[0].when TypeMismatch Error"}},
		"a string compared with a number":      {"args.invoice > 5", []string{"refund"}, []string{"spec.rules[0].when TypeMismatch Error"}},
		"it fits one of two tools":             {"args.amount > 5", []string{"refund", "transfer"}, []string{"spec.rules[0].when TypeMismatch Warning"}},
		"it looks whether it fits":             {"has(args.amount) && args.amount > 5", []string{"refund", "transfer"}, nil},
		"it looks, and no tool has it":         {"has(args.amont)", []string{"refund", "transfer"}, []string{"spec.rules[0].when TypeMismatch Error"}},
		"a schema that leaves everything open": {"args.amont > 5", []string{"get_balance"}, nil},
		"it does not compile":                  {"args.amount >", []string{"refund"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := v1alpha1.ToolPolicySpec{Rules: []v1alpha1.Rule{aRule("r", when(tc.source), tc.tools...)}}
			if diff := cmp.Diff(tc.want, found(spec, ledger())); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFindingSaysWhereItIsAndWhatWasMeant(t *testing.T) {
	t.Parallel()
	p := Parse(&v1alpha1.ToolPolicy{Spec: v1alpha1.ToolPolicySpec{
		Rules: []v1alpha1.Rule{aRule("big", when("args.amont > 5"), "refund"), aRule("all", nil, "*"), aRule("late", nil, "refunds")},
		Pins:  []v1alpha1.Pin{{Tool: "transfr", Digest: digestOf("c")}},
	}})
	tools := append(ledger(), CheckedTool{Namespace: "shop", Server: "ledger", Name: "evil\u202e\n"})
	var got []string
	for _, f := range p.Check(tools) {
		got = append(got, f.String())
	}
	want := []string{
		"spec.rules[2]: rule all comes first and matches every call that this rule does, so that it is never reached; move it up, or narrow what comes before",
		"spec.rules[2]: no tool of ledger is called refunds; did you mean refund?",
		"spec.pins[0]: no tool of ledger is called transfr; did you mean transfer?",
	}
	if len(got) != 4 || !strings.HasPrefix(got[0], "spec.rules[0].when 1:") || !strings.Contains(got[0], "did you mean amount?") || !strings.Contains(got[0], "(refund of ledger)") {
		t.Fatalf("got %q", got)
	}
	if diff := cmp.Diff(want, got[1:]); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestAFindingHidesNoLetters(t *testing.T) {
	t.Parallel()
	p := Parse(&v1alpha1.ToolPolicy{Spec: v1alpha1.ToolPolicySpec{Pins: []v1alpha1.Pin{{Tool: "lift\u202e\n", Digest: digestOf("c")}}}})
	for _, f := range p.Check([]CheckedTool{{Server: "crane\u200b", Name: "lift\u202e"}}) {
		if want := `spec.pins[0]: no tool of crane\u200b is called lift\u202e\u000a; did you mean lift\u202e?`; f.String() != want {
			t.Errorf("got %q, want %q", f.String(), want)
		}
	}
}

// A policy that came from anywhere is checked without a panic, and the same one always with the same words.
func TestCheckIsTotal(t *testing.T) {
	t.Parallel()
	globs := rapid.StringOfN(rapid.SampledFrom([]rune("ab*?[\u202e\uFFFD")), 0, 5, -1)
	rapid.Check(t, func(t *rapid.T) {
		var spec v1alpha1.ToolPolicySpec
		for range rapid.IntRange(0, 4).Draw(t, "rules") {
			spec.Rules = append(spec.Rules, aRule("r", func(r *v1alpha1.Rule) {
				r.When = rapid.SampledFrom([]string{"", "args.a > 1", "args.", "principal.username == 'x'"}).Draw(t, "when")
				r.Subjects = rapid.SliceOfN(rapid.SampledFrom([]v1alpha1.Subject{{}, ana, staff, agent}), 0, 2).Draw(t, "subjects")
			}, rapid.SliceOfN(globs, 0, 3).Draw(t, "tools")...))
		}
		spec.Callers = rapid.SliceOfN(rapid.SampledFrom([]v1alpha1.Subject{{}, ben, agent}), 0, 2).Draw(t, "callers")
		spec.Tiers = []v1alpha1.TierOverride{{Tools: rapid.SliceOfN(globs, 0, 2).Draw(t, "raised"), Tier: "Nonsense"}}
		spec.Preview = []v1alpha1.PreviewRule{{Tools: []string{globs.Draw(t, "previewed")}, Call: v1alpha1.PreviewCall{Tool: globs.Draw(t, "asked"), Args: "{"}}}
		tools := []CheckedTool{{Name: globs.Draw(t, "tool"), InputSchema: []byte(rapid.SampledFrom([]string{"", "{", "[]", `{"properties":{"b":{}}}`}).Draw(t, "schema"))}}
		if diff := cmp.Diff(found(spec, tools), found(spec, tools)); diff != "" {
			t.Fatalf("checked twice (-first +second):\n%s", diff)
		}
	})
}
