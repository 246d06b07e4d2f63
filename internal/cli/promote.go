// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

func newPromoteCommand(s *session) *cobra.Command {
	v := &policyVerb{session: s}
	v.edit = v.promote
	cmd := &cobra.Command{
		Use:   "promote SERVER TOOL --policy NAME",
		Short: "Let a tool with a clean record run without a person",
		Long: `Let a Reversible tool run without a person, by an Unattended entry of a ToolPolicy.

It shows what the clean approvals were given for, and refuses a promotion that would not be
in force: of an Irreversible tool, of a record that is not clean, of a tool that is kept
attended. The promotion is made for the definition that the tool has now; when the definition
or the endpoint changes, every call needs approval again.

It takes the verbs govern and promote on governedservers/authority for every server that the
policy targets. What is kept in Git is printed by --dry-run=client -o yaml.

Exit codes: 0 promoted, 1 not promoted (the message says why), 2 not understood.`,
		Example: `  # What to commit
  kubectl tidewaiter promote billing refund_invoice --policy billing --dry-run=client -o yaml

  # Directly
  kubectl tidewaiter promote billing refund_invoice --policy billing`,
		Args:              usage(serverAndTool),
		ValidArgsFunction: s.completeTools,
		RunE:              func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), args[0], args[1]) },
	}
	v.addFlags(cmd)
	return cmd
}

func newRevokeCommand(s *session) *cobra.Command {
	v := &policyVerb{session: s}
	v.edit = v.revoke
	cmd := &cobra.Command{
		Use:   "revoke SERVER TOOL --policy NAME",
		Short: "Put a person before every call of a tool again",
		Long: `Put a person before every call of a tool, by an Attended entry of a ToolPolicy.

To take a promotion out would not be enough: another policy may promote the tool too, and
whoever applies an older version of this one promotes it again. Attended beats Unattended
across all policies and holds for every definition of the tool. The Unattended entries of
the tool in this policy are replaced by it; those in others are no longer in force.

It takes the verb govern on governedservers/authority for every server that the policy
targets. kubectl tidewaiter promote with the same policy takes it back.

Exit codes: 0 revoked, 1 not revoked (the message says why), 2 not understood.`,
		Example:           `  kubectl tidewaiter revoke billing refund_invoice --policy billing`,
		Args:              usage(serverAndTool),
		ValidArgsFunction: s.completeTools,
		RunE:              func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), args[0], args[1]) },
	}
	v.addFlags(cmd)
	return cmd
}

// serverAndTool wants a server and one of its tools.
func serverAndTool(_ *cobra.Command, given []string) error {
	if len(given) != 2 {
		return fmt.Errorf("give the name of a GovernedServer and of one of its tools; %s", countOf(len(given), "name"))
	}
	return nil
}

// facts are all that a change of a policy is judged by.
type facts struct {
	policies policySet
	requests []v1alpha1.ApprovalRequest
}

// seen is what the requests tell of a tool and the record may not hold yet.
func (f facts) seen(server *v1alpha1.GovernedServer, tool string) policy.Facts {
	seen := policy.Facts{Denied: map[string]bool{}, Ambiguous: map[string]bool{}}
	for i := range f.requests {
		r := &f.requests[i]
		if isOf(r, server, tool) {
			seen.Denied[tool] = seen.Denied[tool] || r.CurrentPhase() == v1alpha1.PhaseDenied
			seen.Ambiguous[tool] = seen.Ambiguous[tool] || r.CurrentPhase() == v1alpha1.PhaseAmbiguous
		}
	}
	return seen
}

func (v *policyVerb) promote(ctx context.Context, server *v1alpha1.GovernedServer, name string, stored *unstructured.Unstructured) (*edited, told, error) {
	t, err := findTool(server, name)
	if err != nil {
		return nil, told{}, unchanged(err)
	}
	change, err := editPolicy(stored, namedPolicy{v.namespace, v.policy}, server.Name)
	if err != nil {
		return nil, told{}, err
	}
	err = change.put("autonomy", map[string]any{"tool": t.Name, "digest": t.Digest, "mode": string(v1alpha1.ModeUnattended)}, func(old map[string]any) bool {
		same := old["digest"] == t.Digest && old["mode"] == string(v1alpha1.ModeUnattended)
		return old["tool"] == t.Name && (same || change.alone())
	})
	if err != nil {
		return nil, told{}, err
	}
	f := facts{}
	if f.policies, err = v.policies(ctx); err != nil {
		return nil, told{}, err
	}
	if f.requests, err = v.requestsOf(ctx, server.Name); err != nil {
		return nil, told{}, err
	}
	if _, err := judgeEntry(change, server, f, f.seen(server, t.Name), fmt.Sprintf("%s would not run unattended on %s", t.Name, server.Name)); err != nil {
		return nil, told{}, err
	}
	before, err := describeEarned(server, t, earn(server, t, f.requests))
	return change, told{before: before, after: fmt.Sprintf(
		"Calls of %s on %s run without a person as soon as its gateways see it. To take it back: kubectl tidewaiter revoke %s %s --policy %s -n %s\n",
		glyph.Plain(t.Name), server.Name, server.Name, shellWord(t.Name), v.policy, v.namespace)}, err
}

