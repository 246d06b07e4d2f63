// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// trustView says where one tool stands on its way to run unattended.
type trustView struct {
	Server   string            `json:"server"`
	Tool     string            `json:"tool"`
	Tier     v1alpha1.Tier     `json:"tier"`
	Autonomy v1alpha1.Autonomy `json:"autonomy"`
	// Clean of Needed clean approvals are there.
	Clean  int32 `json:"clean"`
	Needed int32 `json:"needed"`
	// Reason and Blocked say why a promotion would not be in force; they are empty where it would be.
	Reason     string      `json:"reason,omitempty"`
	Blocked    string      `json:"blocked,omitempty"`
	Promotions []promotion `json:"promotions,omitempty"`
}

// trustOptions are the flags of trust.
type trustOptions struct {
	*session
	*output
}

func newTrustCommand(s *session) *cobra.Command {
	o := &trustOptions{session: s}
	cmd := &cobra.Command{
		Use:   "trust [SERVER [TOOL]]",
		Short: "Show where tools stand on their way to run unattended",
		Long: `Show for each tool that has effects how many clean approvals it has of those it needs, what
keeps it from running unattended, and which ToolPolicy promotes it. Whether a promotion is in
force is what the manager says in the status of the policy. For one tool it also shows what
its clean approvals were given for.

Exit codes: 0 done, 1 not done, 2 not understood.`,
		Example: `  kubectl tidewaiter trust
  kubectl tidewaiter trust billing refund_invoice`,
		Args: usage(func(_ *cobra.Command, given []string) error {
			if len(given) > 2 {
				return fmt.Errorf("give the name of a GovernedServer and of one of its tools, or of a server, or nothing; %s", countOf(len(given), "name"))
			}
			return nil
		}),
		ValidArgsFunction: s.completeTools,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.output = addOutputFlags(cmd, "table", "wide")
	return cmd
}

func (o *trustOptions) run(ctx context.Context, args []string) error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.connect(); err != nil {
		return err
	}
	servers, err := o.chosen(ctx, args)
	if err != nil {
		return err
	}
	policies, err := o.policies(ctx)
	if err != nil {
		return err
	}
	var views []trustView
	for i := range servers {
		if err := warnOfStale(o.ErrOut, &servers[i]); err != nil {
			return err
		}
		of, err := policies.viewTrust(&servers[i])
		if err != nil {
			return err
		}
		views = append(views, of...)
	}
	if len(args) == 2 {
		return o.one(ctx, &servers[0], args[1], views)
	}
	return o.print(views)
}

