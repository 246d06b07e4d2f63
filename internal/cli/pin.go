// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// pinOptions are the flags of pin.
type pinOptions struct {
	*session
	*output

	check, write bool
	name         string
	files        []string
}

func newPinCommand(s *session) *cobra.Command {
	o := &pinOptions{session: s}
	cmd := &cobra.Command{
		Use:   "pin SERVER [--check | --write]",
		Short: "Show, check or write which definitions of a server's tools are accepted",
		Long: `Show for each tool of a server, and for its instructions, which definition was accepted and
which the server gives now. A definition is Pinned (every policy that pins the tool names it),
Accepted (nobody pins it, and it has not changed), Drifted (another one was accepted), New
(the tool appeared later, and nobody has accepted it) or Gone (the server lists it no more).

--check is for CI. A server that cannot be reached, or whose status is older than its spec, is
neither the same nor changed: it could not be asked.
--write prints a ToolPolicy that pins everything as it is now; with -f it prints that file with
the pins of its policy brought up to date and everything else as it was, comments too.
-f puts policies of files in the place of those of the same name, or beside the others. It
reads the cluster and writes nothing to it.

Exit codes: 0 the same, or printed, 1 something is not the accepted one (--check), 2 could not
ask, or not understood.`,
		Example: `  # Accept what is there now, by Git
  kubectl tidewaiter pin billing --write > billing-pins.yaml

  # In CI, before it is applied: do the pins in Git fit the server?
  kubectl tidewaiter pin billing --check -f billing-pins.yaml

  # After a review of what has changed
  kubectl tidewaiter pin billing --write -f billing-pins.yaml > new.yaml && mv new.yaml billing-pins.yaml`,
		Args:              usage(oneServer),
		ValidArgsFunction: s.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			return unasked(o.run(cmd.Context(), args[0]))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.check, "check", false, "print only what is not the accepted one, and exit with 1 if there is anything")
	flags.BoolVar(&o.write, "write", false, "print a ToolPolicy that pins all definitions as they are now")
	flags.StringVar(&o.name, "name", "", "name of the policy that --write prints; default SERVER-pins")
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "a file with ToolPolicies; may be given several times")
	o.output = addOutputFlags(cmd, "table", "wide")
	return cmd
}

func (o *pinOptions) validate() error {
	switch {
	case o.check && o.write:
		return errors.New("give --check or --write, not both")
	case o.name != "" && !o.write:
		return errors.New("--name goes with --write")
	case o.write && len(o.files) > 1:
		return errors.New("--write brings one file up to date: give -f once")
	case o.write && len(o.files) > 0 && o.flags.OutputFlagSpecified():
		return errors.New("--write -f prints the file as it is written, in YAML: leave -o out")
	}
	return nil
}

// answeredError is an error that is an answer: the verb asked, and this is what it found.
type answeredError struct{ error }

// unasked makes every error but an answer one of not having been able to ask.
func unasked(err error) error {
	_, answered := errors.AsType[answeredError](err)
	_, misused := errors.AsType[usageError](err)
	if err == nil || answered || misused {
		return err
	}
	return notRunError{err}
}

func (o *pinOptions) run(ctx context.Context, name string) error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.connect(); err != nil {
		return err
	}
	server, err := o.server(ctx, name)
	if err != nil {
		return err
	}
	doubt := lastListing(server)
	if doubt != nil && (o.check || o.write) {
		return doubt
	}
	if o.write {
		return o.writePins(ctx, server)
	}
	policies, err := o.policies(ctx)
	if err != nil {
		return err
	}
	files, err := readManifests(ctx, o.In, o.files, o.namespace)
	if err != nil {
		return err
	}
	policies = files.over(policies)
	if doubt != nil {
		if _, err := fmt.Fprintf(o.ErrOut, "Warning: %s\n", lines(doubt.Error())); err != nil {
			return err
		}
	}
	views := policies.viewPins(server)
	if err := o.sayChanges(ctx, server, views); err != nil {
		return err
	}
	if o.check {
		return o.report(server, views)
	}
	return o.print(views)
}

