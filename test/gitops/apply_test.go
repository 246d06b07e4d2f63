// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// settled waits until the manager has judged the object as it is now.
func settled(t *testing.T, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	return until(t, name+" is judged", kind, namespace, name, func(o *unstructured.Unstructured) bool {
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		ready, _ := condition(o, v1alpha1.ConditionReady)
		return observed == o.GetGeneration() && ready == metav1.ConditionTrue
	})
}

// TestApplyingTheSameGitStateChangesNothing: neither the spec nor anything else of the object, however often.
func TestApplyingTheSameGitStateChangesNothing(t *testing.T) {
	t.Parallel()
	operate(t)
	namespace := plane.Namespace(t)
	server := fmt.Sprintf("apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: ledger, namespace: %s}\nspec:\n  endpoint: {url: '%s'}\n  pinning: Enforce\n", namespace, ledger(t))
	policy := fmt.Sprintf("apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: house, namespace: %s}\nspec:\n"+
		"  targets: [ledger]\n  callers: [{kind: Group, name: 'system:serviceaccounts:agents'}]\n"+
		"  rules: [{name: big, tools: [post_entry], when: args.amount > 1000, decision: RequireApproval, approvals: {required: 2, verb: approve-finance}, controls: [SOX-404]}]\n"+
		"  preview: [{tools: [post_entry], call: {tool: get_entry}}]\n", namespace)
	for kind, m := range map[string]struct{ name, manifest string }{"GovernedServer": {"ledger", server}, "ToolPolicy": {"house", policy}} {
		_, err := apply(t, "git", m.manifest, false)
		must(t, err)
		before := settled(t, kind, namespace, m.name)
		for range 3 {
			_, err := apply(t, "git", m.manifest, false)
			must(t, err)
			_, err = apply(t, "git", m.manifest, true)
			must(t, err)
		}
		if after := read(t, kind, namespace, m.name); after.GetResourceVersion() != before.GetResourceVersion() || after.GetGeneration() != 1 {
			t.Errorf("%s: version %s and generation %d after the same was applied again, before %s and 1", kind, after.GetResourceVersion(), after.GetGeneration(), before.GetResourceVersion())
		}
	}
}

// TestTwoManagersDoNotFight: each has fields of its own, and who takes those of the other is told so.
func TestTwoManagersDoNotFight(t *testing.T) {
	t.Parallel()
	operate(t)
	namespace := plane.Namespace(t)
	server := fmt.Sprintf("apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: ledger, namespace: %s}\nspec:\n  endpoint: {url: '%s'}\n", namespace, ledger(t))
	_, err := apply(t, "git", server, false)
	must(t, err)
	settled(t, "GovernedServer", namespace, "ledger")
	head := fmt.Sprintf("apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: house, namespace: %s}\nspec:\n", namespace)
	team := head + "  targets: [ledger]\n  rules: [{name: big, tools: [post_entry], when: args.amount > 1000, decision: Deny}]\n"
	security := head + "  callers: [{kind: Group, name: 'system:serviceaccounts:agents'}]\n"
	for range 3 {
		_, err := apply(t, "team", team, false)
		must(t, err)
		_, err = apply(t, "security", security, false)
		must(t, err)
	}
	both := settled(t, "ToolPolicy", namespace, "house")
	if got := both.GetGeneration(); got != 2 {
		t.Errorf("generation %d, want one for each manager's first word", got)
	}
	for _, field := range []string{"targets", "rules", "callers"} {
		if _, found, _ := unstructured.NestedSlice(both.Object, "spec", field); !found {
			t.Errorf("spec.%s is gone", field)
		}
	}
	other := head + "  rules: [{name: all, tools: ['*'], decision: Allow}]\n"
	if _, err := apply(t, "security", other, false); !apierrors.IsConflict(err) {
		t.Errorf("rules of the team, applied by security: %v, want a conflict", err)
	}
	// What the manager writes belongs to nobody else, and it owns nothing that Git does.
	for _, entry := range both.GetManagedFields() {
		if entry.Subresource == "status" && (entry.Manager == "team" || entry.Manager == "security") {
			t.Errorf("%s owns a part of the status", entry.Manager)
		}
	}
	// What leaves Git leaves the object, and takes nothing of the others with it.
	_, err = apply(t, "security", head+"  targets: [ledger]\n", false)
	must(t, err)
	left := read(t, "ToolPolicy", namespace, "house")
	if _, found, _ := unstructured.NestedSlice(left.Object, "spec", "callers"); found {
		t.Error("the callers stay after security took them out of Git")
	}
	if _, found, _ := unstructured.NestedSlice(left.Object, "spec", "rules"); !found {
		t.Error("the team's rules went with security's callers")
	}
}
