// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

const (
	// fieldManager is who the API server is told writes.
	fieldManager = "kubectl-tidewaiter"
	// dryRunClient prints what would be written, as it is kept in Git.
	dryRunClient = "client"
)

// policyVerb is what promote, revoke and set-tier have in common: they write one entry of one ToolPolicy.
type policyVerb struct {
	*session
	*output

	policy string
	// edit makes the entry, and judges it: what would have no effect is refused before anything is written.
	edit func(ctx context.Context, server *v1alpha1.GovernedServer, tool string, stored *unstructured.Unstructured) (*edited, told, error)
}

// told is what a person is told of a change: before it, and once it was written.
type told struct{ before, after string }

func (v *policyVerb) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.policy, "policy", "", "the ToolPolicy to write; it is made if there is none of that name")
	v.addDryRunFlag(cmd.Flags(), dryRunClient)
	v.output = addOutputFlags(cmd, "text")
	// Only a flag that does not exist can make this fail.
	if err := cmd.RegisterFlagCompletionFunc("policy", v.completePolicies); err != nil {
		panic(err)
	}
}

func (v *policyVerb) complete() error {
	if v.policy == "" {
		return usageError{errors.New("name the ToolPolicy to write: --policy NAME; one that does not exist is made")}
	}
	return v.output.complete()
}

// run reads, judges, shows and writes; when somebody else wrote the policy meanwhile, all of it again.
func (v *policyVerb) run(ctx context.Context, serverName, tool string) error {
	if err := v.complete(); err != nil {
		return err
	}
	if err := v.connect(); err != nil {
		return err
	}
	shown := ""
	for try := range maxTries {
		server, err := v.server(ctx, serverName)
		if err != nil {
			return err
		}
		if try == 0 {
			if err := warnOfStale(v.ErrOut, server); err != nil {
				return err
			}
		}
		stored, err := v.storedPolicy(ctx)
		if err != nil {
			return err
		}
		change, text, err := v.edit(ctx, server, tool, stored)
		if err != nil {
			return err
		}
		text.before += changesOf(change)
		if text.before != shown {
			shown = text.before
			if _, err := io.WriteString(v.forReading(), shown); err != nil {
				return err
			}
		}
		err = v.finish(ctx, change, text.after)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return refusedPolicy(err)
		}
	}
	return notDone("nothing was changed: ToolPolicy %s changes all the time; try again", glyph.Plain(v.policy))
}

// forReading is where text goes: with an output for programs it must not stand in it.
func (v *policyVerb) forReading() io.Writer {
	if v.forPeople() {
		return v.Out
	}
	return v.ErrOut
}

func changesOf(change *edited) string {
	if len(change.said) == 0 {
		return ""
	}
	text := fmt.Sprintf("ToolPolicy %s:\n  %s\n\n", glyph.Plain(change.after.GetName()), strings.Join(change.said, "\n  "))
	if targets := change.targets(); len(targets) > 1 {
		text += fmt.Sprintf("The entry reaches every target of the policy: %s.\n\n", glyph.Plain(strings.Join(targets, ", ")))
	}
	return text
}

// finish writes the change, or does not where it is a dry run, and prints what came of it.
func (v *policyVerb) finish(ctx context.Context, change *edited, after string) error {
	outcome, result := "configured", change.after
	var err error
	switch {
	case len(change.said) == 0:
		outcome = "unchanged"
	case v.dryRun.value == dryRunClient:
		result = change.manifest()
	default:
		result, err = v.apply(ctx, change)
	}
	if err != nil {
		return err
	}
	if change.before == nil {
		outcome = "created"
	}
	if by := change.appliedBy(); by != "" && len(change.said) > 0 {
		if _, err := fmt.Fprintf(v.ErrOut, "Warning: ToolPolicy %s is applied from elsewhere, by %s: the next time may undo this. "+
			"Put it there too: --dry-run=client -o yaml prints it\n", glyph.Plain(v.policy), glyph.Plain(by)); err != nil {
			return err
		}
	}
	if !v.forPeople() {
		result.SetManagedFields(nil)
		return v.object(v.Out, v.client, result)
	}
	dry := v.dryRun.suffix()
	if v.dryRun.value == dryRunClient {
		dry = " (dry run)"
	}
	if dry != "" || len(change.said) == 0 {
		after = ""
	}
	_, err = fmt.Fprintf(v.Out, "toolpolicy.%s/%s %s%s\n%s", v1alpha1.GroupVersion.Group, v.policy, outcome, dry, after)
	return err
}

