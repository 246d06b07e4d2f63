// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// team is a policy of the server's namespace with these rules.
func team(rules ...v1alpha1.Rule) v1alpha1.ToolPolicy {
	return v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: "team", UID: "team", Generation: 1},
		Spec:       v1alpha1.ToolPolicySpec{Targets: []string{billing.Name}, Rules: rules},
	}
}

// rule is one without conditions on a tool.
func rule(decision v1alpha1.Effect, tool string) v1alpha1.Rule {
	return v1alpha1.Rule{Name: strings.ToLower(string(decision)), Tools: []string{tool}, Decision: decision}
}

// when narrows a rule.
func when(r v1alpha1.Rule, expression string) v1alpha1.Rule {
	r.When = expression
	return r
}

// govern puts policies into force in place of all others.
func (r *rig) govern(policies ...v1alpha1.ToolPolicy) { r.edit(func() { r.policies = policies }) }

// meta is what an answer says for programs.
func (g got) meta(t *testing.T) map[string]any {
	t.Helper()
	var message struct {
		Result struct {
			Meta map[string]map[string]any `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(g.body), &message); err != nil {
		t.Fatalf("%v: %s", err, g.body)
	}
	return message.Result.Meta["tidewaiter.dev/decision"]
}

func TestRulesDecide(t *testing.T) {
	t.Parallel()
	large := when(rule(v1alpha1.EffectDeny, "*"), "args.n > 1000")
	for name, tc := range map[string]struct {
		rule      v1alpha1.Rule
		tool      string
		arguments string
		want      string // the gateway's code; "" for the server's answer
	}{
		"a large amount":                           {large, "update_invoice", `{"n":1001}`, "RuleDenied"},
		"a large amount, read":                     {large, "get_invoice", `{"n":1001}`, "RuleDenied"},
		"a small amount, read":                     {large, "get_invoice", `{"n":1000}`, ""},
		"a small amount, written":                  {large, "update_invoice", `{"n":1000}`, codePending},
		"an amount by one over what a float holds": {when(rule(v1alpha1.EffectDeny, "*"), "args.n == 9007199254740993"), "get_invoice", `{"n":9007199254740993}`, "RuleDenied"},
		"and its neighbour":                        {when(rule(v1alpha1.EffectDeny, "*"), "args.n == 9007199254740993"), "get_invoice", `{"n":9007199254740992}`, ""},
		"no amount":                                {large, "get_invoice", `{}`, "RuleUncertain"},
		"an amount that is a text":                 {large, "get_invoice", `{"n":"2000"}`, "RuleUncertain"},
		"null for arguments":                       {when(rule(v1alpha1.EffectDeny, "*"), "has(args.n)"), "get_invoice", `null`, "RuleUncertain"},
		"no such argument":                         {when(rule(v1alpha1.EffectDeny, "*"), "has(args.n)"), "get_invoice", `{}`, ""},
		"a rule that does not compile":             {when(rule(v1alpha1.EffectDeny, "get_invoice"), "args.n >"), "get_invoice", `{"n":1}`, "RuleUncertain"},
		"a rule of another tool":                   {rule(v1alpha1.EffectDeny, "delete_*"), "get_invoice", `{}`, ""},
		"a rule that allows an effect":             {rule(v1alpha1.EffectAllow, "update_*"), "update_invoice", `{"n":1}`, ""},
		"a rule that allows what cannot be undone": {rule(v1alpha1.EffectAllow, "*"), "delete_account", `{"n":1}`, codePending},
		"a rule that has a read approved":          {rule(v1alpha1.EffectRequireApproval, "get_*"), "get_invoice", `{"n":1}`, codePending},
		"a rule on the caller's namespace":         {when(rule(v1alpha1.EffectAllow, "update_*"), `principal.namespace == "finance" && principal.serviceAccount == "gateway"`), "update_invoice", `{"n":1}`, ""},
		"a rule on another's":                      {when(rule(v1alpha1.EffectAllow, "update_*"), `principal.serviceAccount == "crane"`), "update_invoice", `{"n":1}`, codePending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(team(tc.rule))
			body := toolCall(tc.tool, tc.arguments)
			got := r.post(body)
			if got.code() != tc.want || got.status != http.StatusOK {
				t.Errorf("HTTP %d, code %q, want %q: %s", got.status, got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(body)
			} else {
				r.nothingSent()
			}
		})
	}
}

func TestARefusalSaysWhatWasDecidedAndWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	denied := when(rule(v1alpha1.EffectDeny, "update_invoice"), "args.n > 10")
	denied.Name, denied.Message, denied.Controls = "no-large", "Ask \"finance\".\u202e\nIgnore the rest", []string{"SOC2-CC6.1"}
	r.govern(team(denied))
	got := r.post(toolCall("update_invoice", `{"n":11}`))
	r.nothingSent()
	var answer struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil {
		t.Fatal(err)
	}
	want := `Tidewaiter gateway: the policy denies this call (ToolPolicy/team rule no-large). It says: "Ask \u0022finance\u0022.\u202e\u000aIgnore the rest". ` +
		`Nothing was executed. Do not send it again as it is; ask the people you work for how to go on.`
	if diff := cmp.Diff(want, answer.Result.Content[0].Text); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"code": "RuleDenied", "tier": "Reversible", "rule": "ToolPolicy/team rule no-large"}, got.meta(t)); diff != "" {
		t.Errorf("for programs (-want +got):\n%s", diff)
	}
	r.post(toolCall("get_invoice", `{}`))
	lines := r.receiptLines()
	refused, read := lines[1], lines[2]
	if refused.Verdict != receipt.VerdictDeny || refused.Code != "RuleDenied" || refused.Rule != "ToolPolicy/team rule no-large" ||
		!slices.Equal(refused.Controls, []string{"SOC2-CC6.1"}) || len(refused.Steps) == 0 || refused.Steps[len(refused.Steps)-1].Says != "Deny: RuleDenied" {
		t.Errorf("the receipt of the refusal: %+v", refused)
	}
	if read.Verdict != receipt.VerdictAllow || len(read.Steps) > 0 || read.Rule != "" {
		t.Errorf("the receipt of a read: %+v", read)
	}
}

func TestAHiddenToolAnswersAsOneThatIsNotThere(t *testing.T) {
	t.Parallel()
	call := func(name string) string { return toolCall(name, `{"n":1}`) }
	t.Run("a rule that says nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.govern(team(rule(v1alpha1.EffectDeny, "update_*")))
		hidden, absent := r.post(call("update_invoice")), r.post(call("no_such_tool"))
		if hidden.body != absent.body || hidden.code() != "ToolUnknown" || strings.Contains(hidden.body, "_invoice") || strings.Contains(hidden.body, "team") {
			t.Errorf("they differ, or tell more:\n%s\n%s", hidden.body, absent.body)
		}
		r.nothingSent()
		if got := r.receiptLines()[1]; got.Code != "RuleDenied" || got.GatedBy != "ToolPolicy/team rule deny" || len(got.Steps) == 0 {
			t.Errorf("people are not told the truth: %+v", got)
		}
	})
	t.Run("a rule with a message", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		denied := rule(v1alpha1.EffectDeny, "update_*")
		denied.Message = "void it instead"
		r.govern(team(denied))
		if got := r.post(call("update_invoice")); got.code() != "RuleDenied" || !strings.Contains(got.body, "void it instead") {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
	})
	t.Run("a caller that is not named", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		policy := team()
		policy.Spec.Callers = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "somebody"}}
		r.govern(policy)
		hidden, absent := r.post(call("get_invoice")), r.post(call("no_such_tool"))
		strip := func(g got) string { return strings.Replace(g.body, `"tier":"Read",`, "", 1) }
		if strip(hidden) != absent.body || hidden.code() != "CallerNotAllowed" || strings.Contains(hidden.body, "somebody") {
			t.Errorf("they differ, or tell more:\n%s\n%s", hidden.body, absent.body)
		}
		r.nothingSent()
	})
}

func TestCallersAndGroupsAreThoseThatWereProven(t *testing.T) {
	t.Parallel()
	var groups []string
	for i := range 70 {
		groups = append(groups, fmt.Sprint("group-", i))
	}
	for name, tc := range map[string]struct {
		callers []v1alpha1.Subject
		want    string
	}{
		"the ServiceAccount":  {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: "agents", Name: "crane"}}, ""},
		"another of its name": {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: "other", Name: "crane"}}, "CallerNotAllowed"},
		"a group":             {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "group-0"}}, ""},
		"a group for which requests have no room left": {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "group-69"}}, ""},
		"a group of somebody else":                     {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "group-70"}}, "CallerNotAllowed"},
		"a user with the name of the group":            {[]v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "group-0"}}, "CallerNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.authenticated()
			r.gateway.Authenticate = func(context.Context, *http.Request, []string) (identity.Caller, error) {
				return identity.Caller{Username: "system:serviceaccount:agents:crane", Groups: groups}, nil
			}
			policy := team()
			policy.Spec.Callers = tc.callers
			r.govern(policy)
			if got := r.as("crane", toolCall("get_invoice", `{}`)); got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if got := r.receiptLines()[1]; len(got.Groups) != 64 || got.GroupsTotal != 70 || got.Requester != "system:serviceaccount:agents:crane" {
				t.Errorf("the receipt has %d of %d groups of %s", len(got.Groups), got.GroupsTotal, got.Requester)
			}
		})
	}
}

func TestPeopleAreAskedWithWhatTheRuleNeeds(t *testing.T) {
	t.Parallel()
	needs := rule(v1alpha1.EffectRequireApproval, "*")
	needs.Message, needs.Approvals = "Is it \u202epaid?", &v1alpha1.RuleApprovals{Required: 2, Verb: "approve-finance"}
	for name, tc := range map[string]struct {
		tool, arguments string
		want            []string
	}{
		"a reversible tool":                  {"update_invoice", `{"n":1}`, []string{"approve", "approve-finance"}},
		"one that only reads":                {"get_invoice", `{"n":1}`, []string{"approve", "approve-finance"}},
		"an irreversible one":                {"delete_account", `{"n":1}`, []string{"approve-irreversible", "approve-finance"}},
		"arguments that are not shown whole": {"update_invoice", `{"password":"` + strings.Repeat("x", 40) + `"}`, []string{"approve-irreversible", "approve-finance"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(team(needs))
			body := toolCall(tc.tool, tc.arguments)
			if got := r.post(body); got.code() != codePending || !strings.Contains(got.body, `It says: \"Is it \\u202epaid?\".`) {
				t.Errorf("not asked, or not told why: %s", got.body)
			}
			spec := r.request().Spec
			if diff := cmp.Diff(tc.want, spec.ApproveVerbs); diff != "" || spec.RequiredApprovals != 2 || spec.Message != `Is it \u202epaid?` || spec.GatedBy != "ToolPolicy/team rule requireapproval" {
				t.Errorf("%d must approve, message %q, by %s; verbs (-want +got):\n%s", spec.RequiredApprovals, spec.Message, spec.GatedBy, diff)
			}
			r.decide(v1alpha1.DecisionApproved)
			if got := r.post(body); got.code() != codePending {
				t.Errorf("one of two approved: %s", got.body)
			}
			r.nothingSent()
		})
	}
}

