// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// entry is one override or promotion of a policy, with the place where it stands.
type entry[T any] struct {
	policy *v1alpha1.ToolPolicy
	index  int
	value  T
}

// overrides returns every tier override of the policies that target a server.
func overrides(policies []*v1alpha1.ToolPolicy) []entry[override] {
	var all []entry[override]
	for _, p := range policies {
		for i, o := range p.Spec.Tiers {
			all = append(all, entry[override]{policy: p, index: i, value: compileOverride(o)})
		}
	}
	return all
}

// override is a TierOverride with its globs compiled.
type override struct {
	v1alpha1.TierOverride
	globs []*glob
}

func compileOverride(o v1alpha1.TierOverride) override {
	compiled := override{TierOverride: o}
	for _, pattern := range o.Tools {
		compiled.globs = append(compiled.globs, compileGlob(pattern))
	}
	return compiled
}

// names tells whether the override speaks of a tool of this name.
func (o override) names(tool string) bool {
	if o.Tool != "" {
		return o.Tool == tool
	}
	return slices.ContainsFunc(o.globs, func(g *glob) bool { return g.match(tool) })
}

// refusal says why an entry is not in force; the zero value says that it is.
type refusal struct{ reason, message string }

func (r refusal) inForce() bool { return r.reason == "" }

// judgeOverride says whether an override that names the tool is in force. A raise always is: what a person found
// dangerous does not become harmless because its description changed. Lowering is a statement about one definition.
func judgeOverride(o v1alpha1.TierOverride, t Tool) refusal {
	if !t.ClassifiedTier.StricterThan(o.Tier) {
		return refusal{}
	}
	if o.Tool == "" {
		return refusal{v1alpha1.NotInForceNeedsDigest, fmt.Sprintf(
			"%s is below the classified tier %s of %s; lowering needs an entry with tool %s and digest %s",
			o.Tier, t.ClassifiedTier, t.Name, t.Name, t.Digest)}
	}
	if o.Digest != t.Digest || t.Drifted {
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the definition of %s is now %s; review it and name that digest", t.Name, t.Digest)}
	}
	return refusal{}
}

// tiering is a tool's effective tier and the evidence for it.
type tiering struct {
	tier    v1alpha1.Tier
	source  v1alpha1.TierSource
	reason  string
	gatedBy string
}

// effectiveTier applies the overrides in force and the server's minimum: the strictest override in force that names
// the tool, with none the classified tier, never below the minimum. A tool that drifted from the definition that was
// classified is as strict as can be until it is classified anew.
func effectiveTier(t Tool, minimum v1alpha1.Tier, all []entry[override]) tiering {
	if t.Drifted {
		return tiering{v1alpha1.TierIrreversible, v1alpha1.TierSourceRatchet,
			"the server gave another definition of this tool than the one that was classified", "tier"}
	}
	result := tiering{t.ClassifiedTier, t.Source, t.Reason, "tier"}
	overridden := false
	for _, o := range all {
		if !o.value.names(t.Name) || !judgeOverride(o.value.TierOverride, t).inForce() {
			continue
		}
		candidate := tiering{o.value.Tier, v1alpha1.TierSourceOverride, o.value.Reason, at(o.policy.Name, "tiers", o.index)}
		if !overridden || stricterTiering(candidate, result) {
			result, overridden = candidate, true
		}
	}
	if minimum.StricterThan(result.tier) && minimum != "" {
		return tiering{minimum, v1alpha1.TierSourceMinimum, "minimumTier of the server is " + string(minimum), "minimumTier"}
	}
	return result
}

// stricterTiering orders overrides by tier, and equal ones by place, so that the order of policies never shows.
func stricterTiering(a, b tiering) bool {
	if a.tier.StricterThan(b.tier) || b.tier.StricterThan(a.tier) {
		return a.tier.StricterThan(b.tier)
	}
	return strings.Compare(a.gatedBy, b.gatedBy) < 0
}

// at names an entry of a policy, for people and receipts.
func at(policy, list string, index int) string {
	return fmt.Sprintf("ToolPolicy/%s spec.%s[%d]", policy, list, index)
}
