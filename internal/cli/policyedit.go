// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// A ToolPolicy is edited as it is stored, and not as this version of the plugin knows it: fields of a later version
// stay. The lists of a policy are atomic, so server-side apply cannot own one entry of them: it would own, and replace,
// the whole list. The whole list is written instead, under the resource version that was read, so that no entry of
// anybody else is lost.

// policyKind is the kind of the policies that are written.
var policyKind = v1alpha1.GroupVersion.WithKind("ToolPolicy")

// edited is a policy with one entry added or changed.
type edited struct {
	// before is the policy as it was read, nil where there is none.
	before *unstructured.Unstructured
	after  *unstructured.Unstructured
	// list is the list of spec that has the entry, and index its place there.
	list  string
	index int
	// said has a line for everything that changed; none when nothing did.
	said []string
}

// editPolicy starts with the policy as it is stored, or with a new one for the server. A policy that does not target
// the server is not widened: all of its other entries would reach the server too.
func editPolicy(stored *unstructured.Unstructured, key namedPolicy, server string) (*edited, error) {
	if stored == nil {
		created := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"targets": []any{server}}}}
		created.SetGroupVersionKind(policyKind)
		created.SetNamespace(key.namespace)
		created.SetName(key.name)
		return &edited{after: created}, nil
	}
	e := &edited{before: stored, after: stored.DeepCopy()}
	if selector, _, _ := unstructured.NestedFieldNoCopy(stored.Object, "spec", "namespaceSelector"); selector != nil {
		return nil, notDone("nothing was changed: ToolPolicy %s is a baseline, and an entry would reach every server that it covers, not %s alone; "+
			"name another policy (one that does not exist is made)", glyph.Plain(key.name), glyph.Plain(server))
	}
	if !slices.Contains(e.targets(), server) {
		return nil, notDone("nothing was changed: ToolPolicy %s does not target %s, and all its entries would reach %s if it did; "+
			"name another policy (one that does not exist is made), or add %s to its spec.targets first",
			glyph.Plain(key.name), glyph.Plain(server), glyph.Plain(server), glyph.Plain(server))
	}
	return e, nil
}

// namedPolicy is the policy that a person named.
type namedPolicy struct{ namespace, name string }

// targets and entries read what the schema promises to be there in that form.
func (e *edited) targets() []string {
	targets, _, _ := unstructured.NestedStringSlice(e.after.Object, "spec", "targets")
	return targets
}

// alone tells whether the policy reaches no other server: then an entry that the new one overtakes means nothing to
// anybody else, and may go.
func (e *edited) alone() bool { return len(e.targets()) == 1 }

func (e *edited) entries(list string) []map[string]any {
	stored, _, _ := unstructured.NestedSlice(e.after.Object, "spec", list)
	entries := make([]map[string]any, 0, len(stored)+1)
	for _, one := range stored {
		entry, _ := one.(map[string]any)
		entries = append(entries, entry)
	}
	return entries
}

// put makes entry one of the list. It stands in the place of the first entry that replaces tells of; others that
// replaces tells of go. With none it comes last. An entry with a field that this version does not know is not replaced:
// the field may be what narrows it, as when does. To keep a tool attended is as narrow as can be.
func (e *edited) put(list string, entry map[string]any, replaces func(map[string]any) bool) error {
	e.list, e.index = list, -1
	var kept []any
	for i, old := range e.entries(list) {
		replaced := replaces(old)
		if when, _ := old["when"].(string); replaced && when != "" && entry["mode"] != string(v1alpha1.ModeAttended) {
			return notDone("nothing was changed: spec.%s[%d] of ToolPolicy %s is for some calls only (when: %s), and would be replaced by one for every call; "+
				"edit the policy", list, i, glyph.Plain(e.after.GetName()), shortValue(when))
		}
		if unknown := unknownField(old); replaced && unknown != "" && entry["mode"] != string(v1alpha1.ModeAttended) {
			return notDone("nothing was changed: spec.%s[%d] of ToolPolicy %s has the field %s, which this kubectl-tidewaiter does not know; "+
				"use a newer one, or edit the policy", list, i, glyph.Plain(e.after.GetName()), glyph.Plain(unknown))
		}
		switch {
		case !replaced:
			kept = append(kept, old)
		case e.index >= 0:
			e.say("spec.%s[%d] is taken out:", i, old)
		default:
			e.index = len(kept)
			kept = append(kept, entry)
			if !sameEntry(old, entry) {
				e.say("spec.%s[%d] is changed from:", i, old)
				e.say("spec.%s[%d] is changed to:", e.index, entry)
			}
		}
	}
	if e.index < 0 {
		e.index = len(kept)
		kept = append(kept, entry)
		e.say("spec.%s[%d] is added:", e.index, entry)
	}
	return unstructured.SetNestedSlice(e.after.Object, kept, "spec", list)
}

// unknownField returns a field of an entry that this version of the plugin does not know, "" for none.
func unknownField(entry map[string]any) string {
	for _, field := range slices.Sorted(maps.Keys(entry)) {
		if !slices.Contains([]string{"tool", "tools", "digest", "mode", "when", "tier", "reason"}, field) {
			return field
		}
	}
	return ""
}

func (e *edited) say(format string, index int, entry map[string]any) {
	e.said = append(e.said, fmt.Sprintf(format, e.list, index))
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		e.said = append(e.said, fmt.Sprintf("  %s: %v", glyph.Plain(key), glyph.Plain(fmt.Sprint(entry[key]))))
	}
}

// sameEntry compares entries of scalars and lists of scalars.
func sameEntry(a, b map[string]any) bool {
	return maps.EqualFunc(a, b, func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) })
}

// field names the entry as status.notInForce does.
func (e *edited) field() string { return fmt.Sprintf("spec.%s[%d]", e.list, e.index) }

// typed returns the policy as it would be, as far as this version knows its fields.
func (e *edited) typed() (v1alpha1.ToolPolicy, error) {
	var p v1alpha1.ToolPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.after.Object, &p); err != nil {
		return p, fmt.Errorf("read ToolPolicy %s: %w", e.after.GetName(), err)
	}
	return p, nil
}

// manifest returns the policy as it is kept in Git: without what the cluster adds.
func (e *edited) manifest() *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"spec": e.after.Object["spec"]}}
	m.SetGroupVersionKind(policyKind)
	m.SetNamespace(e.after.GetNamespace())
	m.SetName(e.after.GetName())
	m.SetLabels(e.after.GetLabels())
	annotations := e.after.GetAnnotations()
	delete(annotations, lastApplied)
	if len(annotations) > 0 {
		m.SetAnnotations(annotations)
	}
	return m
}

// lastApplied is where kubectl apply keeps what it applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// appliedBy returns who applies the policy from elsewhere, "" for nobody: what is written here, they may undo.
func (e *edited) appliedBy() string {
	if e.before == nil {
		return ""
	}
	for _, entry := range e.before.GetManagedFields() {
		if entry.Operation == "Apply" {
			return entry.Manager
		}
	}
	if e.before.GetAnnotations()[lastApplied] != "" {
		return "kubectl apply"
	}
	return ""
}
