// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// TestMain has every law hold over 5,000 cases where nobody says how many. A million, with the seed printed:
//
//	go test -run Law -v -timeout 0 ./internal/policy -rapid.checks 1000000
//
// A failure is found again with -rapid.seed.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "5000", "rapid.seed": strconv.FormatUint(rand.Uint64(), 10)} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// law checks a property over random cases.
func law(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	t.Parallel()
	t.Logf("-rapid.checks %s -rapid.seed %s", flag.Lookup("rapid.checks").Value, flag.Lookup("rapid.seed").Value)
	rapid.Check(t, property)
}

// noLooser fails where the second verdict lets more pass than the first, or asks fewer persons, or for fewer verbs.
func noLooser(t *rapid.T, before, after Decision) {
	t.Helper()
	if after.Effect > before.Effect {
		t.Fatalf("%v by %s was widened to %v by %s", before.Effect, before.GatedBy, after.Effect, after.GatedBy)
	}
	if after.Effect != RequireApproval || before.Effect != RequireApproval {
		return
	}
	if after.RequiredApprovals < before.RequiredApprovals {
		t.Fatalf("%d persons instead of %d", after.RequiredApprovals, before.RequiredApprovals)
	}
	for _, verb := range before.Verbs {
		if verb != v1alpha1.VerbApprove && !slices.Contains(after.Verbs, verb) {
			t.Fatalf("the verb %s is lost: %v", verb, after.Verbs)
		}
	}
}

func TestLawOrderOfPoliciesNeverMatters(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		want := decided(s, policies, Facts{})
		shuffled := slices.Clone(policies)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		got := decided(s, shuffled, Facts{})
		if diff := cmp.Diff(want.Decide(q.call()), got.Decide(q.call())); diff != "" {
			t.Fatalf("verdict by order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.Explain(q.call()), got.Explain(q.call())); diff != "" {
			t.Fatalf("derivation by order (-want +got):\n%s", diff)
		}
	})
}

// A tier can be raised past a condition that looks at it: rules of teams that do so are left out. Those of baselines
// are looked at in every tier that a team could hide; see TestLawABaselineIsAnUpperBound.
func TestLawARestrictivePolicyNeverAllowsMore(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, plainConditions), drawQuestion(t)
		strict := drawPolicy(t, "strict", anyConditions)
		strict.Spec.Pins = nil
		for i := range strict.Spec.Autonomy {
			strict.Spec.Autonomy[i].Mode = v1alpha1.ModeAttended
		}
		strict.Spec.Tiers = slices.DeleteFunc(strict.Spec.Tiers, func(o v1alpha1.TierOverride) bool { return o.Tier != v1alpha1.TierIrreversible })
		strict.Spec.Rules = slices.DeleteFunc(strict.Spec.Rules, func(r v1alpha1.Rule) bool { return r.Decision == v1alpha1.EffectAllow })
		noLooser(t, decided(s, policies, Facts{}).Decide(q.call()), decided(s, append(slices.Clone(policies), strict), Facts{}).Decide(q.call()))
	})
}

func TestLawNoPolicyLoosensAWordThatIsThere(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		s.Spec.Mode = v1alpha1.ModeEnforce
		before := decided(s, policies, Facts{}).Decide(q.call())
		if !strings.Contains(before.GatedBy, " rule ") && before.Reason != ReasonCallerNotAllowed {
			return
		}
		more := policyOf("more", v1alpha1.ToolPolicySpec{Rules: drawRules(t, anyConditions)})
		noLooser(t, before, decided(s, append(slices.Clone(policies), more), Facts{}).Decide(q.call()))
	})
}

