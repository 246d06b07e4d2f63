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
	"unicode/utf8"

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
	line("Server:", "%s", visible(spec.ServerRef.Name))
	line("Tool:", "%s", visible(spec.Tool))
	line("Tier:", "%s, gated by %s", visible(string(spec.Tier)), visible(spec.GatedBy))
	line("Blast radius:", "%s: %s", visible(string(spec.BlastRadius.Scope)), visible(spec.BlastRadius.Summary))
	for _, evidence := range spec.BlastRadius.Evidence {
		line("", "%s", visible(evidence))
	}
	requester := visible(spec.Requester.Username)
	if spec.Requester.Pod != "" {
		requester += ", pod " + visible(spec.Requester.Pod)
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
		fmt.Fprintf(&text, "  %s\n", visible(strings.TrimSuffix(l, "\n")))
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

// visible shows characters that could move the cursor, reverse the text or not be seen at all as escapes.
func visible(text string) string {
	var out []byte
	for _, r := range text {
		if glyph.Visible(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = glyph.AppendEscape(out, r)
		}
	}
	return string(out)
}

// state says what a request is, and what can be done about it, in one sentence.
func state(r *v1alpha1.ApprovalRequest) string {
	until := r.ExpiresAt().UTC().Format(time.RFC3339)
	because := ""
	if r.Status.Reason != "" {
		because = fmt.Sprintf(" (%s)", visible(r.Status.Reason))
	}
	switch r.CurrentPhase() {
	case v1alpha1.PhasePending:
		if r.Status.Decision == "" {
			return fmt.Sprintf("%s is Pending until %s", r.Name, until)
		}
		return fmt.Sprintf("%s is already decided: %s%s; the manager is about to put it into force", r.Name, r.Status.Decision, because)
	case v1alpha1.PhaseApproved:
		return fmt.Sprintf("%s is Approved%s: it runs once, if the agent waits or sends the call again by %s", r.Name, because, until)
	case v1alpha1.PhaseDenied:
		return fmt.Sprintf("%s is Denied%s: the same action is refused until %s", r.Name, because, until)
	case v1alpha1.PhaseDismissed:
		return fmt.Sprintf("%s is Dismissed%s: the agent may ask again", r.Name, because)
	case v1alpha1.PhaseExpired:
		return fmt.Sprintf("%s is Expired since %s: the agent has to ask again", r.Name, until)
	case v1alpha1.PhaseCancelled:
		reason := v1alpha1.CancellationReason("no reason given")
		if r.Status.Cancellation != nil {
			reason = r.Status.Cancellation.Reason
		}
		return fmt.Sprintf("%s is Cancelled (%s): the agent has to ask again", r.Name, reason)
	case v1alpha1.PhaseExecuting:
		return fmt.Sprintf("%s is Executing: the approval was used, and the call was sent", r.Name)
	case v1alpha1.PhaseSucceeded:
		return fmt.Sprintf("%s is Succeeded: the approval was used, and the call took effect", r.Name)
	case v1alpha1.PhaseFailed:
		return fmt.Sprintf("%s is Failed: the approval was used, and the call did not take effect or the tool reported an error", r.Name)
	case v1alpha1.PhaseAmbiguous:
		return fmt.Sprintf("%s is Ambiguous: the approval was used, and nobody knows whether the call took effect; settle it with kubectl tidewaiter resolve",
			r.Name)
	default:
		return fmt.Sprintf("%s is in the phase %q, which this kubectl-tidewaiter does not know", r.Name, r.Status.Phase)
	}
}
