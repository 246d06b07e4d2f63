// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

// grant is what a gateway is to be given, and what stands in the API. Nothing here reads or writes.
type grant struct {
	// server that the gateway is of.
	server *v1alpha1.GovernedServer
	// account is the ServiceAccount; empty for none.
	account string
	// shared: another server of the namespace names the same ServiceAccount.
	shared bool
	// secrets are those that the endpoint names and that carry the server's label, withheld the others that it names.
	secrets, withheld []string
	// roles are all that were made for the server; binding is the RoleBinding of that name, nil when there is none.
	roles   []*rbacv1.Role
	binding *rbacv1.RoleBinding
}

// accountOf returns the ServiceAccount that a server names for its gateway, or that its standalone gateway has, or nothing.
func accountOf(server *v1alpha1.GovernedServer) string {
	switch {
	case server.Spec.Gateway == nil:
		return ""
	case standalone.Wanted(server):
		return standalone.Name(server.Name)
	default:
		return server.Spec.Gateway.ServiceAccountName
	}
}

// rightsName is the name of the RoleBinding; the names of Roles begin with it and a dash.
func rightsName(server string) string { return "tidewaiter-gateway-" + server }

// owns tells whether an object belongs to this very server, not to an earlier one of its name.
func (g grant) owns(object metav1.Object) bool { return metav1.IsControlledBy(object, g.server) }

// made tells whether a Role was made for this very server.
func (g grant) made(role *rbacv1.Role) bool {
	return g.owns(role) && strings.HasPrefix(role.Name, rightsName(g.server.Name)+"-")
}

// current returns the Role that the gateway has, if it is exactly as it should be; nil if there is none.
func (g grant) current() *rbacv1.Role {
	if g.binding == nil || g.binding.RoleRef.Kind != "Role" {
		return nil
	}
	wanted := g.wantedRole()
	for _, role := range g.roles {
		if role.Name == g.binding.RoleRef.Name && equality.Semantic.DeepEqual(role.Rules, wanted.Rules) &&
			maps.Equal(role.Labels, merged(role.Labels, wanted.Labels)) {
			return role
		}
	}
	return nil
}

// foreign tells whether the RoleBinding of that name is not ours, and so stands in the way.
func (g grant) foreign() bool { return g.account != "" && g.binding != nil && !g.owns(g.binding) }

// condition says whether the gateway has its rights.
func (g grant) condition() metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionGatewayAuthorized, Status: metav1.ConditionFalse, ObservedGeneration: g.server.Generation,
	}
	switch {
	case g.foreign():
		c.Reason = v1alpha1.ReasonRoleConflict
		c.Message = fmt.Sprintf("There is a RoleBinding %s that does not belong to this GovernedServer, so the gateway is given nothing: "+
			"delete or rename it, or empty spec.gateway and give the rights by hand", rightsName(g.server.Name))
	case len(g.withheld) > 0:
		c.Reason = v1alpha1.ReasonSecretNotReadable
		c.Message = fmt.Sprintf("The gateway may not read Secrets that the endpoint names and that do not exist, or do not carry the label %s: %s: %s",
			v1alpha1.ServerLabel, g.server.Name, listNames(g.withheld))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonGranted
		c.Message = fmt.Sprintf("ServiceAccount %s has the rights of this server's gateway", g.account)
	}
	c.Message = glyph.Clip(c.Message, maxMessage)
	return c
}

// wantedRole is the Role as it should be. The API server ends its name.
func (g grant) wantedRole() *rbacv1.Role {
	role := &rbacv1.Role{ObjectMeta: g.wantedMeta(), Rules: g.rules()}
	role.GenerateName = rightsName(g.server.Name) + "-"
	return role
}

// wantedBinding is the RoleBinding to a Role as it should be. Its one subject is of the server's own namespace, always.
func (g grant) wantedBinding(role string) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: g.wantedMeta(),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: g.server.Namespace, Name: g.account}},
	}
	binding.Name = rightsName(g.server.Name)
	return binding
}

func (g grant) wantedMeta() metav1.ObjectMeta {
	owner := metav1.NewControllerRef(g.server, v1alpha1.GroupVersion.WithKind("GovernedServer"))
	owner.BlockOwnerDeletion = nil // a server never waits for its Role to go
	return metav1.ObjectMeta{
		Namespace: g.server.Namespace, OwnerReferences: []metav1.OwnerReference{*owner},
		Labels: map[string]string{v1alpha1.ServerLabel: g.server.Name, ManagedByLabel: ManagedBy},
	}
}

// rules are what the gateway of one server needs. A gateway of this server alone watches it by name, and may see no other
// server; one that has several in a namespace has to list them all. Requests cannot be told apart by RBAC.
func (g grant) rules() []rbacv1.PolicyRule {
	names := []string{g.server.Name}
	watched := names
	if g.shared {
		watched = nil
	}
	read := []string{"get", "list", "watch"}
	ours := []string{v1alpha1.GroupVersion.Group}
	rules := []rbacv1.PolicyRule{
		{APIGroups: ours, Resources: []string{"governedservers/" + v1alpha1.AuthoritySubresource}, ResourceNames: names, Verbs: []string{v1alpha1.VerbServe}},
		{APIGroups: ours, Resources: []string{"governedservers"}, ResourceNames: watched, Verbs: read},
		{APIGroups: ours, Resources: []string{"toolpolicies", "approvalrequests"}, Verbs: read},
		{APIGroups: ours, Resources: []string{"approvalrequests"}, Verbs: []string{"create"}},
		{APIGroups: ours, Resources: []string{"approvalrequests/status"}, Verbs: []string{"update", "patch"}},
		// What a gateway says of itself: the names of its Leases are known to nobody before.
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete"}},
	}
	core := []string{corev1.GroupName}
	if len(g.secrets) > 0 { // without a name a rule gives all
		rules = append(rules, rbacv1.PolicyRule{APIGroups: core, Resources: []string{"secrets"}, ResourceNames: g.secrets, Verbs: []string{"get"}})
	}
	if s := g.server.Spec.Endpoint.Service; s != nil {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: core, Resources: []string{"services"}, ResourceNames: []string{s.Name}, Verbs: []string{"get"}})
	}
	return rules
}

// secretsOf returns the names of the Secrets that a server's endpoint names, sorted.
func secretsOf(server *v1alpha1.GovernedServer) []string {
	var names []string
	for _, h := range server.Spec.Endpoint.Headers {
		if h.SecretKeyRef != nil {
			names = append(names, h.SecretKeyRef.Name)
		}
	}
	if tls := server.Spec.Endpoint.TLS; tls != nil && tls.CASecretRef != nil {
		names = append(names, tls.CASecretRef.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// merged returns labels with those that are wanted.
func merged(labels, wanted map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	maps.Copy(all, wanted)
	return all
}
