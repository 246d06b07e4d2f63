// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli has the verbs of the kubectl plugin; it shows and asks, and never decides anything by itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

// exitUsage is the exit code of a command that was not understood; what was understood and not done is 1.
const exitUsage = 2

// usageError is a command line that says nothing, or two things.
type usageError struct{ error }

// notRunError keeps a verb that checks something from finding out what it was asked. It has the code of a wrong command
// line: nothing was found, and nothing was found to be right.
type notRunError struct{ error }

func (e notRunError) Unwrap() error { return e.error }

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[notRunError](err); ok {
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

// requestKinds are the words that kubectl takes, and prints, before the slash and the name of a request.
var requestKinds = []string{"areq", "approvalrequest", "approvalrequests", "approvalrequest.tidewaiter.dev", "approvalrequests.tidewaiter.dev"}

// requestNames takes the kinds off the names of requests, so that what -o name prints can be given.
func requestNames(given []string) ([]string, error) {
	names := make([]string, 0, len(given))
	for _, text := range given {
		kind, name, found := strings.Cut(text, "/")
		if !found {
			kind, name = requestKinds[0], text
		}
		if !slices.Contains(requestKinds, kind) || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is no name of an ApprovalRequest: give NAME or areq/NAME", text)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// countOf says how many words were given.
func countOf(n int, word string) string {
	switch n {
	case 0:
		return "none was given"
	case 1:
		return "1 " + word + " was given"
	default:
		return fmt.Sprintf("%d %ss were given", n, word)
	}
}

// noNames wants none.
func noNames(cmd *cobra.Command, given []string) error {
	if len(given) > 0 {
		return fmt.Errorf("%s takes no names; %s", cmd.Name(), countOf(len(given), "name"))
	}
	return nil
}

// knownVerb refuses a word that is no verb, and names those that it may have been meant for.
func knownVerb(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s has no verb %q", cmd.CommandPath(), given[0])
	if near := cmd.SuggestionsFor(given[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// checkReason refuses a reason that the API server would not store.
func checkReason(reason string, limit int) error {
	if length := utf8.RuneCountInString(reason); length > limit {
		return usageError{fmt.Errorf("--reason has at most %d characters; %d were given", limit, length)}
	}
	return nil
}

// oneName wants the name of one request.
func oneName(_ *cobra.Command, given []string) error {
	if len(given) != 1 {
		return fmt.Errorf("give the name of one ApprovalRequest; %s", countOf(len(given), "name"))
	}
	_, err := requestNames(given)
	return err
}

// someNames wants the name of at least one request.
func someNames(_ *cobra.Command, given []string) error {
	if len(given) == 0 {
		return errors.New("give the name of an ApprovalRequest, or several; none was given")
	}
	_, err := requestNames(given)
	return err
}

// Run runs the verb that the arguments ask for and returns the exit code. The first argument is the program: as
// kubectl-approve or kubectl-deny it is that verb, else it has all of them; as kubectl_complete-… it completes the
// command line of that program, which is how kubectl asks a plugin.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	program, rest := args[0], args[1:]
	directory, name := filepath.Split(program)
	if plugin, ok := strings.CutPrefix(name, "kubectl_complete-"); ok {
		program, rest = filepath.Join(directory, "kubectl-"+plugin), slices.Concat([]string{cobra.ShellCompRequestCmd}, rest)
	}
	cmd := newProgram(program, &session{IOStreams: streams, clock: clock.RealClock{}})
	cmd.SetArgs(rest)
	return execute(ctx, cmd, streams)
}

func execute(ctx context.Context, cmd *cobra.Command, streams genericiooptions.IOStreams) int {
	called, err := cmd.ExecuteContextC(ctx)
	code := exitCode(err)
	if err == nil {
		return code
	}
	var text strings.Builder
	for _, problem := range problems(err) {
		fmt.Fprintf(&text, "error: %s\n", lines(problem.Error()))
	}
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(&text, "See '%s --help'.\n", called.CommandPath())
	}
	if _, err := fmt.Fprint(streams.ErrOut, text.String()); err != nil {
		return 1
	}
	return code
}

// problems returns the errors of a verb that was to do several things: the outermost list, and no other.
func problems(err error) []error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return several.Unwrap()
	}
	return []error{err}
}

func newProgram(path string, s *session) *cobra.Command {
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
		cmd.AddCommand(
			newPendingCommand(s),
			newDescribeCommand(s),
			newApproveCommand(s),
			newDenyCommand(s),
			newDismissCommand(s),
			newResolveCommand(s),
			newWhoamiCommand(s),
			newToolsCommand(s),
			newTrustCommand(s),
			newPromoteCommand(s),
			newRevokeCommand(s),
			newSetTierCommand(s),
			newPinCommand(s),
			newExplainCommand(s),
			newSimulateCommand(s),
			newClassifyCommand(s.IOStreams),
			newLintCommand(s),
			newInjectCommand(s),
			newPolicyTestCommand(s),
			newVersionCommand(s.IOStreams),
		)
	}
	s.addFlags(cmd.PersistentFlags())
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.ErrOut)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}

func newRootCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "kubectl-tidewaiter", // as it is called without kubectl: completion scripts are for that name
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tidewaiter"},
		Short:       "Decide what AI agents may do on MCP servers",
		Long: `Decide what AI agents may do on MCP servers.

What waits for a decision, and what one of it would do:
  kubectl tidewaiter pending
  kubectl tidewaiter describe NAME

Exit codes: 0 done, 1 not done (the message says why and what the state is), 2 not understood.`,
		SuggestionsMinimumDistance: 2,

		Args: usage(knownVerb),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
