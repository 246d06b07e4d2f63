// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// simulationReport prints each call as it is found, so that a long list needs no memory, and the summary last.
type simulationReport interface {
	change(c change) error
	finish(s summary) error
}

// textReport prints for people.
type textReport struct{ out io.Writer }

func (t *textReport) change(c change) error {
	_, err := fmt.Fprintln(t.out, glyph.Plain(c.String()))
	return err
}

// String says the change in one line.
func (c change) String() string {
	who := c.Requester
	if c.ActsFor != "" {
		who += " for " + c.ActsFor
	}
	head := fmt.Sprintf("%s %s/%s %s by %s: %s", c.Time.UTC().Format(time.RFC3339), c.Namespace, c.Server, c.Tool, who, c.Was)
	if c.WasBy != "" {
		head += fmt.Sprintf(" (%s)", c.WasBy)
	}
	if c.CannotTell != "" {
		return fmt.Sprintf("%s -> cannot tell, from %s to %s: %s", head, c.Loosest, c.Strictest, c.CannotTell)
	}
	needs := ""
	if c.Needs != "" {
		needs = ", " + c.Needs
	}
	return fmt.Sprintf("%s -> %s (%s)%s", head, c.WouldBe, c.WouldBeBy, needs)
}

func (t *textReport) finish(s summary) error {
	var text strings.Builder
	if s.Denied+s.Asked+s.Allowed+s.CannotTell > 0 {
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "Would have denied %d, asked for %d, let through %d, of %s on record.\n", s.Denied, s.Asked, s.Allowed, counted(s.Decisions, "decision"))
	for _, line := range []struct {
		count int
		says  string
	}{
		{s.CannotTell, "cannot tell: it depends on what the receipts do not keep"},
		{s.Unchanged, "would have been decided as they were"},
		{s.Already, "the policies in force now decide otherwise already, as the proposed ones would"},
		{s.Untouched, "of tools of which the proposed policies say what those in force say"},
		{s.Unreadable, "lines are no receipts"},
		{s.Repeated, "sent again: a call that people were asked about counts once"},
	} {
		if line.count > 0 {
			fmt.Fprintf(&text, "%6d  %s\n", line.count, line.says)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(s.LeftOut)) {
		fmt.Fprintf(&text, "%6d  left out, since no policy decided them: %s\n", s.LeftOut[code], glyph.Plain(code))
	}
	text.WriteString("Not taken into account:\n")
	for _, note := range s.Notes {
		fmt.Fprintf(&text, "  %s\n", note)
	}
	_, err := io.WriteString(t.out, text.String())
	return err
}

// jsonReport prints one document.
type jsonReport struct {
	out   io.Writer
	begun bool
}

func (j *jsonReport) change(c change) error {
	separator := ",\n    "
	if !j.begun {
		separator = fmt.Sprintf("{\n  \"apiVersion\": %q,\n  \"kind\": \"Simulation\",\n  \"changes\": [\n    ", viewVersion)
		j.begun = true
	}
	return j.write(separator, c)
}

func (j *jsonReport) finish(s summary) error {
	before := "\n  ],\n  \"summary\": "
	if !j.begun {
		before = fmt.Sprintf("{\n  \"apiVersion\": %q,\n  \"kind\": \"Simulation\",\n  \"changes\": [],\n  \"summary\": ", viewVersion)
	}
	if err := j.write(before, s); err != nil {
		return err
	}
	_, err := io.WriteString(j.out, "\n}\n")
	return err
}

func (j *jsonReport) write(before string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(j.out, "%s%s", before, text)
	return err
}
