// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Tier is the risk of a tool: what happens when a call to it was a mistake.
// Any other value, the empty one included, ranks as Irreversible.
//
// +kubebuilder:validation:Enum=Read;Reversible;Irreversible
type Tier string

const (
	// TierRead marks a tool without side effects; without a rule its calls run at once.
	TierRead Tier = "Read"
	// TierReversible marks a tool whose effects can be undone; it needs approval and can earn autonomy.
	TierReversible Tier = "Reversible"
	// TierIrreversible marks a tool whose effects cannot be undone; every call needs approval, for ever.
	TierIrreversible Tier = "Irreversible"
)

// rank orders tiers by strictness; what is not a tier is as strict as can be.
func (t Tier) rank() int {
	switch t {
	case TierRead:
		return 0
	case TierReversible:
		return 1
	case TierIrreversible:
		return 2
	default:
		return 2
	}
}

// StricterThan tells whether t asks for more care than other.
func (t Tier) StricterThan(other Tier) bool { return t.rank() > other.rank() }