// chosen reads the server that is named, or all of the namespace.
func (o *trustOptions) chosen(ctx context.Context, args []string) ([]v1alpha1.GovernedServer, error) {
	if len(args) > 0 {
		server, err := o.server(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return []v1alpha1.GovernedServer{*server}, nil
	}
	var list v1alpha1.GovernedServerList
	if err := o.client.List(ctx, &list, client.InNamespace(o.namespace)); err != nil {
		return nil, fmt.Errorf("list GovernedServers: %w", err)
	}
	return list.Items, nil
}

// viewTrust says where the tools with effects of a server stand.
func (set policySet) viewTrust(server *v1alpha1.GovernedServer) ([]trustView, error) {
	compiled, err := set.compile(server, policy.Facts{})
	if err != nil {
		return nil, err
	}
	blocked := blocks(compiled, server)
	var views []trustView
	for _, t := range server.Status.Tools {
		standing, found := compiled.Standing(t.Name)
		promotions := set.promotionsOf(server, t.Name)
		if !found {
			standing = policy.Standing{Tier: t.Tier, Autonomy: v1alpha1.AutonomyNone}
		}
		if standing.Tier == v1alpha1.TierRead && len(promotions) == 0 {
			continue
		}
		views = append(views, trustView{
			Server: server.Name, Tool: t.Name, Tier: standing.Tier, Autonomy: standing.Autonomy,
			Clean: cleanOf(server, t), Needed: max(server.Spec.Autonomy.CleanApprovals, 1),
			Reason: blocked[t.Name].Reason, Blocked: blocked[t.Name].Message, Promotions: promotions,
		})
	}
	return views, nil
}

// cleanOf returns how many clean approvals count for the definition and endpoint that the tool has now.
func cleanOf(server *v1alpha1.GovernedServer, t v1alpha1.ToolStatus) int32 {
	if r := recordOf(server, t); r.Digest == t.Digest && r.EndpointDigest == server.Status.EndpointDigest {
		return r.Approved
	}
	return 0
}

func (o *trustOptions) print(views []trustView) error {
	if !o.forPeople() {
		return printViews(o.output, o.Out, "TrustList", views, func(v trustView) string { return v.Server + "/" + v.Tool })
	}
	rows := o.newTable(o.Out, "SERVER", "TOOL", "TIER", "AUTONOMY", "CLEAN", "PROMOTED BY", "NEXT")
	rows.limit = 4 * maxCell // half of a command is no use
	cells := make([][]string, 0, len(views))
	for _, v := range views {
		cells = append(cells, []string{v.Server, v.Tool, string(v.Tier), string(v.Autonomy), v.clean(), v.promotedBy(), v.next(o.namespace)})
	}
	return rows.print(cells...)
}

func (v trustView) clean() string { return fmt.Sprintf("%d/%d", v.Clean, v.Needed) }

// promotedBy names the policies that promote the tool, and marks those that are not in force.
func (v trustView) promotedBy() string {
	var names []string
	for _, p := range v.Promotions {
		name := p.Policy
		if !p.InForce {
			name += " (not in force)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// next says what keeps the tool from running unattended, or what a person can do.
func (v trustView) next(namespace string) string {
	switch {
	case v.Autonomy == v1alpha1.AutonomyDisqualified:
		return disqualified
	case v.Blocked != "":
		return v.Blocked
	case v.Autonomy == v1alpha1.AutonomyUnattended:
		return "runs without a person; to take it back: " + v.command("revoke", namespace)
	default:
		return "can be promoted: " + v.command("promote", namespace)
	}
}

// disqualified is the end of the way for a tool.
const disqualified = "a person denied a call of it: it never runs unattended"

// command is what a person runs to promote the tool, or to take that back: in the policy that promotes it, if one does
// and it is no baseline.
func (v trustView) command(verb, namespace string) string {
	policy := "NAME"
	for _, p := range v.Promotions {
		if p.InForce && !strings.Contains(p.Policy, "/") {
			policy = p.Policy
		}
	}
	return fmt.Sprintf("kubectl tidewaiter %s %s %s --policy %s -n %s", verb, v.Server, shellWord(v.Tool), policy, namespace)
}

// one tells of one tool what a row has no room for, and what its clean approvals were given for.
func (o *trustOptions) one(ctx context.Context, server *v1alpha1.GovernedServer, name string, views []trustView) error {
	t, err := findTool(server, name)
	if err != nil {
		return err
	}
	views = slices.DeleteFunc(views, func(v trustView) bool { return v.Tool != name })
	if !o.forPeople() {
		return o.print(views)
	}
	if len(views) == 0 {
		return notDone("%s is Read on %s: its calls run without a person, and there is nothing to earn", glyph.Plain(name), server.Name)
	}
	requests, err := o.requestsOf(ctx, server.Name)
	if err != nil {
		return err
	}
	text, err := describeEarned(server, t, earn(server, t, requests))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "%s%s", text, views[0].describe(o.namespace))
	return err
}

// describe tells where the tool stands.
func (v trustView) describe(namespace string) string {
	var text strings.Builder
	if v.Autonomy == v1alpha1.AutonomyDisqualified {
		fmt.Fprintf(&text, "Autonomy:  %s: %s\n", v.Autonomy, disqualified)
	} else {
		fmt.Fprintf(&text, "Autonomy:  %s, with %d clean approvals of %d that it needs\n", v.Autonomy, v.Clean, v.Needed)
	}
	for _, p := range v.Promotions {
		fmt.Fprintf(&text, "Promoted:  by ToolPolicy %s, %s, for %s\n", glyph.Plain(p.Policy), p.Field, glyph.Plain(p.Digest))
		switch {
		case p.InForce:
			fmt.Fprintf(&text, "           in force\n")
		case p.Reason == "":
			fmt.Fprintf(&text, "           %s\n", glyph.Plain(p.Message))
		default:
			fmt.Fprintf(&text, "           not in force: %s (%s)\n", glyph.Plain(p.Message), glyph.Plain(p.Reason))
		}
	}
	fmt.Fprintf(&text, "Next:      %s\n", glyph.Plain(v.next(namespace)))
	return text.String()
}
