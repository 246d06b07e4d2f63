// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/manifest"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// templates says where the pods of a kind are described.
var templates = map[string][]string{
	"v1/Pod":                   {},
	"v1/ReplicationController": {"spec", "template"},
	"apps/v1/Deployment":       {"spec", "template"},
	"apps/v1/StatefulSet":      {"spec", "template"},
	"apps/v1/DaemonSet":        {"spec", "template"},
	"apps/v1/ReplicaSet":       {"spec", "template"},
	"batch/v1/Job":             {"spec", "template"},
	"batch/v1/CronJob":         {"spec", "jobTemplate", "spec", "template"},
}

// injectOptions are the flags of inject.
type injectOptions struct {
	*session

	files    []string
	settings sidecar.Settings
	// servers of the files, by namespace and name.
	servers map[client.ObjectKey]*v1alpha1.GovernedServer
}

// newInjectCommand returns the verb that prints what the operator makes of a pod.
func newInjectCommand(s *session) *cobra.Command {
	o := &injectOptions{session: s, servers: map[client.ObjectKey]*v1alpha1.GovernedServer{}}
	cmd := &cobra.Command{
		Use:   "inject -f FILE",
		Short: "Print manifests with the gateway in the pods that ask for it",
		Long: `Print manifests with the gateway in the pods that ask for it by the label
tidewaiter.dev/govern, as the operator puts it in when they are created. Pods, Deployments,
StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs and Lists of
them are looked at; every other document is printed as it is. Injecting what was injected changes nothing.

The GovernedServers are those of the files, or else of the cluster, which also says what the
root key of the votes is unless --voting-root-key does. Give the operator and this command
the same --gateway flags.`,
		Example: `  kubectl tidewaiter inject -f billing.yaml | kubectl apply -f -

  # Without a cluster
  kubectl tidewaiter inject -f billing.yaml --voting-root-key KEY`,
		Args: usage(noNames),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.files) == 0 {
				return usageError{errors.New("give -f FILE, or -f - for standard input")}
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "file or directory with manifests, or - for standard input; may be repeated")
	cmd.Flags().StringVar(&o.settings.VotingRoot, "voting-root-key", "", "entry root of the ConfigMap tidewaiter-voting-keys. Default: read from the cluster")
	o.settings.AddFlags(cmd.Flags())
	return cmd
}

func (o *injectOptions) run(ctx context.Context) error {
	files, err := readFiles(o.In, o.files, isManifest)
	if err != nil {
		return err
	}
	if err := o.readNamespace(); err != nil {
		return err
	}
	o.settings.OperatorNamespace = o.operatorNamespace
	var all []piece
	for _, f := range files {
		if len(f.data) > manifest.MaxBytes {
			return fmt.Errorf("%s is larger than %d bytes", f.path, manifest.MaxBytes)
		}
		pieces, err := cutDocuments(f)
		if err != nil {
			return err
		}
		all = append(all, pieces...)
	}
	for i := range all {
		if err := all[i].read(); err != nil {
			return err
		}
		if err := o.note(all[i].value); err != nil {
			return fmt.Errorf("%s: %w", all[i].path, err)
		}
	}
	var out bytes.Buffer
	for i, p := range all {
		text, err := o.document(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		if i > 0 && all[i-1].path != p.path { // files become one, and the last line of one may have no end
			if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
				out.WriteString("\n")
			}
			if p.first {
				out.WriteString("---\n")
			}
		}
		out.Write(text)
	}
	_, err = o.Out.Write(out.Bytes())
	return err
}

// piece is one document of a file, with the line that begins it.
type piece struct {
	path   string
	marker []byte // the line with ---, if there is one
	text   []byte
	first  bool // of its file, without a marker
	value  map[string]any
}

// cutDocuments splits a file at the lines that begin with ---, without losing a byte. What stands beside the mark is
// refused, as kubectl does: it would pass unseen.
func cutDocuments(f sourceFile) ([]piece, error) {
	pieces, number := []piece{{path: f.path}}, 0
	for line := range bytes.Lines(f.data) {
		number++
		last := &pieces[len(pieces)-1]
		rest, marks := bytes.CutPrefix(line, []byte("---"))
		if !marks || bytes.HasPrefix(rest, []byte("-")) {
			last.text = append(last.text, line...)
			continue
		}
		if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
			return nil, fmt.Errorf("%s: line %d: nothing but a comment may stand beside ---: put it on the next line", f.path, number)
		}
		pieces = append(pieces, piece{path: f.path, marker: line})
	}
	if len(pieces[0].text) == 0 && len(pieces) > 1 {
		return pieces[1:], nil
	}
	pieces[0].first = true
	return pieces, nil
}

