// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// completeRequests offers the names of requests in some phases, for as many arguments as the verb takes.
func (s *session) completeRequests(most int, phases ...v1alpha1.Phase) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(given) >= most || s.connect() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var list v1alpha1.ApprovalRequestList
		if s.client.List(cmd.Context(), &list, client.InNamespace(s.namespace)) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for i := range list.Items {
			r := &list.Items[i]
			if (len(phases) == 0 || slices.Contains(phases, r.CurrentPhase())) && !slices.Contains(given, r.Name) {
				names = append(names, cobra.CompletionWithDesc(r.Name, cell(r.Spec.Tool, maxCell)))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeServers offers the names of GovernedServers for the first argument.
func (s *session) completeServers(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 || s.connect() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list v1alpha1.GovernedServerList
	if s.client.List(cmd.Context(), &list, client.InNamespace(s.namespace)) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
