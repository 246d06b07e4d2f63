// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// pins looks for those that accept nothing that there is.
func (c *check) pins() {
	pinned := map[string]bool{}
	for _, pin := range c.spec.Pins {
		pinned[pin.Tool+"\n"+pin.Digest] = true
	}
	for i, pin := range c.spec.Pins {
		if pin.Tool == "" || !c.known() {
			continue // what the instructions are is not a matter of tools
		}
		field, tools := fmt.Sprintf("spec.pins[%d]", i), c.tools[pin.Tool]
		switch {
		case len(tools) == 0:
			c.warn(field, v1alpha1.NotInForceToolUnknown, pin.Tool, c.unknown(pin.Tool))
		case !slices.ContainsFunc(tools, func(t CheckedTool) bool { return pinned[t.Name+"\n"+t.Digest] }):
			c.warn(field, v1alpha1.NotInForceDigestDiffers, pin.Tool, fmt.Sprintf(
				"the definition of %s of %s is now %s; review it and pin that digest", pin.Tool, c.server(tools[0]), tools[0].Digest))
		}
	}
}

// previews looks for those that can never be made.
func (c *check) previews() {
	matching := c.matching(&c.policy.previewTools)
	for i, preview := range c.spec.Preview {
		if !c.known() || c.policy.previewTools.doubtOf(i) != "" {
			continue
		}
		field := fmt.Sprintf("spec.preview[%d]", i)
		matched := c.every(matching[i])
		if len(matched) == 0 {
			c.warn(field, v1alpha1.NotInForceToolUnknown, listed(preview.Tools), c.unmatched(preview.Tools))
			continue
		}
		c.fits(expression{field + ".call.args", preview.Call.Args, c.policy.preview[i].args, listed(preview.Tools)}, matched)
		asked := c.tools[preview.Call.Tool]
		switch {
		case len(asked) == 0:
			c.warn(field+".call.tool", v1alpha1.NotInForceToolUnknown, preview.Call.Tool, c.unknown(preview.Call.Tool))
		case !slices.ContainsFunc(asked, func(t CheckedTool) bool { return t.Tier == v1alpha1.TierRead }):
			c.warn(field+".call.tool", v1alpha1.NotInForceNotRead, preview.Call.Tool, fmt.Sprintf(
				"%s is %s, and only a Read tool is called for a preview", preview.Call.Tool, asked[0].Tier))
		}
	}
}

// overrides looks for those that lower nothing though they seem to.
func (c *check) overrides() {
	matching := c.matching(&c.policy.tierTools)
	for i, o := range c.spec.Tiers {
		if !c.known() || c.policy.tierTools.doubtOf(i) != "" {
			continue
		}
		field := fmt.Sprintf("spec.tiers[%d]", i)
		lowered := func(t CheckedTool) bool { return t.ClassifiedTier.StricterThan(o.Tier) }
		if o.Tool != "" {
			tools := c.tools[o.Tool]
			switch {
			case len(tools) == 0:
				c.warn(field, v1alpha1.NotInForceToolUnknown, o.Tool, c.unknown(o.Tool))
			case !slices.ContainsFunc(tools, func(t CheckedTool) bool { return !lowered(t) || t.Digest == o.Digest }):
				c.warn(field, v1alpha1.NotInForceDigestDiffers, o.Tool, fmt.Sprintf(
					"the definition of %s of %s is now %s; review it and name that digest", o.Tool, c.server(tools[0]), tools[0].Digest))
			}
			continue
		}
		matched := c.every(matching[i])
		if len(matched) == 0 {
			c.warn(field, v1alpha1.NotInForceToolUnknown, listed(o.Tools), c.unmatched(o.Tools))
		} else if at := slices.IndexFunc(matched, lowered); at >= 0 {
			t := matched[at]
			c.warn(field, v1alpha1.NotInForceNeedsDigest, listed(o.Tools), fmt.Sprintf(
				"%s is below the classified tier %s of %s; lowering needs an entry with tool %s and digest %s", o.Tier, t.ClassifiedTier, t.Name, t.Name, t.Digest))
		}
	}
}

// promotions looks for those that no record can bring into force.
func (c *check) promotions() {
	for i, a := range c.spec.Autonomy {
		field, tools := fmt.Sprintf("spec.autonomy[%d]", i), c.tools[a.Tool]
		if c.known() && len(tools) == 0 {
			c.warn(field, v1alpha1.NotInForceToolUnknown, a.Tool, c.unknown(a.Tool))
			continue
		}
		c.fits(expression{field + ".when", a.When, c.policy.autonomy[i].when.program, a.Tool}, tools)
		if a.Mode != v1alpha1.ModeUnattended {
			continue
		}
		attended := slices.IndexFunc(c.spec.Autonomy, func(other v1alpha1.AutonomyRule) bool {
			return other.Tool == a.Tool && other.Mode != v1alpha1.ModeUnattended && other.When == ""
		})
		if attended >= 0 {
			c.warn(field, v1alpha1.NotInForceAttended, a.Tool, fmt.Sprintf("spec.autonomy[%d] keeps %s attended, and that counts", attended, a.Tool))
			continue
		}
		var first refusal
		for _, t := range tools {
			why := hopeless(a, t)
			if why.inForce() {
				first = why
				break
			}
			if first.inForce() {
				first = why
			}
		}
		if !first.inForce() {
			c.warn(field, first.reason, a.Tool, first.message)
		}
	}
}

// hopeless says why a promotion of a tool can never be in force as it stands, whatever the record.
func hopeless(a v1alpha1.AutonomyRule, t CheckedTool) refusal {
	switch {
	case a.Digest != t.Digest:
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the definition of %s is now %s; it must earn autonomy anew and be promoted with that digest", t.Name, t.Digest)}
	case t.Tier.StricterThan(v1alpha1.TierReversible):
		return refusal{v1alpha1.NotInForceIrreversible, fmt.Sprintf("%s is %s: every call needs approval, whatever its record", t.Name, t.Tier)}
	case t.Tier == v1alpha1.TierRead:
		return refusal{v1alpha1.NotInForceRead, fmt.Sprintf("%s is Read: its calls run without approval anyway", t.Name)}
	default:
		return refusal{}
	}
}
