// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// rule is one without conditions.
func rule(name string, decision v1alpha1.Effect, tools ...string) v1alpha1.Rule {
	return v1alpha1.Rule{Name: name, Tools: tools, Decision: decision}
}

// when narrows a rule.
func when(r v1alpha1.Rule, expression string) v1alpha1.Rule {
	r.When = expression
	return r
}

// rules makes them those of a policy.
func rules(all ...v1alpha1.Rule) func(*v1alpha1.ToolPolicySpec) {
	return func(s *v1alpha1.ToolPolicySpec) { s.Rules = all }
}

// becomes waits until a call is answered with a code; "" is an answer of the server.
func (d *door) becomes(tool, arguments, code string) {
	d.w.t.Helper()
	d.w.eventually(tool+" is answered with "+code, func() error { return wantRefusal(d.call(tool, arguments), code) })
}

// stays fails unless a call is answered with a code now.
func (d *door) stays(tool, arguments, code string) {
	d.w.t.Helper()
	if err := wantRefusal(d.call(tool, arguments), code); err != nil {
		d.w.t.Errorf("%s %s: %v", tool, arguments, err)
	}
}

func wantRefusal(a answer, code string) error {
	if code == "" {
		return wantServerAnswer(a)
	}
	return wantCode(a, code)
}

// recorded waits for a receipt of a call.
func (d *door) recorded(what string, is func(receipt.Receipt) bool) {
	d.w.t.Helper()
	d.w.eventually("a receipt of "+what, func() error {
		text, err := os.ReadFile(d.path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			var r receipt.Receipt
			if json.Unmarshal([]byte(line), &r) == nil && is(r) {
				return nil
			}
		}
		return errorString("none of it in " + string(text))
	})
}

const (
	account = `{"accountId":"a"}`
	bill    = `{"invoiceId":"a"}`
	// early are arguments of calls that a person may have been asked about before a policy was in force: they end otherwise.
	early = `{"invoiceId":"a","note":"early"}`
)

// Case 14: what a broader policy denies no narrower one allows.
func TestANarrowerPolicyAllowsNothingThatABroaderDenies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	w.baseline(rules(rule("no-deleting", v1alpha1.EffectDeny, "delete_*"), rule("rest", v1alpha1.EffectAllow, "*")))
	w.policy("team", rules(rule("all", v1alpha1.EffectAllow, "*")))
	d.becomes("update_invoice", note, "") // the control: both allow it
	d.stays("delete_account", account, "ToolUnknown")
	d.recorded("the denial", func(r receipt.Receipt) bool {
		return r.Tool == "delete_account" && r.Code == "RuleDenied" && strings.HasSuffix(r.Rule, "rule no-deleting") && len(r.Steps) > 0
	})
	w.executions("delete_account", 0)
	for _, r := range w.requests() {
		if r.Spec.Tool == "delete_account" {
			t.Error("a person is asked for what is denied")
		}
	}
}

// Case 15: what one policy has approved another does not let run by being silent, in either direction.
func TestAPolicyThatIsSilentLoosensNothing(t *testing.T) {
	t.Parallel()
	asks, reads := rules(rule("ask", v1alpha1.EffectRequireApproval, "update_*")), rules(rule("read", v1alpha1.EffectAllow, "get_*"))
	for name, tc := range map[string]struct {
		broad, narrow func(*v1alpha1.ToolPolicySpec)
	}{
		"the broader asks":  {asks, reads},
		"the narrower asks": {reads, asks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tellAtOnce)
			d := w.openDoor("gw")
			w.baseline(tc.broad)
			w.policy("team", tc.narrow)
			w.policy("others", rules(rule("update", v1alpha1.EffectAllow, "update_*"), rule("list", v1alpha1.EffectRequireApproval, "list_*")))
			d.becomes("list_invoices", account, "ApprovalPending") // the last policy is in force
			d.stays("update_invoice", note, "ApprovalPending")
			d.stays("get_invoice", bill, "")
			w.executions("update_invoice", 0)
		})
	}
}