// apply writes the list that was edited, under the version of the policy that was read.
func (v *policyVerb) apply(ctx context.Context, change *edited) (*unstructured.Unstructured, error) {
	result := change.after.DeepCopy()
	if change.before == nil {
		return result, v.client.Create(ctx, result, client.FieldOwner(fieldManager))
	}
	list, _, err := unstructured.NestedSlice(change.after.Object, "spec", change.list)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal([]patchOperation{
		{Op: "replace", Path: "/metadata/resourceVersion", Value: change.before.GetResourceVersion()},
		{Op: "add", Path: "/spec/" + change.list, Value: list},
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return result, v.client.Patch(ctx, result, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldManager))
}

// refusedPolicy gives a refusal of the API server in its own words: they name the right that is missing, and where.
func refusedPolicy(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return notDone("nothing was changed: %s", refusal(err))
	}
	return err
}

// unchanged says beside why a policy was not edited that it was not.
func unchanged(err error) error { return fmt.Errorf("nothing was changed: %w", err) }

// server reads a GovernedServer.
func (s *session) server(ctx context.Context, name string) (*v1alpha1.GovernedServer, error) {
	server := &v1alpha1.GovernedServer{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, server)
	switch {
	case apierrors.IsNotFound(err):
		return nil, notDone("there is no GovernedServer %s in namespace %s; those that are there: kubectl get gsrv -n %s", glyph.Plain(name), s.namespace, s.namespace)
	case err != nil:
		return nil, fmt.Errorf("read GovernedServer: %w", err)
	}
	return server, nil
}

// storedPolicy reads the policy that was named, with all its fields; nil means that there is none.
func (v *policyVerb) storedPolicy(ctx context.Context) (*unstructured.Unstructured, error) {
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(policyKind)
	err := v.client.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: v.policy}, stored)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no policy is no error here
	case err != nil:
		return nil, fmt.Errorf("read ToolPolicy: %w", err)
	}
	return stored, nil
}

// requestsOf reads the requests of a server. Those who set policy need not be allowed to read them: the record counts
// the same calls, and nothing but what they were about cannot be shown.
func (s *session) requestsOf(ctx context.Context, server string) ([]v1alpha1.ApprovalRequest, error) {
	var list v1alpha1.ApprovalRequestList
	err := s.client.List(ctx, &list, client.InNamespace(s.namespace), client.MatchingFields{"spec.serverRef.name": server})
	if apierrors.IsForbidden(err) {
		_, err := fmt.Fprintf(s.ErrOut, "Warning: the calls that earned it cannot be shown: %s\n", refusal(err))
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("list ApprovalRequests: %w", err)
	}
	return list.Items, nil
}

// completeTools offers servers for the first argument, their tools for the second, and tiers for a third.
func (s *session) completeTools(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	var words []string
	switch len(given) {
	case 0:
		return s.completeServers(cmd, given, typed)
	case 1:
		if s.connect() != nil {
			break
		}
		server, err := s.server(cmd.Context(), given[0])
		if err != nil {
			break
		}
		for _, t := range server.Status.Tools {
			if shellWord(t.Name) == t.Name {
				words = append(words, cobra.CompletionWithDesc(t.Name, string(t.Tier)))
			}
		}
	case 2:
		if cmd.Flag("reason") == nil {
			break
		}
		for _, tier := range tiers {
			words = append(words, string(tier))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completePolicies offers the policies of the namespace that may be edited here: no baselines.
func (s *session) completePolicies(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if s.connect() == nil {
		policies, err := s.ownPolicies(cmd.Context())
		for i := range policies {
			if err == nil && !isBaseline(&policies[i]) {
				names = append(names, policies[i].Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
