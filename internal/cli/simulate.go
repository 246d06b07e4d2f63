// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/classify"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	*session

	files, receipts       []string
	tools, output         string
	offline, acceptBroken bool
}

func newSimulateCommand(s *session) *cobra.Command {
	o := &simulateOptions{session: s}
	cmd := &cobra.Command{
		Use:   "simulate -f FILE --receipts FILE",
		Short: "Tell which recorded calls a proposed policy would have decided otherwise",
		Long: `Replay the decisions that gateways recorded against proposed policies, and list each call that
would have been decided otherwise, with what would have decided. The policies of the files
stand in the place of those of the same name; all others come from the cluster, as do servers
that the files do not have. With --offline there is nothing but the files.

Tools have the tiers and the definitions that they had when the call was made. Receipts keep
no arguments: where a rule looks at them, the answer is "cannot tell", with what it could be.
A call that people were asked about counts once, however often it was sent.

The chain of each file of receipts is checked first. Where it is broken nothing is replayed,
unless --accept-broken says to go on with what can be read. Files are read twice, in little memory.

Exit codes: 0 replayed, whatever came of it, 1 a chain is broken, 2 something could not be read
or asked, or was not understood.`,
		Example: `  kubectl tidewaiter simulate -f payments.yaml --receipts receipts.jsonl

  # In CI, without a cluster: the servers are in the files too
  kubectl tidewaiter simulate --offline -f policies/ --receipts receipts.jsonl --tools tools.json -o json`,
		Args: usage(func(_ *cobra.Command, given []string) error {
			if len(given) > 0 {
				return errors.New("policies go behind -f, receipts behind --receipts")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			return unasked(o.run(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "a file or directory with the proposed ToolPolicies, and with GovernedServers; may be given several times")
	flags.StringArrayVar(&o.receipts, "receipts", nil, "a file of receipts of one gateway; may be given several times")
	flags.StringVar(&o.tools, "tools", "", "a file with definitions of tools, as classify -f reads it, for what the receipts do not keep of them")
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	flags.BoolVar(&o.offline, "offline", false, "ask no cluster: judge by the files alone")
	flags.BoolVar(&o.acceptBroken, "accept-broken", false, "replay what can be read of a broken chain")
	return cmd
}

func (o *simulateOptions) validate() error {
	switch {
	case len(o.files) == 0:
		return errors.New("no policy is given: name a file with -f")
	case len(o.receipts) == 0:
		return errors.New("no receipts are given: name a file with --receipts")
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("the output %q is neither text nor json", o.output)
	}
	return nil
}

func (o *simulateOptions) run(ctx context.Context) error {
	if !o.offline {
		if err := o.connect(); err != nil {
			return err
		}
	} else if err := o.readNamespace(); err != nil {
		return err
	}
	proposed, err := readManifests(ctx, o.In, o.files, o.namespace)
	if err != nil {
		return err
	}
	if len(proposed.policies) == 0 {
		return notDone("there is no ToolPolicy in the files")
	}
	if err := o.warnOf(proposed); err != nil {
		return err
	}
	known, err := o.readTools()
	if err != nil {
		return err
	}
	records, err := o.openRecords()
	if err != nil {
		return err
	}
	defer records.close()
	if err := o.verify(records); err != nil {
		return err
	}
	r := newReplay(proposed, known, &world{session: o.session, offline: o.offline, proposed: proposed}, o.report())
	for _, record := range records {
		if err := record.read(func(line recorded) error { return r.take(ctx, line) }); err != nil {
			return err
		}
	}
	return r.finish()
}

// warnOf says what of the proposed policies cannot be used as it is written: it is replayed as a gateway would take it.
func (o *simulateOptions) warnOf(proposed manifests) error {
	for _, p := range proposed.policies {
		for _, problem := range policy.Parse(p.Policy).Problems() {
			if _, err := fmt.Fprintf(o.ErrOut, "Warning: ToolPolicy %s: %s: %s\n", nameOf(p.Policy), problem.Field, glyph.Plain(problem.Message)); err != nil {
				return err
			}
		}
	}
	return nil
}

// report is where the replay prints.
func (o *simulateOptions) report() simulationReport {
	if o.output == "json" {
		return &jsonReport{out: o.Out}
	}
	return &textReport{out: o.Out}
}

// definition is what is known of a definition besides what receipts keep.
type definition struct {
	classified  v1alpha1.Tier
	annotations *v1alpha1.ToolAnnotations
}

// knownDefinitions are definitions of tools by name and digest.
type knownDefinitions map[[2]string]definition

func (k knownDefinitions) add(t v1alpha1.ToolStatus) {
	k[[2]string{t.Name, t.Digest}] = definition{t.ClassifiedTier, t.Annotations}
}

// readTools reads the dump of --tools.
func (o *simulateOptions) readTools() (knownDefinitions, error) {
	known := knownDefinitions{}
	if o.tools == "" {
		return known, nil
	}
	data, err := readFile(o.In, o.tools)
	if err != nil {
		return nil, err
	}
	entries, err := tool.ParseList(data)
	if err != nil {
		return nil, fmt.Errorf("read tools from %s: %w", glyph.Plain(o.tools), err)
	}
	descriptors := make([]tool.Descriptor, len(entries))
	for i, entry := range entries {
		descriptors[i] = entry.Descriptor
	}
	for i, verdict := range classify.Server(descriptors, classify.Options{}) {
		known.add(statusOf(descriptors[i], verdict))
	}
	return known, nil
}
