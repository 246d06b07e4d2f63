// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// baseline stops the servers of namespaces with a label that no other test gives.
func baseline(namespace, name string) *v1alpha1.ToolPolicy {
	p := new(fixture.ToolPolicy(namespace, name))
	p.Spec = v1alpha1.ToolPolicySpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"baseline-of": name}}, Mode: v1alpha1.BaselineReadOnly,
	}
	return p
}

// overAll gives verbs on every server of a namespace.
func overAll(verbs ...string) rbacv1.PolicyRule {
	rule := fixture.Authority("", verbs...)
	rule.ResourceNames = nil
	return rule
}

func TestBaselinesBelongToTheOperatorsNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	everything := person(t, w.namespace, "everything", overAll(v1alpha1.VerbGovern, v1alpha1.VerbPromote))
	refused(t, "a baseline in a team's namespace, by who governs all of it", policiesPolicy, everything.Create(ctx, baseline(w.namespace, "house")))

	team := new(fixture.ToolPolicy(w.namespace, "house", "billing"))
	taken(t, "a policy with targets there", everything.Create(ctx, team))
	becomes := fixture.With(*team, func(p *v1alpha1.ToolPolicy) {
		p.Spec.Targets, p.Spec.NamespaceSelector = nil, &metav1.LabelSelector{}
	})
	refused(t, "a team's policy becomes a baseline", policiesPolicy, everything.Update(ctx, becomes))
}

func TestABaselineNeedsGovernOnAllServersOfTheOperatorsNamespace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	home := fixture.SystemNamespace
	someone := person(t, home, "someone-"+t.Name())
	named := person(t, home, "named-"+t.Name(), fixture.Authority("billing", v1alpha1.VerbGovern, v1alpha1.VerbPromote))
	platform := person(t, home, "platform-"+t.Name(), overAll(v1alpha1.VerbGovern))
	promoter := person(t, home, "promoter-"+t.Name(), overAll(v1alpha1.VerbGovern, v1alpha1.VerbPromote))

	refused(t, "without govern", policiesPolicy, someone.Create(ctx, baseline(home, "fleet")))
	refused(t, "with govern on one server", policiesPolicy, named.Create(ctx, baseline(home, "fleet")))
	taken(t, "with govern on all", platform.Create(ctx, baseline(home, "fleet")))

	for name, patch := range map[string]string{
		"lifting the stop":     `{"spec":{"mode":null}}`,
		"narrowing it":         `{"spec":{"namespaceSelector":{"matchLabels":{"x":"y"}}}}`,
		"an Allow rule":        `{"spec":{"rules":[{"name":"all","tools":["*"],"decision":"Allow"}]}}`,
		"taking its selector":  `{"spec":{"namespaceSelector":null,"mode":null,"targets":["billing"]}}`,
		"a label":              `{"metadata":{"labels":{"team":"mine"}}}`,
		"changing the callers": `{"spec":{"callers":[{"kind":"User","name":"me"}]}}`,
	} {
		refused(t, "named: "+name, policiesPolicy, named.Patch(ctx, baseline(home, "fleet"), merge(patch), client.DryRunAll))
		taken(t, "platform: "+name, platform.Patch(ctx, baseline(home, "fleet"), merge(patch), client.DryRunAll))
	}
	unchanged := baseline(home, "fleet")
	must(t, someone.Get(ctx, client.ObjectKeyFromObject(unchanged), unchanged))
	taken(t, "putting back what is there", someone.Update(ctx, unchanged))
	refused(t, "deleting it", policiesPolicy, named.Delete(ctx, baseline(home, "fleet"), client.DryRunAll))

	promotion := `{"spec":{"autonomy":[{"tool":"refund","digest":"` + fixture.Digest("a") + `","mode":"Unattended"}]}}`
	refused(t, "a promotion for the fleet, without promote", promotionsPolicy, platform.Patch(ctx, baseline(home, "fleet"), merge(promotion)))
	taken(t, "with promote on all", promoter.Patch(ctx, baseline(home, "fleet"), merge(promotion)))
	wider := `{"spec":{"namespaceSelector":{"matchLabels":{"more":"y"}}}}`
	refused(t, "the promotion reaches further, without promote", promotionsPolicy, platform.Patch(ctx, baseline(home, "fleet"), merge(wider), client.DryRunAll))
	taken(t, "with it", promoter.Patch(ctx, baseline(home, "fleet"), merge(wider), client.DryRunAll))
	taken(t, "taking the promotion away needs none", platform.Patch(ctx, baseline(home, "fleet"), merge(`{"spec":{"autonomy":null}}`), client.DryRunAll))
	taken(t, "deleting it with govern on all", platform.Delete(ctx, baseline(home, "fleet")))
}

// TestRulesAreGovernedLikeAnythingElse is case 110 for the fields of the policy language.
func TestRulesAreGovernedLikeAnythingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	policy := func() *v1alpha1.ToolPolicy {
		return fixture.With(fixture.ToolPolicy(w.namespace, "house", "billing"), func(p *v1alpha1.ToolPolicy) {
			p.Spec.Rules = []v1alpha1.Rule{{Name: "no-deletes", Tools: []string{"delete_*"}, Decision: v1alpha1.EffectDeny}}
			p.Spec.Callers = []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: "agents", Name: "bookkeeper"}}
			p.Spec.Pins = []v1alpha1.Pin{{Tool: "refund", Digest: fixture.Digest("a")}}
		})
	}
	must(t, w.owner.Create(ctx, policy()))
	for name, patch := range map[string]string{
		"an Allow rule":          `{"spec":{"rules":[{"name":"all","tools":["*"],"decision":"Allow"}]}}`,
		"dropping the rules":     `{"spec":{"rules":null}}`,
		"dropping the callers":   `{"spec":{"callers":null}}`,
		"accepting a new digest": `{"spec":{"pins":[{"tool":"refund","digest":"` + fixture.Digest("b") + `"}]}}`,
		"a preview":              `{"spec":{"preview":[{"tools":["refund"],"call":{"tool":"get_invoice"}}]}}`,
	} {
		refused(t, "the editor: "+name, policiesPolicy, w.editor.Patch(ctx, policy(), merge(patch)))
		taken(t, "the owner: "+name, w.owner.Patch(ctx, policy(), merge(patch), client.DryRunAll))
	}
	for name, patch := range map[string]string{
		"observing":       `{"spec":{"mode":"Observe"}}`,
		"pinning nothing": `{"spec":{"pinning":"Off"}}`,
	} {
		server := func() *v1alpha1.GovernedServer { return new(fixture.GovernedServer(w.namespace, "billing")) }
		if err := w.owner.Create(ctx, server()); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		refused(t, "the editor: "+name, serversPolicy, w.editor.Patch(ctx, server(), merge(patch)))
		taken(t, "the owner: "+name, w.owner.Patch(ctx, server(), merge(patch), client.DryRunAll))
	}
	unchanged := policy()
	must(t, w.editor.Get(ctx, client.ObjectKeyFromObject(unchanged), unchanged))
	taken(t, "the editor puts back what is there", w.editor.Update(ctx, unchanged))
}
