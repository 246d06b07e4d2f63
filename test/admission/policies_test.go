// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestGovernIsNeededForEveryChangeOfAPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	policy := func() *v1alpha1.ToolPolicy { return new(fixture.ToolPolicy(w.namespace, "house", "billing")) }
	lowering := fixture.With(*policy(), func(p *v1alpha1.ToolPolicy) {
		p.Name = "lowering"
		p.Spec.Tiers = []v1alpha1.TierOverride{{
			Tool: "send_invoice", Digest: fixture.Digest("a"), Tier: v1alpha1.TierReversible, Reason: "We can void it",
		}}
	})

	refused(t, "the editor creates it", policiesPolicy, w.editor.Create(ctx, policy()))
	refused(t, "the editor lowers a tier", policiesPolicy, w.editor.Create(ctx, lowering.DeepCopy()))
	taken(t, "the owner creates it", w.owner.Create(ctx, policy()))
	taken(t, "the owner lowers a tier", w.owner.Create(ctx, lowering.DeepCopy()))

	for name, patch := range map[string]string{
		"dropping a tier":    `{"spec":{"tiers":null}}`,
		"narrowing globs":    `{"spec":{"tiers":[{"tools":["export_all"],"tier":"Irreversible","reason":"An export leaves"}]}}`,
		"an attended entry":  `{"spec":{"autonomy":[{"tool":"refund","mode":"Attended"}]}}`,
		"a label":            `{"metadata":{"labels":{"team":"mine"}}}`,
		"an owner reference": `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"4f0a"}]}}`,
		"a finalizer":        `{"metadata":{"finalizers":["example.com/wedge"]}}`,
	} {
		refused(t, "the editor: "+name, policiesPolicy, w.editor.Patch(ctx, policy(), merge(patch)))
		taken(t, "the owner: "+name, w.owner.Patch(ctx, policy(), merge(patch), client.DryRunAll))
	}
	taken(t, "the editor annotates it", w.editor.Patch(ctx, policy(), merge(`{"metadata":{"annotations":{"note":"mine"}}}`)))
	unchanged := policy()
	must(t, w.editor.Get(ctx, client.ObjectKeyFromObject(unchanged), unchanged))
	taken(t, "the editor puts back what is there", w.editor.Update(ctx, unchanged))

	refused(t, "the editor deletes it", policiesPolicy, w.editor.Delete(ctx, policy()))
	refused(t, "the editor deletes all", policiesPolicy, w.editor.DeleteAllOf(ctx, policy(), client.InNamespace(w.namespace)))
	taken(t, "the owner deletes it", w.owner.Delete(ctx, policy()))
}

func TestOldAndNewTargetsCountEachOfThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	before, after := names("old", 8), names("new", 8)
	everything := person(t, w.namespace, "everything", governing(append(before, after...))...)
	must(t, everything.Create(ctx, new(fixture.ToolPolicy(w.namespace, "wide", before...))))

	retarget := fixture.With(fixture.ToolPolicy(w.namespace, "wide", after...))
	must(t, everything.Get(ctx, client.ObjectKeyFromObject(retarget), retarget))
	retarget.Spec.Targets = after
	taken(t, "16 targets, all governed", everything.Update(ctx, retarget.DeepCopy(), client.DryRunAll))

	for missing, server := range append(before, after...) {
		all := append(names("old", 8), after...)
		name := fmt.Sprintf("all-but-%d", missing)
		most := person(t, w.namespace, name, governing(append(all[:missing:missing], all[missing+1:]...))...)
		refused(t, "retargeting without "+server, policiesPolicy, most.Update(ctx, retarget.DeepCopy(), client.DryRunAll))
		if missing >= len(before) {
			refused(t, "creating without "+server, policiesPolicy,
				most.Create(ctx, new(fixture.ToolPolicy(w.namespace, "fresh", after...)), client.DryRunAll))
			taken(t, "deleting without "+server,
				most.Delete(ctx, new(fixture.ToolPolicy(w.namespace, "wide")), client.DryRunAll))
		} else {
			refused(t, "deleting without "+server, policiesPolicy,
				most.Delete(ctx, new(fixture.ToolPolicy(w.namespace, "wide")), client.DryRunAll))
		}
	}
}

func TestPromoteIsNeededForAnUnattendedEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	// governor governs both servers and may promote on neither; half may promote on one.
	both := governing([]string{"billing", "payroll"})
	governor := person(t, w.namespace, "governor", both...)
	half := person(t, w.namespace, "half", append(both, fixture.Authority("billing", "promote"))...)
	promoter := person(t, w.namespace, "promoter",
		append(both, fixture.Authority("billing", "promote"), fixture.Authority("payroll", "promote"))...)
	onlyPromotes := person(t, w.namespace, "only-promotes", fixture.Authority("billing", "promote"))

	promotion := func(digit string) v1alpha1.AutonomyRule {
		return v1alpha1.AutonomyRule{Tool: "refund", Digest: fixture.Digest(digit), Mode: v1alpha1.ModeUnattended}
	}
	base := fixture.With(fixture.ToolPolicy(w.namespace, "promoted", "billing"), func(p *v1alpha1.ToolPolicy) {
		p.Spec.Autonomy = []v1alpha1.AutonomyRule{promotion("a"), {Tool: "void", Mode: v1alpha1.ModeAttended}}
	})
	refused(t, "creating with a promotion", promotionsPolicy, governor.Create(ctx, base.DeepCopy()))
	refused(t, "promote without govern", policiesPolicy, onlyPromotes.Create(ctx, base.DeepCopy()))
	taken(t, "creating with promote on the target", half.Create(ctx, base.DeepCopy()))
	must(t, half.Get(ctx, client.ObjectKeyFromObject(base), base))

	edit := func(edit func(*v1alpha1.ToolPolicySpec)) *v1alpha1.ToolPolicy {
		changed := base.DeepCopy()
		edit(&changed.Spec)
		return changed
	}
	for name, changed := range map[string]*v1alpha1.ToolPolicy{
		"another digest": edit(func(s *v1alpha1.ToolPolicySpec) { s.Autonomy[0] = promotion("b") }),
		"one more entry": edit(func(s *v1alpha1.ToolPolicySpec) { s.Autonomy = append(s.Autonomy, promotion("b")) }),
		"attended becomes unattended": edit(func(s *v1alpha1.ToolPolicySpec) {
			s.Autonomy[1].Mode, s.Autonomy[1].Digest = v1alpha1.ModeUnattended, fixture.Digest("d")
		}),
	} {
		refused(t, "without promote: "+name, promotionsPolicy, governor.Update(ctx, changed.DeepCopy(), client.DryRunAll))
		taken(t, "with promote: "+name, half.Update(ctx, changed.DeepCopy(), client.DryRunAll))
	}
	for name, changed := range map[string]*v1alpha1.ToolPolicy{
		"taking the promotion away": edit(func(s *v1alpha1.ToolPolicySpec) { s.Autonomy = s.Autonomy[1:] }),
		"an attended entry":         edit(func(s *v1alpha1.ToolPolicySpec) { s.Autonomy[1].Tool = "cancel" }),
		"the order of entries":      edit(func(s *v1alpha1.ToolPolicySpec) { s.Autonomy[0], s.Autonomy[1] = s.Autonomy[1], s.Autonomy[0] }),
		"a tier":                    edit(func(s *v1alpha1.ToolPolicySpec) { s.Tiers[0].Reason = "An export is out of our hands" }),
	} {
		taken(t, "without promote: "+name, governor.Update(ctx, changed.DeepCopy(), client.DryRunAll))
	}

	widened := edit(func(s *v1alpha1.ToolPolicySpec) { s.Targets = []string{"billing", "payroll"} })
	refused(t, "the promotion reaches a server without promote", promotionsPolicy, half.Update(ctx, widened.DeepCopy(), client.DryRunAll))
	onTheNewOne := person(t, w.namespace, "on-the-new-one", append(both, fixture.Authority("payroll", "promote"))...)
	taken(t, "the promotion reaches a server with promote there", onTheNewOne.Update(ctx, widened.DeepCopy(), client.DryRunAll))
	widened.Spec.Autonomy[0] = promotion("b")
	refused(t, "both at once with promote on the new server", promotionsPolicy, onTheNewOne.Update(ctx, widened.DeepCopy(), client.DryRunAll))
	taken(t, "both at once with promote on both", promoter.Update(ctx, widened.DeepCopy(), client.DryRunAll))
}

func TestPromoteIsCheckedOnAllEightTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	targets := names("server", 8)
	policy := fixture.With(fixture.ToolPolicy(w.namespace, "wide", targets...), func(p *v1alpha1.ToolPolicy) {
		for i := range 256 {
			p.Spec.Autonomy = append(p.Spec.Autonomy, v1alpha1.AutonomyRule{
				Tool: fmt.Sprintf("tool_%d", i), Digest: fixture.Digest("a"), Mode: v1alpha1.ModeUnattended,
			})
		}
	})
	promoting := func(servers []string) []rbacv1.PolicyRule {
		rules := governing(targets)
		for _, server := range servers {
			rules = append(rules, fixture.Authority(server, "promote"))
		}
		return rules
	}
	everywhere := person(t, w.namespace, "everywhere", promoting(targets)...)
	taken(t, "256 promotions on eight targets", everywhere.Create(ctx, policy.DeepCopy()))
	must(t, everywhere.Get(ctx, client.ObjectKeyFromObject(policy), policy))
	policy.Spec.Autonomy[255].Digest = fixture.Digest("b")
	taken(t, "changing the last of 256", everywhere.Update(ctx, policy.DeepCopy(), client.DryRunAll))
	for missing := range targets {
		most := person(t, w.namespace, fmt.Sprintf("but-%d", missing),
			promoting(append(targets[:missing:missing], targets[missing+1:]...))...)
		refused(t, "without promote on "+targets[missing], promotionsPolicy,
			most.Update(ctx, policy.DeepCopy(), client.DryRunAll))
	}
}

func names(prefix string, n int) []string {
	all := make([]string, 0, n)
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", prefix, i))
	}
	return all
}

func governing(servers []string) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(servers))
	for _, server := range servers {
		rules = append(rules, fixture.Authority(server, "govern"))
	}
	return rules
}
