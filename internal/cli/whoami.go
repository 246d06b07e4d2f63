// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// authorityVerbs are the verbs on a server that people have.
var authorityVerbs = []string{v1alpha1.VerbApprove, v1alpha1.VerbApproveIrreversible, v1alpha1.VerbResolve, v1alpha1.VerbGovern, v1alpha1.VerbPromote}

// whoamiOptions are the flags of whoami.
type whoamiOptions struct {
	*session

	everywhere bool
	output     *output
}

func newWhoamiCommand(s *session) *cobra.Command {
	o := &whoamiOptions{session: s}
	cmd := &cobra.Command{
		Use:   "whoami [SERVER...]",
		Short: "Tell who you are to the API server, and what you may decide here",
		Long: `Tell who the API server says that you are, which is the name that your votes bear, and what
you may do on each GovernedServer of the namespace. Without the right to list servers, name
them. -o name prints who you are, and nothing else. A rule that asks for a verb of its own is
not in the table: describe tells for each request what it takes, and whether you may.

Exit codes: 0 told, 1 the API server could not be asked, or there is no such server, 2 not
understood.`,
		Args: usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.ValidArgsFunction = s.completeServers
	cmd.Flags().BoolVarP(&o.everywhere, "all-namespaces", "A", false, "ask for the servers of all namespaces")
	o.output = addOutputFlags(cmd, "table", "wide")
	return cmd
}

func (o *whoamiOptions) run(ctx context.Context, names []string) error {
	if o.everywhere && len(names) > 0 {
		return usageError{errors.New("name servers, or give -A, not both")}
	}
	if err := errors.Join(o.output.complete(), o.connect()); err != nil {
		return err
	}
	me, err := o.whoami(ctx)
	if err != nil {
		return err
	}
	servers, hint, err := o.servers(ctx, names)
	if err != nil {
		return err
	}
	if *o.output.flags.OutputFormat == "name" {
		_, err := fmt.Fprintln(o.Out, glyph.Plain(me.Status.UserInfo.Username))
		return err
	}
	answers, err := o.ask(ctx, questions(servers))
	if err != nil {
		return err
	}
	if !o.output.forPeople() {
		objects := []client.Object{me}
		for i := range answers {
			objects = append(objects, &answers[i])
		}
		return o.output.list(o.Out, o.client, objects)
	}
	return o.print(me, answers, noVotes(me.Status.UserInfo.Username, servers), hint)
}

// whoami asks the API server who it takes the person for.
func (s *session) whoami(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := s.client.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("ask the API server who you are: %w", err)
	}
	return review, nil
}

// servers returns the servers to ask for; where they cannot be listed, hint says what to do instead. Of a server that is
// named and may not be read, only the name is known.
func (o *whoamiOptions) servers(ctx context.Context, names []string) (servers []v1alpha1.GovernedServer, hint string, err error) {
	for _, name := range names {
		server, err := o.server(ctx, name)
		switch {
		case apierrors.IsForbidden(err):
			server = &v1alpha1.GovernedServer{}
			server.Namespace, server.Name = o.namespace, name
		case err != nil:
			return nil, "", err
		}
		servers = append(servers, *server)
	}
	if len(names) > 0 {
		return servers, "", nil
	}
	scope := []client.ListOption{}
	if !o.everywhere {
		scope = append(scope, client.InNamespace(o.namespace))
	}
	var list v1alpha1.GovernedServerList
	switch err := o.client.List(ctx, &list, scope...); {
	case apierrors.IsForbidden(err):
		return nil, refusal(err) + "; name the servers to ask for: kubectl tidewaiter whoami SERVER", nil
	case err != nil:
		return nil, "", fmt.Errorf("list GovernedServers: %w", err)
	}
	if len(list.Items) == 0 {
		hint = "There is no GovernedServer in namespace " + o.namespace + "."
	}
	return list.Items, hint, nil
}

// questions are whether the person may write a vote in each namespace, and has each verb on each server.
func questions(servers []v1alpha1.GovernedServer) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for i := range servers {
		server := client.ObjectKeyFromObject(&servers[i])
		vote := voteAttributes(server.Namespace)
		if !slices.Contains(all, vote) {
			all = append(all, vote)
		}
		for _, verb := range authorityVerbs {
			all = append(all, authorityAttributes(server, verb))
		}
	}
	return all
}

