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

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// goals are what the compared tools must meet, in percent.
type goals struct {
	minRead, minIrreversible, maxRaised float64
}

// label is the tier that a person gave a tool.
type label struct {
	Server     string `json:"server"`
	Name       string `json:"name"`
	Tier       string `json:"tier"`
	Confidence string `json:"confidence"`

	want v1alpha1.Tier
}

// labelTiers are the words of a label, in the order in which they are shown.
var labelTiers = []struct {
	word string
	tier v1alpha1.Tier
}{
	{"read", v1alpha1.TierRead}, {"reversible", v1alpha1.TierReversible}, {"irreversible", v1alpha1.TierIrreversible},
}

func (o *classifyOptions) readLabels() ([]label, error) {
	data, err := o.read(o.expect)
	if err != nil {
		return nil, err
	}
	var labels []label
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var l label
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("read labels from %s: line %d: %w", o.expect, number, err)
		}
		for _, known := range labelTiers {
			if strings.EqualFold(l.Tier, known.word) {
				l.want = known.tier
			}
		}
		switch {
		case l.want == "":
			return nil, fmt.Errorf("read labels from %s: line %d: the tier %q is none of read, reversible and irreversible", o.expect, number, l.Tier)
		case l.Confidence != "" && l.Confidence != "high" && l.Confidence != "low":
			return nil, fmt.Errorf("read labels from %s: line %d: the confidence %q is neither high nor low", o.expect, number, l.Confidence)
		case l.Name == "":
			return nil, fmt.Errorf(`read labels from %s: line %d: the label has no "name"`, o.expect, number)
		}
		labels = append(labels, l)
	}
	return labels, nil
}

// sure tells whether the label counts for the goals.
func (l label) sure() bool { return l.Confidence != "low" }

// matrix counts tools by expected and by classified tier.
type matrix map[v1alpha1.Tier]map[v1alpha1.Tier]int

func newMatrix() matrix {
	m := matrix{}
	for _, known := range labelTiers {
		m[known.tier] = map[v1alpha1.Tier]int{}
	}
	return m
}

func (m matrix) total(want v1alpha1.Tier) int {
	total := 0
	for _, count := range m[want] {
		total += count
	}
	return total
}

// percent is how many of the tools expected as want came out as got; 0 where there are none.
func (m matrix) percent(want, got v1alpha1.Tier) float64 {
	return 100 * float64(m[want][got]) / float64(max(m.total(want), 1))
}

// figures says the three numbers that goals are set on.
func (m matrix) figures() string {
	return fmt.Sprintf("read recognised %.1f%% of %d, irreversible recognised %.1f%% of %d, reversible raised %.1f%% of %d",
		m.percent(v1alpha1.TierRead, v1alpha1.TierRead), m.total(v1alpha1.TierRead),
		m.percent(v1alpha1.TierIrreversible, v1alpha1.TierIrreversible), m.total(v1alpha1.TierIrreversible),
		m.percent(v1alpha1.TierReversible, v1alpha1.TierIrreversible), m.total(v1alpha1.TierReversible))
}

// comparison is what classified tools look like beside their labels.
type comparison struct {
	sure, unsure matrix
	// absent counts labels without a tool, unlabelled tools without a label.
	absent, unlabelled int
	// lenient are the tools that came out less strict than expected.
	lenient []leniency
}

type leniency struct {
	label label
	tool  classifiedTool
}

