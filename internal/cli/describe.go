// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// describeOptions are the flags of describe.
type describeOptions struct {
	*session

	output *output
}

func newDescribeCommand(s *session) *cobra.Command {
	o := &describeOptions{session: s}
	cmd := &cobra.Command{
		Use:   "describe NAME...",
		Short: "Tell what a request would do, and what a decision on it sets off",
		Long: `Tell all that a decision on an ApprovalRequest needs: what would happen, why it is gated, who
asks and for whom, how it differs from the last approved call of the tool, the tool's record,
what a yes or a no sets off besides, what it takes, whether you may, the votes so far, and
until when.

Texts of agents and servers are shown so that they cannot pass for something else; -o yaml
has them as they are.

Exit codes: 0 told, 1 not told, 2 not understood.`,
		Example: `  kubectl tidewaiter describe billing-0123456789abcdef0123-1`,
		Args:    usage(someNames),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.ValidArgsFunction = s.completeRequests(1)
	o.output = addOutputFlags(cmd, "page")
	return cmd
}

func (o *describeOptions) run(ctx context.Context, args []string) error {
	names, err := requestNames(args)
	if err := errors.Join(err, o.output.complete(), o.connect()); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if err := o.describe(ctx, name); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (o *describeOptions) describe(ctx context.Context, name string) error {
	request, err := o.get(ctx, name)
	if err != nil {
		return err
	}
	if !o.output.forPeople() {
		return o.output.object(o.Out, o.client, request)
	}
	b, err := o.gather(ctx, request)
	if err != nil {
		return err
	}
	p := newPage(o.colours())
	b.write(p)
	return p.print(o.Out)
}

// gather reads what the briefing on a request tells. What the person may not read is left out, and said.
func (s *session) gather(ctx context.Context, r *v1alpha1.ApprovalRequest) (briefing, error) {
	b := briefing{request: r, now: s.clock.Now()}
	me, err := s.whoami(ctx)
	if err != nil {
		return b, err
	}
	b.me = me.Status.UserInfo
	server := client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.ServerRef.Name}
	questions := []authorizationv1.ResourceAttributes{voteAttributes(r.Namespace)}
	for _, verb := range verbsFor(r) {
		questions = append(questions, authorityAttributes(server, verb))
	}
	if b.answers, err = s.ask(ctx, questions); err != nil {
		return b, err
	}
	var governed v1alpha1.GovernedServer
	var requests v1alpha1.ApprovalRequestList
	// The request was named in this namespace, and so were its policies.
	own, ownErr := s.ownPolicies(ctx)
	baselines, baselinesErr := s.baselines(ctx)
	for _, read := range []struct {
		what string
		err  error
	}{
		{"the server", s.client.Get(ctx, server, &governed)},
		{"the policies", ownErr},
		{"the baselines", baselinesErr},
		{"earlier requests", s.client.List(ctx, &requests, client.InNamespace(r.Namespace), client.MatchingFields{"spec.serverRef.name": server.Name})},
	} {
		switch {
		case read.err == nil:
		case apierrors.IsForbidden(read.err) || apierrors.IsNotFound(read.err):
			b.unread = append(b.unread, fmt.Sprintf("%s (%s)", read.what, refusal(read.err)))
		default:
			return b, fmt.Errorf("read %s: %w", read.what, read.err)
		}
	}
	if governed.UID != "" {
		b.server = &governed
	}
	b.policies = policySet{s.operatorNamespace, slices.Concat(own, baselines)}
	b.earlier = lastApproved(r, requests.Items)
	return b, nil
}

// verbsFor are the verbs that what is to be done with a request takes.
func verbsFor(r *v1alpha1.ApprovalRequest) []string {
	if r.CurrentPhase() == v1alpha1.PhaseAmbiguous {
		return []string{v1alpha1.VerbResolve}
	}
	return r.Spec.ApproveVerbs
}

// lastApproved returns the request of the same tool and server that was approved last before this one, nil for none.
func lastApproved(r *v1alpha1.ApprovalRequest, all []v1alpha1.ApprovalRequest) *v1alpha1.ApprovalRequest {
	approved := slices.DeleteFunc(slices.Clone(all), func(other v1alpha1.ApprovalRequest) bool {
		return other.UID == r.UID || other.Spec.ServerRef != r.Spec.ServerRef || other.Spec.Tool != r.Spec.Tool || !letRun(&other)
	})
	if len(approved) == 0 {
		return nil
	}
	last := slices.MaxFunc(approved, older)
	return &last
}

// letRun tells, by its phase, whether people let the action of a request run.
func letRun(r *v1alpha1.ApprovalRequest) bool {
	switch r.CurrentPhase() {
	case v1alpha1.PhaseApproved, v1alpha1.PhaseExecuting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseAmbiguous:
		return true
	default:
		return false
	}
}

// briefing is all that is known for a decision on a request.
type briefing struct {
	request *v1alpha1.ApprovalRequest
	now     time.Time
	me      authenticationv1.UserInfo
	// answers are whether the person may write a vote, and has each verb.
	answers []authorizationv1.SelfSubjectAccessReview
	// server and earlier are nil where there is none, or none that may be read.
	server   *v1alpha1.GovernedServer
	policies policySet
	earlier  *v1alpha1.ApprovalRequest
	// unread is what could not be read, with why.
	unread []string
}
