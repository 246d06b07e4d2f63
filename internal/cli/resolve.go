// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// resolveOptions are the flags of resolve.
type resolveOptions struct {
	*session

	committed, notExecuted bool
	reason                 string
	timeout                time.Duration

	resolution v1alpha1.Resolution
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
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.committed, "committed", false, "the call took effect")
	flags.BoolVar(&o.notExecuted, "not-executed", false, "the call did not take effect")
	flags.StringVar(&o.reason, "reason", "", "how you know, for the record")
	flags.DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to wait for the manager")
	return cmd
}

func (o *resolveOptions) run(ctx context.Context, name string) error {
	switch {
	case o.committed == o.notExecuted:
		return usageError{errors.New("say what you found, with one of --committed and --not-executed")}
	case strings.TrimSpace(o.reason) == "":
		return usageError{errors.New("say how you know: --reason TEXT")}
	}
	shown, err := o.look(ctx, name)
	if err != nil {
		return err
	}
	if err := mayResolve(shown); err != nil {
		return err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := o.client.Create(ctx, review); err != nil {
		return fmt.Errorf("ask the API server who you are: %w", err)
	}
	o.resolution = v1alpha1.Resolution{
		Outcome: v1alpha1.ResolutionNotExecuted, Reason: o.reason, By: review.Status.UserInfo.Username, Time: metav1.NewTime(o.clock.Now()),
	}
	if o.committed {
		o.resolution.Outcome = v1alpha1.ResolutionCommitted
	}
	if err := o.write(ctx, shown, mayResolve, o.change); err != nil {
		return err
	}
	settled, err := o.await(ctx, shown, o.timeout, func(r *v1alpha1.ApprovalRequest) bool {
		return r.CurrentPhase() != v1alpha1.PhaseAmbiguous
	})
	if err != nil {
		return err
	}
	// The gateway may have come back with the server's own answer at the same time: that one counts.
	if committed := settled.CurrentPhase() == v1alpha1.PhaseSucceeded; committed != o.committed {
		return notDone("%s", state(settled))
	}
	_, err = fmt.Fprintln(o.Out, state(settled))
	return err
}

func mayResolve(r *v1alpha1.ApprovalRequest) error {
	switch {
	case r.CurrentPhase() != v1alpha1.PhaseAmbiguous:
		return notDone("there is nothing to settle: %s", state(r))
	case r.Status.Resolution != nil:
		return notDone("%s said that it is %s already: %q", visible(r.Status.Resolution.By), r.Status.Resolution.Outcome, r.Status.Resolution.Reason)
	}
	return nil
}

func (o *resolveOptions) change(*v1alpha1.ApprovalRequest) []patchOperation {
	return []patchOperation{{Op: "add", Path: "/status/resolution", Value: o.resolution}}
}
