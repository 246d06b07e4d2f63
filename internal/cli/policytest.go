// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidewaiter/tidewaiter/internal/manifest"
)

// policyTestOptions are the flags of test.
type policyTestOptions struct {
	*session

	output      string
	minCoverage float64
}

// newPolicyTestCommand returns the verb that runs tests of policies.
func newPolicyTestCommand(s *session) *cobra.Command {
	o := &policyTestOptions{session: s}
	cmd := &cobra.Command{
		Use:   "test DIR...",
		Short: "Run tests of ToolPolicies from files, without a cluster",
		Long: `Run tests of ToolPolicies: calls, and the verdicts that they should have. DIR is a
directory with files named *_test.yaml, or such a file. Tools are classified, and calls
judged, by the same code as in the manager and the gateways. docs/policy.md has the format.

At the end stands how often each rule decided; a rule that no test reaches is not tested.

Exit codes: 0 all passed, 1 a test failed, or the coverage is less than --min-coverage,
2 a file cannot be read or does not have the format.`,
		Example: `  kubectl tidewaiter test policies/

  # In CI
  kubectl tidewaiter test --min-coverage 100 -o junit policies/ > report.xml`,
		Args: usage(someFiles),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !slices.Contains([]string{"text", "json", "junit"}, o.output):
				return usageError{fmt.Errorf("the output %q is none of text, json and junit", o.output)}
			case !(o.minCoverage >= 0 && o.minCoverage <= 100):
				return usageError{fmt.Errorf("%v is not a percentage", o.minCoverage)}
			}
			return o.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.output, "output", "o", "text", "text, json or junit")
	flags.Float64Var(&o.minCoverage, "min-coverage", 0, "percent of the rules that must have decided a call")
	return cmd
}

func (o *policyTestOptions) run(ctx context.Context, args []string) error {
	files, err := readFiles(o.In, args, isPolicyTest)
	if err != nil {
		return notRunError{err}
	}
	kinds, err := manifest.LoadKinds()
	if err != nil {
		return err
	}
	reader, err := newSuiteReader(kinds, o.operatorNamespace)
	if err != nil {
		return err
	}
	var suites []*suite
	for _, f := range files {
		suites = append(suites, reader.read(ctx, f)...)
	}
	if found := reader.linter.findings; len(found) > 0 {
		slices.SortFunc(found, compareFindings)
		lines := make([]string, 0, len(found))
		for _, f := range slices.Compact(found) {
			lines = append(lines, f.String())
		}
		return notRunError{fmt.Errorf("nothing was run:\n%s", strings.Join(lines, "\n"))}
	}
	report := runSuites(suites)
	if err := report.print(o.Out, o.output); err != nil {
		return err
	}
	switch {
	case report.Failed > 0:
		return foundError{fmt.Sprintf("%s of %d failed", counted(report.Failed, "test"), report.Passed+report.Failed)}
	case report.Coverage.Percent < o.minCoverage:
		return foundError{fmt.Sprintf("%.1f%% of the rules were reached, less than %v%%", report.Coverage.Percent, o.minCoverage)}
	}
	return nil
}
