// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// setTierOptions are the arguments of set-tier.
type setTierOptions struct {
	policyVerb

	tier   v1alpha1.Tier
	reason string
}

func newSetTierCommand(s *session) *cobra.Command {
	o := &setTierOptions{policyVerb: policyVerb{session: s}}
	o.edit = o.setTier
	cmd := &cobra.Command{
		Use:   "set-tier SERVER TOOL TIER --policy NAME --reason TEXT",
		Short: "Say what risk a tool is, where the classifier is wrong",
		Long: `Set the tier of a tool to Read, Reversible or Irreversible, by an override in a ToolPolicy.

Below the classified tier the override names the definition that the tool has now: when the
server changes it, the classified tier holds again. At or above the classified tier it
holds for every definition. Of several overrides the strictest holds, and none goes below
the server's minimumTier: one that would have no effect is refused.

It takes the verb govern on governedservers/authority for every server that the policy
targets. What is kept in Git is printed by --dry-run=client -o yaml.

Exit codes: 0 set, 1 not set (the message says why), 2 not understood.`,
		Example:           `  kubectl tidewaiter set-tier billing send_invoice Reversible --policy billing --reason "an invoice can be voided"`,
		Args:              usage(o.arguments),
		ValidArgsFunction: s.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(o.reason) == "" {
				return usageError{errors.New("say why, for those who read the policy later: --reason TEXT")}
			}
			if err := checkReason(o.reason, maxTierReason); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0], args[1])
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for those who read the policy and the receipts later")
	return cmd
}

// maxTierReason is how many characters the reason of an override may have.
const maxTierReason = 512

// tiers are the words of a tier.
var tiers = []v1alpha1.Tier{v1alpha1.TierRead, v1alpha1.TierReversible, v1alpha1.TierIrreversible}

// arguments wants a server, a tool and a tier.
func (o *setTierOptions) arguments(_ *cobra.Command, given []string) error {
	if len(given) != 3 {
		return fmt.Errorf("give the name of a GovernedServer, one of its tools, and the tier; %s", countOf(len(given), "word"))
	}
	for _, tier := range tiers {
		if strings.EqualFold(given[2], string(tier)) {
			o.tier = tier
			return nil
		}
	}
	return fmt.Errorf("the tier %q is none of Read, Reversible and Irreversible", given[2])
}

func (o *setTierOptions) setTier(ctx context.Context, server *v1alpha1.GovernedServer, name string, stored *unstructured.Unstructured) (*edited, told, error) {
	t, err := findTool(server, name)
	if err != nil {
		return nil, told{}, unchanged(err)
	}
	change, err := editPolicy(stored, namedPolicy{o.namespace, o.policy}, server.Name)
	if err != nil {
		return nil, told{}, err
	}
	entry := o.override(t)
	err = change.put("tiers", entry, func(old map[string]any) bool {
		globs, _ := old["tools"].([]any)
		byName := len(globs) == 1 && globs[0] == t.Name
		same := old["tier"] == string(o.tier) && (entry["digest"] == nil && byName || entry["digest"] != nil && entry["digest"] == old["digest"])
		return (old["tool"] == t.Name || byName) && (same || change.alone())
	})
	if err != nil {
		return nil, told{}, err
	}
	f := facts{}
	if f.policies, err = o.policies(ctx); err != nil {
		return nil, told{}, err
	}
	was, err := f.policies.compile(server, policy.Facts{})
	if err != nil {
		return nil, told{}, err
	}
	will, err := judgeEntry(change, server, f, policy.Facts{}, fmt.Sprintf("%s would not become %s on %s", t.Name, o.tier, server.Name))
	if err != nil {
		return nil, told{}, err
	}
	before, _ := was.Standing(t.Name)
	after, _ := will.Standing(t.Name)
	return change, told{before: describeTiers(t, before, after)}, nil
}

// override returns the entry: below the classified tier it is about one definition. A name that would be taken for a
// pattern is given in the other form, which stands for itself.
func (o *setTierOptions) override(t v1alpha1.ToolStatus) map[string]any {
	entry := map[string]any{"tier": string(o.tier), "reason": o.reason}
	if t.ClassifiedTier.StricterThan(o.tier) || strings.ContainsAny(t.Name, `*?[]{}\`) {
		entry["tool"], entry["digest"] = t.Name, t.Digest
		return entry
	}
	entry["tools"] = []any{t.Name}
	return entry
}

// describeTiers tells what the override changes.
func describeTiers(t v1alpha1.ToolStatus, before, after policy.Standing) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Tool:     %s\n", glyph.Plain(t.Name))
	fmt.Fprintf(&text, "Now:      %s, by %s: %s\n", before.Tier, before.Source, glyph.Plain(before.Reason))
	fmt.Fprintf(&text, "Will be:  %s: %s\n", after.Tier, consequence(after))
	if before.Autonomy == v1alpha1.AutonomyUnattended && after.Autonomy != v1alpha1.AutonomyUnattended {
		text.WriteString("          A promotion of the tool will no longer be in force.\n")
	}
	text.WriteString("\n")
	return text.String()
}

// consequence says what happens to calls of a tool.
func consequence(s policy.Standing) string {
	switch {
	case s.Tier == v1alpha1.TierRead:
		return "its calls run at once, without a person"
	case s.Autonomy == v1alpha1.AutonomyUnattended:
		return "a promotion is in force, so its calls run without a person"
	case s.Tier == v1alpha1.TierReversible:
		return "a call needs approval, until the tool has earned autonomy and is promoted"
	default:
		return "every call needs approval, for ever"
	}
}
