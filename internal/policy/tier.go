// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// override is a TierOverride that names a tool, with the place where it stands.
type override struct {
	*v1alpha1.TierOverride
	at       string
	baseline bool
}

// overridesOf returns the tier overrides of policies that name a tool. One whose globs do not compile may name it, and
// then it does: all that it can do is to raise.
func overridesOf(policies []*Policy, tool string) []override {
	var all []override
	for _, p := range policies {
		for _, i := range p.tierTools.may(tool) {
			all = append(all, override{&p.object.Spec.Tiers[i], p.tierAt[i], p.baseline})
		}
	}
	return all
}

// refusal says why an entry is not in force; the zero value says that it is.
type refusal struct{ reason, message string }

func (r refusal) inForce() bool { return r.reason == "" }

// judgeOverride says whether an override that names the tool is in force. A raise always is: what a person found
// dangerous does not become harmless because its description changed. Lowering is a statement about one definition, and
// counts only once the definition is accepted.
func judgeOverride(o *v1alpha1.TierOverride, t Tool, a acceptance) refusal {
	floor := a.floor(t.ClassifiedTier)
	if !floor.StricterThan(o.Tier) {
		return refusal{}
	}
	if o.Tool == "" {
		return refusal{v1alpha1.NotInForceNeedsDigest, fmt.Sprintf(
			"%s is below the classified tier %s of %s; lowering needs an entry with tool %s and digest %s",
			o.Tier, floor, t.Name, t.Name, t.Digest)}
	}
	if o.Digest != t.Digest || t.Drifted {
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the definition of %s is now %s; review it and name that digest", t.Name, t.Digest)}
	}
	if !a.accepted {
		return refusal{v1alpha1.NotInForceStricter, fmt.Sprintf(
			"%s stays %s until its definition %s is accepted by a pin", t.Name, floor, t.Digest)}
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
// the tool, with none the classified tier, never below the minimum. A definition that is not accepted only raises. A tool
// that drifted from the definition that was classified is as strict as can be until it is classified anew.
func effectiveTier(t Tool, a acceptance, minimum v1alpha1.Tier, all []override) tiering {
	if t.Drifted {
		return tiering{v1alpha1.TierIrreversible, v1alpha1.TierSourceRatchet,
			"the server gave another definition of this tool than the one that was classified", "tier"}
	}
	result := tiering{t.ClassifiedTier, t.Source, t.Reason, "tier"}
	if floor := a.floor(t.ClassifiedTier); floor.StricterThan(t.ClassifiedTier) {
		result = tiering{floor, v1alpha1.TierSourceRatchet, "an earlier definition was " + string(floor) +
			", and nobody accepted this one", "tier"}
	}
	overridden := false
	for _, o := range all {
		if !judgeOverride(o.TierOverride, t, a).inForce() {
			continue
		}
		candidate := tiering{o.Tier, v1alpha1.TierSourceOverride, o.Reason, o.at}
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
