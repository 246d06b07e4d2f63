// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// pinState is how a definition stands to what was accepted.
type pinState string

const (
	// statePinned: every policy that pins the tool names its definition.
	statePinned pinState = "Pinned"
	// stateAccepted: no policy pins it, and it is the definition of first contact, or one that did not change since.
	stateAccepted pinState = "Accepted"
	// stateDrifted: another definition was accepted.
	stateDrifted pinState = "Drifted"
	// stateNew: the tool appeared later, and nobody has accepted it yet.
	stateNew pinState = "New"
	// stateGone: the server does not list the tool any more.
	stateGone pinState = "Gone"
)

// pinView is one tool, or the instructions of the server, and what was accepted of it.
type pinView struct {
	// Tool is "" for the instructions.
	Tool  string   `json:"tool,omitempty"`
	State pinState `json:"state"`
	// Accepted are the digests that pins name, or else the one that the manager remembers as accepted.
	Accepted []string `json:"accepted,omitempty"`
	// Current is the digest that the server's definition has now; none for a tool that is gone.
	Current string `json:"current,omitempty"`
	// Policies are those that pin it.
	Policies []string `json:"policies,omitempty"`
	// Changes say in words how the current definition differs from the accepted one, where both are kept.
	Changes []string `json:"changes,omitempty"`
}

// drifted tells whether what the pins and the manager accepted is not what the server says now. A tool that is gone and
// that nobody pins is no drift: pins say what may be, and not what must.
func (v pinView) drifted() bool {
	return v.State == stateDrifted || v.State == stateNew || v.State == stateGone && len(v.Policies) > 0
}

// name shows which definition it is.
func (v pinView) name() string { return cmp.Or(v.Tool, "(instructions)") }

// pinsOf returns what each policy that pins a tool, or with "" the instructions, accepts of it.
func (set policySet) pinsOf(server *v1alpha1.GovernedServer) map[string]map[string][]string {
	pins := map[string]map[string][]string{}
	for i := range set.objects {
		p := &set.objects[i]
		if !set.covers(p, server) {
			continue
		}
		for _, pin := range p.Spec.Pins {
			if pins[pin.Tool] == nil {
				pins[pin.Tool] = map[string][]string{}
			}
			pins[pin.Tool][nameOf(p)] = append(pins[pin.Tool][nameOf(p)], pin.Digest)
		}
	}
	return pins
}

// viewPins says how every definition of the server stands, the instructions first and tools by name.
func (set policySet) viewPins(server *v1alpha1.GovernedServer) []pinView {
	pins := set.pinsOf(server)
	views := []pinView{}
	view := func(tool, current string, accepted *string) {
		views = append(views, judgePins(tool, current, accepted, pins[tool]))
		delete(pins, tool)
	}
	if info := server.Status.Server; info != nil && (info.InstructionsDigest != "" || info.AcceptedInstructionsDigest != "") {
		var accepted *string
		if info.AcceptedInstructionsDigest != "" {
			accepted = &info.AcceptedInstructionsDigest
		}
		view("", info.InstructionsDigest, accepted)
	}
	accepted := map[string]*string{}
	for i := range server.Status.Accepted {
		accepted[server.Status.Accepted[i].Tool] = &server.Status.Accepted[i].Digest
	}
	for _, t := range server.Status.Tools {
		view(t.Name, t.Digest, accepted[t.Name])
		delete(accepted, t.Name)
	}
	for tool, digest := range accepted {
		view(tool, "", digest)
	}
	for tool := range pins {
		view(tool, "", nil)
	}
	slices.SortFunc(views, func(a, b pinView) int { return strings.Compare(a.Tool, b.Tool) })
	return views
}

// judgePins says how one definition stands. A policy that pins it accepts the digests that it names and no other; where
// several pin it, each has to name the digest. Without a pin it is the accepted one unless the manager remembers another.
func judgePins(tool, current string, accepted *string, pins map[string][]string) pinView {
	v := pinView{Tool: tool, Current: current, State: stateAccepted}
	everyone := true
	for name, digests := range pins {
		v.Policies = append(v.Policies, name)
		v.Accepted = append(v.Accepted, digests...)
		everyone = everyone && slices.Contains(digests, current)
	}
	slices.Sort(v.Policies)
	slices.Sort(v.Accepted)
	v.Accepted = slices.Compact(v.Accepted)
	switch {
	case len(pins) > 0 && everyone:
		v.State = statePinned
	case len(pins) > 0:
		v.State = stateDrifted
	case accepted == nil:
		v.Accepted = []string{current}
	case *accepted == "":
		v.State = stateNew
	default:
		v.Accepted = []string{*accepted}
		if *accepted != current {
			v.State = stateDrifted
		}
	}
	if current == "" && tool != "" { // instructions that are no more are other instructions
		v.State = stateGone
	}
	return v
}

// currentPins are pins of everything that the server says now, the instructions first and tools by name.
func currentPins(server *v1alpha1.GovernedServer) []v1alpha1.Pin {
	var pins []v1alpha1.Pin
	if info := server.Status.Server; info != nil && info.InstructionsDigest != "" {
		pins = append(pins, v1alpha1.Pin{Digest: info.InstructionsDigest})
	}
	for _, t := range server.Status.Tools {
		pins = append(pins, v1alpha1.Pin{Tool: t.Name, Digest: t.Digest})
	}
	slices.SortFunc(pins, func(a, b v1alpha1.Pin) int { return strings.Compare(a.Tool, b.Tool) })
	return pins
}
