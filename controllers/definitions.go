// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// maxStatusTools and maxToolBytes are how many tools a status takes, and how much they take, as JSON.
	maxStatusTools, maxToolBytes = 1000, 700_000
	// maxAccepted and maxAcceptedBytes are the same for what was accepted of tools that are otherwise now.
	maxAccepted, maxAcceptedBytes = 1000, 250_000
)

// What was accepted of a tool is never forgotten, whatever a server lists:
//
//	an entry of status.accepted is made in the very write that puts another definition, or none, into status.tools;
//	it goes when the accepted definition is back, or a pin accepts the current one, which package policy judges;
//	where there is no room for an entry, the tool stays in status.tools as it was, and no new tool comes in.

// inventory is a server's tools and what was accepted of those that are otherwise now; both sorted by name.
type inventory struct {
	tools    []v1alpha1.ToolStatus
	accepted []v1alpha1.AcceptedTool
}

// relist returns the inventory after a listing, and what of the listing found no room. At first contact all tools are
// accepted as they are. It is pure, and listing the same again changes nothing.
func relist(before inventory, listed []v1alpha1.ToolStatus, firstContact bool, pinning v1alpha1.Pinning) (after inventory, gaps []string) {
	c := clerk{accepted: map[string]v1alpha1.AcceptedTool{}, pinning: pinning, firstContact: firstContact}
	if pinning != v1alpha1.PinningOff {
		for _, a := range before.accepted {
			c.enter(a)
		}
	}
	known := map[string]v1alpha1.ToolStatus{}
	for _, t := range before.tools {
		known[t.Name] = t
	}
	var came []v1alpha1.ToolStatus
	for _, t := range listed {
		was, there := known[t.Name]
		delete(known, t.Name)
		if !there {
			came = append(came, t)
			continue
		}
		c.keep(c.redefined(was, t))
	}
	gone := make([]v1alpha1.ToolStatus, 0, len(known))
	for _, was := range known {
		gone = append(gone, was)
	}
	slices.SortFunc(gone, byToolName)
	for _, was := range gone {
		if !c.remember(v1alpha1.AcceptedTool{Tool: was.Name, Digest: was.Digest, Tier: was.ClassifiedTier}) {
			c.frozen++
			c.keep(was)
		}
	}
	for _, t := range came {
		c.admit(t)
	}
	slices.SortFunc(c.tools, byToolName)
	return inventory{tools: c.tools, accepted: c.entries()}, c.gaps()
}

// clerk takes down an inventory.
type clerk struct {
	pinning      v1alpha1.Pinning
	firstContact bool

	tools     []v1alpha1.ToolStatus
	toolBytes int

	accepted      map[string]v1alpha1.AcceptedTool
	acceptedBytes int

	// frozen counts tools that stay as they were, refused new ones that do not come in, cut those that there is no room for.
	frozen, refused, cut int
}

// redefined returns what the status holds of a tool that was there before: as it is now, if it could be taken down what
// it was.
func (c *clerk) redefined(was, is v1alpha1.ToolStatus) v1alpha1.ToolStatus {
	if entry, there := c.accepted[is.Name]; there {
		entry.Tier = strictest(entry.Tier, is.ClassifiedTier)
		c.accepted[is.Name] = entry
		return is
	}
	if was.Digest == is.Digest {
		return is
	}
	tier := strictest(was.ClassifiedTier, is.ClassifiedTier)
	if !c.remember(v1alpha1.AcceptedTool{Tool: is.Name, Digest: was.Digest, Tier: tier}) {
		c.frozen++
		return was
	}
	return is
}

// admit takes in a tool that was not there before, if there is room for it, and room to take down what it was once it
// changes.
func (c *clerk) admit(t v1alpha1.ToolStatus) {
	entry, returns := c.accepted[t.Name]
	switch {
	case len(c.tools) >= maxStatusTools || c.toolBytes+jsonSize(t) > maxToolBytes:
		c.cut++
		return
	case returns:
		entry.Tier = strictest(entry.Tier, t.ClassifiedTier)
		c.accepted[t.Name] = entry
	case c.full():
		c.refused++
		return
	case !c.firstContact && c.pinning == v1alpha1.PinningEnforce:
		if !c.remember(v1alpha1.AcceptedTool{Tool: t.Name, Tier: t.ClassifiedTier}) {
			c.refused++
			return
		}
	}
	c.keep(t)
}