// Case 16: of two lists that have nothing in common nothing is left.
func TestTwoListsWithNothingInCommonAllowNothing(t *testing.T) {
	t.Parallel()
	t.Run("of tools", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, tellAtOnce)
		d := w.openDoor("gw")
		reads := w.policy("reads", rules(rule("these", v1alpha1.EffectAllow, "get_*"), rule("no-other", v1alpha1.EffectDeny, "*")))
		d.becomes("update_invoice", early, "ToolUnknown")
		d.stays("get_invoice", bill, "")
		w.policy("writes", rules(rule("these", v1alpha1.EffectAllow, "update_*"), rule("no-other", v1alpha1.EffectDeny, "*")))
		d.becomes("get_invoice", bill, "ToolUnknown")
		for _, tool := range []string{"update_invoice", "send_invoice", "delete_account", "list_invoices"} {
			d.stays(tool, note, "ToolUnknown")
		}
		w.executions("update_invoice", 0)
		if err := w.person.Delete(t.Context(), reads); err != nil {
			t.Fatal(err)
		}
		d.becomes("update_invoice", note, "") // the control: one list alone
	})
	t.Run("of callers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, tellAtOnce)
		d := w.openDoor("gw")
		named := func(name string) func(*v1alpha1.ToolPolicySpec) {
			return func(s *v1alpha1.ToolPolicySpec) {
				s.Callers = []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: w.namespace, Name: name}}
			}
		}
		w.policy("first", named("gateway-billing"))
		d.stays("get_invoice", bill, "")
		second := w.policy("second", named("another"))
		d.becomes("get_invoice", bill, "CallerNotAllowed")
		d.stays("update_invoice", note, "CallerNotAllowed")
		d.stays("no_such_tool", note, "CallerNotAllowed")
		if err := w.person.Delete(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		d.becomes("get_invoice", bill, "") // the control: the list that names the caller
	})
}

