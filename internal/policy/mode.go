// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// mode is what the server's mode and those of its baselines come to.
type mode struct {
	// observe: what no baseline refuses or gates passes.
	observe bool
	// stops is Stopped or ReadOnly, "" for neither, by what; bound: a baseline says so.
	stops v1alpha1.Mode
	by    string
	bound bool
}

const ownMode = "spec.mode of the server"

// modeOf returns the strictest of the server's mode and those of its baselines. A word that is no mode stops.
func modeOf(server *v1alpha1.GovernedServer, baselines []*Policy) mode {
	var m mode
	switch server.Spec.Mode {
	case v1alpha1.ModeEnforce, "":
	case v1alpha1.ModeObserve:
		m.observe = true
	case v1alpha1.ModeReadOnly:
		m.stops, m.by = v1alpha1.ModeReadOnly, ownMode
	default:
		m.stops, m.by = v1alpha1.ModeStopped, ownMode
	}
	for _, p := range baselines {
		switch {
		case p.object.Spec.Mode == "" || m.stops == v1alpha1.ModeStopped:
		case p.object.Spec.Mode != v1alpha1.BaselineReadOnly:
			m.stops, m.by, m.bound = v1alpha1.ModeStopped, p.names("spec.mode"), true
		case !m.bound:
			m.stops, m.by, m.bound = v1alpha1.ModeReadOnly, p.names("spec.mode"), true
		}
	}
	return m
}

// refuses returns why the mode refuses a call of a tool; "" where it does not. What a baseline holds read-only no team
// opens by overriding the tier.
func (m mode) refuses(c *compiled) Reason {
	switch {
	case m.stops == v1alpha1.ModeStopped:
		return ReasonServerStopped
	case m.stops == "":
		return ""
	case c.decision.Tier != v1alpha1.TierRead, m.bound && slices.ContainsFunc(c.bounds, notRead):
		return ReasonServerReadOnly
	default:
		return ""
	}
}

func notRead(tier v1alpha1.Tier) bool { return tier != v1alpha1.TierRead }

// pinningOf returns what happens to definitions that nobody accepted. A word that is no such way is as strict as can be.
func pinningOf(server *v1alpha1.GovernedServer) v1alpha1.Pinning {
	switch p := cmp.Or(server.Spec.Pinning, v1alpha1.PinningReport); p {
	case v1alpha1.PinningReport, v1alpha1.PinningOff:
		return p
	default:
		return v1alpha1.PinningEnforce
	}
}

// Other returns the verdict on a request that is neither tools/call nor tools/list, and that is not needed to keep a
// session alive: Allow or Deny. It looks at modes, otherMethods and callers; ReadOnly lets such requests pass.
func (s *Server) Other(principal expr.Principal, freshness Freshness) Decision {
	d := Decision{Effect: Allow, Reason: ReasonMethodPassed, GatedBy: "spec.otherMethods of the server", Revision: s.Revision}
	if s.mode.stops == v1alpha1.ModeStopped {
		return d.refused(ReasonServerStopped, s.mode.by)
	}
	binds := func(gates []*Policy) (Decision, bool) {
		for _, p := range gates {
			if !p.admits(&principal) {
				return d.refused(ReasonCallerNotAllowed, p.callersAt), true
			}
		}
		return d, false
	}
	if refused, bound := binds(s.gates[:s.gated]); bound {
		return refused
	}
	if freshness == Stale || freshness != Unproven && freshness != Fresh {
		return d.refused(ReasonPolicyStale, d.GatedBy)
	}
	full, refused := binds(s.gates)
	if o := s.object.Spec.OtherMethods; !refused && o != v1alpha1.OtherMethodsPass && o != "" {
		full = d.refused(ReasonMethodDenied, d.GatedBy)
	}
	if s.mode.observe {
		return full.observed()
	}
	return full
}

// refused returns the decision as a refusal.
func (d Decision) refused(reason Reason, by string) Decision {
	d.Effect, d.Reason, d.GatedBy = Deny, reason, by
	d.RequiredApprovals, d.Verbs, d.Message, d.Controls, d.Observed, d.Input = 0, nil, "", nil, nil, false
	return d
}

// observed returns the decision that lets a call pass and remembers what it would have met.
func (d Decision) observed() Decision {
	passed := Decision{
		Effect: Allow, Reason: ReasonObserved, Tool: d.Tool, Tier: d.Tier, GatedBy: ownMode, Why: d.Why, Revision: d.Revision,
		Observed: &d,
	}
	return passed
}
