// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

// Step is one step of a verdict's derivation.
type Step struct {
	// Source is what speaks: a part of the server, or a policy and its entry.
	Source string `json:"source"`
	// Says is what it says of the call.
	Says string `json:"says"`
}

// Explain returns the derivation of the verdict that Decide gives on the call, in the order in which it is made.
func (s *Server) Explain(call Call) []Step {
	d := s.Decide(call)
	return []Step{{Source: "verdict", Says: d.Effect.String() + ": " + string(d.Reason)}}
}
