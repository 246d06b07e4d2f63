// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// rightsOf returns the Role and the RoleBinding that the manager makes for the gateway of billing.
func rightsOf(server *v1alpha1.GovernedServer) (*rbacv1.Role, *rbacv1.RoleBinding) {
	const name = "tidewaiter-gateway-billing"
	owner := metav1.NewControllerRef(server, v1alpha1.GroupVersion.WithKind("GovernedServer"))
	owner.BlockOwnerDeletion = nil
	of := metav1.ObjectMeta{Namespace: server.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{*owner}}
	ofRole := of
	ofRole.Name += "-x7k2p"
	core := func(resource, name string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: []string{"get"}}
	}
	read := fixture.Rule("toolpolicies", "get", "list", "watch")
	read.Resources = []string{"toolpolicies", "approvalrequests"}
	role := &rbacv1.Role{ObjectMeta: ofRole, Rules: []rbacv1.PolicyRule{
		fixture.Authority("billing", "serve"), fixture.Rule("governedservers", "get", "list", "watch"), read,
		fixture.Rule("approvalrequests", "create"), fixture.Rule("approvalrequests/status", "update", "patch"),
		core("secrets", "billing-mcp"), core("services", "billing-mcp"),
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}},
	}}
	return role, &rbacv1.RoleBinding{
		ObjectMeta: of, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: ofRole.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: server.Namespace, Name: "gateway-billing"}},
	}
}

