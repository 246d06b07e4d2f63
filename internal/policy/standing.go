// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// merit returns where a tool stands by its record alone, promotions aside. An empty record is not clean; an
// Irreversible tool is Forbidden whatever its record says; a denial of any definition disqualifies.
func merit(t Tool, tier v1alpha1.Tier, clean int32) v1alpha1.Autonomy {
	switch {
	case tier.StricterThan(v1alpha1.TierReversible):
		return v1alpha1.AutonomyForbidden
	case t.Denied || t.Record.Denied > 0:
		return v1alpha1.AutonomyDisqualified
	case tier != v1alpha1.TierReversible || t.Drifted || t.Ambiguous || t.Record.Ambiguous > 0:
		return v1alpha1.AutonomyNone
	case t.Record.Digest != t.Digest || t.Record.EndpointDigest != t.EndpointDigest || t.Digest == "" || t.EndpointDigest == "":
		return v1alpha1.AutonomyNone
	case t.Record.Approved < max(clean, 1):
		return v1alpha1.AutonomyNone
	default:
		return v1alpha1.AutonomyEligible
	}
}

// promotions returns every autonomy entry of the policies that target a server.
func promotions(policies []*v1alpha1.ToolPolicy) []entry[v1alpha1.AutonomyRule] {
	var all []entry[v1alpha1.AutonomyRule]
	for _, p := range policies {
		for i, a := range p.Spec.Autonomy {
			all = append(all, entry[v1alpha1.AutonomyRule]{policy: p, index: i, value: a})
		}
	}
	return all
}

// judgePromotion says whether an Unattended entry that names the tool is in force.
func judgePromotion(a v1alpha1.AutonomyRule, t Tool, s standing, clean int32) refusal {
	switch {
	case a.Digest != t.Digest || t.Drifted:
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the definition of %s is now %s; it must earn autonomy anew and be promoted with that digest", t.Name, t.Digest)}
	case s.merit == v1alpha1.AutonomyForbidden:
		return refusal{v1alpha1.NotInForceIrreversible, fmt.Sprintf(
			"%s is Irreversible: every call needs approval, whatever its record", t.Name)}
	case s.tier == v1alpha1.TierRead:
		return refusal{v1alpha1.NotInForceRead, fmt.Sprintf("%s is Read: its calls run without approval anyway", t.Name)}
	case s.attendedBy != "":
		return refusal{v1alpha1.NotInForceAttended, fmt.Sprintf("%s keeps %s attended", s.attendedBy, t.Name)}
	case s.merit == v1alpha1.AutonomyDisqualified:
		return refusal{v1alpha1.NotInForceRecord, fmt.Sprintf("a person denied a call of %s; it never runs unattended", t.Name)}
	case s.merit != v1alpha1.AutonomyEligible:
		return refusal{v1alpha1.NotInForceRecord, recordMessage(t, clean)}
	default:
		return refusal{}
	}
}

func recordMessage(t Tool, clean int32) string {
	if t.Ambiguous || t.Record.Ambiguous > 0 {
		return fmt.Sprintf("a call of %s has an unknown outcome; settle it with kubectl tidewaiter resolve", t.Name)
	}
	approved := t.Record.Approved
	if t.Record.Digest != t.Digest || t.Record.EndpointDigest != t.EndpointDigest {
		approved = 0
	}
	return fmt.Sprintf("%s has %d of %d clean approvals for this definition and endpoint", t.Name, approved, max(clean, 1))
}

// standing is all that the policies and the record say of a tool.
type standing struct {
	tiering
	merit      v1alpha1.Autonomy
	attendedBy string // the entry that keeps the tool attended, if any
	promotedBy string // the promotion in force, if any
}

// stand works out a tool's standing; the order of entries never matters.
func stand(t Tool, server *v1alpha1.GovernedServer, tiers []entry[override], autonomy []entry[v1alpha1.AutonomyRule]) standing {
	clean := server.Spec.Autonomy.CleanApprovals
	s := standing{tiering: effectiveTier(t, server.Spec.Classification.MinimumTier, tiers)}
	s.merit = merit(t, s.tier, clean)
	for _, a := range autonomy {
		if a.value.Tool == t.Name && a.value.Mode != v1alpha1.ModeUnattended {
			s.attendedBy = first(s.attendedBy, at(a.policy.Name, "autonomy", a.index))
		}
	}
	for _, a := range autonomy {
		if a.value.Tool == t.Name && a.value.Mode == v1alpha1.ModeUnattended && judgePromotion(a.value, t, s, clean).inForce() {
			s.promotedBy = first(s.promotedBy, at(a.policy.Name, "autonomy", a.index))
		}
	}
	return s
}

// first returns the lesser of two names, so that the order of policies never shows.
func first(a, b string) string {
	if a == "" {
		return b
	}
	return min(a, b)
}
