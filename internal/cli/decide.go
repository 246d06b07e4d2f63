// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// maxReason is how many characters the reason of a decision, or of a resolution, may have.
	maxReason = 1024
	// defaultWait is how long approve looks on what becomes of an approval before it tells.
	defaultWait = 500 * time.Millisecond
	// pollInterval is the time between two looks at a request. A look needs the right to get it; a watch would need
	// more.
	pollInterval = 100 * time.Millisecond
)

// decideOptions are the flags of approve, deny and dismiss.
type decideOptions struct {
	*session

	decision v1alpha1.Decision
	reason   string
	wait     time.Duration
	output   *output
}

func newApproveCommand(s *session) *cobra.Command {
	o := &decideOptions{session: s, decision: v1alpha1.DecisionApproved}
	cmd := &cobra.Command{
		Use:   "approve NAME... [--reason TEXT]",
		Short: "Let held actions run, each once",
		Long: `Let the action of an ApprovalRequest run, once, until the request expires.

It shows what is approved, and sends the decision for exactly that object. Where more than
one person must approve, yours is one of them. kubectl deny takes an approval back until it
is used. Of several names each is tried.

Exit codes: 0 approved, 1 not approved, or taken back at once (the message says what the
state is, and who decided), 2 not understood.`,
		Example: `  kubectl approve billing-0123456789abcdef0123-1 --reason "checked with finance"`,
	}
	o.complete(cmd, v1alpha1.PhasePending)
	cmd.Flags().DurationVar(&o.wait, "wait", defaultWait, "how long to look on: whether the approval is used, or taken back, by then is part of the answer")
	return cmd
}

func newDenyCommand(s *session) *cobra.Command {
	o := &decideOptions{session: s, decision: v1alpha1.DecisionDenied}
	cmd := &cobra.Command{
		Use:   "deny NAME... [--reason TEXT]",
		Short: "Refuse held actions, or take approvals back",
		Long: `Refuse the action of an ApprovalRequest, or take back an approval that was not used yet.

A denial answers the same action until the request expires, and it takes the tool's
autonomy away for good. To refuse an action this time only: kubectl tidewaiter dismiss.
Of several names each is tried.

Exit codes: 0 refused, 1 not refused (the message says what the state is, and who decided),
2 not understood.`,
		Example: `  kubectl deny billing-0123456789abcdef0123-1 --reason "wrong account"`,
	}
	o.complete(cmd, v1alpha1.PhasePending, v1alpha1.PhaseApproved)
	return cmd
}

func newDismissCommand(s *session) *cobra.Command {
	o := &decideOptions{session: s, decision: v1alpha1.DecisionDismissed}
	cmd := &cobra.Command{
		Use:   "dismiss NAME... [--reason TEXT]",
		Short: "Refuse held actions for now, without prejudice",
		Long: `Refuse the action of an ApprovalRequest this time: the agent may ask again, and the tool
keeps its record. What is approved already is taken back by deny. Of several names each is
tried.

Exit codes: 0 dismissed, 1 not dismissed (the message says what the state is, and who
decided), 2 not understood.`,
		Example: `  kubectl tidewaiter dismiss billing-0123456789abcdef0123-1 --reason "not during the audit"`,
	}
	o.complete(cmd, v1alpha1.PhasePending)
	return cmd
}

// complete gives a command what all three have; phases are those of the requests that it can decide.
func (o *decideOptions) complete(cmd *cobra.Command, phases ...v1alpha1.Phase) {
	cmd.Args = usage(someNames)
	cmd.ValidArgsFunction = o.completeRequests(math.MaxInt, phases...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) }
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the record")
	o.addDryRunFlag(cmd.Flags())
	o.output = addOutputFlags(cmd, "page")
}

func (o *decideOptions) run(ctx context.Context, args []string) error {
	if err := checkReason(o.reason, maxReason); err != nil {
		return err
	}
	names, err := requestNames(args)
	if err := errors.Join(err, o.output.complete(), o.connect()); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		err := o.decide(ctx, name)
		if err != nil && len(names) > 1 {
			err = fmt.Errorf("%s: %w", name, err)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// decide shows one request, writes the decision for exactly what was shown, and tells what became of it.
func (o *decideOptions) decide(ctx context.Context, name string) error {
	shown, err := o.get(ctx, name)
	if err != nil {
		return err
	}
	if o.output.forPeople() {
		if err := o.show(shown); err != nil {
			return err
		}
	}
	settled, err := o.write(ctx, shown, o.mayDecide, o.change)
	if err != nil {
		return err
	}
	if settled.CurrentPhase() == v1alpha1.PhaseApproved && o.dryRun.value != dryRunServer {
		if settled, err = o.await(ctx, settled); err != nil {
			return err
		}
	}
	if !o.got(settled) {
		return notDone("%s", state(settled))
	}
	if settled.CurrentPhase() == v1alpha1.PhasePending && len(settled.Status.Votes) <= len(shown.Status.Votes) {
		return notDone("%s was written, and no vote was counted: the operator's webhook is not installed", shown.Name)
	}
	if !o.output.forPeople() {
		return o.output.object(o.Out, o.client, settled)
	}
	_, err = fmt.Fprintf(o.Out, "%s%s\n", state(settled), o.dryRun.suffix())
	return err
}

// mayDecide refuses what the API server would refuse too, in words that say what the state is and who decided.
func (o *decideOptions) mayDecide(r *v1alpha1.ApprovalRequest) error {
	switch phase := r.CurrentPhase(); {
	case phase == v1alpha1.PhasePending, phase == v1alpha1.PhaseApproved && o.decision == v1alpha1.DecisionDenied:
		return nil
	case phase == v1alpha1.PhaseApproved && o.decision == v1alpha1.DecisionDismissed:
		return notDone("nothing was changed: %s; an approval is taken back by kubectl deny", state(r))
	default:
		return notDone("nothing was changed: %s", state(r))
	}
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

// await looks on for a while whether an approval is used or taken back.
func (o *decideOptions) await(ctx context.Context, approved *v1alpha1.ApprovalRequest) (*v1alpha1.ApprovalRequest, error) {
	current := approved
	err := wait.PollUntilContextTimeout(ctx, pollInterval, o.wait, true, func(context.Context) (bool, error) {
		newer, err := o.get(ctx, approved.Name) // a look that has begun is finished
		if err != nil {
			return false, err
		}
		if newer.UID != approved.UID {
			return false, notDone("%s was approved and then removed, and another request has its name", approved.Name)
		}
		current = newer
		return current.CurrentPhase() != v1alpha1.PhaseApproved, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	return current, err
}

// got tells whether a request is what the person wanted. An approval may be one of several, and may be used before it is
// seen.
func (o *decideOptions) got(r *v1alpha1.ApprovalRequest) bool {
	phase := r.CurrentPhase()
	switch o.decision {
	case v1alpha1.DecisionApproved:
		return phase == v1alpha1.PhasePending || letRun(r)
	case v1alpha1.DecisionDenied:
		return phase == v1alpha1.PhaseDenied
	case v1alpha1.DecisionDismissed:
		return phase == v1alpha1.PhaseDismissed
	default:
		return false
	}
}
