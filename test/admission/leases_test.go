// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func leases(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: verbs}
}

func leaseOf(namespace, name, server string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if server != "" {
		l.Labels = map[string]string{v1alpha1.ServerLabel: server}
	}
	return l
}

func TestOnlyAGatewayOfAServerSaysWhatItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	plane.Grant(t, w.namespace, w.gateway.cfg, leases("get", "create", "patch", "update", "delete"))
	plane.Grant(t, w.namespace, w.editor.cfg, leases("get", "create", "patch", "update", "delete"))

	taken(t, "its own gateway", w.gateway.Create(ctx, leaseOf(w.namespace, "gw", "billing")))
	taken(t, "its own gateway, again", w.gateway.Patch(ctx, leaseOf(w.namespace, "gw", "billing"), merge(`{"spec":{"holderIdentity":"gw"}}`)))
	refused(t, "the gateway of another server", leasesPolicy, w.gateway.Create(ctx, leaseOf(w.namespace, "gw-payroll", "payroll")))
	refused(t, "an editor", leasesPolicy, w.editor.Create(ctx, leaseOf(w.namespace, "forged", "billing")))
	refused(t, "an editor of what is there", leasesPolicy, w.editor.Patch(ctx, leaseOf(w.namespace, "gw", "billing"),
		merge(`{"metadata":{"annotations":{"tidewaiter.dev/policy-revision":"sha256:forged"}}}`)))
	refused(t, "an editor who takes the label away", leasesPolicy, w.editor.Patch(ctx, leaseOf(w.namespace, "gw", "billing"),
		merge(`{"metadata":{"labels":null}}`)))
	refused(t, "a gateway that moves it to another server", leasesPolicy, w.gateway.Patch(ctx, leaseOf(w.namespace, "gw", "billing"),
		merge(`{"metadata":{"labels":{"tidewaiter.dev/server":"payroll"}}}`)))

	plain := leaseOf(w.namespace, "somebody-elses", "")
	taken(t, "a Lease of something else", w.editor.Create(ctx, plain))
	taken(t, "a Lease of something else, again", w.editor.Update(ctx, plain))
	refused(t, "an editor who makes it one of a gateway", leasesPolicy, w.editor.Patch(ctx, leaseOf(w.namespace, "somebody-elses", ""),
		merge(`{"metadata":{"labels":{"tidewaiter.dev/server":"billing"}}}`)))
}

func TestTheManagerWritesNoLeaseButItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	// It holds serve, to give it on: so the policy of Leases would let it pass.
	refused(t, "a Lease of a gateway", gatewayRightsPolicy, w.manager.Create(ctx, leaseOf(w.namespace, "gw", "billing")))
	refused(t, "a Lease of something else", gatewayRightsPolicy, w.manager.Create(ctx, leaseOf(w.namespace, "plain", "")))
	refused(t, "one of its name elsewhere", gatewayRightsPolicy, w.manager.Create(ctx, leaseOf(w.namespace, "tidewaiter-manager", "")))
	taken(t, "its own", w.manager.Create(ctx, leaseOf(fixture.SystemNamespace, "tidewaiter-manager", ""), client.DryRunAll))
	refused(t, "another beside its own", gatewayRightsPolicy, w.manager.Create(ctx, leaseOf(fixture.SystemNamespace, "other", ""), client.DryRunAll))

	must(t, admin(t).Create(ctx, leaseOf(w.namespace, "plain", "")))
	must(t, admin(t).Create(ctx, leaseOf(w.namespace, "gw", "billing")))
	refused(t, "the manager changes one", gatewayRightsPolicy, w.manager.Patch(ctx, leaseOf(w.namespace, "gw", ""), merge(`{"spec":{"holderIdentity":"x"}}`)))
	refused(t, "the manager deletes one of something else", gatewayRightsPolicy, w.manager.Delete(ctx, leaseOf(w.namespace, "plain", "")))
	taken(t, "the manager deletes one of a gateway", w.manager.Delete(ctx, leaseOf(w.namespace, "gw", "")))
}

func TestTheManagerBindsNobodyButServiceAccountsToTheBaselines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	binding := func(edit func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: fixture.SystemNamespace, Name: "tidewaiter-baselines-readers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tidewaiter-baselines-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "gateway-billing"}},
		}
		if edit != nil {
			edit(b)
		}
		return b
	}
	// The API server lets it give what it holds; what is refused is so by the policy.
	plane.GrantClusterRole(t, fixture.SystemNamespace, w.manager.cfg, "cluster-admin")
	plane.GrantClusterRole(t, w.namespace, w.manager.cfg, "cluster-admin")
	taken(t, "the RoleBinding of all gateways", w.manager.Create(ctx, binding(nil), client.DryRunAll))
	for name, edit := range map[string]func(*rbacv1.RoleBinding){
		"of another name":      func(b *rbacv1.RoleBinding) { b.Name = "tidewaiter-baselines" },
		"in another namespace": func(b *rbacv1.RoleBinding) { b.Namespace = w.namespace },
		"to another Role":      func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "tidewaiter-webhook" },
		"to a ClusterRole":     func(b *rbacv1.RoleBinding) { b.RoleRef.Kind, b.RoleRef.Name = "ClusterRole", "tidewaiter-viewer" },
		"for a group": func(b *rbacv1.RoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"})
		},
		"for a user": func(b *rbacv1.RoleBinding) {
			b.Subjects[0] = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}
		},
	} {
		refused(t, "a RoleBinding "+name, gatewayRightsPolicy, w.manager.Create(ctx, binding(edit), client.DryRunAll))
	}
}