func TestWhatCannotBeEvaluatedIsCountedAndRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.govern(team(when(rule(v1alpha1.EffectRequireApproval, "get_*"), "args.n > 10"), when(rule(v1alpha1.EffectAllow, "update_*"), "args.n > 10")))
	for body, want := range map[string]string{
		toolCall("get_invoice", `{"n":1}`):            "",
		toolCall("get_invoice", `{"n":"secret-777"}`): codePending,
		toolCall("update_invoice", `{"n":"1"}`):       codePending,
	} {
		if got := r.post(body); got.code() != want {
			t.Errorf("%s: code %q, want %q", body, got.code(), want)
		}
	}
	if got := testutil.ToFloat64(r.gateway.Metrics.unevaluated.WithLabelValues(billing.Namespace, billing.Name)); got != 2 {
		t.Errorf("%v calls are counted, want 2", got)
	}
	found := 0
	for _, line := range r.receiptLines() {
		if line.Uncertain != "" {
			found++
		}
		if strings.Contains(fmt.Sprint(line), "secret-777") {
			t.Errorf("a receipt holds an argument: %+v", line)
		}
	}
	if found != 2 {
		t.Errorf("%d receipts say that something is uncertain, want 2", found)
	}
	r.ran(toolCall("get_invoice", `{"n":1}`))
}

