// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli has the verbs of the kubectl plugin; it shows and asks, and never decides anything by itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

// exitUsage is the exit code of a command that was not understood; what was understood and not done is 1.
const exitUsage = 2

// usageError is a command line that says nothing, or two things.
type usageError struct{ error }

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return 1
}

// usage makes wrong arguments a usage error.
func usage(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// oneName wants the name of one request, as kubectl get prints it but for the kind.
func oneName(_ *cobra.Command, given []string) error {
	switch {
	case len(given) != 1:
		return fmt.Errorf("give the name of one ApprovalRequest; %d were given", len(given))
	case strings.Contains(given[0], "/"):
		return errors.New("give the name alone, without the kind and the slash before it")
	}
	return nil
}

// Run runs the verb that the arguments ask for and returns the exit code. The first argument is the program: as
// kubectl-approve or kubectl-deny it is that verb, else it has all of them.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	cmd := newProgram(args[0], streams, clock.RealClock{})
	cmd.SetArgs(args[1:])
	return execute(ctx, cmd, streams)
}

func execute(ctx context.Context, cmd *cobra.Command, streams genericiooptions.IOStreams) int {
	called, err := cmd.ExecuteContextC(ctx)
	code := exitCode(err)
	if err == nil {
		return code
	}
	text := fmt.Sprintf("error: %v\n", err)
	if code == exitUsage {
		text += fmt.Sprintf("See '%s --help'.\n", called.CommandPath())
	}
	if _, err := fmt.Fprint(streams.ErrOut, text); err != nil {
		return 1
	}
	return code
}

func newProgram(path string, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	s := &session{IOStreams: streams, clock: clock}
	var cmd *cobra.Command
	switch strings.TrimSuffix(filepath.Base(path), ".exe") {
	case "kubectl-approve":
		cmd = newApproveCommand(s)
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl approve"}
	case "kubectl-deny":
		cmd = newDenyCommand(s)
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl deny"}
	default:
		cmd = newRootCommand()
		cmd.AddCommand(newApproveCommand(s), newDenyCommand(s), newResolveCommand(s), newClassifyCommand(streams))
	}
	s.addFlags(cmd.PersistentFlags())
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}

func newRootCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "tidewaiter",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tidewaiter"},
		Short:       "Decide what AI agents may do on MCP servers",
		Long: `Decide what AI agents may do on MCP servers.

What waits for a decision:
  kubectl get areq --field-selector status.phase=Pending

Exit codes: 0 done, 1 not done (the message says why and what the state is), 2 not understood.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
