// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// show prints what is decided, for the person who decides. Nothing in it can move the cursor or hide a character:
// most of it was written by an agent.
func show(out io.Writer, r *v1alpha1.ApprovalRequest, now time.Time) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	spec := r.Spec
	line("Request:", "%s in namespace %s", r.Name, r.Namespace)
	line("Server:", "%s", glyph.Plain(spec.ServerRef.Name))
	line("Tool:", "%s", glyph.Plain(spec.Tool))
	line("Tier:", "%s, gated by %s", glyph.Plain(string(spec.Tier)), glyph.Plain(spec.GatedBy))
	line("Blast radius:", "%s: %s", glyph.Plain(string(spec.BlastRadius.Scope)), glyph.Plain(spec.BlastRadius.Summary))
	for _, evidence := range spec.BlastRadius.Evidence {
		line("", "%s", glyph.Plain(evidence))
	}
	requester := glyph.Plain(spec.Requester.Username)
	if spec.Requester.Pod != "" {
		requester += ", pod " + glyph.Plain(spec.Requester.Pod)
	}
	line("Requester:", "%s", requester)
	line("Asked:", "%s", when(r, now))
	if spec.Attempt > 1 {
		line("Attempt:", "%d: the same action was asked before, and may have run", spec.Attempt)
	}
	line("Arguments:", "%s", argumentsNote(spec))
	if err := table.Flush(); err != nil {
		return err
	}
	for l := range strings.Lines(indented(spec.Arguments)) {
		fmt.Fprintf(&text, "  %s\n", glyph.Plain(strings.TrimSuffix(l, "\n")))
	}
	text.WriteString("\n")
	_, err := out.Write(text.Bytes())
	return err
}

func when(r *v1alpha1.ApprovalRequest, now time.Time) string {
	left := r.ExpiresAt().Sub(now)
	text := fmt.Sprintf("%s ago, ", duration.HumanDuration(max(now.Sub(r.CreationTimestamp.Time), 0)))
	if left <= 0 {
		return text + "expired at " + r.ExpiresAt().UTC().Format(time.RFC3339)
	}
	return text + fmt.Sprintf("expires in %s, at %s", duration.HumanDuration(left), r.ExpiresAt().UTC().Format(time.RFC3339))
}

// argumentsNote says how much there is, and that something is hidden where it is.
func argumentsNote(spec v1alpha1.ApprovalRequestSpec) string {
	text := fmt.Sprintf("%d bytes", spec.ArgumentsSize)
	hidden := strings.Count(spec.Arguments, `"`+action.HiddenMark)
	switch {
	case spec.Arguments == "" && spec.ArgumentsSize > 0:
		return text + ", NOT SHOWN here"
	case hidden == 1:
		return text + ", 1 PART HIDDEN: its length and digest stand in its place"
	case hidden > 1:
		return text + fmt.Sprintf(", %d PARTS HIDDEN: their length and digest stand in their place", hidden)
	case spec.BlastRadius.Scope == v1alpha1.BlastUnknown:
		return text + ", PERHAPS NOT ALL SHOWN here: see the blast radius"
	}
	return text
}

// indented lays JSON out on lines; what is no JSON stays as it is.
func indented(arguments string) string {
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(arguments), "", "  "); err != nil {
		return arguments
	}
	return out.String()
}
