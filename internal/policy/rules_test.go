// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// on is a rule over tools with a decision; edits do the rest.
func on(tools string, decision v1alpha1.Effect, edits ...func(*v1alpha1.Rule)) v1alpha1.Rule {
	r := v1alpha1.Rule{Name: "r", Tools: strings.Fields(tools), Decision: decision}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

func ruled(rules ...v1alpha1.Rule) v1alpha1.ToolPolicySpec {
	for i := range rules {
		rules[i].Name = fmt.Sprint("r", i)
	}
	return v1alpha1.ToolPolicySpec{Rules: rules}
}

func provided(source string) func(*v1alpha1.Rule) { return func(r *v1alpha1.Rule) { r.When = source } }

func needs(required int32, verb string) func(*v1alpha1.Rule) {
	return func(r *v1alpha1.Rule) { r.Approvals = &v1alpha1.RuleApprovals{Required: required, Verb: verb} }
}

func from(subjects ...v1alpha1.Subject) func(*v1alpha1.Rule) {
	return func(r *v1alpha1.Rule) { r.Subjects = subjects }
}

// ask calls a tool of the server on a fresh snapshot.
func ask(s *Server, tool, arguments string, principal expr.Principal) Decision {
	return s.Decide(Call{Tool: tool, Arguments: expr.NewArguments([]byte(arguments)), Principal: principal, Freshness: Fresh})
}

const (
	allow   = v1alpha1.EffectAllow
	require = v1alpha1.EffectRequireApproval
	refuse  = v1alpha1.EffectDeny
)

var (
	ann = expr.Principal{Username: "ann", Groups: []string{"ops"}}
	bot = expr.Principal{Username: "system:serviceaccount:shop:bot", Namespace: "shop", ServiceAccount: "bot"}
)

func TestRules(t *testing.T) {
	t.Parallel()
	eight := make([]v1alpha1.ToolPolicySpec, 8)
	for i := range eight {
		eight[i] = ruled(on("*", require, needs(1, fmt.Sprint("approve-", i))))
	}
	sa := v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "shop", Name: "bot"}
	ops := v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "ops"}
	tests := map[string]struct {
		policies  []v1alpha1.ToolPolicySpec
		tool      string
		arguments string
		principal expr.Principal
		want      string // effect, reason, what decided
		required  int32
		verbs     []string
		uncertain string
	}{
		"Allow runs a Reversible tool":                           {policies: []v1alpha1.ToolPolicySpec{ruled(on("update_*", allow))}, want: "Allow RuleAllowed ToolPolicy/p0 rule r0"},
		"Allow leaves an Irreversible tool to a person":          {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow))}, tool: "wipe_ledger", want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve-irreversible"}},
		"the first rule that matches counts":                     {policies: []v1alpha1.ToolPolicySpec{ruled(on("update_*", allow), on("*", refuse))}, want: "Allow RuleAllowed ToolPolicy/p0 rule r0"},
		"Deny of another policy is stricter":                     {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow)), ruled(on("update_*", refuse))}, want: "Deny RuleDenied ToolPolicy/p1 rule r0"},
		"asking is stricter than allowing":                       {policies: []v1alpha1.ToolPolicySpec{ruled(on("update_*", require)), ruled(on("*", allow))}, want: "RequireApproval ApprovalRequired ToolPolicy/p0 rule r0", required: 1, verbs: []string{"approve"}},
		"a policy whose rules name other tools says nothing":     {policies: []v1alpha1.ToolPolicySpec{ruled(on("get_*", refuse))}, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}},
		"a rule gates a Read tool":                               {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", require, needs(2, "approve-a")))}, tool: "get_invoice", want: "RequireApproval ApprovalRequired ToolPolicy/p0 rule r0", required: 2, verbs: []string{"approve", "approve-a"}},
		"the most persons and all verbs count":                   {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", require, needs(3, "approve-b"))), ruled(on("*", require, needs(2, "approve-a")))}, tool: "wipe_ledger", want: "RequireApproval ApprovalRequired ToolPolicy/p0 rule r0", required: 3, verbs: []string{"approve-irreversible", "approve-a", "approve-b"}},
		"a rule that is not reached asks for no verb":            {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", require), on("*", require, needs(3, "approve-a")))}, want: "RequireApproval ApprovalRequired ToolPolicy/p0 rule r0", required: 1, verbs: []string{"approve"}},
		"seven verbs besides the tier's":                         {policies: eight[:7], want: "RequireApproval ApprovalRequired ToolPolicy/p0 rule r0", required: 1, verbs: []string{"approve", "approve-0", "approve-1", "approve-2", "approve-3", "approve-4", "approve-5", "approve-6"}},
		"eight are more than a request can hold":                 {policies: eight, want: "Deny TooManyVerbs ToolPolicy/p0 rule r0"},
		"when is true":                                           {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("args.amount > 1000")))}, arguments: `{"amount":2000}`, want: "Deny RuleDenied ToolPolicy/p0 rule r0"},
		"when is false":                                          {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("args.amount > 1000")))}, arguments: `{"amount":1000}`, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}},
		"a missing argument does not fall through":               {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("args.amount > 1000")))}, want: "Deny RuleUncertain ToolPolicy/p0 rule r0", uncertain: "ToolPolicy/p0 rule r0: "},
		"a text for a number does not fall through":              {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("args.amount > 1000")))}, arguments: `{"amount":"2000"}`, want: "Deny RuleUncertain ToolPolicy/p0 rule r0", uncertain: "ToolPolicy/p0 rule r0: "},
		"asking with an error, then Deny":                        {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", require, provided("args.amount > 1")), on("*", refuse))}, want: "Deny RuleUncertain ToolPolicy/p0 rule r1", uncertain: "ToolPolicy/p0 rule r0: "},
		"Allow with an error leaves the tier":                    {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow, provided("args.amount > 1")))}, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}, uncertain: "ToolPolicy/p0 rule r0: "},
		"Allow with an error, where another policy allows":       {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow, provided("args.amount > 1"))), ruled(on("*", allow))}, want: "Allow RuleAllowed ToolPolicy/p1 rule r0", uncertain: "ToolPolicy/p0 rule r0: "},
		"a certain Deny is named before an uncertain one":        {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("args.amount > 1"))), ruled(on("*", refuse))}, want: "Deny RuleDenied ToolPolicy/p1 rule r0", uncertain: "ToolPolicy/p0 rule r0: "},
		"what does not compile may match":                        {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("args.amount >")))}, want: "Deny RuleUncertain ToolPolicy/p0 rule r0", uncertain: "does not compile"},
		"a glob that is none may name every tool":                {policies: []v1alpha1.ToolPolicySpec{ruled(on("get_[", refuse))}, want: "Deny RuleUncertain ToolPolicy/p0 rule r0", uncertain: "spec.rules[0].tools[0] is no glob"},
		"a rule without tools may name every tool":               {policies: []v1alpha1.ToolPolicySpec{ruled(on("", refuse))}, want: "Deny RuleUncertain ToolPolicy/p0 rule r0", uncertain: "is empty"},
		"a decision that is none is Deny":                        {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", "Alow"))}, want: "Deny RuleDenied ToolPolicy/p0 rule r0"},
		"subjects narrow: a ServiceAccount":                      {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow, from(sa)))}, principal: bot, want: "Allow RuleAllowed ToolPolicy/p0 rule r0"},
		"subjects narrow: a group":                               {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow, from(sa, ops)))}, principal: ann, want: "Allow RuleAllowed ToolPolicy/p0 rule r0"},
		"subjects narrow: somebody else":                         {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow, from(sa, ops)))}, principal: expr.Principal{Username: "eve"}, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}},
		"a subject that is none may be anybody":                  {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, from(v1alpha1.Subject{Kind: "Users", Name: "ann"})))}, want: "Deny RuleUncertain ToolPolicy/p0 rule r0", uncertain: "subjects"},
		"callers that name the caller":                           {policies: []v1alpha1.ToolPolicySpec{{Callers: []v1alpha1.Subject{ops}}}, principal: ann, tool: "get_invoice", want: "Allow ReadTool tier"},
		"callers that do not":                                    {policies: []v1alpha1.ToolPolicySpec{{Callers: []v1alpha1.Subject{ops}}}, principal: bot, tool: "get_invoice", want: "Deny CallerNotAllowed ToolPolicy/p0 spec.callers"},
		"allow-lists with nothing in common":                     {policies: []v1alpha1.ToolPolicySpec{{Callers: []v1alpha1.Subject{ops}}, {Callers: []v1alpha1.Subject{sa}}}, principal: ann, tool: "get_invoice", want: "Deny CallerNotAllowed ToolPolicy/p1 spec.callers"},
		"a caller that is no subject admits nobody":              {policies: []v1alpha1.ToolPolicySpec{{Callers: []v1alpha1.Subject{{Kind: "Users", Name: "ann"}}}}, principal: ann, tool: "get_invoice", want: "Deny CallerNotAllowed ToolPolicy/p0 spec.callers"},
		"Attended keeps a person before what a rule allows":      {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow)), {Autonomy: []v1alpha1.AutonomyRule{{Tool: "update_invoice", Mode: v1alpha1.ModeAttended}}}}, want: "RequireApproval ApprovalRequired ToolPolicy/p1 spec.autonomy[0]", required: 1, verbs: []string{"approve"}},
		"Attended with an error, before what a rule allows":      {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", allow)), {Autonomy: []v1alpha1.AutonomyRule{{Tool: "update_invoice", Mode: v1alpha1.ModeAttended, When: "args.amount > 5"}}}}, want: "RequireApproval ApprovalRequired ToolPolicy/p1 spec.autonomy[0]", required: 1, verbs: []string{"approve"}, uncertain: "ToolPolicy/p1 spec.autonomy[0]: "},
		"a promotion for calls for which it holds":               {policies: []v1alpha1.ToolPolicySpec{promoted("args.amount < 5", "")}, arguments: `{"amount":1}`, want: "Allow Unattended ToolPolicy/p0 spec.autonomy[0]"},
		"a promotion for other calls":                            {policies: []v1alpha1.ToolPolicySpec{promoted("args.amount < 5", "")}, arguments: `{"amount":7}`, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}},
		"a promotion that cannot be evaluated":                   {policies: []v1alpha1.ToolPolicySpec{promoted("args.amount < 5", "")}, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}, uncertain: "ToolPolicy/p0 spec.autonomy[0]: "},
		"a promotion that does not compile":                      {policies: []v1alpha1.ToolPolicySpec{promoted("args.amount <", "")}, want: "RequireApproval ApprovalRequired tier", required: 1, verbs: []string{"approve"}},
		"Attended for calls for which it holds":                  {policies: []v1alpha1.ToolPolicySpec{promoted("", "args.amount > 5")}, arguments: `{"amount":7}`, want: "RequireApproval ApprovalRequired ToolPolicy/p0 spec.autonomy[1]", required: 1, verbs: []string{"approve"}},
		"Attended for other calls":                               {policies: []v1alpha1.ToolPolicySpec{promoted("", "args.amount > 5")}, arguments: `{"amount":1}`, want: "Allow Unattended ToolPolicy/p0 spec.autonomy[0]"},
		"Attended that cannot be evaluated":                      {policies: []v1alpha1.ToolPolicySpec{promoted("", "args.amount > 5")}, want: "RequireApproval ApprovalRequired ToolPolicy/p0 spec.autonomy[1]", required: 1, verbs: []string{"approve"}, uncertain: "ToolPolicy/p0 spec.autonomy[1]: "},
		"rules see the tier, the digest and the server":          {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("tool.tier == 'Reversible' && tool.digest == 'sha256:aa' && tool.name == 'update_invoice' && server.name == 'billing' && server.namespace == 'shop'")))}, want: "Deny RuleDenied ToolPolicy/p0 rule r0"},
		"rules see the hints of the server":                      {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("tool.annotations.destructiveHint")))}, want: "Deny RuleDenied ToolPolicy/p0 rule r0"},
		"rules see the caller":                                   {policies: []v1alpha1.ToolPolicySpec{ruled(on("*", refuse, provided("principal.serviceAccount == 'bot' && principal.namespace == 'shop'")))}, principal: bot, want: "Deny RuleDenied ToolPolicy/p0 rule r0"},
		"an override whose glob is none raises what it may name": {policies: []v1alpha1.ToolPolicySpec{tier(v1alpha1.TierOverride{Tools: []string{"wipe_["}, Tier: v1alpha1.TierIrreversible})}, tool: "get_invoice", want: "RequireApproval ApprovalRequired ToolPolicy/p0 spec.tiers[0]", required: 1, verbs: []string{"approve-irreversible"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yes := true
			s := server(func(s *v1alpha1.GovernedServer) {
				s.Status.Tools[1].Annotations = &v1alpha1.ToolAnnotations{DestructiveHint: &yes}
			})
			var policies []v1alpha1.ToolPolicy
			for i, spec := range tc.policies {
				policies = append(policies, policyOf(fmt.Sprint("p", i), spec))
			}
			tool := tc.tool
			if tool == "" {
				tool = "update_invoice"
			}
			got := ask(compile(s, policies, endpoint, Facts{}), tool, tc.arguments, tc.principal)
			if said := fmt.Sprintf("%v %s %s", got.Effect, got.Reason, got.GatedBy); said != tc.want {
				t.Errorf("got %s, want %s", said, tc.want)
			}
			if got.RequiredApprovals != tc.required {
				t.Errorf("%d persons, want %d", got.RequiredApprovals, tc.required)
			}
			if diff := cmp.Diff(tc.verbs, got.Verbs); diff != "" {
				t.Errorf("verbs (-want +got):\n%s", diff)
			}
			if (tc.uncertain == "") != (got.Uncertain == "") || !strings.Contains(got.Uncertain, tc.uncertain) {
				t.Errorf("uncertain %q, want %q", got.Uncertain, tc.uncertain)
			}
		})
	}
}

