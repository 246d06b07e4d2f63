// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// Step is one step of a verdict's derivation.
type Step struct {
	// Source is what speaks: a part of the server, or a policy and its entry.
	Source string `json:"source"`
	// Says is what it says of the call.
	Says string `json:"says"`
}

// Explain returns the derivation of the verdict that Decide gives on the call, in the order in which it is made. The last
// step, from verdict, is the verdict itself.
func (s *Server) Explain(call Call) []Step {
	steps := []Step{}
	e := evaluation{server: s, call: call, c: s.stranger, steps: &steps}
	if c, found := s.tools[call.Tool]; found {
		e.c = c
	}
	e.decide()
	return steps
}

// say adds a step to the derivation, if somebody asked for it.
func (e *evaluation) say(source, says string) {
	if e.steps != nil {
		*e.steps = append(*e.steps, Step{Source: source, Says: glyph.Clip(says, 512)})
	}
}

// sayRule tells what a rule that matches, or may, says.
func (e *evaluation) sayRule(r *clause, match answer, cause error, tier v1alpha1.Tier, bound bool) {
	if e.steps == nil {
		return
	}
	says := r.effect.String() + butFor(match, cause)
	if r.input != "" {
		says = fmt.Sprintf("%s; answers in the middle of the call: %s", says, r.input)
	}
	if bound {
		says = fmt.Sprintf("seen as %s, as the tool would be without overrides of teams: %s", tier, says)
	}
	e.say(r.at, says)
}

// butFor adds to a word that it cannot be told whether it is said.
func butFor(match answer, cause error) string {
	if match != maybe {
		return ""
	}
	return fmt.Sprintf(", or what follows without it: it cannot be evaluated: %s", cause)
}

// end tells the verdict.
func (e *evaluation) end(d Decision) Decision {
	if e.steps != nil {
		e.say("verdict", fmt.Sprintf("%s: %s", d.Effect, d.Reason))
	}
	return d
}