// Case 17: a slip of the pen in a rule is refused, and never leaves a policy that says less.
func TestASlipOfThePenInARuleIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	write := func(name, text string, options ...client.CreateOption) error {
		p := &unstructured.Unstructured{}
		if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"tidewaiter.dev/v1alpha1","kind":"ToolPolicy","metadata":{"namespace":%q,"name":%q},"spec":{"targets":["billing"],%s}}`, w.namespace, name, text), &p.Object); err != nil {
			t.Fatal(err)
		}
		return w.person.Create(t.Context(), p, options...)
	}
	strict := client.FieldValidation("Strict") // as kubectl sends it
	for name, text := range map[string]string{
		"decision-misspelt": `"rules":[{"name":"a","tools":["get_*"],"decison":"Deny"}]`,
		"decision-of-none":  `"rules":[{"name":"a","tools":["get_*"],"decision":"deny"}]`,
		"no-tools":          `"rules":[{"name":"a","tool":["get_*"],"decision":"Deny"}]`,
		"a-verb-of-none":    `"rules":[{"name":"a","tools":["get_*"],"decision":"RequireApproval","approvals":{"verb":"get"}}]`,
		"a-class":           `"rules":[{"name":"a","tools":["get_["],"decision":"Deny"}]`,
	} {
		if err := write(name, text); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	for name, text := range map[string]string{
		"denny":      `"denny":["get_*"],"callers":[{"kind":"User","name":"a"}]`,
		"condition":  `"rules":[{"name":"a","tools":["get_*"],"decision":"Deny","condition":"true"}]`,
		"of-earlier": `"allow":["get_*"]`,
	} {
		if err := write(name, text, strict); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := write("right", `"rules":[{"name":"a","tools":["get_*"],"decision":"Deny","when":"args.n > 1"}]`, strict); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// Case 18: a rule that cannot see the amount does not let the call fall through.
func TestACallFallsThroughNoRuleThatCannotReadIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	w.policy("limit", rules(when(rule("large", v1alpha1.EffectDeny, "get_invoice"), "args.amount > 1000")))
	amount := func(text string) string { return `{"invoiceId":"a","amount":` + text + `}` }
	d.becomes("get_invoice", amount("2000"), "RuleDenied")
	before := w.billing.Executions()["get_invoice"]
	for _, arguments := range []string{bill, amount(`"2000"`), amount("null"), amount("[1]"), amount("1e400"), `null`} {
		d.stays("get_invoice", arguments, "RuleUncertain")
	}
	d.stays("get_invoice", amount("1000.5"), "RuleDenied")
	w.executions("get_invoice", before)
	d.stays("get_invoice", amount("1000"), "") // the control
	d.recorded("what was not evaluated", func(r receipt.Receipt) bool {
		return r.Code == "RuleUncertain" && strings.Contains(r.Uncertain, "rule large") && !strings.Contains(r.Uncertain, "2000")
	})
}

// Case 20: an error gives no less than the rule's word, and no less than what would follow without it.
func TestAnErrorInARuleNeverLoosens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	policy := w.policy("rules", rules(
		when(rule("ask", v1alpha1.EffectRequireApproval, "get_invoice"), "args.missing > 1"),
		rule("deny", v1alpha1.EffectDeny, "get_invoice"),
		when(rule("let", v1alpha1.EffectAllow, "update_invoice"), "args.missing > 1"),
		when(rule("list", v1alpha1.EffectAllow, "list_invoices"), "args.missing > 1"),
		when(rule("deny-list", v1alpha1.EffectDeny, "list_invoices"), "args.missing > 1"),
	))
	d.becomes("get_invoice", bill, "RuleUncertain") // whatever the first says, the second denies
	before := w.billing.Executions()
	d.stays("update_invoice", note, "ApprovalPending")
	d.stays("list_invoices", account, "RuleUncertain")
	d.recorded("the error", func(r receipt.Receipt) bool {
		return r.Tool == "update_invoice" && strings.Contains(r.Uncertain, "rule let")
	})
	for _, tool := range []string{"get_invoice", "update_invoice", "list_invoices"} {
		w.executions(tool, before[tool])
	}
	// The control: the same rules, for calls that they can read.
	d.stays("update_invoice", `{"invoiceId":"a","note":"n","missing":2}`, "")
	d.stays("list_invoices", `{"accountId":"a","missing":1}`, "")
	if err := w.person.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	d.becomes("get_invoice", bill, "")
}

// Case 22: of policies that disagree about how many and who must approve the strict one holds, whichever came last.
func TestOfTwoPoliciesThatDisagreeTheStrictOneHolds(t *testing.T) {
	t.Parallel()
	asks := func(required int32, verb string) func(*v1alpha1.ToolPolicySpec) {
		r := rule("ask", v1alpha1.EffectRequireApproval, "update_*")
		r.Approvals = &v1alpha1.RuleApprovals{Required: required, Verb: verb}
		return rules(r)
	}
	for name, order := range map[string][]func(*v1alpha1.ToolPolicySpec){
		"the strict one last":  {asks(1, "approve-legal"), asks(3, "approve-finance")},
		"the strict one first": {asks(3, "approve-finance"), asks(1, "approve-legal")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tellAtOnce)
			d := w.openDoor("gw")
			for i, edit := range order {
				w.policy(fmt.Sprint("policy-", i), edit)
			}
			w.policy("silent", rules(rule("nothing", v1alpha1.EffectAllow, "no_such_*"), rule("list", v1alpha1.EffectRequireApproval, "list_*")))
			d.becomes("list_invoices", account, "ApprovalPending")
			r := w.request(d.call("update_invoice", note).request())
			slices.Sort(r.Spec.ApproveVerbs)
			if r.Spec.RequiredApprovals != 3 || !slices.Equal(r.Spec.ApproveVerbs, []string{"approve", "approve-finance", "approve-legal"}) {
				t.Errorf("%d must approve with %v", r.Spec.RequiredApprovals, r.Spec.ApproveVerbs)
			}
			// Who has only the tier's verb may not vote.
			if err := w.vote(r.Name, v1alpha1.DecisionApproved); err == nil {
				t.Error("a vote without the rules' verbs was taken")
			}
			d.stays("get_invoice", bill, "") // the control: of this nobody speaks
		})
	}
}

// Case 24: while a call waits the policy changes; what it says then counts, both ways.
func TestAHeldCallMeetsThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		decision v1alpha1.Effect
		code     string
		reason   v1alpha1.CancellationReason
		runs     int
	}{
		"to Deny":  {v1alpha1.EffectDeny, "RuleDenied", v1alpha1.CancelPolicyChanged, 0},
		"to Allow": {v1alpha1.EffectAllow, "", v1alpha1.CancelWithdrawn, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.openDoor("gw")
			answers := make(chan answer, 1)
			go func() { answers <- d.call("update_invoice", note) }()
			r := w.theRequest(v1alpha1.PhasePending)
			w.policy("new", rules(rule("now", tc.decision, "update_*")))
			got := <-answers
			if err := wantRefusal(got, tc.code); err != nil {
				t.Error(err)
			}
			if tc.code != "" && (got.Result.Meta.Decision.Rule != "ToolPolicy/new rule now" || got.request() != r.Name) {
				t.Errorf("it does not name what changed: %s", got.raw)
			}
			w.wantCancelled(r.Name, tc.reason)
			if err := w.vote(r.Name, v1alpha1.DecisionApproved); err == nil {
				t.Error("a vote on a request that has ended was taken")
			}
			w.executions("update_invoice", tc.runs)
		})
	}
}

// Cases 24 and 96: the policy changes between the yes and the call that is sent again.
func TestAnApprovalIsJudgedAgainByThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule  v1alpha1.Rule
		code  string
		phase v1alpha1.Phase
		runs  int
	}{
		"to Deny":                    {rule("now", v1alpha1.EffectDeny, "update_*"), "RuleDenied", v1alpha1.PhaseCancelled, 0},
		"to another verb":            {v1alpha1.Rule{Name: "now", Tools: []string{"update_*"}, Decision: v1alpha1.EffectRequireApproval, Approvals: &v1alpha1.RuleApprovals{Verb: "approve-finance"}}, "ApprovalPending", v1alpha1.PhaseCancelled, 0},
		"to Allow":                   {rule("now", v1alpha1.EffectAllow, "update_*"), "", v1alpha1.PhaseSucceeded, 1},
		"of another tool (control)":  {rule("now", v1alpha1.EffectDeny, "send_*"), "", v1alpha1.PhaseSucceeded, 1},
		"to what it was (a control)": {rule("now", v1alpha1.EffectRequireApproval, "update_*"), "", v1alpha1.PhaseSucceeded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tellAtOnce)
			d := w.openDoor("gw")
			d.call("update_invoice", note)
			old := w.approve()
			d.sees(old, v1alpha1.PhaseApproved)
			w.policy("new", rules(tc.rule, rule("list", v1alpha1.EffectRequireApproval, "list_*")))
			d.becomes("list_invoices", account, "ApprovalPending")
			got := d.call("update_invoice", note)
			if err := wantRefusal(got, tc.code); err != nil {
				t.Error(err)
			}
			if tc.code != "" && (got.Result.Meta.Decision.Rule != "ToolPolicy/new rule now" || !strings.Contains(got.raw, "(ToolPolicy/new rule now)") || !strings.Contains(got.raw, old.Name)) {
				t.Errorf("it does not name what changed: %s", got.raw)
			}
			if tc.phase == v1alpha1.PhaseCancelled {
				w.wantCancelled(old.Name, v1alpha1.CancelPolicyChanged)
			} else {
				w.eventually("the request is closed", func() error { return wantPhase(w.request(old.Name), tc.phase) })
			}
			w.executions("update_invoice", tc.runs)
		})
	}
}

// govern edits the server as the person.
func (w *world) govern(edit func(*v1alpha1.GovernedServerSpec)) {
	w.t.Helper()
	server := w.governed()
	before := server.DeepCopy()
	edit(&server.Spec)
	if err := w.person.Patch(w.t.Context(), server, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// Case 25: a server that only observes lets pass what would be denied, and the receipt says what it would have met.
func TestAnObservedDenialIsForwardedAndRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	w.policy("team", rules(rule("frozen", v1alpha1.EffectDeny, "update_*")))
	d.becomes("update_invoice", note, "ToolUnknown")
	asked := len(w.requests()) // until the rule was in force
	w.govern(func(s *v1alpha1.GovernedServerSpec) { s.Mode = v1alpha1.ModeObserve })
	d.becomes("update_invoice", note, "")
	d.stays("delete_account", account, "")
	for tool, want := range map[string]receipt.Observed{
		"update_invoice": {Verdict: receipt.VerdictDeny, Code: "RuleDenied", GatedBy: "ToolPolicy/team rule frozen"},
		"delete_account": {Verdict: receipt.VerdictRequireApproval, Code: "ApprovalRequired", GatedBy: "tier"},
	} {
		for _, kind := range []receipt.Kind{receipt.KindDecision, receipt.KindOutcome} {
			d.recorded("what was observed", func(r receipt.Receipt) bool {
				return r.Kind == kind && r.Tool == tool && r.Verdict == receipt.VerdictAllow && r.Code == "Observed" && r.Observed != nil && *r.Observed == want
			})
		}
	}
	w.executions("update_invoice", 1)
	w.executions("delete_account", 1)
	if n := len(w.requests()); n != asked {
		t.Errorf("%d requests were opened", n-asked)
	}
	w.govern(func(s *v1alpha1.GovernedServerSpec) { s.Mode = v1alpha1.ModeEnforce })
	d.becomes("update_invoice", early, "ToolUnknown") // the control
	ran := w.billing.Executions()["update_invoice"]
	d.stays("update_invoice", note, "ToolUnknown")
	w.executions("update_invoice", ran)
}

// Case 26: a server that a policy covers no more falls back to the default of each tier.
func TestAServerThatLeavesAPolicyFallsBackToTheTiers(t *testing.T) {
	t.Parallel()
	t.Run("a target", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, tellAtOnce)
		d := w.openDoor("gw")
		p := w.policy("team", rules(rule("let", v1alpha1.EffectAllow, "update_*"), rule("no-reading", v1alpha1.EffectDeny, "get_*")))
		d.becomes("update_invoice", note, "")
		d.stays("get_invoice", bill, "ToolUnknown")
		before := p.DeepCopy()
		p.Spec.Targets = []string{"another"}
		if err := w.admin.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		d.becomes("get_invoice", bill, "")
		d.stays("update_invoice", note, "ApprovalPending")
		d.stays("delete_account", account, "ApprovalPending")
		w.executions("update_invoice", 1)
	})
	t.Run("the label of a namespace", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, tellAtOnce)
		d := w.openDoor("gw")
		w.baseline(rules(rule("let", v1alpha1.EffectAllow, "update_*"), rule("no-reading", v1alpha1.EffectDeny, "get_*")))
		d.becomes("update_invoice", note, "")
		d.stays("get_invoice", bill, "ToolUnknown")
		w.status(func(s *v1alpha1.GovernedServerStatus) { // as the manager, when the label is gone
			s.NamespaceLabels = map[string]string{corev1.LabelMetadataName: "renamed"}
		})
		d.becomes("get_invoice", bill, "")
		d.stays("update_invoice", note, "ApprovalPending")
		d.stays("delete_account", account, "ApprovalPending")
		w.executions("update_invoice", 1)
	})
}
