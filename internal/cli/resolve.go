// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// resolveOptions are the flags of resolve.
type resolveOptions struct {
	*session

	committed, notExecuted bool
	reason                 string
	output                 *output
}

func newResolveCommand(s *session) *cobra.Command {
	o := &resolveOptions{session: s}
	cmd := &cobra.Command{
		Use:   "resolve NAME (--committed | --not-executed) --reason TEXT",
		Short: "Settle a call of which nobody knows whether it took effect",
		Long: `Settle an Ambiguous ApprovalRequest: its call was sent, or may have been, and the answer
does not tell whether it took effect. Look at the server itself first, then say what you
found. Until then the same action is refused.

  --committed      it took effect: the request becomes Succeeded
  --not-executed   it did not: the request becomes Failed, and the agent may ask again

Exit codes: 0 settled, 1 not settled (the message says what the state is), 2 not understood.`,
		Example: `  kubectl tidewaiter resolve billing-0123456789abcdef0123-1 --not-executed --reason "no refund in the ledger"`,
		Args:    usage(oneName),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.ValidArgsFunction = s.completeRequests(1, v1alpha1.PhaseAmbiguous)
	flags := cmd.Flags()
	flags.BoolVar(&o.committed, "committed", false, "the call took effect")
	flags.BoolVar(&o.notExecuted, "not-executed", false, "the call did not take effect")
	flags.StringVar(&o.reason, "reason", "", "how you know, for the record")
	o.addDryRunFlag(flags)
	o.output = addOutputFlags(cmd, "page")
	return cmd
}

func (o *resolveOptions) run(ctx context.Context, args []string) error {
	switch {
	case o.committed == o.notExecuted:
		return usageError{errors.New("say what you found, with one of --committed and --not-executed")}
	case strings.TrimSpace(o.reason) == "":
		return usageError{errors.New("say how you know: --reason TEXT")}
	}
	if err := checkReason(o.reason, maxReason); err != nil {
		return err
	}
	names, err := requestNames(args)
	if err := errors.Join(err, o.output.complete(), o.connect()); err != nil {
		return err
	}
	shown, err := o.get(ctx, names[0])
	if err != nil {
		return err
	}
	if o.output.forPeople() {
		if err := o.show(shown); err != nil {
			return err
		}
	}
	settled, err := o.write(ctx, shown, mayResolve, o.change)
	if err != nil {
		return err
	}
	if settled.CurrentPhase() == v1alpha1.PhaseAmbiguous {
		return notDone("%s was written, and nothing came of it: the operator's webhook is not installed", shown.Name)
	}
	if !o.output.forPeople() {
		return o.output.object(o.Out, o.client, settled)
	}
	_, err = fmt.Fprintf(o.Out, "%s%s\n", state(settled), o.dryRun.suffix())
	return err
}

// mayResolve refuses what the API server would refuse too. The gateway may have come back with the server's own answer
// meanwhile: that one counts.
func mayResolve(r *v1alpha1.ApprovalRequest) error {
	if r.CurrentPhase() != v1alpha1.PhaseAmbiguous {
		return notDone("there is nothing to settle: %s", state(r))
	}
	return nil
}

// finding is what a person writes of a resolution; who and when is not theirs to say.
type finding struct {
	Outcome v1alpha1.ResolutionOutcome `json:"outcome"`
	Reason  string                     `json:"reason"`
}

func (o *resolveOptions) change(*v1alpha1.ApprovalRequest) []patchOperation {
	found := finding{Outcome: v1alpha1.ResolutionNotExecuted, Reason: o.reason}
	if o.committed {
		found.Outcome = v1alpha1.ResolutionCommitted
	}
	return []patchOperation{{Op: "add", Path: "/status/resolution", Value: found}}
}
