// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// says runs kubectl and fails the test unless it exits so and its output has all the words.
func says(t *testing.T, who *rest.Config, stdin string, exit int, words []string, args ...string) {
	t.Helper()
	stdout, stderr, got := plane.Kubectl(t, who, stdin, args...)
	if got != exit {
		t.Errorf("kubectl %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, exit, stdout, stderr)
	}
	for _, word := range words {
		if !strings.Contains(stdout+stderr, word) {
			t.Errorf("kubectl %s does not say %q:\n%s%s", strings.Join(args, " "), word, stdout, stderr)
		}
	}
}

func sample(t *testing.T, name string) string {
	t.Helper()
	manifest, err := os.ReadFile("../../config/samples/" + name)
	must(t, err)
	return string(manifest)
}

// The way of Git: the same files, applied by those who may and those who may not.
func TestApplyingTheSamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	apply := []string{"apply", "-n", w.namespace, "-f", "-"}
	server, policy := sample(t, "governedserver_billing.yaml"), sample(t, "toolpolicy_billing.yaml")

	says(t, w.editor.cfg, server, 1, []string{"forbidden", "verb govern", "governedservers/authority", "[billing]", w.namespace}, apply...)
	says(t, w.owner.cfg, server, 0, []string{"created"}, apply...)
	says(t, w.editor.cfg, policy, 1, []string{"forbidden", "verb govern", "governedservers/authority", "[billing]", w.namespace}, apply...)
	says(t, w.owner.cfg, policy, 0, []string{"created"}, apply...)

	says(t, w.editor.cfg, server, 0, []string{"unchanged"}, apply...)
	says(t, w.editor.cfg, policy, 0, []string{"unchanged"}, apply...)
	says(t, w.editor.cfg, strings.Replace(server, "cleanApprovals: 3", "cleanApprovals: 1", 1), 1, []string{"forbidden"}, apply...)
	says(t, w.editor.cfg, strings.Replace(policy, "tier: Reversible", "tier: Read", 1), 1, []string{"forbidden"}, apply...)
	says(t, w.owner.cfg, strings.Replace(policy, "tier: Reversible", "tier: Read", 1), 0, []string{"configured"}, apply...)

	promotion := policy + "  autonomy:\n  - {tool: refund, mode: Unattended, digest: '" + fixture.Digest("a") + "'}\n"
	governor := person(t, w.namespace, "governor", fixture.Authority("billing", "govern"))
	says(t, governor.cfg, promotion, 1, []string{"forbidden", "verb promote", "Unattended", "[billing]"}, apply...)
	says(t, w.owner.cfg, promotion, 0, []string{"configured"}, apply...)
	says(t, governor.cfg, promotion, 0, []string{"unchanged"}, apply...)
}

// The roles of config/samples give what they say, and the ways to ask and to decide work from the command line.
func TestTheSampleRoles(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	lead, stranger := plane.User(t, "lead@"+namespace, "finance-leads"), plane.User(t, "stranger@"+namespace)
	must(t, fixture.Create(t.Context(), plane.Admin, namespace, sample(t, "gateway_role.yaml")))
	must(t, fixture.Create(t.Context(), plane.Admin, namespace, sample(t, "approver_role.yaml")))
	gatewayConfig := plane.ServiceAccount(t, namespace, "gateway-billing")
	gateway := plane.Client(t, gatewayConfig)
	plane.Grant(t, namespace, stranger, kinds()...)

	canI := func(verb, server string) []string {
		return []string{"auth", "can-i", verb, "governedservers/" + server, "--subresource=authority", "-n", namespace}
	}
	until(t, "the sample roles are in force", func(ctx context.Context) bool {
		return gateway.Create(ctx, new(fixture.ApprovalRequest(namespace, "billing", 1)), client.DryRunAll) == nil
	})
	for _, verb := range []string{"approve", "approve-irreversible", "resolve"} {
		says(t, lead, "", 0, []string{"yes"}, canI(verb, "billing")...)
		says(t, lead, "", 1, []string{"no"}, canI(verb, "payroll")...)
		says(t, stranger, "", 1, []string{"no"}, canI(verb, "billing")...)
		says(t, gatewayConfig, "", 1, []string{"no"}, canI(verb, "billing")...)
	}
	says(t, lead, "", 1, []string{"no"}, canI("promote", "billing")...)
	says(t, gatewayConfig, "", 0, []string{"yes"}, canI("serve", "billing")...)

	request := fixture.ApprovalRequest(namespace, "billing", 1)
	server := fixture.GovernedServer(namespace, "billing")
	must(t, admin(t).Create(t.Context(), &server))
	request.Spec.ServerRef.UID = string(server.UID)
	must(t, gateway.Create(t.Context(), &request))
	patch := func(more ...string) []string {
		return append([]string{"patch", "areq", request.Name, "-n", namespace, "--type=merge", "-p", `{"status":{"decision":"Approved"}}`}, more...)
	}
	says(t, stranger, "", 1, []string{"Forbidden", "verb approve", "[billing]", "whoever manages Roles"}, patch("--subresource=status")...)
	// Without --subresource nothing happens, though kubectl says otherwise.
	says(t, stranger, "", 0, []string{"patched", "Warning: status is not changed this way: kubectl approve " + request.Name}, patch()...)
	must(t, gateway.Get(t.Context(), client.ObjectKeyFromObject(&request), &request))
	if request.Status.Decision != "" {
		t.Errorf("a patch of the main resource decided: %q", request.Status.Decision)
	}
	says(t, lead, "", 0, []string{"patched"}, patch("--subresource=status")...)
	must(t, gateway.Get(t.Context(), client.ObjectKeyFromObject(&request), &request))
	if request.Status.Decision != v1alpha1.DecisionApproved || request.Status.Phase != v1alpha1.PhaseApproved {
		t.Errorf("after the patch the request is %q, decision %q; want Approved, Approved", request.Status.Phase, request.Status.Decision)
	}
}

