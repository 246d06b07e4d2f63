// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// acceptance says whether somebody stands for a definition, or for the server's instructions.
type acceptance struct {
	accepted bool
	// digest that was accepted, the current one where it is; "" for none.
	digest string
	// by is what says so.
	by string
	// ratchet is the least tier until another definition is accepted; "" for none.
	ratchet v1alpha1.Tier
}

// floor returns the tier below which nothing leads: the classified one, or the ratchet where it is stricter.
func (a acceptance) floor(classified v1alpha1.Tier) v1alpha1.Tier {
	if a.ratchet != "" && a.ratchet.StricterThan(classified) {
		return a.ratchet
	}
	return classified
}

// pinned judges a definition by the pins of the policies that pin it: each of them has to name the digest. known is
// false where none of them pins it.
func pinned(policies []*Policy, tool, digest string) (a acceptance, known bool) {
	for _, p := range policies {
		digests, pins := p.pins[tool]
		if !pins {
			continue
		}
		if digest == "" || !slices.Contains(digests, digest) {
			return acceptance{digest: digests[0], by: p.names("spec.pins")}, true
		}
		if !known {
			a, known = acceptance{accepted: true, digest: digest, by: p.names("spec.pins")}, true
		}
	}
	return a, known
}

// acceptanceOf says whether a tool's definition is accepted. was is what the manager wrote down of the one that was
// accepted before, nil where the current one is the first; see pinned for pins.
func acceptanceOf(t Tool, pinning v1alpha1.Pinning, policies []*Policy, was *v1alpha1.AcceptedTool) acceptance {
	if pinning == v1alpha1.PinningOff {
		return acceptance{accepted: true, digest: t.Digest, by: "spec.pinning"}
	}
	a, known := pinned(policies, t.Name, t.Digest)
	switch {
	case known:
	case was == nil:
		a = acceptance{accepted: true, digest: t.Digest, by: "status.tools"}
	default:
		a = acceptance{accepted: was.Digest != "" && was.Digest == t.Digest, digest: was.Digest, by: "status.accepted"}
	}
	if !a.accepted && was != nil {
		// A tier that is none ranks as Irreversible, as everywhere.
		a.ratchet = cmp.Or(was.Tier, v1alpha1.TierIrreversible)
	}
	if t.Drifted {
		a.accepted = false
	}
	return a
}

// instructionsOf says whether the server's instructions are accepted.
func instructionsOf(server *v1alpha1.GovernedServer, pinning v1alpha1.Pinning, policies []*Policy) acceptance {
	info := server.Status.Server
	if info == nil {
		info = &v1alpha1.ServerInfo{}
	}
	if pinning == v1alpha1.PinningOff {
		return acceptance{accepted: true, digest: info.InstructionsDigest, by: "spec.pinning"}
	}
	if a, known := pinned(policies, "", info.InstructionsDigest); known {
		return a
	}
	digest := cmp.Or(info.AcceptedInstructionsDigest, info.InstructionsDigest)
	return acceptance{accepted: digest == info.InstructionsDigest, digest: digest, by: "status.server"}
}

// Drift is a definition, or the server's instructions, that nobody accepted.
type Drift struct {
	// Tool is the name of the tool; "" for the server's instructions.
	Tool string
	// Digest is the current one, Accepted the one that was accepted; "" where nobody accepted any.
	Digest, Accepted string
	// By is what says so: status of the server, or a policy and its pins.
	By string
}

// Drift returns what is not accepted: the instructions first, then tools by name.
func (s *Server) Drift() []Drift {
	var all []Drift
	if a := s.instructions; !a.accepted {
		d := Drift{Accepted: a.digest, By: a.by}
		if info := s.object.Status.Server; info != nil {
			d.Digest = info.InstructionsDigest
		}
		all = append(all, d)
	}
	for _, name := range s.names() {
		if c := s.tools[name]; !c.standing.accepted {
			all = append(all, Drift{Tool: name, Digest: c.tool.Digest, Accepted: c.standing.digest, By: c.standing.by})
		}
	}
	return all
}
