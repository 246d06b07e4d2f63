// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// effect judges the verb with effects at i by what it acts upon.
func (n name) effect(i int) proof {
	t := n.tokens[i]
	object := n.object(i)
	found := proof{tier: v1alpha1.TierReversible, word: t.text, why: "changes something"}
	switch {
	case n.isMild(i, object):
		return found
	case irreversible[t.verb] || weighty[t.verb]:
		found.tier, found.why = v1alpha1.TierIrreversible, "does what cannot be undone"
		return found
	}
	if runners[t.verb] {
		if word := first(object, code); word != "" {
			return proof{tier: v1alpha1.TierIrreversible, word: word, why: "is free code or commands, and the tool runs it"}
		}
		if t.verb == "request" && first(object, protocols) != "" {
			return proof{tier: v1alpha1.TierIrreversible, word: t.text, why: "is a free request to an API"}
		}
	}
	if doers[t.verb] && len(object) > 0 && first(object, drafts) == "" {
		if head := object[len(object)-1]; deeds[head] {
			return proof{tier: v1alpha1.TierIrreversible, word: head, why: "cannot be taken back once it is done"}
		}
	}
	return found
}

// isMild tells whether a verb that is irreversible by itself can be undone on this object.
func (n name) isMild(i int, object []string) bool {
	after := n.textsAfter(i)
	switch n.tokens[i].verb {
	case "clear", "reset", "flush", "invalidate", "expire", "discard", "empty":
		return first(object, transient) != ""
	case "remove":
		return slices.Contains(after, "from") || first(object, ties) != "" || first(object, transient) != ""
	case "unlink":
		return first(object, files) == ""
	case "push":
		return len(object) > 0 && i < len(n.tokens)-1 && first(object, posted) == "" && first(object, deeds) == "" && first(object, history) == ""
	case "post", "forward":
		return first(object, posted) == "" && first(after, posted) == ""
	case "reply", "message":
		return first(after, writings) != "" || first(object, writings) != ""
	case "transfer":
		return first(object, owned) != ""
	case "send":
		return first(object, keystrokes) != ""
	case "merge", "drop":
		return first(object, parts) != "" || i > 1 && n.tokens[i-2].verb == "drag"
	case "sign":
		return len(after) > 0 && particles[after[0]]
	}
	return false
}

func (n name) textsAfter(i int) []string {
	var texts []string
	for _, t := range n.tokens[i+1:] {
		texts = append(texts, t.text)
	}
	return texts
}

// first returns the first of the words that is in the set, or nothing.
func first(words []string, in set) string {
	for _, word := range words {
		if in[word] {
			return word
		}
	}
	return ""
}
