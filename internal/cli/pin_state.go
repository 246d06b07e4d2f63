// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
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

// viewPins says how every definition of the server stands, the instructions first and tools by name. Whether one is
// accepted is for the policy engine to say, whatever the server's pinning does about it.
func (set policySet) viewPins(server *v1alpha1.GovernedServer) []pinView {
	reported := server.DeepCopy()
	reported.Spec.Pinning = v1alpha1.PinningReport
	drift := map[string]policy.Drift{}
	for _, d := range set.compileAt(reported, reported.Status.EndpointDigest, policy.Facts{}).Drift() {
		drift[d.Tool] = d
	}
	pins := set.pinsOf(server)
	views := []pinView{}
	view := func(tool, current string) {
		d, drifted := drift[tool]
		views = append(views, viewOf(pinView{Tool: tool, Current: current, State: stateAccepted}, pins[tool], d, drifted))
		delete(pins, tool)
	}
	if info := server.Status.Server; info != nil && (info.InstructionsDigest != "" || info.AcceptedInstructionsDigest != "") {
		view("", info.InstructionsDigest)
	} else if _, pinned := pins[""]; pinned {
		view("", "")
	}
	for _, t := range server.Status.Tools {
		view(t.Name, t.Digest)
	}
	for _, was := range server.Status.Accepted {
		if server.Status.Tool(was.Tool) == nil {
			gone := pinView{Tool: was.Tool, State: stateGone, Accepted: []string{was.Digest}}
			views = append(views, viewOf(gone, pins[was.Tool], policy.Drift{}, false))
			delete(pins, was.Tool)
		}
	}
	for tool, by := range pins {
		views = append(views, viewOf(pinView{Tool: tool, State: stateGone}, by, policy.Drift{}, false))
	}
	slices.SortFunc(views, func(a, b pinView) int { return strings.Compare(a.Tool, b.Tool) })
	return views
}

// viewOf completes a view with the policies that pin the definition, and with what the engine says where it drifted.
func viewOf(v pinView, pins map[string][]string, d policy.Drift, drifted bool) pinView {
	switch {
	case drifted && d.Accepted == "" && len(pins) == 0:
		v.State = stateNew
	case drifted:
		v.State, v.Accepted = stateDrifted, []string{d.Accepted}
	case v.State == stateGone:
	case len(pins) > 0:
		v.State = statePinned
	default:
		v.Accepted = []string{v.Current}
	}
	if len(pins) > 0 {
		v.Accepted = nil
	}
	for name, digests := range pins {
		v.Policies = append(v.Policies, name)
		v.Accepted = append(v.Accepted, digests...)
	}
	slices.Sort(v.Policies)
	slices.Sort(v.Accepted)
	v.Accepted = slices.Compact(v.Accepted)
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
