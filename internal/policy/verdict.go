// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// decide makes the verdict in the order that the design gives: mode, tool and pins, tier and policies, ceiling, Observe.
// Whether the snapshot is fresh enough is looked at last, since that binds in Observe too.
func (e *evaluation) decide() Decision {
	m := &e.server.mode
	if reason := m.refuses(e.c); reason != "" {
		e.say(m.by, "the mode is "+string(m.stops))
		return e.end(e.c.decision.refused(reason, m.by))
	}
	d := e.enforced()
	if m.observe {
		d = e.observed(d)
	}
	return e.end(e.fresh(d))
}

// enforced is the verdict in the mode Enforce.
func (e *evaluation) enforced() Decision {
	c, s := e.c, e.server
	if c.decision.Reason == ReasonToolUnknown {
		e.say("tool", "the server lists no such tool")
		return c.decision
	}
	if e.steps != nil {
		e.say("tool", fmt.Sprintf("%s, definition %s", c.tool.Name, c.tool.Digest))
	}
	if a := &s.instructions; !a.accepted {
		e.say(a.by, "nobody accepted the server's instructions")
		if s.pinning == v1alpha1.PinningEnforce {
			return c.decision.refused(ReasonInstructionsNotAccepted, a.by)
		}
	}
	if a := &c.standing.acceptance; !a.accepted {
		e.say(a.by, "nobody accepted this definition")
		if s.pinning == v1alpha1.PinningEnforce {
			return c.decision.refused(ReasonDefinitionNotAccepted, a.by)
		}
	}
	if e.steps != nil {
		e.say(c.decision.GatedBy, fmt.Sprintf("the tier is %s: %s", c.standing.tier, c.standing.reason))
	}
	h := e.hear(c.rulings, s.gates)
	return e.verdict(&h)
}

// verdict makes what the policies say into a decision; where they may be silent, the tier decides if it is stricter.
func (e *evaluation) verdict(h *hearing) Decision {
	if h.deniedBy != nil {
		return e.c.decision.refused(ReasonCallerNotAllowed, h.deniedBy.callersAt)
	}
	effect, by := h.strictest()
	d := e.c.decision
	switch {
	case by == nil:
		d = e.tierDecides()
	case effect == Deny:
		reason := ReasonRuleDenied
		if !h.sure[Deny] {
			reason = ReasonRuleUncertain
		}
		d = d.refused(reason, by.at)
		d.Message, d.Controls = by.message, by.controls
	case effect == RequireApproval:
		d = e.ask(h, by)
	default:
		d = e.allow(h, by)
	}
	d.Input = d.Effect != Deny && h.input == v1alpha1.InputAllow
	if h.uncertain != nil {
		d.Uncertain = uncertain(h.uncertain.at, h.cause)
	}
	return d
}

// ask has persons asked: as many and with such verbs as the tier and all rules that ask need.
func (e *evaluation) ask(h *hearing, by *clause) Decision {
	d := e.c.decision
	all, ok := h.verbs.join(d.Tier, by)
	if !ok {
		e.say(by.at, "the rules ask for more verbs than a request can hold")
		return d.refused(ReasonTooManyVerbs, by.at)
	}
	d.Effect, d.Reason, d.GatedBy, d.Message, d.Controls = RequireApproval, ReasonApprovalRequired, by.at, by.message, by.controls
	d.RequiredApprovals = max(requiredFor(d.Tier, e.server.object.Spec.Approvals.Required), h.required)
	d.Verbs = all
	return d
}

// allow lets the call run that a rule allows, if nothing stands above: the ceiling, an entry that keeps the tool
// attended, and the tier where it may be that no policy says anything.
func (e *evaluation) allow(h *hearing, by *clause) Decision {
	d := e.c.decision
	if d.Tier == v1alpha1.TierRead || d.Tier == v1alpha1.TierReversible && !h.silent {
		if d.Tier == v1alpha1.TierReversible {
			if entry, attends, cause := e.anyHolds(e.c.standing.attended); attends != no {
				return e.attend(entry, attends, cause)
			}
		}
		d.Effect, d.Reason, d.GatedBy, d.Message, d.Controls = Allow, ReasonRuleAllowed, by.at, by.message, by.controls
		d.RequiredApprovals, d.Verbs = 0, nil
		return d
	}
	if d.Tier != v1alpha1.TierReversible {
		e.say("ceiling", "RequireApproval: no rule lets an Irreversible tool run without a person")
		return d
	}
	return e.tierDecides()
}