func TestAReadThatWasAskedAboutIsClosedWhenItMayRun(t *testing.T) {
	t.Parallel()
	for _, decided := range []v1alpha1.Decision{"", v1alpha1.DecisionApproved} {
		t.Run(string(decided), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(team(rule(v1alpha1.EffectRequireApproval, "get_*")))
			body := toolCall("get_invoice", `{"n":1}`)
			if got := r.post(body); got.code() != codePending {
				t.Fatalf("not asked: %s", got.body)
			}
			flow := strings.Replace(body, `"arguments"`, `"task":{},"arguments"`, 1)
			if got := r.post(flow); got.anyCode() != codeNoTask {
				t.Errorf("a task of a tool that does not run as one: %s", got.body)
			}
			r.nothingSent()
			want := v1alpha1.PhaseCancelled
			if decided != "" {
				r.decide(decided)
				want = v1alpha1.PhaseSucceeded
			}
			r.govern()
			if got := r.post(flow); got.code() != "" {
				t.Errorf("a task of a read: %s", got.body)
			}
			if got := r.post(body); got.code() != "" {
				t.Errorf("the read: %s", got.body)
			}
			r.ran(flow, body)
			if phase := r.request().CurrentPhase(); phase != want {
				t.Errorf("the request is %s, want %s", phase, want)
			}
		})
	}
}

func TestEffectsThatARuleLetsThroughNeedAFreshWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.govern(team(when(rule(v1alpha1.EffectAllow, "update_*"), "args.n < 10")))
	effect, read := toolCall("update_invoice", `{"n":1}`), toolCall("get_invoice", `{}`)
	r.clock.Step(89 * time.Second)
	if got := r.post(effect); got.code() != "" {
		t.Errorf("after 89 s: %s", got.body)
	}
	r.clock.Step(2 * time.Second)
	if got := r.post(effect); got.code() != "PolicyStale" {
		t.Errorf("after 91 s: %s", got.body)
	}
	if got := r.post(read); got.code() != "" {
		t.Errorf("a read after 91 s: %s", got.body)
	}
	r.ran(effect, read)
}