// promoted is a promotion of update_invoice, and an entry that keeps it attended where attended is a condition.
func promoted(when, attended string) v1alpha1.ToolPolicySpec {
	spec := promote("update_invoice", digestA)
	spec.Autonomy[0].When = when
	if attended != "" {
		spec.Autonomy = append(spec.Autonomy, v1alpha1.AutonomyRule{Tool: "update_invoice", Mode: v1alpha1.ModeAttended, When: attended})
	}
	return spec
}

func TestARuleSpeaksToCallerAndPerson(t *testing.T) {
	t.Parallel()
	spec := ruled(on("update_*", require, func(r *v1alpha1.Rule) { r.Message, r.Controls = "ask finance", []string{"SOC2-CC6.1"} }), on("get_*", refuse, func(r *v1alpha1.Rule) { r.Message = "not here" }))
	s := compile(server(), []v1alpha1.ToolPolicy{policyOf("p", spec)}, endpoint, Facts{})
	if got := ask(s, "update_invoice", "", ann); got.Message != "ask finance" || !slices.Equal(got.Controls, []string{"SOC2-CC6.1"}) {
		t.Errorf("asked with %q and %v", got.Message, got.Controls)
	}
	if got := ask(s, "get_invoice", "", ann); got.Message != "not here" || got.Controls != nil {
		t.Errorf("refused with %q and %v", got.Message, got.Controls)
	}
	if got := ask(s, "wipe_ledger", "", ann); got.Message != "" {
		t.Errorf("the tier speaks: %q", got.Message)
	}
}