// attend puts a person before the call since an entry keeps it attended, or may.
func (e *evaluation) attend(entry *autonomy, attends answer, cause error) Decision {
	d := e.c.decision
	d.GatedBy = entry.at
	if e.steps != nil {
		e.say(entry.at, "RequireApproval: it keeps the call attended"+butFor(attends, cause))
	}
	if attends == maybe {
		d.Uncertain = uncertain(entry.at, cause)
	}
	return d
}

// tierDecides is the verdict where no policy says anything: a Reversible tool runs if a promotion in force holds for the
// call, and nothing keeps it attended.
func (e *evaluation) tierDecides() Decision {
	d, st := e.c.decision, &e.c.standing
	if d.Tier != v1alpha1.TierReversible || len(st.promoted) == 0 {
		if e.steps != nil {
			e.say("tier", "no policy decides: "+d.Effect.String())
		}
		return d
	}
	promotion, promoted, doubt := e.anyHolds(st.promoted)
	switch promoted {
	case no:
		e.say("tier", "no promotion holds for the call: RequireApproval")
		return d
	case maybe:
		d.Uncertain = uncertain(promotion.at, doubt)
		if e.steps != nil {
			e.say(promotion.at, "RequireApproval: the promotion may hold"+butFor(promoted, doubt))
		}
		return d
	case yes:
	}
	if entry, attends, cause := e.anyHolds(st.attended); attends != no {
		return e.attend(entry, attends, cause)
	}
	e.say(promotion.at, "Allow: the promotion is in force")
	d.Effect, d.Reason, d.GatedBy, d.RequiredApprovals, d.Verbs = Allow, ReasonUnattended, promotion.at, 0, nil
	return d
}

// uncertain names an entry that could not be evaluated, and why, in as many bytes as a receipt has room for.
func uncertain(at string, cause error) string { return glyph.Clip(at+": "+cause.Error(), 512) }

// observed lets the call pass that was decided on, unless baselines refuse or gate it.
func (e *evaluation) observed(full Decision) Decision {
	s := e.server
	unknown := full.Reason == ReasonToolUnknown
	if unknown {
		e.c = s.unlisted(e.call.Tool)
	}
	if e.steps != nil {
		e.say(ownMode, fmt.Sprintf("the mode is Observe: instead of %s the call meets what baselines alone say", full.Effect))
	}
	h := e.hear(e.c.rulings[:e.c.baselines], s.gates[:s.gated])
	d, binds := e.bind(&h)
	switch {
	case !binds, full.Effect == Allow:
		return full.observed()
	case unknown && d.Effect == RequireApproval:
		return full // nobody can approve a call of a tool that is not known
	default:
		return d
	}
}

// bind returns what the baselines alone make of a call, and whether that is stricter than to let it pass. Where a baseline
// gives the tool its tier or keeps it attended, that stands above what another baseline allows, as in Enforce.
func (e *evaluation) bind(h *hearing) (Decision, bool) {
	effect, by := h.strictest()
	if !e.c.gated && h.deniedBy == nil && (by == nil || effect == Allow) {
		return Decision{}, false
	}
	d := e.verdict(h)
	return d, d.Effect != Allow
}

// unlisted stands for a tool that the server does not list, with the rules of baselines that name it.
func (s *Server) unlisted(name string) *compiled {
	c := &compiled{tool: Tool{Name: name}, decision: s.stranger.decision}
	for _, p := range s.policies[:s.baselines] {
		if r := p.rulingOn(name); len(r.rules) > 0 {
			c.rulings = append(c.rulings, r)
			c.baselines++
		}
		c.gated = c.gated || len(p.tierTools.may(name)) > 0 || len(p.autonomyTools.find(name)) > 0
	}
	return c
}

// fresh refuses what may not rest on a snapshot of this age: on one that nothing proves only calls of a Read tool run.
func (e *evaluation) fresh(d Decision) Decision {
	f := e.call.Freshness
	if d.Effect == Deny || f == Fresh || f == Unproven && d.Effect == Allow && d.Tier == v1alpha1.TierRead {
		return d
	}
	e.say("snapshot", "what is known is too old to act on")
	return d.refused(ReasonPolicyStale, d.GatedBy)
}
