// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// laterPolicy is a policy of a later version, with fields that this one does not know.
func laterPolicy() *unstructured.Unstructured {
	p := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "ToolPolicy",
		"metadata": map[string]any{
			"name": "billing", "namespace": "default", "resourceVersion": "7", "uid": "u", "generation": int64(3),
			"labels":      map[string]any{"team": "finance"},
			"annotations": map[string]any{lastApplied: "{}"},
		},
		"spec": map[string]any{
			"targets": []any{"billing"}, "pins": []any{"later"},
			"autonomy": []any{
				map[string]any{"tool": "void_invoice", "mode": "Attended", "until": "spring"},
				map[string]any{"tool": "refund_invoice", "mode": "Unattended", "digest": "old", "until": "autumn"},
				map[string]any{"tool": "refund_invoice", "mode": "Attended"},
			},
		},
	}}
	return p
}

func ofTool(tool string) func(map[string]any) bool {
	return func(old map[string]any) bool { return old["tool"] == tool }
}

func TestFieldsOfALaterVersionStay(t *testing.T) {
	t.Parallel()
	change, err := editPolicy(laterPolicy(), namedPolicy{"default", "billing"}, "billing")
	if err != nil {
		t.Fatal(err)
	}
	if err := change.put("autonomy", map[string]any{"tool": "pay", "mode": "Unattended", "digest": "d"}, ofTool("pay")); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "ToolPolicy",
		"metadata": map[string]any{"name": "billing", "namespace": "default", "labels": map[string]any{"team": "finance"}},
		"spec": map[string]any{
			"targets": []any{"billing"}, "pins": []any{"later"},
			"autonomy": []any{
				map[string]any{"tool": "void_invoice", "mode": "Attended", "until": "spring"},
				map[string]any{"tool": "refund_invoice", "mode": "Unattended", "digest": "old", "until": "autumn"},
				map[string]any{"tool": "refund_invoice", "mode": "Attended"},
				map[string]any{"tool": "pay", "mode": "Unattended", "digest": "d"},
			},
		},
	}
	if diff := cmp.Diff(want, change.manifest().Object); diff != "" {
		t.Errorf("for Git (-want +got):\n%s", diff)
	}
	if change.field() != "spec.autonomy[3]" || change.appliedBy() != "kubectl apply" {
		t.Errorf("field %s, applied by %q", change.field(), change.appliedBy())
	}
}

// What narrows an entry in a way that is not understood is not thrown away, unless what replaces it is as narrow as can be.
func TestAnEntryThatIsNotUnderstoodIsOnlyReplacedByAStricterOne(t *testing.T) {
	t.Parallel()
	promote, err := editPolicy(laterPolicy(), namedPolicy{"default", "billing"}, "billing")
	if err != nil {
		t.Fatal(err)
	}
	err = promote.put("autonomy", map[string]any{"tool": "refund_invoice", "mode": "Unattended", "digest": "d"}, ofTool("refund_invoice"))
	if err == nil || !strings.Contains(err.Error(), "spec.autonomy[1] of ToolPolicy billing has the field until") {
		t.Errorf("an entry with an unknown field was replaced: %v", err)
	}
	revoke, err := editPolicy(laterPolicy(), namedPolicy{"default", "billing"}, "billing")
	if err != nil {
		t.Fatal(err)
	}
	if err := revoke.put("autonomy", map[string]any{"tool": "refund_invoice", "mode": "Attended"}, ofTool("refund_invoice")); err != nil {
		t.Fatal(err)
	}
	got := revoke.entries("autonomy")
	want := []map[string]any{
		{"tool": "void_invoice", "mode": "Attended", "until": "spring"},
		{"tool": "refund_invoice", "mode": "Attended"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("autonomy (-want +got):\n%s", diff)
	}
	wantSaid := `spec.autonomy[1] is changed from:
  digest: old
  mode: Unattended
  tool: refund_invoice
  until: autumn
spec.autonomy[1] is changed to:
  mode: Attended
  tool: refund_invoice
spec.autonomy[2] is taken out:
  mode: Attended
  tool: refund_invoice`
	if diff := cmp.Diff(wantSaid, strings.Join(revoke.said, "\n")); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

// A promotion for some calls is not replaced by one for every call, and a baseline is no team's to edit.
func TestWhatWouldReachFurtherIsNotWritten(t *testing.T) {
	t.Parallel()
	stored := laterPolicy()
	stored.Object["spec"] = map[string]any{
		"targets":  []any{"billing"},
		"autonomy": []any{map[string]any{"tool": "refund_invoice", "mode": "Unattended", "digest": "d", "when": "args.amount < 5"}},
	}
	key := namedPolicy{"default", "billing"}
	change, err := editPolicy(stored, key, "billing")
	if err != nil {
		t.Fatal(err)
	}
	err = change.put("autonomy", map[string]any{"tool": "refund_invoice", "mode": "Unattended", "digest": "d"}, ofTool("refund_invoice"))
	want := "nothing was changed: spec.autonomy[0] of ToolPolicy billing is for some calls only (when: args.amount < 5), and would be replaced by one for every call; edit the policy"
	if err == nil || err.Error() != want {
		t.Errorf("promote: %v", err)
	}
	if err := change.put("autonomy", map[string]any{"tool": "refund_invoice", "mode": "Attended"}, ofTool("refund_invoice")); err != nil {
		t.Errorf("revoke: %v", err)
	}
	stored.Object["spec"] = map[string]any{"namespaceSelector": map[string]any{}, "targets": []any{"billing"}}
	_, err = editPolicy(stored, key, "billing")
	want = "nothing was changed: ToolPolicy billing is a baseline, and an entry would reach every server that it covers, not billing alone; name another policy (one that does not exist is made)"
	if err == nil || err.Error() != want {
		t.Errorf("a baseline: %v", err)
	}
}
