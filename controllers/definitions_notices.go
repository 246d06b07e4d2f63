// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// maxNote is how long an event that says what has changed may be, in bytes; the API takes 1024.
	maxNote = 1000
	// minDiff is the least room for what has changed in one tool, in bytes; where there is less, tools are counted.
	minDiff = 150
)

// toolNotices tells what came, went or changed. One event says all of it: of several that differ in their text alone the
// API keeps one.
func toolNotices(before, after *v1alpha1.GovernedServer, said bodies) []notice {
	if after.Status.LastChanged == nil {
		return nil
	}
	if before.Status.LastChanged == nil || before.Status.EndpointDigest != after.Status.EndpointDigest {
		return []notice{{corev1.EventTypeNormal, v1alpha1.ReasonFirstContact, "Discover", fmt.Sprintf(
			"Listed for the first time at this endpoint and trusted as they are: %d tools", len(after.Status.Tools))}}
	}
	return slices.Concat(definitionNotices(before, after, said), instructionsNotices(before, after, said))
}

// change is a tool with another definition than before, or than was accepted.
type change struct{ name, from, to string }

func definitionNotices(before, after *v1alpha1.GovernedServer, said bodies) []notice {
	old := map[string]string{}
	for _, t := range before.Status.Tools {
		old[t.Name] = t.Digest
	}
	accepted := map[string]v1alpha1.AcceptedTool{}
	for _, a := range after.Status.Accepted {
		accepted[a.Tool] = a
	}
	kind := corev1.EventTypeNormal
	var came, gone []string
	var changed []change
	for _, t := range after.Status.Tools {
		was, known := old[t.Name]
		delete(old, t.Name)
		entry, unaccepted := accepted[t.Name]
		if known && was == t.Digest {
			continue
		}
		if unaccepted {
			kind = corev1.EventTypeWarning
			if entry.Digest != "" {
				was, known = entry.Digest, true
			}
		}
		if !known {
			came = append(came, quote(t.Name))
			continue
		}
		changed = append(changed, change{t.Name, was, t.Digest})
	}
	for name := range old {
		gone = append(gone, quote(name))
	}
	slices.Sort(gone)
	var parts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"new", came}, {"gone", gone}} {
		if len(part.names) > 0 {
			parts = append(parts, glyph.Clip(part.what+": "+listNames(part.names), maxNote/4))
		}
	}
	if len(changed) > 0 {
		room := maxNote - len(strings.Join(parts, "; ")) - len("; changed: ")
		parts = append(parts, "changed: "+describeChanges(changed, said, room))
	}
	if len(parts) == 0 {
		return nil
	}
	return []notice{{kind, v1alpha1.ReasonToolsChanged, "Discover", glyph.Clip(sentence(strings.Join(parts, "; ")), maxNote)}}
}

// describeChanges says what has changed in each tool, in so many bytes.
func describeChanges(changed []change, said bodies, room int) string {
	room -= len(" | and 1000 more")
	shown := min(len(changed), max(room/minDiff, 1))
	var lines []string
	for _, c := range changed[:shown] {
		lines = append(lines, glyph.Clip(describeChange(c, said, room/shown), room/shown-len(" | ")))
	}
	text := strings.Join(lines, " | ")
	if more := len(changed) - shown; more > 0 {
		text += fmt.Sprintf(" | and %d more", more)
	}
	return text
}

func describeChange(c change, said bodies, room int) string {
	name := quote(c.name)
	old, haveOld := said.tool(c.from)
	new, haveNew := said.tool(c.to)
	switch {
	case !haveOld || !haveNew:
		return name + " (the definitions are not kept)"
	case c.from == c.to:
		return name + " as it was"
	default:
		return name + ": " + tool.Summary(tool.Diff(old, new), max(room-len(name), minDiff)-len(": "))
	}
}

// instructionsNotices tells that the server gives models other instructions.
func instructionsNotices(before, after *v1alpha1.GovernedServer, said bodies) []notice {
	was, is := before.Status.Server, after.Status.Server
	if was == nil || is == nil || was.InstructionsDigest == is.InstructionsDigest {
		return nil
	}
	kind, from := corev1.EventTypeNormal, was.InstructionsDigest
	if is.AcceptedInstructionsDigest != "" {
		kind, from = corev1.EventTypeWarning, is.AcceptedInstructionsDigest
	}
	text := "The instructions that the server gives to models have changed"
	old, haveOld := said.instructions(from)
	new, haveNew := said.instructions(is.InstructionsDigest)
	if haveOld && haveNew {
		text += ": " + tool.Summary(tool.DiffText("instructions", old, new), maxNote-len(text)-len(": "))
	}
	return []notice{{kind, v1alpha1.ReasonInstructionsChanged, "Discover", text}}
}
