// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// baseline returns a baseline for the servers of namespaces with a label.
func baseline(namespace, name string, labels map[string]string) v1alpha1.ToolPolicy {
	return v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ToolPolicySpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels}, Mode: v1alpha1.BaselineStopped},
	}
}

// A changed policy takes the place of the one that has its name in its namespace, and never that of a baseline.
func TestAChangedPolicyReplacesNoBaseline(t *testing.T) {
	t.Parallel()
	set := policySet{operatorNamespace: "system", objects: []v1alpha1.ToolPolicy{pins("money", "pay", "1"), baseline("system", "money", nil)}}
	var names []string
	for _, p := range set.with(pins("money", "pay", "2")).objects {
		names = append(names, nameOf(&p))
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"money", "system/money"}, names); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// What the verbs take for covering is what gateways do.
func TestTheVerbsCountThePoliciesThatGatewaysDo(t *testing.T) {
	t.Parallel()
	shop, labelled := listing("pay", "1"), map[string]string{"team": "money"}
	unknown, ours := listing("pay", "1"), listing("pay", "1")
	unknown.Status.NamespaceLabels, ours.Status.NamespaceLabels = nil, labelled
	broken := baseline("system", "broken", nil)
	broken.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
	other := pins("other", "pay", "1")
	other.Namespace = "ledger"
	for _, p := range []v1alpha1.ToolPolicy{
		pins("own", "pay", "1"), other, baseline("system", "all", nil), baseline("system", "some", labelled), baseline("shop", "misplaced", nil), broken,
	} {
		for name, server := range map[string]*v1alpha1.GovernedServer{"without labels": shop, "of labels nobody knows": unknown, "with the label": ours} {
			want := policy.Parse(&p).Covers(server, "system")
			if got := (policySet{operatorNamespace: "system"}).covers(&p, server); got != want {
				t.Errorf("%s covers a server %s: %v, and for gateways %v", nameOf(&p), name, got, want)
			}
		}
	}
}
