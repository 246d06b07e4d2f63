// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// viewVersion is the version of what tools and trust print as data: views that the plugin makes, and no kinds of the API.
const viewVersion = "cli.tidewaiter.dev/v1alpha1"

// toolView is one tool of a server, with its tier, its record and where it stands.
type toolView struct {
	Server         string              `json:"server"`
	Tool           string              `json:"tool"`
	Tier           v1alpha1.Tier       `json:"tier"`
	ClassifiedTier v1alpha1.Tier       `json:"classifiedTier"`
	Source         v1alpha1.TierSource `json:"source"`
	Reason         string              `json:"reason"`
	Autonomy       v1alpha1.Autonomy   `json:"autonomy"`
	Approved       int32               `json:"approved"`
	Failed         int32               `json:"failed"`
	Denied         int32               `json:"denied"`
	Ambiguous      int32               `json:"ambiguous"`
	Digest         string              `json:"digest"`
}

func newToolsCommand(s *session) *cobra.Command {
	o := &toolsOptions{session: s}
	cmd := &cobra.Command{
		Use:   "tools SERVER",
		Short: "Show the tools of a server: their tier, the evidence for it, and their record",
		Long: `Show every tool that a GovernedServer lists: the tier that is in force, what decided it and
the evidence, where the tool stands on its way to run unattended, and its track record.
-o wide adds the tier that the classifier gave and the digest of the definition.

Exit codes: 0 done, 1 not done, 2 not understood.`,
		Example: `  kubectl tidewaiter tools billing
  kubectl tidewaiter tools billing -o json`,
		Args:              usage(oneServer),
		ValidArgsFunction: s.completeServers,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.output = addOutputFlags(cmd, "table", "wide")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "then show every tool that changes, until it is stopped")
	return cmd
}

// oneServer wants the name of one server.
func oneServer(_ *cobra.Command, given []string) error {
	if len(given) != 1 {
		return fmt.Errorf("give the name of one GovernedServer; %s", countOf(len(given), "name"))
	}
	return nil
}

// toolsOptions are the flags of tools.
type toolsOptions struct {
	*session
	*output

	watch bool
}

func (o *toolsOptions) run(ctx context.Context, name string) error {
	if err := o.complete(); err != nil {
		return err
	}
	if o.watch && !o.forPeople() {
		return usageError{errors.New("--watch goes with a table: give -o table or -o wide")}
	}
	if err := o.connect(); err != nil {
		return err
	}
	server, err := o.server(ctx, name)
	if err != nil {
		return err
	}
	if err := warnOfStale(o.ErrOut, server); err != nil {
		return err
	}
	views := viewTools(server)
	if !o.forPeople() {
		return printViews(o.output, o.Out, "ToolList", views, func(v toolView) string { return v.Tool })
	}
	rows := o.newTable(o.Out, "TOOL", "TIER", "SOURCE", "+CLASSIFIED", "AUTONOMY", "APPROVED", "FAILED", "DENIED", "AMBIGUOUS", "+DIGEST", "REASON")
	if err := rows.print(toolRows(views)...); err != nil {
		return err
	}
	if !o.watch {
		return nil
	}
	return o.follow(ctx, server, rows)
}

// warnOfStale tells that what is shown may not be so any more.
func warnOfStale(out io.Writer, server *v1alpha1.GovernedServer) error {
	ready := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		_, err := fmt.Fprintf(out, "Warning: %s was not looked at yet: is the manager running?\n", server.Name)
		return err
	case ready.Status != "True":
		_, err := fmt.Fprintf(out, "Warning: %s is not ready (%s): %s\n", server.Name, glyph.Plain(ready.Reason), glyph.Plain(ready.Message))
		return err
	}
	return nil
}

// viewTools joins the tools of a server with their records.
func viewTools(server *v1alpha1.GovernedServer) []toolView {
	views := make([]toolView, 0, len(server.Status.Tools))
	for _, t := range server.Status.Tools {
		r := recordOf(server, t)
		views = append(views, toolView{
			Server: server.Name, Tool: t.Name, Tier: t.Tier, ClassifiedTier: t.ClassifiedTier, Source: t.Source, Reason: t.Reason,
			Autonomy: r.Autonomy, Approved: r.Approved, Failed: r.Failed, Denied: r.Denied, Ambiguous: r.Ambiguous, Digest: t.Digest,
		})
	}
	return views
}

func toolRows(views []toolView) [][]string {
	rows := make([][]string, 0, len(views))
	for _, v := range views {
		rows = append(rows, []string{
			v.Tool, string(v.Tier), string(v.Source), string(v.ClassifiedTier), string(v.Autonomy),
			number(v.Approved), number(v.Failed), number(v.Denied), number(v.Ambiguous), v.Digest, v.Reason,
		})
	}
	return rows
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// printViews prints views as data: as one list, or their names alone.
func printViews[T any](o *output, out io.Writer, kind string, views []T, name func(T) string) error {
	if *o.flags.OutputFormat == "name" {
		for _, view := range views {
			if _, err := fmt.Fprintln(out, glyph.Plain(name(view))); err != nil {
				return err
			}
		}
		return nil
	}
	items := make([]any, 0, len(views))
	for i := range views {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&views[i])
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	list := &unstructured.Unstructured{Object: map[string]any{"apiVersion": viewVersion, "kind": kind, "items": items}}
	return o.printer.PrintObj(list, out)
}

// follow prints the rows of tools that change, until the person stops it.
func (o *toolsOptions) follow(ctx context.Context, server *v1alpha1.GovernedServer, rows *table) error {
	shown := map[string]toolView{}
	for _, v := range viewTools(server) {
		shown[v.Tool] = v
	}
	list := &v1alpha1.GovernedServerList{}
	watcher, err := o.client.Watch(ctx, list, client.InNamespace(o.namespace), client.MatchingFields{"metadata.name": server.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: server.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watch GovernedServer: %w", err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		switch object := event.Object.(type) {
		case *v1alpha1.GovernedServer:
			if event.Type == watch.Deleted {
				return notDone("GovernedServer %s was deleted", server.Name)
			}
			var changed []toolView
			for _, v := range viewTools(object) {
				if shown[v.Tool] != v {
					shown[v.Tool] = v
					changed = append(changed, v)
				}
			}
			if err := rows.print(toolRows(changed)...); err != nil {
				return err
			}
		default:
			if ctx.Err() != nil {
				return nil // the person stopped it
			}
			return fmt.Errorf("watch GovernedServer: %w", apierrors.FromObject(event.Object))
		}
	}
	return nil
}
