// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// Range returns the strictest and the loosest verdict that calls of a tool by one principal can have, whatever their
// arguments, on a fresh snapshot. Every verdict is between them; not every one between them needs to be possible.
func (s *Server) Range(tool string, principal expr.Principal) (strictest, loosest Effect) {
	e := evaluation{server: s, call: Call{Tool: tool, Principal: principal, Freshness: Fresh}, c: s.stranger, anyArguments: true}
	if c, found := s.tools[tool]; found {
		e.c = c
	}
	loosest = e.loosest()
	return e.decide().Effect, loosest
}

// AnyUnattended tells whether a call with an effect may run without a person, by a promotion, a rule or in Observe; then
// the watch must prove that it is alive.
func (s *Server) AnyUnattended() bool { return s.unattended }

func (s *Server) anyUnattended() bool {
	if s.mode.observe && s.mode.stops == "" {
		return true
	}
	for name, c := range s.tools {
		e := evaluation{server: s, call: Call{Tool: name}, c: c, anyArguments: true, anybody: true}
		if c.decision.Tier != v1alpha1.TierRead && e.loosest() == Allow {
			return true
		}
	}
	return false
}

// loosest returns the loosest verdict of those that the evaluation leaves open.
func (e *evaluation) loosest() Effect {
	c, s := e.c, e.server
	switch {
	case s.mode.refuses(c) != "":
		return Deny
	case s.mode.observe:
		return e.loosestObserved()
	case c.decision.Reason == ReasonToolUnknown, s.pinning == v1alpha1.PinningEnforce && (!s.instructions.accepted || !c.standing.accepted):
		return Deny
	}
	h := e.hear(c.rulings, s.gates)
	if h.deniedBy != nil {
		return Deny
	}
	return min(h.limit, e.loosestOf(&h))
}

// loosestOf returns the loosest verdict that the words of policies leave open.
func (e *evaluation) loosestOf(h *hearing) Effect {
	tier, st := e.c.decision.Tier, &e.c.standing
	_, attends, _ := e.anyHolds(st.attended)
	word := h.must
	if h.silent {
		word = max(h.loosest, e.c.decision.Effect)
		if tier == v1alpha1.TierReversible {
			if _, promoted, _ := e.anyHolds(st.promoted); promoted != no {
				word = Allow
			}
		}
	}
	if word == Allow && tier != v1alpha1.TierRead && (tier != v1alpha1.TierReversible || attends == yes) {
		return RequireApproval
	}
	return word
}

// loosestObserved is the loosest verdict in the mode Observe, where only baselines bind.
func (e *evaluation) loosestObserved() Effect {
	known := e.c
	if known.decision.Reason == ReasonToolUnknown {
		e.c = e.server.unlisted(e.call.Tool)
		defer func() { e.c = known }()
	}
	h := e.hear(e.c.rulings[:e.c.baselines], e.server.gates[:e.server.gated])
	switch {
	case h.deniedBy != nil:
		return Deny
	case !h.silent:
		return min(h.limit, h.must)
	default:
		return h.limit
	}
}
