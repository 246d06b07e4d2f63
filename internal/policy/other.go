// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/tidewaiter/tidewaiter/internal/expr"

// Other returns the verdict on a request that is neither tools/call nor tools/list, and that is not needed to keep a
// session alive: Allow or Deny.
func (s *Server) Other(principal expr.Principal, freshness Freshness) Decision {
	_ = principal
	if freshness == Stale {
		return Decision{Effect: Deny, Reason: ReasonPolicyStale, Revision: s.Revision}
	}
	return Decision{Effect: Allow, Reason: ReasonMethodPassed, Revision: s.Revision}
}

// Range returns the strictest and the loosest verdict that calls of a tool by one principal can have, whatever their
// arguments, on a fresh snapshot.
func (s *Server) Range(tool string, principal expr.Principal) (strictest, loosest Effect) {
	d := s.Decide(Call{Tool: tool, Principal: principal, Freshness: Fresh})
	return d.Effect, d.Effect
}
