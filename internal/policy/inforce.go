// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// NotInForce returns a line for every entry of a policy that has no effect on this server, in the order of the entries:
// rules, pins, preview, tiers, autonomy. Overrides with globs are said once, for the first tool by name that they fail to
// lower.
func (s *Server) NotInForce(p *v1alpha1.ToolPolicy) []v1alpha1.NotInForce {
	r := report{server: s, policy: s.compiledFrom(p)}
	r.rules()
	r.pins()
	r.previews()
	r.tiers()
	r.autonomy()
	return r.lines
}

// compiledFrom returns a policy as it was compiled for this server, or compiles it.
func (s *Server) compiledFrom(p *v1alpha1.ToolPolicy) *Policy {
	for _, known := range s.policies {
		if o := known.object; o == p || p.UID != "" && o.UID == p.UID && o.Generation == p.Generation {
			return known
		}
	}
	return Parse(p)
}

// report is the work on the lines of one policy.
type report struct {
	server *Server
	policy *Policy
	lines  []v1alpha1.NotInForce
}

// say adds a line for an entry that is not in force.
func (r *report) say(list string, index int, tool string, why refusal) {
	if why.inForce() {
		return
	}
	name := r.server.object.Name
	if r.policy.baseline {
		name = r.server.object.Namespace + "/" + name
	}
	r.lines = append(r.lines, v1alpha1.NotInForce{
		Server: glyph.Clip(name, 128), Field: fmt.Sprintf("spec.%s[%d]", list, index), Tool: glyph.Clip(tool, 256),
		Reason: why.reason, Message: glyph.Clip(why.message, 512),
	})
}

// unknown says that no tool is there that an entry could be about.
func (r *report) unknown(tool string) refusal {
	return refusal{v1alpha1.NotInForceToolUnknown, fmt.Sprintf("%s lists no tool that matches %s", r.server.object.Name, tool)}
}

// invalid says that an entry cannot be used as it is written, if so.
func invalid(problems ...string) refusal {
	if why := cmp.Or(problems...); why != "" {
		return refusal{v1alpha1.NotInForceInvalid, "it cannot be used as it is written: " + why}
	}
	return refusal{}
}

// named returns which entries of a list name a tool of the server.
func (r *report) named(list *roster) map[int]bool {
	found := map[int]bool{}
	for name := range r.server.tools {
		for _, i := range list.find(name) {
			found[i] = true
		}
	}
	return found
}

func (r *report) rules() {
	found := r.named(&r.policy.ruleTools)
	for i, spec := range r.policy.object.Spec.Rules {
		broken := []string{r.policy.ruleTools.doubtOf(i)}
		for _, subject := range r.policy.rules[i].subjects {
			broken = append(broken, subject.broken)
		}
		why := invalid(append(broken, r.policy.rules[i].when.broken)...)
		tools := strings.Join(spec.Tools, " ")
		if why.inForce() && !found[i] {
			why = r.unknown(tools)
		}
		r.say("rules", i, tools, why)
	}
}

func (r *report) pins() {
	for i, pin := range r.policy.object.Spec.Pins {
		r.say("pins", i, pin.Tool, r.judgePin(pin))
	}
}

func (r *report) judgePin(pin v1alpha1.Pin) refusal {
	if pin.Tool == "" {
		info := r.server.object.Status.Server
		if info != nil && info.InstructionsDigest == pin.Digest {
			return refusal{}
		}
		if info == nil || info.InstructionsDigest == "" {
			return refusal{v1alpha1.NotInForceDigestDiffers, r.server.object.Name + " gives no instructions"}
		}
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the instructions of %s are now %s; review them and name that digest", r.server.object.Name, info.InstructionsDigest)}
	}
	c, listed := r.server.tools[pin.Tool]
	if !listed {
		return r.unknown(pin.Tool)
	}
	if c.tool.Digest != pin.Digest {
		return refusal{v1alpha1.NotInForceDigestDiffers, fmt.Sprintf(
			"the definition of %s is now %s; review it and name that digest", pin.Tool, c.tool.Digest)}
	}
	return refusal{}
}

func (r *report) previews() {
	found := r.named(&r.policy.previewTools)
	for i, spec := range r.policy.object.Spec.Preview {
		why := invalid(r.policy.previewTools.doubtOf(i), r.policy.preview[i].broken)
		tool := strings.Join(spec.Tools, " ")
		asked, listed := r.server.tools[spec.Call.Tool]
		switch {
		case !why.inForce():
		case !found[i]:
			why = r.unknown(tool)
		case !listed:
			tool, why = spec.Call.Tool, r.unknown(spec.Call.Tool)
		case asked.standing.tier != v1alpha1.TierRead:
			tool = spec.Call.Tool
			why = refusal{v1alpha1.NotInForceNotRead, fmt.Sprintf(
				"%s is %s by %s, and only a Read tool is called for a preview", tool, asked.standing.tier, asked.standing.gatedBy)}
		}
		r.say("preview", i, tool, why)
	}
}

func (r *report) tiers() {
	overrides, list := r.policy.object.Spec.Tiers, &r.policy.tierTools
	verdicts := make([]refusal, len(overrides))
	for i := range overrides {
		if verdicts[i] = invalid(list.doubtOf(i)); verdicts[i].inForce() {
			verdicts[i] = r.unknown(cmp.Or(overrides[i].Tool, strings.Join(overrides[i].Tools, " ")))
		}
	}
	judged := map[int]bool{} // those that name a tool
	for _, name := range r.server.names() {
		c := r.server.tools[name]
		for _, i := range list.find(name) {
			if judged[i] && !verdicts[i].inForce() || verdicts[i].reason == v1alpha1.NotInForceInvalid {
				continue
			}
			judged[i] = true
			verdicts[i] = judgeOverride(&overrides[i], c.tool, c.standing.acceptance)
			if verdicts[i].inForce() && c.standing.tier.StricterThan(overrides[i].Tier) {
				verdicts[i] = refusal{v1alpha1.NotInForceStricter, fmt.Sprintf("%s is %s by %s", name, c.standing.tier, c.standing.gatedBy)}
			}
		}
	}
	for i, o := range overrides {
		r.say("tiers", i, cmp.Or(o.Tool, strings.Join(o.Tools, " ")), verdicts[i])
	}
}

func (r *report) autonomy() {
	for i := range r.policy.autonomy {
		entry := &r.policy.autonomy[i]
		c, found := r.server.tools[entry.Tool]
		switch {
		case entry.Mode != v1alpha1.ModeUnattended:
		case !found:
			r.say("autonomy", i, entry.Tool, r.unknown(entry.Tool))
		default:
			r.say("autonomy", i, entry.Tool, judgePromotion(entry, c.tool, &c.standing, r.server.object.Spec.Autonomy.CleanApprovals))
		}
	}
}
