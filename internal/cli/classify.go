// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/classify"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// maxListFile is how many bytes of a list of tools, or of labels, are read.
const maxListFile = 256 << 20

// goalsNotMetError says which goals of classify --expect the tools did not meet, in one sentence each.
type goalsNotMetError []string

func (e goalsNotMetError) Error() string {
	return "goals not met:\n  " + strings.Join(e, "\n  ")
}

// classifyOptions are the flags of classify.
type classifyOptions struct {
	genericiooptions.IOStreams

	file, output, expect string
	trustReadOnlyHint    bool
	minimumTier          string
	goals                goals
}

// newClassifyCommand returns the verb that tells the tiers of tools without a cluster.
func newClassifyCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &classifyOptions{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "classify -f FILE",
		Short: "Tell the risk tiers of tools from a file, without a cluster",
		Long: `Tell the risk tier of every tool in a file, with the evidence for it and the digest
that a ToolPolicy names. Nothing is asked of a cluster or of a server.

The file is a tools/list result, the JSON-RPC response around one, an array of tools, or
one tool a line; a member "server" beside a tool is kept.

With --expect the tiers are compared with those a person gave: JSON lines of server, name,
tier (read, reversible or irreversible) and confidence (high or low). Only high ones count.

Exit codes: 0 done, 1 a file cannot be read or a goal is not met, 2 not understood.`,
		Example: `  # The tools of a server, as its tools/list answered
  kubectl tidewaiter classify -f tools.json

  # Fail a build when a labelled effect comes out Read, or the figures fall
  kubectl tidewaiter classify -f tools.jsonl --expect labels.jsonl --min-read 95 --min-irreversible 85 --max-raised 15`,
		Args: usage(func(_ *cobra.Command, given []string) error {
			if len(given) > 0 {
				return errors.New("the file goes behind -f")
			}
			return nil
		}),
		RunE: func(*cobra.Command, []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			return o.run()
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "the file with the tools; - is standard input")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	flags.StringVar(&o.expect, "expect", "", "a file with the tiers that the tools should have")
	flags.BoolVar(&o.trustReadOnlyHint, "trust-read-only-hint", false, "take readOnlyHint as proof where the name shows nothing")
	flags.StringVar(&o.minimumTier, "minimum-tier", "", "the least that any tool gets: Read, Reversible or Irreversible")
	flags.Float64Var(&o.goals.minRead, "min-read", 0, "percent of the tools expected as read that must come out Read")
	flags.Float64Var(&o.goals.minIrreversible, "min-irreversible", 0, "percent of the tools expected as irreversible that must come out Irreversible")
	flags.Float64Var(&o.goals.maxRaised, "max-raised", 100, "percent of the tools expected as reversible that may come out Irreversible")
	return cmd
}

func (o *classifyOptions) validate() error {
	switch {
	case o.file == "":
		return errors.New("no file is given: name one with -f, or - for standard input")
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("the output %q is neither table nor json", o.output)
	case o.file == "-" && o.expect == "-":
		return errors.New("the tools and the labels cannot both come from standard input")
	case o.expect == "" && o.goals != goals{maxRaised: 100}:
		return errors.New("--min-read, --min-irreversible and --max-raised need --expect")
	}
	for _, percent := range []float64{o.goals.minRead, o.goals.minIrreversible, o.goals.maxRaised} {
		if !(percent >= 0 && percent <= 100) {
			return fmt.Errorf("%v is not a percentage", percent)
		}
	}
	switch v1alpha1.Tier(o.minimumTier) {
	case "", v1alpha1.TierRead, v1alpha1.TierReversible, v1alpha1.TierIrreversible:
		return nil
	}
	return fmt.Errorf("the minimum tier %q is none of Read, Reversible and Irreversible", o.minimumTier)
}

func (o *classifyOptions) run() error {
	data, err := o.read(o.file)
	if err != nil {
		return err
	}
	entries, err := tool.ParseList(data)
	if err != nil {
		return fmt.Errorf("read tools from %s: %w", o.file, err)
	}
	var labels []label
	if o.expect != "" {
		if labels, err = o.readLabels(); err != nil {
			return err
		}
	}
	classified := classifyEntries(entries, classify.Options{
		TrustReadOnlyHint: o.trustReadOnlyHint,
		MinimumTier:       v1alpha1.Tier(o.minimumTier),
	})
	if err := o.print(classified); err != nil {
		return err
	}
	if o.expect == "" {
		return nil
	}
	return o.compare(classified, labels)
}

func (o *classifyOptions) read(path string) ([]byte, error) {
	source := o.In
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		source = file
	}
	data, err := io.ReadAll(io.LimitReader(source, maxListFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(data) > maxListFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxListFile)
	}
	return data, nil
}

// classifiedTool is one row of the output.
type classifiedTool struct {
	Server string              `json:"server"`
	Name   string              `json:"name"`
	Tier   v1alpha1.Tier       `json:"tier"`
	Source v1alpha1.TierSource `json:"source"`
	Reason string              `json:"reason"`
	Digest string              `json:"digest"`
}

// classifyEntries classifies each server's tools together, as the operator does, and keeps the order of the file.
func classifyEntries(entries []tool.Entry, opts classify.Options) []classifiedTool {
	byServer := map[string][]int{}
	for i, entry := range entries {
		byServer[entry.Server] = append(byServer[entry.Server], i)
	}
	classified := make([]classifiedTool, len(entries))
	for server, indices := range byServer {
		descriptors := make([]tool.Descriptor, len(indices))
		for i, index := range indices {
			descriptors[i] = entries[index].Descriptor
		}
		for i, verdict := range classify.Server(descriptors, opts) {
			d := descriptors[i]
			classified[indices[i]] = classifiedTool{server, d.Name, verdict.Tier, verdict.Source, verdict.Reason, d.Digest()}
		}
	}
	return classified
}

func (o *classifyOptions) print(classified []classifiedTool) error {
	if o.output == "json" {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(classified); err != nil {
			return err
		}
		_, err := out.WriteTo(o.Out)
		return err
	}
	hasServer := false
	for _, c := range classified {
		hasServer = hasServer || c.Server != ""
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 3, ' ', 0)
	row := func(server string, c classifiedTool, tier, source string) {
		if hasServer {
			fmt.Fprint(table, server, "\t")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Name, tier, source, c.Reason, c.Digest)
	}
	row("SERVER", classifiedTool{Name: "NAME", Reason: "REASON", Digest: "DIGEST"}, "TIER", "SOURCE")
	for _, c := range classified {
		c.Name = oneLine(c.Name)
		row(oneLine(c.Server), c, string(c.Tier), string(c.Source))
	}
	return table.Flush()
}

// oneLine shows a name of a server's as one word of plain ASCII, quoted where it is not one.
func oneLine(text string) string {
	if text == "" {
		return "-"
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' || text[i] == '"' {
			return strconv.QuoteToASCII(text)
		}
	}
	return text
}
