// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// defaultTimeout is how long a verb waits for the manager.
const defaultTimeout = 10 * time.Second

// decideOptions are the flags of approve and deny.
type decideOptions struct {
	*session

	decision v1alpha1.Decision
	reason   string
	timeout  time.Duration
}

func newApproveCommand(s *session) *cobra.Command {
	o := &decideOptions{session: s, decision: v1alpha1.DecisionApproved}
	cmd := &cobra.Command{
		Use:   "approve NAME [--reason TEXT]",
		Short: "Let one held action run, once",
		Long: `Let the action of an ApprovalRequest run, once, until the request expires.

It shows what is approved, sends the decision for exactly that object, and waits until the
manager has put it into force. kubectl deny takes an approval back until it is used.

Exit codes: 0 approved, 1 not approved (the message says what the state is), 2 not understood.`,
		Example: `  kubectl approve billing-0123456789abcdef0123-1 --reason "checked with finance"`,
		Args:    usage(oneName),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.addFlags(cmd)
	return cmd
}

func newDenyCommand(s *session) *cobra.Command {
	o := &decideOptions{session: s, decision: v1alpha1.DecisionDenied}
	var withoutPrejudice bool
	cmd := &cobra.Command{
		Use:   "deny NAME [--reason TEXT] [--without-prejudice]",
		Short: "Refuse a held action, or take an approval back",
		Long: `Refuse the action of an ApprovalRequest, or take back an approval that was not used yet.

A denial answers the same action until the request expires, and it takes the tool's
autonomy away for good. With --without-prejudice the action is only refused this time:
the agent may ask again and the tool keeps its record (the request becomes Dismissed).

Exit codes: 0 refused, 1 not refused (the message says what the state is), 2 not understood.`,
		Example: `  kubectl deny billing-0123456789abcdef0123-1 --reason "wrong account"
  kubectl deny billing-0123456789abcdef0123-1 --without-prejudice --reason "not during the audit"`,
		Args: usage(oneName),
		RunE: func(cmd *cobra.Command, args []string) error {
			if withoutPrejudice {
				o.decision = v1alpha1.DecisionDismissed
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&withoutPrejudice, "without-prejudice", false, "refuse this time only; an approval cannot be taken back this way")
	return cmd
}

func (o *decideOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the record")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to wait for the manager")
}

func (o *decideOptions) run(ctx context.Context, name string) error {
	shown, err := o.look(ctx, name)
	if err != nil {
		return err
	}
	if err := o.write(ctx, shown, o.mayDecide, o.change); err != nil {
		return err
	}
	settled, err := o.await(ctx, shown, o.timeout, func(r *v1alpha1.ApprovalRequest) bool {
		return r.CurrentPhase() != v1alpha1.PhasePending && (r.CurrentPhase() != v1alpha1.PhaseApproved || r.Status.Decision == v1alpha1.DecisionApproved)
	})
	if err != nil {
		return err
	}
	if !o.got(settled.CurrentPhase()) {
		return notDone("%s", state(settled))
	}
	_, err = fmt.Fprintln(o.Out, state(settled))
	return err
}

// mayDecide refuses what the API server would refuse too, in words that say what the state is.
func (o *decideOptions) mayDecide(r *v1alpha1.ApprovalRequest) error {
	phase, decision := r.CurrentPhase(), r.Status.Decision
	open := phase == v1alpha1.PhasePending && decision == ""
	revocable := (phase == v1alpha1.PhasePending || phase == v1alpha1.PhaseApproved) && decision == v1alpha1.DecisionApproved
	if open || revocable && o.decision == v1alpha1.DecisionDenied {
		return nil
	}
	if revocable && o.decision == v1alpha1.DecisionDismissed {
		return notDone("nothing was changed: %s; an approval is taken back by deny without --without-prejudice", state(r))
	}
	return notDone("nothing was changed: %s", state(r))
}

// change writes the decision with its own reason: that of an earlier decision must not stand beside it.
func (o *decideOptions) change(r *v1alpha1.ApprovalRequest) []patchOperation {
	operations := []patchOperation{{Op: "add", Path: "/status/decision", Value: o.decision}}
	switch {
	case o.reason != "":
		operations = append(operations, patchOperation{Op: "add", Path: "/status/reason", Value: o.reason})
	case r.Status.Reason != "":
		operations = append(operations, patchOperation{Op: "remove", Path: "/status/reason"})
	}
	return operations
}

// got tells whether a phase is what the person wanted. An approval may be used before it is seen.
func (o *decideOptions) got(phase v1alpha1.Phase) bool {
	switch o.decision {
	case v1alpha1.DecisionApproved:
		return phase == v1alpha1.PhaseApproved || phase == v1alpha1.PhaseExecuting || phase == v1alpha1.PhaseSucceeded ||
			phase == v1alpha1.PhaseFailed || phase == v1alpha1.PhaseAmbiguous
	case v1alpha1.DecisionDenied:
		return phase == v1alpha1.PhaseDenied
	case v1alpha1.DecisionDismissed:
		return phase == v1alpha1.PhaseDismissed
	default:
		return false
	}
}
