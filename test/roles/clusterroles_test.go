// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// shipped returns the ClusterRoles that are installed to be bound.
func shipped(t *testing.T) map[string]rbacv1.ClusterRole {
	t.Helper()
	manifest, err := os.ReadFile("../../config/rbac/roles.yaml")
	must(t, err)
	objects, err := fixture.Parse(string(manifest))
	must(t, err)
	found := map[string]rbacv1.ClusterRole{}
	for _, object := range objects {
		var role rbacv1.ClusterRole
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &role, true))
		found[role.Name] = role
	}
	return found
}

func TestNoShippedClusterRoleApprovesGovernsOrPromotes(t *testing.T) {
	t.Parallel()
	var names []string
	for name, role := range shipped(t) {
		names = append(names, name)
		if role.Kind != "ClusterRole" || role.AggregationRule != nil {
			t.Errorf("%s is a %s, aggregated by %v", name, role.Kind, role.AggregationRule)
		}
		for label := range role.Labels {
			if strings.Contains(label, "aggregate") {
				t.Errorf("%s is aggregated by the label %s", name, label)
			}
		}
		for _, rule := range role.Rules {
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				if strings.Contains(word, "*") || strings.Contains(word, "authority") {
					t.Errorf("%s gives %q", name, word)
				}
			}
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"tidewaiter-approver", "tidewaiter-gateway", "tidewaiter-policy-author", "tidewaiter-viewer"}, names); diff != "" {
		t.Errorf("ClusterRoles to bind (-want +got):\n%s", diff)
	}
}

// The rules that Kubernetes aggregates into view, edit and admin, and ours, give no authority over anything. Who has a
// Role of the namespace does, which is the control.
func TestNoClusterRoleButAWildcardGivesAuthority(t *testing.T) {
	t.Parallel()
	verbs := "approve approve-irreversible approve-x resolve govern promote serve"
	authority := rights(verbs+" governedservers/authority billing", verbs+" governedservers/authority")
	roles := map[string][]right{
		"system:aggregate-to-view":  rights("list services"),
		"system:aggregate-to-edit":  rights("create pods", "impersonate serviceaccounts"),
		"system:aggregate-to-admin": rights("create rolebindings"),
	}
	for name := range shipped(t) {
		roles[name] = rights("get approvalrequests")
	}
	for name, holds := range roles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			who := plane.User(t, "holder@"+namespace)
			plane.GrantClusterRole(t, namespace, who, name)
			expect(t, name, plane.Client(t, who), namespace, holds, authority)
			plane.Grant(t, namespace, who, fixture.Authority("billing", "approve"))
			expect(t, name+" with a Role", plane.Client(t, who), namespace,
				rights("approve governedservers/authority billing"), rights("approve governedservers/authority payroll", "govern governedservers/authority billing"))
		})
	}
}