func TestTheManagerWritesTheRightsOfGatewaysAndNoOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	server := fixture.GovernedServer(w.namespace, "billing")
	must(t, w.owner.Create(ctx, &server))
	role, binding := rightsOf(&server)
	// RBAC lets nobody give what they do not hold. Here it refuses nothing, so that what is refused is so by the policy.
	plane.GrantClusterRole(t, w.namespace, w.manager.cfg, "cluster-admin")

	t.Run("Roles", func(t *testing.T) {
		for name, edit := range map[string]func(*rbacv1.Role){
			"of the RoleBinding's name":         func(r *rbacv1.Role) { r.Name = "tidewaiter-gateway-billing" },
			"of another name":                   func(r *rbacv1.Role) { r.Name, r.Rules = "approve-billing", r.Rules[1:] },
			"that bears another server's name":  func(r *rbacv1.Role) { r.Name, r.Rules = "tidewaiter-gateway-payroll-x7k2p", r.Rules[1:] },
			"without an owner":                  func(r *rbacv1.Role) { r.OwnerReferences = nil },
			"of an owner that is no controller": func(r *rbacv1.Role) { r.OwnerReferences[0].Controller = nil },
			"of an owner of another kind":       func(r *rbacv1.Role) { r.OwnerReferences[0].Kind = "ToolPolicy" },
			"of an owner of another group":      func(r *rbacv1.Role) { r.OwnerReferences[0].APIVersion = "example.org/v1" },
			"to serve another server":           func(r *rbacv1.Role) { r.Rules[0].ResourceNames = []string{"payroll"} },
			"to serve two servers":              func(r *rbacv1.Role) { r.Rules[0].ResourceNames = []string{"billing", "payroll"} },
			"to serve all servers":              func(r *rbacv1.Role) { r.Rules[0].ResourceNames = nil },
			"to delete requests":                func(r *rbacv1.Role) { r.Rules[3].Verbs = []string{"delete"} },
			"to create all the kinds":           func(r *rbacv1.Role) { r.Rules[2].Verbs = []string{"get", "create"} },
			"to read requests' status":          func(r *rbacv1.Role) { r.Rules[4].Verbs = []string{"get"} },
			"to write servers' status":          func(r *rbacv1.Role) { r.Rules[4] = fixture.Rule("governedservers/status", "patch") },
			"to read every Secret":              func(r *rbacv1.Role) { r.Rules[5].ResourceNames = nil },
			"to list a Secret":                  func(r *rbacv1.Role) { r.Rules[5].Verbs = []string{"get", "list"} },
			"to read namespaces":                func(r *rbacv1.Role) { r.Rules[6].Resources = []string{"namespaces"} },
			"to read Leases":                    func(r *rbacv1.Role) { r.Rules[7].Verbs = []string{"get", "patch"} },
			"of another group": func(r *rbacv1.Role) {
				r.Rules[6] = rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}
			},
			"with a wildcard of verbs":     func(r *rbacv1.Role) { r.Rules[1].Verbs = []string{"*"} },
			"with a wildcard of resources": func(r *rbacv1.Role) { r.Rules[2].Resources = []string{"*"} },
			"with a wildcard of groups":    func(r *rbacv1.Role) { r.Rules[5].APIGroups = []string{"*"} },
			"to approve":                   func(r *rbacv1.Role) { r.Rules[0].Verbs = []string{"serve", "approve"} },
			"of a group more":              func(r *rbacv1.Role) { r.Rules[1].APIGroups = append(r.Rules[1].APIGroups, "") },
		} {
			wrong := role.DeepCopy()
			edit(wrong)
			refused(t, "a Role "+name, gatewayRightsPolicy, w.manager.Create(ctx, wrong, client.DryRunAll))
		}
		taken(t, "the Role of the gateway", w.manager.Create(ctx, role.DeepCopy()))
		for name, edit := range map[string]func(*rbacv1.Role){
			"give every Secret":    func(r *rbacv1.Role) { r.Rules[5].ResourceNames = nil },
			"take its owner away":  func(r *rbacv1.Role) { r.OwnerReferences = nil },
			"rules beside the old": func(r *rbacv1.Role) { r.Rules = append(r.Rules, fixture.Rule("approvalrequests", "delete")) },
		} {
			refused(t, name, gatewayRightsPolicy, w.manager.Update(ctx, changed(t, w, role, edit), client.DryRunAll))
		}
		taken(t, "fewer rules", w.manager.Update(ctx, changed(t, w, role, func(r *rbacv1.Role) { r.Rules = r.Rules[:5] })))
	})
	t.Run("RoleBindings", func(t *testing.T) {
		for name, edit := range map[string]func(*rbacv1.RoleBinding){
			"of another name":      func(b *rbacv1.RoleBinding) { b.Name, b.RoleRef.Name = "approve-billing", "approve-billing" },
			"without an owner":     func(b *rbacv1.RoleBinding) { b.OwnerReferences = nil },
			"to another namespace": func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = fixture.SystemNamespace },
			"to a user": func(b *rbacv1.RoleBinding) {
				b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"})
			},
			"to a user that is given a namespace": func(b *rbacv1.RoleBinding) {
				b.Subjects[0] = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory", Namespace: b.Namespace}
			},
			"to a group": func(b *rbacv1.RoleBinding) {
				b.Subjects[0] = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}
			},
		} {
			wrong := binding.DeepCopy()
			edit(wrong)
			refused(t, "a RoleBinding "+name, gatewayRightsPolicy, w.manager.Create(ctx, wrong, client.DryRunAll))
		}
	})
	t.Run("what a RoleBinding leads to", func(t *testing.T) {
		held := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "held"}, Rules: role.Rules[1:2]}
		must(t, admin(t).Create(ctx, held))
		named := "tidewaiter-gateway-" + w.namespace
		must(t, admin(t).Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: named}, Rules: role.Rules[1:2]}))
		for _, ref := range []rbacv1.RoleRef{{Kind: "Role", Name: "held"}, {Kind: "ClusterRole", Name: named}} {
			ref.APIGroup = rbacv1.GroupName
			wrong := binding.DeepCopy()
			wrong.RoleRef = ref
			if ref.Kind == "ClusterRole" { // of the RoleBinding's own name
				wrong.Name, wrong.OwnerReferences[0].Name = named, w.namespace
			}
			refused(t, "a RoleBinding to "+ref.Name, gatewayRightsPolicy, w.manager.Create(ctx, wrong, client.DryRunAll))
		}
	})
	t.Run("what is there", func(t *testing.T) {
		taken(t, "the RoleBinding of the gateway", w.manager.Create(ctx, binding.DeepCopy()))
		for _, own := range []client.Object{role, binding} {
			taken(t, "the manager deletes what belongs to a server", w.manager.Delete(ctx, own))
		}
		// Of somebody's own, also under such a name.
		for _, name := range []string{"approve-billing", "tidewaiter-gateway-billing"} {
			theirs := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Rules: role.Rules[1:2]}
			must(t, admin(t).Create(ctx, theirs))
			bound := &rbacv1.RoleBinding{ObjectMeta: theirs.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}
			bound.ResourceVersion, bound.UID = "", ""
			must(t, admin(t).Create(ctx, bound))
			refused(t, "the manager deletes the Role "+name, gatewayRightsPolicy, w.manager.Delete(ctx, theirs.DeepCopy()))
			refused(t, "the manager deletes the RoleBinding "+name, gatewayRightsPolicy, w.manager.Delete(ctx, bound))
			mine := theirs.DeepCopy()
			mine.OwnerReferences = slices.Clone(role.OwnerReferences)
			refused(t, "the manager makes the Role "+name+" its own", gatewayRightsPolicy, w.manager.Update(ctx, mine))
			taken(t, "somebody else does", admin(t).Update(ctx, mine, client.DryRunAll))
			taken(t, "somebody else deletes the Role "+name, admin(t).Delete(ctx, theirs))
		}
	})
}

// changed returns the stored Role with an edit.
func changed(t *testing.T, w world, role *rbacv1.Role, edit func(*rbacv1.Role)) *rbacv1.Role {
	t.Helper()
	stored := &rbacv1.Role{}
	must(t, w.manager.Get(t.Context(), client.ObjectKeyFromObject(role), stored))
	edit(stored)
	return stored
}