// lastListing says why what is known of a server's definitions may not be what it gives now; nil if nothing speaks
// against it.
func lastListing(server *v1alpha1.GovernedServer) error {
	where := fmt.Sprintf("kubectl describe gsrv %s -n %s says more", server.Name, server.Namespace)
	digest, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		return fmt.Errorf("digest endpoint of %s: %w", server.Name, err)
	}
	reachable := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case reachable == nil:
		return notDone("could not ask: %s was not listed yet: is the manager running?", server.Name)
	case reachable.Status != "True":
		return notDone("could not ask: %s was not reached at the last listing (%s): %s; what it defines now is not known, %s",
			server.Name, glyph.Plain(reachable.Reason), glyph.Plain(reachable.Message), where)
	case server.Status.ObservedGeneration != server.Generation || server.Status.EndpointDigest != digest:
		return notDone("could not ask: the status of %s is older than its spec: it was not listed since the change; try again in a moment, %s",
			server.Name, where)
	}
	return nil
}

// report prints what is not the accepted one, and is an error then.
func (o *pinOptions) report(server *v1alpha1.GovernedServer, views []pinView) error {
	var drifted []pinView
	for _, v := range views {
		if v.drifted() {
			drifted = append(drifted, v)
		}
	}
	if !o.forPeople() {
		if err := o.print(drifted); err != nil {
			return err
		}
	} else if err := o.tell(server, views, drifted); err != nil {
		return err
	}
	if len(drifted) == 0 {
		return nil
	}
	return answeredError{notDone("%s: %d of %d definitions are not the accepted ones; review them, then accept them: kubectl tidewaiter pin %s --write -n %s",
		server.Name, len(drifted), len(views), server.Name, server.Namespace)}
}

// tell says in lines what has changed.
func (o *pinOptions) tell(server *v1alpha1.GovernedServer, views, drifted []pinView) error {
	var text strings.Builder
	for _, v := range drifted {
		fmt.Fprintf(&text, "%s: %s\n", glyph.Plain(v.name()), glyph.Plain(v.sentence()))
		for _, change := range v.Changes {
			fmt.Fprintf(&text, "  %s\n", glyph.Plain(change))
		}
	}
	if len(drifted) == 0 {
		fmt.Fprintf(&text, "%s: all %d definitions are the accepted ones\n", server.Name, len(views))
	}
	_, err := fmt.Fprint(o.Out, text.String())
	return err
}

// sentence says what is wrong with a definition.
func (v pinView) sentence() string {
	by := ""
	if len(v.Policies) > 0 {
		by = ", pinned by " + and(v.Policies)
	}
	accepted := strings.Join(v.Accepted, " and ")
	switch {
	case v.State == stateNew:
		return fmt.Sprintf("New: the server gives %s, and nobody has accepted the tool", v.Current)
	case v.State == stateGone:
		return fmt.Sprintf("Gone: accepted is %s%s, and the server lists no such tool", accepted, by)
	case v.Current == "":
		return fmt.Sprintf("Drifted: accepted is %s%s, and the server gives none", accepted, by)
	default:
		return fmt.Sprintf("Drifted: accepted is %s%s, the server gives %s", accepted, by, v.Current)
	}
}

// shortDigest is as much of a digest as people compare at a glance.
const shortDigest = len("sha256:") + 12

// print prints every definition.
func (o *pinOptions) print(views []pinView) error {
	if !o.forPeople() {
		return printViews(o.output, o.Out, "PinList", views, pinView.name)
	}
	short := func(digest string) string {
		if !o.wide() && len(digest) > shortDigest {
			return digest[:shortDigest]
		}
		return digest
	}
	rows := o.newTable(o.Out, "TOOL", "STATE", "ACCEPTED", "CURRENT", "PINNED BY")
	rows.limit = 4 * maxCell // a digest that is cut is no digest
	cells := make([][]string, 0, len(views))
	for _, v := range views {
		accepted := make([]string, len(v.Accepted))
		for i, digest := range v.Accepted {
			accepted[i] = short(digest)
		}
		cells = append(cells, []string{v.name(), string(v.State), strings.Join(accepted, " "), short(v.Current), strings.Join(v.Policies, ", ")})
	}
	return rows.print(cells...)
}