func TestWhichServersAPolicyCovers(t *testing.T) {
	t.Parallel()
	prod := metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	broken := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}}
	for name, tc := range map[string]struct {
		selector  metav1.LabelSelector
		namespace string
		labels    map[string]string
		want      bool
	}{
		"every namespace":                         {metav1.LabelSelector{}, home, map[string]string{}, true},
		"a namespace with the label":              {prod, home, map[string]string{"env": "prod", "team": "a"}, true},
		"a namespace without it":                  {prod, home, map[string]string{"env": "test"}, false},
		"a namespace without labels":              {prod, home, map[string]string{}, false},
		"labels that nobody wrote down":           {prod, home, nil, true},
		"a selector that does not parse":          {broken, home, map[string]string{"env": "test"}, true},
		"a baseline outside the right namespace":  {metav1.LabelSelector{}, "shop", nil, false},
		"a baseline of the namespace without one": {metav1.LabelSelector{}, "", nil, false},
	} {
		p := asBaseline(policyOf("b", ruled(on("*", refuse))), "", tc.selector)
		p.Namespace = tc.namespace
		s := server(func(s *v1alpha1.GovernedServer) { s.Status.NamespaceLabels = tc.labels })
		got := ask(compile(s, []v1alpha1.ToolPolicy{p}, endpoint, Facts{}), "get_invoice", "", ann)
		if (got.Effect == Deny) != tc.want {
			t.Errorf("%s: covered is %v, want %v", name, got.Effect == Deny, tc.want)
		}
		if tc.want && got.GatedBy != "ToolPolicy/"+home+"/b rule r0" {
			t.Errorf("%s: a baseline is called %s", name, got.GatedBy)
		}
	}
	nowhere := policyOf("b", ruled(on("*", refuse)))
	nowhere.Namespace, nowhere.Spec.NamespaceSelector = "", &metav1.LabelSelector{}
	if got := ask(Compile(Inputs{Server: server(), Policies: []*Policy{Parse(&nowhere)}, EndpointDigest: endpoint}), "get_invoice", "", ann); got.Effect != Allow {
		t.Errorf("a baseline counts where nobody knows the operator's namespace: %s", got.GatedBy)
	}
	if problems := Parse(&v1alpha1.ToolPolicy{Spec: v1alpha1.ToolPolicySpec{NamespaceSelector: &broken}}).Problems(); len(problems) != 1 || problems[0].Field != "spec.namespaceSelector" {
		t.Errorf("problems of a selector that does not parse: %v", problems)
	}
}

