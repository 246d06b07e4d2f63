// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

// Preview is a call of a Read tool that shows what another call would affect.
type Preview struct {
	// Tool that is called, and its Arguments, a JSON object.
	Tool      string
	Arguments []byte
	// Recheck: the answer must be the same just before the previewed call is sent.
	Recheck bool
	// By names the policy and its entry.
	By string
}

// Preview returns the preview that a policy asks for before a person decides on the call, and whether there is one. With
// an error there is one, and it cannot be made; the error says why, for the person who decides.
func (s *Server) Preview(call Call) (Preview, bool, error) { return Preview{}, false, nil }
