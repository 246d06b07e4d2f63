// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

// Drift is a definition, or the server's instructions, that nobody accepted.
type Drift struct {
	// Tool is the name of the tool; "" for the server's instructions.
	Tool string
	// Digest is the current one, Accepted the one that was accepted; "" where nobody accepted any.
	Digest, Accepted string
	// By is what says so: status.accepted, or a policy and its pin.
	By string
}

// Drift returns what is not accepted: the instructions first, then tools by name.
func (s *Server) Drift() []Drift { return nil }