// What people who approve do not see passes only where somebody said so, and a refusal of it stays one.
func TestLawAnswersInTheMiddleOfACallPassOnlyBySomebodysWord(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		allows := func(r v1alpha1.Rule) bool { return r.InputResponses == v1alpha1.InputAllow }
		got := decided(s, policies, Facts{}).Decide(q.call())
		if o := got.Observed; o != nil {
			got = *o
		}
		if got.Input && !slices.ContainsFunc(policies, func(p v1alpha1.ToolPolicy) bool { return slices.ContainsFunc(p.Spec.Rules, allows) }) {
			t.Fatal("nobody allows it")
		}
		refusing := drawBaseline(t, "refusing", anyConditions)
		refusing.Spec.NamespaceSelector, refusing.Spec.Mode = &metav1.LabelSelector{}, ""
		refusing.Spec.Rules = []v1alpha1.Rule{{Name: "no", Tools: []string{"*"}, Decision: v1alpha1.EffectRequireApproval, InputResponses: v1alpha1.InputDeny}}
		refused := decided(s, append(slices.Clone(policies), refusing), Facts{}).Decide(q.call())
		if o := refused.Observed; refused.Input || o != nil && o.Input {
			t.Fatal("a baseline refuses it, and it passes")
		}
	})
}

func TestLawABaselineIsAnUpperBound(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, q := drawServer(t), drawQuestion(t)
		baselines, teams := []v1alpha1.ToolPolicy{drawBaseline(t, "b0", anyConditions), drawBaseline(t, "b1", anyConditions)}, []v1alpha1.ToolPolicy{}
		for _, name := range []string{"p0", "p1"} {
			teams = append(teams, drawPolicy(t, name, anyConditions))
		}
		alone := s.DeepCopy()
		alone.Spec.Mode, alone.Spec.Pinning = v1alpha1.ModeEnforce, v1alpha1.PinningOff
		before := decided(alone, baselines, Facts{}).Decide(q.call())
		says := strings.HasPrefix(before.GatedBy, "ToolPolicy/"+home) && !strings.Contains(before.GatedBy, "spec.tiers") && !strings.Contains(before.GatedBy, "spec.autonomy")
		// A snapshot that is too old for a call with effects is not the baseline's word: a tier Read of a team stands in that
		// case as it does in any other.
		if !says || before.Reason == ReasonPolicyStale || s.Spec.Pinning == v1alpha1.PinningEnforce {
			return
		}
		// What an unaccepted definition is raised to, the baselines alone do not see with pinning Off.
		s.Status.Accepted, s.Spec.Pinning = nil, v1alpha1.PinningOff
		after := decided(s, append(teams, baselines...), Facts{}).Decide(q.call())
		if after.Effect > before.Effect {
			t.Fatalf("%s: %v was loosened to %v (%s by %s)", before.GatedBy, before.Effect, after.Effect, after.Reason, after.GatedBy)
		}
		for _, verb := range before.Verbs {
			if after.Effect == RequireApproval && verb != before.Tier.ApproveVerb() && !slices.Contains(after.Verbs, verb) {
				t.Fatalf("%s: the verb %s is lost: %v", before.GatedBy, verb, after.Verbs)
			}
		}
	})
}

func TestLawUncertaintyNeverWidens(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		s.Spec.Mode = v1alpha1.ModeEnforce
		unsure := policyOf("unsure", v1alpha1.ToolPolicySpec{Rules: append(drawRules(t, anyConditions), drawRule(t, "x", []string{"args.absent > 1"}))})
		last := len(unsure.Spec.Rules) - 1
		if at := rapid.IntRange(0, last).Draw(t, "at"); at != last {
			unsure.Spec.Rules[at], unsure.Spec.Rules[last] = unsure.Spec.Rules[last], unsure.Spec.Rules[at]
			last = at
		}
		verdict := func(when string) Decision {
			p := *unsure.DeepCopy()
			p.Spec.Rules[last].When = when
			return decided(s, append(slices.Clone(policies), p), Facts{}).Decide(q.call())
		}
		got, matched, not := verdict("args.absent > 1"), verdict("true"), verdict("false")
		noLooser(t, matched, got)
		noLooser(t, not, got)
		if got.Effect != min(matched.Effect, not.Effect) {
			t.Fatalf("%v, where it is %v with the rule and %v without", got.Effect, matched.Effect, not.Effect)
		}
	})
}