// noVotes says on which servers a ServiceAccount may not vote, whatever its rights. The webhook has the last word.
func noVotes(username string, servers []v1alpha1.GovernedServer) map[client.ObjectKey]string {
	account, ok := strings.CutPrefix(username, "system:serviceaccount:")
	if !ok {
		return nil
	}
	own, _, _ := strings.Cut(account, ":")
	reasons := map[client.ObjectKey]string{}
	for i := range servers {
		server := &servers[i]
		switch key := client.ObjectKeyFromObject(server); {
		case server.Namespace == own:
			reasons[key] = "no (own namespace)"
		case server.UID == "":
			reasons[key] = "not known"
		case !server.Spec.Approvals.AllowServiceAccounts:
			reasons[key] = "no (ServiceAccount)"
		}
	}
	return reasons
}

// voteAttributes are what writing a vote takes besides the verb.
func voteAttributes(namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Resource: "approvalrequests", Subresource: "status", Verb: "patch", Namespace: namespace,
	}
}

func authorityAttributes(server client.ObjectKey, verb string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Resource: "governedservers", Subresource: v1alpha1.AuthoritySubresource,
		Verb: verb, Namespace: server.Namespace, Name: server.Name,
	}
}

// ask asks the API server what the person may do, all questions at once, and keeps their order.
func (s *session) ask(ctx context.Context, questions []authorizationv1.ResourceAttributes) ([]authorizationv1.SelfSubjectAccessReview, error) {
	reviews := make([]authorizationv1.SelfSubjectAccessReview, len(questions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range questions {
		reviews[i].Spec.ResourceAttributes = &questions[i]
		group.Go(func() error { return s.client.Create(ctx, &reviews[i]) })
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("ask the API server what you may do: %w", err)
	}
	return reviews, nil
}

func (o *whoamiOptions) print(me *authenticationv1.SelfSubjectReview, answers []authorizationv1.SelfSubjectAccessReview, barred map[client.ObjectKey]string, hint string) error {
	p := newPage(o.colours())
	user := me.Status.UserInfo
	p.line("User:", "%s", user.Username)
	if user.UID != "" {
		p.line("UID:", "%s", user.UID)
	}
	if len(user.Groups) > 0 {
		p.line("Groups:", "%s", strings.Join(user.Groups, ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(user.Extra)) {
		p.line(glyph.Plain(key)+":", "%s", strings.Join(user.Extra[key], ", "))
	}
	if err := p.print(o.Out); err != nil {
		return err
	}
	if hint != "" {
		_, err := fmt.Fprintf(o.ErrOut, "%s\n", lines(hint))
		return err
	}
	return o.printAnswers(answers, barred)
}

// printAnswers prints a row for each server; barred says why no vote of the person is taken on some.
func (o *whoamiOptions) printAnswers(answers []authorizationv1.SelfSubjectAccessReview, barred map[client.ObjectKey]string) error {
	columns := []string{"Server"}
	if o.everywhere {
		columns = []string{"Namespace", "Server"}
	}
	columns = append(append(columns, "Vote"), authorityVerbs...)
	votes := map[string]bool{}
	var rows [][]string
	for _, answer := range answers {
		asked := answer.Spec.ResourceAttributes
		if asked.Resource == "approvalrequests" {
			votes[asked.Namespace] = answer.Status.Allowed
			continue
		}
		if asked.Verb == authorityVerbs[0] {
			mayVote := yesNo(votes[asked.Namespace])
			if why := barred[client.ObjectKey{Namespace: asked.Namespace, Name: asked.Name}]; why != "" && votes[asked.Namespace] {
				mayVote = why
			}
			row := []string{asked.Name, mayVote}
			if o.everywhere {
				row = slices.Insert(row, 0, asked.Namespace)
			}
			rows = append(rows, row)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], yesNo(answer.Status.Allowed))
	}
	return o.output.newTable(o.Out, columns...).print(rows...)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
