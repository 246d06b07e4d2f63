// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// merit returns where a tool stands by its record alone, promotions aside. An empty record is not clean; an
// Irreversible tool is Forbidden whatever its record says; a denial of any definition disqualifies; a definition that
// nobody accepted has earned nothing.
func merit(t Tool, a acceptance, tier v1alpha1.Tier, clean int32) v1alpha1.Autonomy {
	switch {
	case tier.StricterThan(v1alpha1.TierReversible):
		return v1alpha1.AutonomyForbidden
	case t.Denied || t.Record.Denied > 0:
		return v1alpha1.AutonomyDisqualified
	case tier != v1alpha1.TierReversible || t.Drifted || !a.accepted || t.Ambiguous || t.Record.Ambiguous > 0:
		return v1alpha1.AutonomyNone
	case t.Record.Digest != t.Digest || t.Record.EndpointDigest != t.EndpointDigest || t.Digest == "" || t.EndpointDigest == "":
		return v1alpha1.AutonomyNone
	case t.Record.Approved < max(clean, 1):
		return v1alpha1.AutonomyNone
	default:
		return v1alpha1.AutonomyEligible
	}
}

// judgePromotion says whether an Unattended entry that names the tool is in force.
func judgePromotion(a *autonomy, t Tool, s *standing, clean int32) refusal {
	switch {
	case a.when.broken != "":
		return refusal{v1alpha1.NotInForceInvalid, "when cannot be used: " + a.when.broken}
	case a.Digest != t.Digest || t.Drifted:
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the definition of %s is now %s; it must earn autonomy anew and be promoted with that digest", t.Name, t.Digest)}
	case s.merit == v1alpha1.AutonomyForbidden:
		return refusal{v1alpha1.NotInForceIrreversible, fmt.Sprintf(
			"%s is Irreversible: every call needs approval, whatever its record", t.Name)}
	case s.tier == v1alpha1.TierRead:
		return refusal{v1alpha1.NotInForceRead, fmt.Sprintf("%s is Read: its calls run without approval anyway", t.Name)}
	case !s.accepted:
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"nobody accepted the definition %s of %s; accept it by a pin", t.Digest, t.Name)}
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
	acceptance
	merit      v1alpha1.Autonomy
	attendedBy string // the entry that keeps every call of the tool attended, if any
	// attended are the entries that keep calls attended, promoted the promotions in force; for calls for which they hold.
	attended, promoted []*autonomy
}

// stand works out a tool's standing; the order of entries never matters.
func stand(t Tool, a acceptance, server *v1alpha1.GovernedServer, policies []*Policy) standing {
	clean := server.Spec.Autonomy.CleanApprovals
	s := standing{acceptance: a}
	s.tiering = effectiveTier(t, a, server.Spec.Classification.MinimumTier, overridesOf(policies, t.Name))
	s.merit = merit(t, a, s.tier, clean)
	var promotions []*autonomy
	for _, p := range policies {
		for _, i := range p.autonomyTools.find(t.Name) {
			entry := &p.autonomy[i]
			if entry.Mode == v1alpha1.ModeUnattended {
				promotions = append(promotions, entry)
				continue
			}
			s.attended = append(s.attended, entry)
			if entry.when.program == nil && s.attendedBy == "" {
				s.attendedBy = entry.at
			}
		}
	}
	for _, entry := range promotions {
		if judgePromotion(entry, t, &s, clean).inForce() {
			s.promoted = append(s.promoted, entry)
		}
	}
	return s
}