// judgeEntry judges the server under the changed policy, and refuses an entry that would not be in force there.
func judgeEntry(change *edited, server *v1alpha1.GovernedServer, f facts, seen policy.Facts, without string) (*policy.Server, error) {
	changed, err := change.typed()
	if err != nil {
		return nil, err
	}
	compiled, err := f.policies.with(changed).compile(server, seen)
	if err != nil {
		return nil, err
	}
	for _, line := range compiled.NotInForce(&changed) {
		if line.Field == change.field() {
			return nil, notDone("nothing was changed: %s: %s (%s)", glyph.Plain(without), glyph.Plain(line.Message), line.Reason)
		}
	}
	return compiled, nil
}

func (v *policyVerb) revoke(_ context.Context, server *v1alpha1.GovernedServer, name string, stored *unstructured.Unstructured) (*edited, told, error) {
	change, err := editPolicy(stored, namedPolicy{v.namespace, v.policy}, server.Name)
	if err != nil {
		return nil, told{}, err
	}
	known := false
	err = change.put("autonomy", map[string]any{"tool": name, "mode": string(v1alpha1.ModeAttended)}, func(old map[string]any) bool {
		known = known || old["tool"] == name
		return old["tool"] == name
	})
	if err != nil {
		return nil, told{}, err
	}
	// A misspelt name would be kept attended for ever, and the tool that was meant would not.
	t, err := findTool(server, name)
	if err != nil && !known {
		return nil, told{}, unchanged(err)
	}
	if t.Tier == v1alpha1.TierRead {
		return nil, told{}, notDone("nothing was changed: %s is Read on %s, so its calls run without a person whatever its autonomy; "+
			"kubectl tidewaiter set-tier puts one before them", glyph.Plain(name), server.Name)
	}
	return change, told{after: fmt.Sprintf(
		"Every call of %s on %s needs approval, whatever another policy says: at each gateway within a second of the change reaching it,\n"+
			"and within 90 seconds at one that is cut off from the API server. Calls that were sent already are not called back.\n",
		glyph.Plain(name), server.Name)}, nil
}

// describeEarned tells what persons said yes to.
func describeEarned(server *v1alpha1.GovernedServer, t v1alpha1.ToolStatus, e earned) (string, error) {
	var text bytes.Buffer
	record := recordOf(server, t)
	lines := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(lines, "Tool:\t%s of %s, %s\n", glyph.Plain(t.Name), server.Name, t.Tier)
	fmt.Fprintf(lines, "Definition:\t%s\n", glyph.Plain(t.Digest))
	fmt.Fprintf(lines, "Record:\t%d clean approvals (%d needed), %d failed, %d denied\n",
		record.Approved, max(server.Spec.Autonomy.CleanApprovals, 1), record.Failed, record.Denied)
	if e.calls == 0 {
		fmt.Fprintf(lines, "Stored:\tnone of these calls\n")
	} else {
		fmt.Fprintf(lines, "Stored:\t%d of these calls, from %s to %s\n", e.calls, e.from.UTC().Format(time.RFC3339), e.to.UTC().Format(time.RFC3339))
	}
	if len(e.approvers) > 0 {
		var who []string
		for _, a := range e.approvers {
			who = append(who, fmt.Sprintf("%s (%d)", shortValue(a.word), a.count))
		}
		fmt.Fprintf(lines, "Approved by:\t%s\n", strings.Join(who, ", "))
	}
	if err := lines.Flush(); err != nil {
		return "", err
	}
	err := e.describeArguments(&text)
	return text.String() + "\n", err
}

// describeArguments tells what the calls were about, as far as it is stored.
func (e earned) describeArguments(text *bytes.Buffer) error {
	if len(e.arguments) > 0 {
		text.WriteString("What was said yes to; the promotion is not bound to it:\n")
	}
	rows := tabwriter.NewWriter(text, 0, 0, 3, ' ', 0)
	for i, a := range e.arguments {
		if i == 0 {
			fmt.Fprintln(rows, "  ARGUMENT\tCALLS\tVALUES")
		}
		fmt.Fprintf(rows, "  %s\t%d\t%s\n", shortValue(a.path), a.calls, a.values)
	}
	if e.more > 0 {
		fmt.Fprintf(rows, "  and %d more arguments\n", e.more)
	}
	if e.unread > 0 {
		fmt.Fprintf(rows, "  the arguments of %d calls are not stored\n", e.unread)
	}
	return rows.Flush()
}

// shellWord writes a name so that a shell takes it for one word.
func shellWord(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("_-./:", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return name
	}
	return "'" + strings.ReplaceAll(glyph.Plain(name), "'", `'\''`) + "'"
}