func TestLawNarrowingAnAllowRuleNeverAllowsMore(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		wide := policyOf("allow", v1alpha1.ToolPolicySpec{Rules: append(drawRules(t, anyConditions), drawRule(t, "x", anyConditions))})
		r := &wide.Spec.Rules[rapid.IntRange(0, len(wide.Spec.Rules)-1).Draw(t, "at")]
		r.Decision, r.Approvals, r.Tools = v1alpha1.EffectAllow, nil, []string{"*", "get_*"}
		narrow := *wide.DeepCopy()
		for i := range narrow.Spec.Rules {
			if narrow.Spec.Rules[i].Name == r.Name {
				narrow.Spec.Rules[i].Tools = []string{pick(t, "glob", "get_*", "update_invoice", "x*")}
			}
		}
		before := decided(s, append(slices.Clone(policies), wide), Facts{}).Decide(q.call())
		noLooser(t, before, decided(s, append(slices.Clone(policies), narrow), Facts{}).Decide(q.call()))
	})
}

func TestLawWhatTheGatewaySawNeverAllowsMore(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, plainConditions), drawQuestion(t)
		seen := func(name string) map[string]bool {
			if rapid.Bool().Draw(t, name) {
				return map[string]bool{q.tool: true}
			}
			return nil
		}
		facts := Facts{Denied: seen("denied"), Ambiguous: seen("ambiguous"), Drifted: seen("drifted")}
		noLooser(t, decided(s, policies, Facts{}).Decide(q.call()), decided(s, policies, facts).Decide(q.call()))
	})
}

func TestLawCeiling(t *testing.T) {
	law(t, func(t *rapid.T) {
		s := drawServer(t)
		if s.Spec.Mode == v1alpha1.ModeObserve {
			s.Spec.Mode = v1alpha1.ModeEnforce
		}
		got := decided(s, drawPolicies(t, anyConditions), Facts{}).Decide(drawQuestion(t).call())
		if got.Effect == Allow && got.Tier != v1alpha1.TierRead && got.Tier != v1alpha1.TierReversible {
			t.Fatalf("an %s tool was allowed: %+v", got.Tier, got)
		}
		if got.Reason == ReasonUnattended && (got.Tool.Record.Denied > 0 || got.Tool.Record.Approved < 1) {
			t.Fatalf("a tool ran unattended on this record: %+v", got.Tool.Record)
		}
		if (got.Effect == RequireApproval) != (got.RequiredApprovals > 0) || (got.Effect == RequireApproval) != (len(got.Verbs) > 0) || len(got.Verbs) > maxVerbs {
			t.Fatalf("%v needs %d persons with %v", got.Effect, got.RequiredApprovals, got.Verbs)
		}
	})
}

func TestLawMorePersonsNeverAllowMore(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		more := s.DeepCopy()
		more.Spec.Approvals.Required.Reversible += rapid.Int32Range(0, 8).Draw(t, "more")
		more.Spec.Approvals.Required.Irreversible += rapid.Int32Range(0, 8).Draw(t, "more")
		before, after := decided(s, policies, Facts{}).Decide(q.call()), decided(more, policies, Facts{}).Decide(q.call())
		if after.Effect != before.Effect || after.RequiredApprovals < before.RequiredApprovals {
			t.Fatalf("%v by %d persons became %v by %d", before.Effect, before.RequiredApprovals, after.Effect, after.RequiredApprovals)
		}
	})
}

func TestLawObserveIsNeverStricterThanEnforce(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		s.Spec.Mode = v1alpha1.ModeEnforce
		enforced := decided(s, policies, Facts{}).Decide(q.call())
		s.Spec.Mode = v1alpha1.ModeObserve
		got := decided(s, policies, Facts{}).Decide(q.call())
		if got.Effect < enforced.Effect {
			t.Fatalf("%v became %v by %s", enforced.Effect, got.Effect, got.GatedBy)
		}
		if (got.Observed != nil) != (got.Reason == ReasonObserved) || got.Observed != nil && got.Effect != Allow {
			t.Fatalf("half observed: %+v", got)
		}
		if got.Observed != nil && q.freshness == Fresh {
			if diff := cmp.Diff(enforced, *got.Observed); diff != "" {
				t.Fatalf("observed is not what it would have been (-want +got):\n%s", diff)
			}
		}
	})
}