// compareWith pairs tools and labels by server and name; a list that names no
// server goes by name alone.
func compareWith(labels []label, classified []classifiedTool) comparison {
	type key struct{ server, name string }
	tools := map[key][]classifiedTool{}
	for _, c := range classified {
		tools[key{c.Server, c.Name}] = append(tools[key{c.Server, c.Name}], c)
	}
	result := comparison{sure: newMatrix(), unsure: newMatrix()}
	labelled := map[key]bool{}
	for _, l := range labels {
		at := key{l.Server, l.Name}
		if tools[at] == nil {
			at.server = ""
		}
		if tools[at] == nil {
			result.absent++
		}
		labelled[at] = true
		for _, c := range tools[at] {
			counts := result.unsure
			if l.sure() {
				counts = result.sure
			}
			counts[l.want][c.Tier]++
			if l.want.StricterThan(c.Tier) {
				result.lenient = append(result.lenient, leniency{l, c})
			}
		}
	}
	for at, found := range tools {
		if !labelled[at] {
			result.unlabelled += len(found)
		}
	}
	return result
}

// compare prints how the tools stand beside their labels, and returns the goals that are not met.
func (o *classifyOptions) compare(classified []classifiedTool, labels []label) error {
	result := compareWith(labels, classified)
	if result.absent == len(labels) {
		return fmt.Errorf("no label of %s names a tool of %s: compare the members server and name", o.expect, o.file)
	}
	out := o.Out
	if o.output == "json" {
		out = o.ErrOut // standard output stays one JSON document
	} else if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if err := result.print(out); err != nil {
		return err
	}
	if missed := result.missed(o.goals); len(missed) > 0 {
		return goalsNotMetError(missed)
	}
	return nil
}

func (c comparison) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "EXPECTED\tREAD\tREVERSIBLE\tIRREVERSIBLE\tRECOGNISED")
	unsure := 0
	for _, row := range labelTiers {
		fmt.Fprintf(table, "%s\t", row.word)
		for _, column := range labelTiers {
			fmt.Fprintf(table, "%d\t", c.sure[row.tier][column.tier])
		}
		fmt.Fprintf(table, "%.1f%%\n", c.sure.percent(row.tier, row.tier))
		unsure += c.unsure.total(row.tier)
	}
	fmt.Fprintf(table, "\nHigh confidence: %s.\n", c.sure.figures())
	fmt.Fprintf(table, "Low confidence, left out above, a trend only (tools: %d): %s.\n", unsure, c.unsure.figures())
	fmt.Fprintf(table, "Labels without a tool: %d. Tools without a label: %d.\n", c.absent, c.unlabelled)
	fmt.Fprintf(table, "Tools that came out less strict than expected: %d\n", len(c.lenient))
	for _, l := range c.lenient {
		confidence := "high"
		if !l.label.sure() {
			confidence = "low"
		}
		fmt.Fprintf(table, "  %s\t%s\texpected %s\tcame out %s\t%s confidence\t%s\n",
			oneLine(l.tool.Server), oneLine(l.tool.Name), l.label.want, l.tool.Tier, confidence, l.tool.Reason)
	}
	return table.Flush()
}

// missed returns a sentence for each goal that the high-confidence labels do not meet.
func (c comparison) missed(g goals) []string {
	var missed []string
	escaped := c.sure[v1alpha1.TierReversible][v1alpha1.TierRead] + c.sure[v1alpha1.TierIrreversible][v1alpha1.TierRead]
	if escaped > 0 {
		missed = append(missed, fmt.Sprintf("tools with effects that came out Read: %d, and none may", escaped))
	}
	for _, least := range []struct {
		tier v1alpha1.Tier
		word string
		min  float64
	}{{v1alpha1.TierRead, "read", g.minRead}, {v1alpha1.TierIrreversible, "irreversible", g.minIrreversible}} {
		if got := c.sure.percent(least.tier, least.tier); c.sure.total(least.tier) > 0 && got < least.min {
			missed = append(missed, fmt.Sprintf("%s recognised: %.1f%%, and at least %.1f%% must be", least.word, got, least.min))
		}
	}
	if got := c.sure.percent(v1alpha1.TierReversible, v1alpha1.TierIrreversible); got > g.maxRaised {
		missed = append(missed, fmt.Sprintf("reversible raised: %.1f%%, and at most %.1f%% may be", got, g.maxRaised))
	}
	return missed
}