func TestProblemsSayWhatToMend(t *testing.T) {
	t.Parallel()
	p := policyOf("p", v1alpha1.ToolPolicySpec{
		Callers: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "ann"}, {Kind: v1alpha1.SubjectServiceAccount, Name: "bot"}},
		Rules: []v1alpha1.Rule{
			on("get_* update_invoice", allow, provided("args.n > 1")), on("get_[", "Alow", provided("args.n >"), from(v1alpha1.Subject{Kind: "Users", Name: "x"})), on("", refuse),
		},
		Preview:  []v1alpha1.PreviewRule{{Tools: []string{"a{b"}, Call: v1alpha1.PreviewCall{Tool: "get_invoice", Args: "{"}}},
		Tiers:    []v1alpha1.TierOverride{{Tools: []string{`a\`}, Tier: v1alpha1.TierIrreversible}},
		Autonomy: []v1alpha1.AutonomyRule{{Tool: "x", Mode: v1alpha1.ModeAttended, When: "1 +"}},
	})
	var got []string
	for _, problem := range Parse(&p).Problems() {
		if problem.Message == "" || strings.ContainsAny(problem.Message, "\n\r") {
			t.Errorf("%s: %q", problem.Field, problem.Message)
		}
		got = append(got, problem.Field)
	}
	want := []string{
		"spec.callers[1]", "spec.rules[1].tools[0]", "spec.rules[1].subjects[0]", "spec.rules[1].when", "spec.rules[1].decision", "spec.rules[2].tools",
		"spec.preview[0].tools[0]", "spec.preview[0].call.args", "spec.tiers[0].tools[0]", "spec.autonomy[0].when",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