// Where a baseline gives a tool its tier, or keeps it attended, what another baseline allows lifts neither.
func TestLawObserveLiftsNoTierOfABaseline(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, plainConditions), drawQuestion(t)
		q.freshness = Fresh
		s.Spec.Pinning = v1alpha1.PinningOff // pins bind as far as the server's pinning says
		s.Spec.Mode = v1alpha1.ModeObserve
		observing := decided(s, policies, Facts{})
		if c, found := observing.tools[q.tool]; !found || !c.gated {
			return
		}
		got := observing.Decide(q.call())
		enforcing := s.DeepCopy()
		enforcing.Spec.Mode = v1alpha1.ModeEnforce
		// Tiers and promotions are a team's to give, as far as baselines let it.
		var bare []v1alpha1.ToolPolicy
		for _, p := range policies {
			if p.Spec.NamespaceSelector == nil {
				p.Spec = v1alpha1.ToolPolicySpec{Targets: p.Spec.Targets, Tiers: p.Spec.Tiers, Autonomy: p.Spec.Autonomy}
			}
			bare = append(bare, p)
		}
		alone, all := decided(enforcing, bare, Facts{}).Decide(q.call()), decided(enforcing, policies, Facts{}).Decide(q.call())
		if alone.GatedBy == "tier" {
			return // the classified tier, which an override of the team may lower, and which Observe lifts
		}
		if got.Effect > max(alone.Effect, all.Effect) {
			t.Fatalf("Observe made %v of what baselines alone would %v by %s: %+v", got.Effect, alone.Effect, alone.GatedBy, got)
		}
	})
}

func TestLawExplainAgreesWithDecide(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, q := decided(drawServer(t), drawPolicies(t, anyConditions), Facts{}), drawQuestion(t)
		d, steps := s.Decide(q.call()), s.Explain(q.call())
		want := Step{Source: "verdict", Says: d.Effect.String() + ": " + string(d.Reason)}
		if got := steps[len(steps)-1]; got != want {
			t.Fatalf("the derivation ends with %v, the verdict is %v", got, want)
		}
		if strings.Contains(d.GatedBy, " rule ") && !slices.ContainsFunc(steps, func(s Step) bool { return s.Source == d.GatedBy }) {
			t.Fatalf("%s decided and does not stand in the derivation: %v", d.GatedBy, steps)
		}
	})
}

func TestLawRangeBoundsDecide(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, q := decided(drawServer(t), drawPolicies(t, anyConditions), Facts{}), drawQuestion(t)
		q.freshness = Fresh
		strictest, loosest := s.Range(q.tool, q.principal)
		if d := s.Decide(q.call()); d.Effect < strictest || d.Effect > loosest {
			t.Fatalf("%v by %s is not between %v and %v", d.Effect, d.GatedBy, strictest, loosest)
		} else if d.Effect == Allow && d.Tier != v1alpha1.TierRead && !s.AnyUnattended() {
			t.Fatalf("an effect passes by %s, and nothing is said to run unattended", d.GatedBy)
		}
	})
}

func TestLawAnotherVerdictIsAnotherRevision(t *testing.T) {
	law(t, func(t *rapid.T) {
		s, policies, q := drawServer(t), drawPolicies(t, anyConditions), drawQuestion(t)
		other := s.DeepCopy()
		other.Status = drawServer(t).Status // a write of the status makes no generation
		before, after := decided(s, policies, Facts{}), decided(other, policies, Facts{})
		was, is := before.Decide(q.call()), after.Decide(q.call())
		if was.Revision == is.Revision && (was.Effect != is.Effect || was.RequiredApprovals != is.RequiredApprovals || !slices.Equal(was.Verbs, is.Verbs)) {
			t.Fatalf("%v became %v under one revision", was, is)
		}
	})
}
