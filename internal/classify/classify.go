// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classify gives a tool its risk tier and names the evidence for it; it is pure, and nothing but the tool's name can give Read.
package classify

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// maxReason is the longest reason, in bytes: what status.tools[].reason holds.
const maxReason = 512

// Verdict is a tier with the evidence for it.
type Verdict struct {
	Tier   v1alpha1.Tier
	Source v1alpha1.TierSource
	// Reason is one sentence that a person can check: which word, which field.
	Reason string
	// flagged is set on a name that can be mistaken for another, and so proves nothing.
	flagged bool
}

// Options say what a team decided for a server.
type Options struct {
	// TrustReadOnlyHint lets readOnlyHint stand for the proof that a name lacks,
	// never against a verb with effects in it.
	TrustReadOnlyHint bool
	// MinimumTier is the least any tool gets; empty is no minimum.
	MinimumTier v1alpha1.Tier

	// uniformHints is set when the server says the same of every tool, and so nothing of one.
	uniformHints bool
	// prefix is the first word that the names of the server's tools share, in lower case; empty if none.
	prefix string
}

// Server classifies all tools of one server, in their order, after finding out
// what their annotations and their names have in common.
func Server(tools []tool.Descriptor, opts Options) []Verdict {
	opts.uniformHints = uniform(tools)
	opts.prefix = sharedPrefix(tools)
	verdicts := make([]Verdict, len(tools))
	for i, d := range tools {
		verdicts[i] = verdictOn(d, opts)
	}
	return verdicts
}

// verdictOn classifies one tool: the name decides, everything else can only raise
// what it decided, save a read-only hint that the team trusts.
func verdictOn(d tool.Descriptor, opts Options) Verdict {
	verdict, shown := byName(d.Name, opts.prefix)
	if opts.TrustReadOnlyHint && !opts.uniformHints && !verdict.flagged && shown.word == "" && isTrue(d.Annotations.ReadOnlyHint) {
		verdict = Verdict{Tier: v1alpha1.TierRead, Source: v1alpha1.TierSourceAnnotation, Reason: "The trusted annotation readOnlyHint is true, and no word of the name has effects"}
	}
	verdict = verdict.raisedBy(byDescription(d, shown))
	verdict = verdict.raisedBy(bySchema(d.InputSchema, shown))
	if !opts.uniformHints {
		verdict = verdict.raisedBy(byAnnotations(d.Annotations, shown))
	}
	verdict = verdict.raisedBy(byMinimum(opts.MinimumTier))
	verdict.Reason = clip(verdict.Reason)
	return verdict
}

// raisedBy returns the stricter of two verdicts, the first when they are equally strict.
func (v Verdict) raisedBy(other Verdict) Verdict {
	if other.Tier == "" || !other.Tier.StricterThan(v.Tier) {
		return v
	}
	other.flagged = v.flagged
	return other
}

// byName judges the name alone.
func byName(toolName, prefix string) (Verdict, proof) {
	verdict := Verdict{Tier: v1alpha1.TierReversible, Source: v1alpha1.TierSourceName}
	if flaw := flaw(toolName); flaw != "" {
		verdict.flagged, verdict.Reason = true, "The name "+quote(toolName)+" "+flaw+", so that no word of it is evidence"
		return verdict, proof{}
	}
	shown := parse(tool.Words(toolName), prefix).judge()
	if shown.word == "" {
		verdict.Reason = "No word of the name " + quote(toolName) + " is known to read or to have effects"
		return verdict, shown
	}
	verdict.Tier = shown.tier
	verdict.Reason = fmt.Sprintf("The word %s in the name %s", quote(shown.word), shown.why)
	return verdict, shown
}

// byMinimum is the least the team wants; what is no tier is the strictest.
func byMinimum(minimum v1alpha1.Tier) Verdict {
	tier := minimum
	if tier.StricterThan(v1alpha1.TierReversible) && tier != "" {
		tier = v1alpha1.TierIrreversible
	}
	return Verdict{Tier: tier, Source: v1alpha1.TierSourceMinimum, Reason: "The server's minimumTier is " + string(tier)}
}

// flaw tells why a name can be mistaken for another one: look-alike, invisible,
// full-width and control characters are all outside printable ASCII.
func flaw(toolName string) string {
	if len(toolName) > tool.MaxName {
		return fmt.Sprintf("is longer than %d bytes", tool.MaxName)
	}
	for i, r := range toolName {
		if r < ' ' || r > '~' {
			return fmt.Sprintf("holds the character %U at byte %d, which can be mistaken or overlooked", r, i)
		}
	}
	return ""
}

// byAnnotations judges the hints of the server, which can only raise.
func byAnnotations(hints tool.Annotations, shown proof) Verdict {
	verdict := Verdict{Source: v1alpha1.TierSourceAnnotation}
	switch {
	case isTrue(hints.DestructiveHint) && !isTrue(hints.ReadOnlyHint):
		verdict.Tier, verdict.Reason = v1alpha1.TierReversible, "The annotation destructiveHint is true"
		if shown.word == "" {
			verdict.Tier, verdict.Reason = v1alpha1.TierIrreversible, "The annotation destructiveHint is true, and no word of the name is known to do less"
		}
	case hints.ReadOnlyHint != nil && !*hints.ReadOnlyHint:
		verdict.Tier, verdict.Reason = v1alpha1.TierReversible, "The annotation readOnlyHint is false"
	}
	return verdict
}

func isTrue(hint *bool) bool { return hint != nil && *hint }

// uniform tells whether two or more tools all carry the same hints.
func uniform(tools []tool.Descriptor) bool {
	for _, d := range tools {
		if !sameHint(d.Annotations.ReadOnlyHint, tools[0].Annotations.ReadOnlyHint) ||
			!sameHint(d.Annotations.DestructiveHint, tools[0].Annotations.DestructiveHint) {
			return false
		}
	}
	return len(tools) > 1
}

func sameHint(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }

// sharedPrefix returns the word that at least half of the tools, and no fewer
// than two, begin with. A verb is no prefix, unless it is a noun as often and
// most of these tools have a verb of their own behind it: render_get, render_set.
func sharedPrefix(tools []tool.Descriptor) string {
	counts, verbs := map[string]int{}, map[string]int{}
	most := ""
	for _, d := range tools {
		if len(d.Name) > tool.MaxName {
			continue
		}
		split := tool.Words(d.Name)
		if len(split) < 2 {
			continue
		}
		counts[split[0]]++
		if second := tokenOf(split[1]).verb; neverNouns[second] || isEffect(second) && !isHomograph(second) {
			verbs[split[0]]++
		}
		if counts[split[0]] > counts[most] {
			most = split[0]
		}
	}
	if counts[most] < 2 || 2*counts[most] < len(tools) {
		return ""
	}
	verb := tokenOf(most).verb
	if verb == "" || isHomograph(verb) && 2*verbs[most] >= counts[most] {
		return most
	}
	return ""
}

// quote shows a text of the server's as one line of ASCII, cut to what a reader can take in.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strconv.QuoteToASCII(text)
}

// clip bounds a reason; all parts of it are ASCII, so that a cut leaves whole characters.
func clip(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	return reason[:maxReason-3] + "..."
}
