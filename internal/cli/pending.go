// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// pendingOptions are the flags of pending.
type pendingOptions struct {
	*session

	everywhere, watch bool
	selector          string
	output            *output
}

func newPendingCommand(s *session) *cobra.Command {
	o := &pendingOptions{session: s}
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List what waits for a decision, the oldest first",
		Long: `List the ApprovalRequests that wait for a decision, the oldest first.

VOTES is how many of the needed persons approve so far. With -w the list goes on: a line for
each request that comes or gets a vote, until it is decided or ends; PHASE says which. One
request is shown by kubectl tidewaiter describe NAME.

Exit codes: 0 listed, also if nothing waits, 1 not listed, 2 not understood.`,
		Example: `  # Everything that waits in the cluster, and what comes
  kubectl tidewaiter pending -A -w

  # Deny all that waits for one server
  kubectl tidewaiter pending -l tidewaiter.dev/server=billing -o name | xargs kubectl deny --reason "not today"`,
		Args:              usage(noNames),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "list in all namespaces")
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on with what comes and what ends")
	flags.StringVarP(&o.selector, "selector", "l", "", "labels that the requests must have, as in kubectl get")
	o.output = addOutputFlags(cmd, "table", "wide")
	return cmd
}

func (o *pendingOptions) run(ctx context.Context) error {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return usageError{fmt.Errorf("read the selector %q: %w", o.selector, err)}
	}
	if err := errors.Join(o.output.complete(), o.connect()); err != nil {
		return err
	}
	scope := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
	if !o.everywhere {
		scope = append(scope, client.InNamespace(o.namespace))
	}
	list, err := o.list(ctx, scope)
	if err != nil {
		return err
	}
	waiting := list.Items
	waiting = slices.DeleteFunc(waiting, func(r v1alpha1.ApprovalRequest) bool { return r.CurrentPhase() != v1alpha1.PhasePending })
	slices.SortStableFunc(waiting, older)
	rows := &pendingRows{pendingOptions: o, seen: map[types.UID]string{}}
	if o.output.forPeople() {
		rows.table = o.output.newTable(o.Out, rows.columns()...)
	}
	if err := rows.print(waiting); err != nil {
		return err
	}
	if !o.watch {
		return nil
	}
	return rows.follow(ctx, list.ResourceVersion, scope)
}

func (o *pendingOptions) list(ctx context.Context, scope []client.ListOption) (*v1alpha1.ApprovalRequestList, error) {
	var list v1alpha1.ApprovalRequestList
	if err := o.client.List(ctx, &list, scope...); err != nil {
		return nil, o.explain(err, "list")
	}
	return &list, nil
}

// explain says why requests cannot be listed.
func (o *pendingOptions) explain(err error, verb string) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("%s ApprovalRequests: %w", verb, err)
	}
	where := "-n " + o.namespace
	if o.everywhere {
		where = "-A"
	}
	return o.lacks(err, fmt.Sprintf("You need the verb %s: kubectl auth can-i %s approvalrequests.tidewaiter.dev %s", verb, verb, where))
}

// older orders requests by age, and those of one second by name.
func older(a, b v1alpha1.ApprovalRequest) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// pendingRows prints requests, and remembers what it said of each.
type pendingRows struct {
	*pendingOptions

	table *table
	seen  map[types.UID]string
}

func (p *pendingRows) columns() []string {
	columns := []string{"Name", "Server", "Tool", "Tier", "Votes", "Age", "Expires", "Requester", "+Acts for", "+Verbs", "+Blast radius", "+Arguments"}
	if p.everywhere {
		columns = slices.Insert(columns, 0, "Namespace")
	}
	if p.watch {
		columns = slices.Insert(columns, slices.Index(columns, "Votes"), "Phase")
	}
	return columns
}

