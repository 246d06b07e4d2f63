// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// model says what the design says, in as few words as can be: it lists every world, one for each way in which the rules
// that cannot be evaluated may have gone, and takes the strictest verdict of all. It shares with the code only what a
// tool's tier and promotions are, and how conditions and subjects are compared.
type model struct {
	s *Server
	c *compiled
	q question
}

// outcome is a verdict as far as it can be compared.
type outcome struct {
	effect   Effect
	required int32
	verbs    []string // besides the tier's, sorted
	// input is not refused, and allowed in every world.
	input bool
}

// word is what one policy says in one world; nil where it says nothing.
type word = *v1alpha1.Rule

func (m model) holds(c condition, tier v1alpha1.Tier) (holds, known bool) {
	if c.program == nil {
		return true, c.broken == ""
	}
	holds, err := c.program.Holds(&expr.Input{
		Arguments: m.q.call().Arguments, Principal: m.q.principal, Server: expr.Server{Namespace: "shop", Name: "billing"},
		Tool: expr.Tool{Name: m.c.tool.Name, Digest: m.c.tool.Digest, Tier: tier, Annotations: m.c.annotations},
	})
	return holds, err == nil
}

// words lists what a policy says in each world.
func (m model) words(p *Policy, tier v1alpha1.Tier) []word {
	worlds := []word{}
	for i := range p.object.Spec.Rules {
		r := &p.object.Spec.Rules[i]
		named, known := false, len(r.Tools) > 0
		for _, glob := range r.Tools {
			named = named || glob != "[" && matchSlowly([]rune(glob), []rune(m.c.tool.Name))
			known = known && glob != "["
		}
		if !named && known {
			continue
		}
		sure := named
		if len(r.Subjects) > 0 {
			among, odd := false, false
			for j, s := range r.Subjects {
				among = among || p.rules[i].subjects[j].is(&m.q.principal)
				odd = odd || s.Kind == "Odd"
			}
			if !among && !odd {
				continue
			}
			sure = sure && among
		}
		holds, known := m.holds(p.rules[i].when, tier)
		if known && !holds {
			continue
		}
		worlds = append(worlds, r)
		if sure && known {
			return worlds
		}
	}
	return append(worlds, nil)
}

func effectOf(r *v1alpha1.Rule) Effect {
	switch r.Decision {
	case v1alpha1.EffectAllow:
		return Allow
	case v1alpha1.EffectRequireApproval:
		return RequireApproval
	default:
		return Deny
	}
}

// tierSays is the verdict of the tier, and whether the tool is kept attended.
func (m model) tierSays() (effect Effect, attended bool) {
	for _, a := range m.c.standing.attended {
		holds, known := m.holds(a.when, m.c.standing.tier)
		attended = attended || holds || !known
	}
	switch m.c.standing.tier {
	case v1alpha1.TierRead:
		return Allow, attended
	case v1alpha1.TierReversible:
		for _, a := range m.c.standing.promoted {
			if holds, known := m.holds(a.when, m.c.standing.tier); holds && known && !attended {
				return Allow, attended
			}
		}
	default:
	}
	return RequireApproval, attended
}

// enforced walks through all worlds.
func (m model) enforced() outcome {
	for _, p := range m.s.policies {
		if !p.admits(&m.q.principal) {
			return outcome{effect: Deny}
		}
	}
	total := outcome{effect: Allow, input: true}
	byTier, attended := m.tierSays()
	m.walk(m.s.policies, m.c.standing.tier, nil, func(words []word) {
		effect := byTier
		if len(words) > 0 {
			effect = Allow
			for _, w := range words {
				effect = min(effect, effectOf(w))
			}
			irreversible := m.c.standing.tier != v1alpha1.TierRead && m.c.standing.tier != v1alpha1.TierReversible
			if effect == Allow && (irreversible || m.c.standing.tier == v1alpha1.TierReversible && attended) {
				effect = RequireApproval
			}
		}
		total.input = total.input && slices.ContainsFunc(words, func(w word) bool { return w.InputResponses == v1alpha1.InputAllow })
		total.merge(effect, words)
	})
	// The baselines again, in each tier that the tool would have without the teams.
	for _, tier := range m.c.bounds {
		m.walk(m.s.policies[:m.s.baselines], tier, nil, func(words []word) {
			effect := Allow
			for _, w := range words {
				effect = min(effect, effectOf(w))
			}
			total.merge(effect, words)
		})
	}
	return total
}

func (m model) walk(policies []*Policy, tier v1alpha1.Tier, words []word, visit func([]word)) {
	if len(policies) == 0 {
		visit(words)
		return
	}
	for _, w := range m.words(policies[0], tier) {
		if w == nil {
			m.walk(policies[1:], tier, words, visit)
		} else {
			m.walk(policies[1:], tier, append(slices.Clone(words), w), visit)
		}
	}
}

func (o *outcome) merge(effect Effect, words []word) {
	o.effect = min(o.effect, effect)
	for _, w := range words {
		o.input = o.input && (w.InputResponses == "" || w.InputResponses == v1alpha1.InputAllow)
		if effectOf(w) != RequireApproval || w.Approvals == nil {
			continue
		}
		o.required = max(o.required, w.Approvals.Required)
		if w.Approvals.Verb != "" {
			o.verbs = append(o.verbs, w.Approvals.Verb)
		}
	}
	slices.Sort(o.verbs)
	o.verbs = slices.Compact(o.verbs)
}

func TestLawTheModelAgrees(t *testing.T) {
	law(t, func(t *rapid.T) {
		object, q := drawServer(t), drawQuestion(t)
		object.Spec.Mode, object.Spec.Pinning = v1alpha1.ModeEnforce, pick(t, "pinning", v1alpha1.PinningReport, v1alpha1.PinningOff)
		policies := drawPolicies(t, anyConditions)
		for i := range policies {
			policies[i].Spec.Mode = ""
		}
		s := decided(object, policies, Facts{})
		q.freshness = Fresh
		got := s.Decide(q.call())
		c, known := s.tools[q.tool]
		if !known {
			if got.Effect != Deny {
				t.Fatalf("an unknown tool: %v", got.Effect)
			}
			return
		}
		want := model{s, c, q}.enforced()
		if got.Effect != want.effect {
			t.Fatalf("got %v by %s, want %v", got.Effect, got.GatedBy, want.effect)
		}
		if input := want.input && got.Effect != Deny; got.Input != input {
			t.Fatalf("answers in the middle of the call: %t, want %t", got.Input, input)
		}
		if got.Effect != RequireApproval {
			return
		}
		verbs := append([]string{got.Tier.ApproveVerb()}, slices.DeleteFunc(want.verbs, func(v string) bool { return v == got.Tier.ApproveVerb() })...)
		if persons := max(want.required, requiredFor(got.Tier, object.Spec.Approvals.Required)); got.RequiredApprovals != persons || !slices.Equal(got.Verbs, verbs) {
			t.Fatalf("got %d persons with %v, want %d with %v", got.RequiredApprovals, got.Verbs, persons, verbs)
		}
	})
}