// read parses the document; one that is no object stays as it is.
func (p *piece) read() error {
	raw, err := kyaml.YAMLToJSONStrict(p.text)
	if err != nil {
		return fmt.Errorf("%s: not valid YAML: %s", p.path, glyph.Plain(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	value := map[string]any{}
	if err := utiljson.Unmarshal(raw, &value); err == nil {
		p.value = value
	}
	return nil
}

// itemsOf returns the objects of a document: itself, or those of a List, or of a list of one kind. There the API server
// leaves out what each of them is.
func itemsOf(value map[string]any) []map[string]any {
	kind, _ := value["kind"].(string)
	of, isList := strings.CutSuffix(kind, "List")
	items, ok := value["items"].([]any)
	if !ok || !isList {
		return []map[string]any{value}
	}
	var all []map[string]any
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			continue
		}
		if object["kind"] == nil && object["apiVersion"] == nil && of != "" {
			object["kind"], object["apiVersion"] = of, value["apiVersion"]
		}
		all = append(all, itemsOf(object)...)
	}
	return all
}

// note remembers the GovernedServers of a document.
func (o *injectOptions) note(value map[string]any) error {
	for _, item := range itemsOf(value) {
		if item["kind"] != "GovernedServer" || item["apiVersion"] != v1alpha1.GroupVersion.String() {
			continue
		}
		raw, err := json.Marshal(item)
		if err != nil {
			return err
		}
		server := &v1alpha1.GovernedServer{}
		if err := json.Unmarshal(raw, server); err != nil {
			return fmt.Errorf("read a GovernedServer: %w", err)
		}
		server.Namespace = o.namespaceOf(item)
		o.servers[client.ObjectKeyFromObject(server)] = server
	}
	return nil
}

// namespaceOf is where an object would go.
func (o *injectOptions) namespaceOf(item map[string]any) string {
	if written, _, _ := unstructured.NestedString(item, "metadata", "namespace"); written != "" {
		return written
	}
	return o.namespace
}

// document returns the text of a document with the gateway in its pods, or as it was where none asks for it.
func (o *injectOptions) document(ctx context.Context, p piece) ([]byte, error) {
	changed := false
	for _, item := range itemsOf(p.value) {
		injected, err := o.inject(ctx, item)
		if err != nil {
			return nil, err
		}
		changed = changed || injected
	}
	if !changed {
		return slices.Concat(p.marker, p.text), nil
	}
	text, err := kyaml.Marshal(p.value)
	return slices.Concat(p.marker, text), err
}

// inject changes an object in place and tells whether it did.
func (o *injectOptions) inject(ctx context.Context, item map[string]any) (bool, error) {
	version, _ := item["apiVersion"].(string)
	kind, _ := item["kind"].(string)
	path, known := templates[version+"/"+kind]
	if !known {
		return false, nil
	}
	name, _, _ := unstructured.NestedString(item, "metadata", "name")
	template, found, err := unstructured.NestedFieldNoCopy(item, path...)
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	if !found {
		return false, nil // the API server says that it is missing
	}
	raw, err := json.Marshal(template)
	if err != nil {
		return false, err
	}
	labels, err := sidecar.Labels(raw)
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	asked, ok := labels[v1alpha1.GovernLabel]
	if !ok {
		if _, misplaced, _ := unstructured.NestedString(item, "metadata", "labels", v1alpha1.GovernLabel); misplaced {
			return false, fmt.Errorf("%s %s: the label %s belongs into the template of the pods", kind, name, v1alpha1.GovernLabel)
		}
		return false, nil
	}
	patched, err := o.patch(ctx, item, asked, raw)
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	if len(path) == 0 {
		clear(item)
		maps.Copy(item, patched)
		return true, nil
	}
	return true, unstructured.SetNestedMap(item, patched, path...)
}

// patch returns a template with the gateway in it, and tells of what weakens it.
func (o *injectOptions) patch(ctx context.Context, item map[string]any, asked string, raw []byte) (map[string]any, error) {
	namespace := o.namespaceOf(item)
	if namespace == o.operatorNamespace {
		return nil, errors.New("no pod of the operator's own namespace is governed: take the label out")
	}
	server, err := o.server(ctx, client.ObjectKey{Namespace: namespace, Name: asked})
	if err != nil {
		return nil, err
	}
	if err := o.root(ctx); err != nil {
		return nil, err
	}
	change, err := sidecar.Patch(raw, server, o.settings)
	if err != nil {
		return nil, err
	}
	for _, warning := range change.Warnings {
		fmt.Fprintln(o.ErrOut, "Warning: "+glyph.Plain(warning))
	}
	operations, err := json.Marshal(change.Operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(raw)
	if err != nil {
		return nil, err
	}
	patched := map[string]any{}
	return patched, utiljson.Unmarshal(after, &patched)
}

// server returns the one of the files, or of the cluster; nil for none.
func (o *injectOptions) server(ctx context.Context, key client.ObjectKey) (*v1alpha1.GovernedServer, error) {
	if server := o.servers[key]; server != nil {
		return server, nil
	}
	if err := o.connect(); err != nil {
		return nil, err
	}
	server := &v1alpha1.GovernedServer{}
	switch err := o.client.Get(ctx, key, server); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read GovernedServer %s: %w", key, err)
	}
	return server, nil
}

// root reads the root key of the votes, once.
func (o *injectOptions) root(ctx context.Context) error {
	if o.settings.VotingRoot != "" {
		return nil
	}
	if err := o.connect(); err != nil {
		return err
	}
	published := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: o.operatorNamespace, Name: v1alpha1.VotingKeys}
	if err := o.client.Get(ctx, key, published); err != nil {
		return fmt.Errorf("read the root key of the votes from ConfigMap %s, or give --voting-root-key: %w", key, err)
	}
	o.settings.VotingRoot = published.Data[vote.RootEntry]
	return nil
}