func (p *pendingRows) row(r *v1alpha1.ApprovalRequest, now time.Time) []string {
	spec := r.Spec
	row := []string{
		r.Name, spec.ServerRef.Name, spec.Tool, string(spec.Tier), quorum(r), since(r.CreationTimestamp.Time, now), expires(r, now),
		spec.Requester.Username, spec.Requester.ActsFor, strings.Join(spec.ApproveVerbs, ","),
		fmt.Sprintf("%s: %s", spec.BlastRadius.Scope, spec.BlastRadius.Summary), spec.Arguments,
	}
	if p.watch {
		row = slices.Insert(row, 4, string(r.CurrentPhase()))
	}
	if p.everywhere {
		row = slices.Insert(row, 0, r.Namespace)
	}
	return row
}

// expires says how much time is left.
func expires(r *v1alpha1.ApprovalRequest, now time.Time) string {
	if left := r.ExpiresAt().Sub(now); left > 0 {
		return duration.HumanDuration(left)
	}
	return "over"
}

// print prints requests in the form that was asked for.
func (p *pendingRows) print(requests []v1alpha1.ApprovalRequest) error {
	var rows [][]string
	var objects []client.Object
	for i := range requests {
		r := &requests[i]
		p.seen[r.UID] = p.said(r)
		rows = append(rows, p.row(r, p.clock.Now()))
		objects = append(objects, r)
	}
	switch {
	case p.table == nil && p.watch:
		for _, object := range objects {
			if err := p.output.object(p.Out, p.client, object); err != nil {
				return err
			}
		}
		return nil
	case p.table == nil:
		return p.output.list(p.Out, p.client, objects)
	case len(rows) == 0 && !p.watch:
		where := "in namespace " + p.namespace + "; -A looks in all"
		if p.everywhere {
			where = "in any namespace"
		}
		_, err := fmt.Fprintf(p.ErrOut, "Nothing waits for a decision %s.\n", where)
		return err
	default:
		return p.table.print(rows...)
	}
}

// said is what a line says of a request that does not go by the clock.
func (p *pendingRows) said(r *v1alpha1.ApprovalRequest) string {
	return string(r.CurrentPhase()) + " " + quorum(r)
}

// news tells whether a request deserves a line: it waits, or was seen waiting, and something else is to be said of it now.
func (p *pendingRows) news(r *v1alpha1.ApprovalRequest) bool {
	before, seen := p.seen[r.UID]
	return before != p.said(r) && (seen || r.CurrentPhase() == v1alpha1.PhasePending)
}

// follow prints what comes, until the context ends. A watch that the API server ends begins again with a list.
func (p *pendingRows) follow(ctx context.Context, version string, scope []client.ListOption) error {
	for ctx.Err() == nil {
		watched, err := p.client.Watch(ctx, &v1alpha1.ApprovalRequestList{},
			append(slices.Clone(scope), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return p.explain(err, "watch")
		}
		if err := p.drain(watched); err != nil {
			return err
		}
		list, err := p.list(ctx, scope)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		news := slices.DeleteFunc(list.Items, func(r v1alpha1.ApprovalRequest) bool { return !p.news(&r) })
		slices.SortStableFunc(news, older)
		if err := p.print(news); err != nil {
			return err
		}
		version = list.ResourceVersion
	}
	return nil //nolint:nilerr // who ends the context has seen enough
}

// drain prints the events of one watch.
func (p *pendingRows) drain(watched watch.Interface) error {
	defer watched.Stop()
	for event := range watched.ResultChan() {
		r, ok := event.Object.(*v1alpha1.ApprovalRequest)
		if !ok {
			return nil // an error, such as a version that is too old: the next list tells
		}
		if event.Type == watch.Deleted {
			delete(p.seen, r.UID)
			continue
		}
		if p.news(r) {
			if err := p.print([]v1alpha1.ApprovalRequest{*r}); err != nil {
				return err
			}
		}
		if r.CurrentPhase() != v1alpha1.PhasePending {
			delete(p.seen, r.UID)
		}
	}
	return nil
}