func TestTheManagersRoleIsEnoughAndNoMore(t *testing.T) {
	t.Parallel()
	manager := plane.Client(t, plane.Manager(t))
	namespace := plane.Namespace(t)
	may := func(want bool, verb, resource, name, namespace string) {
		t.Helper()
		path, group, _ := strings.Cut(resource, ".")
		path, subresource, _ := strings.Cut(path, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: group, Resource: path, Subresource: subresource, Name: name,
			},
		}}
		must(t, manager.Create(t.Context(), review))
		if review.Status.Allowed != want {
			t.Errorf("the manager may %s %s %s in %s: %t, want %t", verb, resource, name, namespace, review.Status.Allowed, want)
		}
	}
	const yes, no = true, false
	may(yes, "watch", "toolpolicies.tidewaiter.dev", "", namespace)
	may(yes, "patch", "governedservers/status.tidewaiter.dev", "", namespace)
	may(yes, "delete", "approvalrequests.tidewaiter.dev", "", namespace)
	may(yes, "list", "secrets", "", namespace)
	may(yes, "create", "events.events.k8s.io", "", namespace)
	may(yes, "create", "leases.coordination.k8s.io", "", fixture.SystemNamespace)
	may(yes, "update", "leases.coordination.k8s.io", "tidewaiter-manager", fixture.SystemNamespace)

	may(no, "update", "governedservers.tidewaiter.dev", "", namespace)
	may(no, "delete", "governedservers.tidewaiter.dev", "", namespace)
	may(no, "update", "secrets", "", namespace)
	may(no, "create", "pods", "", namespace)
	may(no, "create", "serviceaccounts/token", "", namespace)
	// It may ask who holds a verb, and give on what a gateway needs; that it uses none of that itself is for admission.
	may(yes, "create", "subjectaccessreviews.authorization.k8s.io", "", "")
	may(no, "create", "localsubjectaccessreviews.authorization.k8s.io", "", namespace)
	may(yes, "create", "leases.coordination.k8s.io", "", namespace)
	may(yes, "serve", "governedservers/authority.tidewaiter.dev", "billing", namespace)
	for _, verb := range []string{"approve", "approve-irreversible", "resolve", "govern", "promote", "tidewaiter-wildcard"} {
		may(no, verb, "governedservers/authority.tidewaiter.dev", "billing", namespace)
	}
}

// An administrator of a namespace who may write Roles cannot give away, or take, authority that they do not hold.
func TestAuthorityCannotBeTakenByWritingRoles(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	roles := rbacv1.PolicyRule{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"create", "update", "patch"},
	}
	admin := account(t, namespace, "namespace-admin", append(kinds(), roles)...)
	holder := account(t, namespace, "holder", append(kinds(), roles, fixture.Authority("billing", "approve"))...)
	role := func() *rbacv1.Role {
		return &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"},
			Rules:      []rbacv1.PolicyRule{fixture.Authority("billing", "approve")},
		}
	}
	if err := admin.Create(t.Context(), role()); !apierrors.IsForbidden(err) {
		t.Errorf("an administrator without approve writes a Role with it: %v, want it forbidden", err)
	}
	taken(t, "a holder of approve writes a Role with it", holder.Create(t.Context(), role()))
}