// keep puts a tool into the status, whether there is room or not.
func (c *clerk) keep(t v1alpha1.ToolStatus) {
	c.tools = append(c.tools, t)
	c.toolBytes += jsonSize(t)
}

// remember makes an entry of what was accepted, unless there is one, and tells whether it is taken down.
func (c *clerk) remember(a v1alpha1.AcceptedTool) bool {
	if _, there := c.accepted[a.Tool]; there || c.pinning == v1alpha1.PinningOff {
		return true
	}
	if len(c.accepted) >= maxAccepted || c.acceptedBytes+jsonSize(a) > maxAcceptedBytes {
		return false
	}
	c.enter(a)
	return true
}

func (c *clerk) enter(a v1alpha1.AcceptedTool) {
	c.accepted[a.Tool] = a
	c.acceptedBytes += jsonSize(a)
}

// full tells that an entry of the longest name may find no room.
func (c *clerk) full() bool {
	const longest = 1000
	return len(c.accepted) >= maxAccepted || c.acceptedBytes > maxAcceptedBytes-longest
}

// entries returns what was accepted, sorted; nil for nothing.
func (c *clerk) entries() []v1alpha1.AcceptedTool {
	var all []v1alpha1.AcceptedTool
	for _, a := range c.accepted {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b v1alpha1.AcceptedTool) int { return cmp.Compare(a.Tool, b.Tool) })
	return all
}

func (c *clerk) gaps() []string {
	var gaps []string
	say := func(n int, format string) {
		if n > 0 {
			gaps = append(gaps, fmt.Sprintf(format, n))
		}
	}
	say(c.cut, fmt.Sprintf("left out %%d for which there is no room beside %d tools or %d bytes", maxStatusTools, maxToolBytes))
	say(c.refused, "left out %d new ones, since status.accepted is full: accept or remove what is there")
	say(c.frozen, "kept %d as they were, since status.accepted is full: accept or remove what is there")
	return gaps
}

// settle removes what was accepted of a tool, or of the instructions, where it is accepted as it is now: by a pin, or since
// it is back. It tells whether that made room.
func settle(server *v1alpha1.GovernedServer, standing *policy.Server) (room bool) {
	status := &server.Status
	before := len(status.Accepted)
	status.Accepted = slices.DeleteFunc(slices.Clone(status.Accepted), func(a v1alpha1.AcceptedTool) bool {
		s, listed := standing.Standing(a.Tool)
		return listed && s.Accepted
	})
	if len(status.Accepted) == 0 {
		status.Accepted = nil
	}
	unaccepted := slices.ContainsFunc(standing.Drift(), func(d policy.Drift) bool { return d.Tool == "" })
	if info := status.Server; info != nil && !unaccepted && info.AcceptedInstructionsDigest != "" {
		settled := *info
		settled.AcceptedInstructionsDigest = ""
		status.Server = &settled
	}
	return len(status.Accepted) < before
}

// noInstructions is the digest that stands for none, where there were some.
var noInstructions = tool.DigestOf("")

// reintroduce returns what a server says of itself, with what was accepted of its instructions; before is nil at first
// contact. A server that had instructions and has none now has others.
func reintroduce(before *v1alpha1.ServerInfo, now v1alpha1.ServerInfo, pinning v1alpha1.Pinning) *v1alpha1.ServerInfo {
	if before == nil {
		return &now
	}
	if now.InstructionsDigest == "" && (before.InstructionsDigest != "" || before.AcceptedInstructionsDigest != "") {
		now.InstructionsDigest = noInstructions
	}
	accepted := cmp.Or(before.AcceptedInstructionsDigest, before.InstructionsDigest, noInstructions)
	now.AcceptedInstructionsDigest = ""
	if pinning != v1alpha1.PinningOff && accepted != cmp.Or(now.InstructionsDigest, noInstructions) {
		now.AcceptedInstructionsDigest = accepted
	}
	return &now
}

// strictest returns the stricter of two tiers.
func strictest(a, b v1alpha1.Tier) v1alpha1.Tier {
	if b.StricterThan(a) {
		return b
	}
	return a
}

func byToolName(a, b v1alpha1.ToolStatus) int { return cmp.Compare(a.Name, b.Name) }

// jsonSize is what a thing takes as an element of a list in JSON.
func jsonSize(thing any) int {
	text, err := json.Marshal(thing)
	if err != nil {
		return maxToolBytes
	}
	return len(text) + len(",")
}
