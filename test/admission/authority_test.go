// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestADecisionNeedsAllVerbsOfTheRequest(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	verbs := []string{
		"approve", "approve-irreversible", "approve-finance", "approve-legal", "approve-risk", "approve-it", "approve-board", "approve-audit",
	}
	for missing := range len(verbs) + 1 {
		var held []string
		for i, verb := range verbs {
			if i != missing {
				held = append(held, verb)
			}
		}
		who := person(t, c.namespace, fmt.Sprintf("all-but-%d", missing), fixture.Authority("billing", held...))
		for count := 1; count <= len(verbs); count++ {
			request := c.request(t, pending, func(r *v1alpha1.ApprovalRequest) { r.Spec.ApproveVerbs = verbs[:count] })
			err := who.Status().Patch(t.Context(), &request, merge(`{"status":`+approve+`}`))
			if what := fmt.Sprintf("%v asked, %v held", verbs[:count], held); missing < count {
				declined(t, what, err, "needs the verb "+verbs[missing]+" on", "resourceNames [billing]", "in namespace "+c.namespace,
					"kubectl auth can-i "+verbs[missing]+" governedservers/billing --subresource=authority -n "+c.namespace)
			} else {
				taken(t, what, err)
			}
		}
	}
}

// Wildcards on the kinds are not wildcards on everything, which nothing but the threat model can forbid.
func TestAWildcardOnTheKindsHoldsNoAuthority(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending)
	declined(t, "a wildcard on the kinds", c.write(t, request, write{"editor", approve}), "verb approve")

	all := plane.User(t, "all@"+c.namespace)
	plane.Grant(t, c.namespace, all, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	err := plane.Client(t, all).Status().Patch(t.Context(), &request, merge(`{"status":`+approve+`}`))
	taken(t, "a wildcard on all resources of the group, authority included", err)
}

func TestWithoutPatchOnStatusRBACRefuses(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending)
	bare := plane.User(t, "bare@"+c.namespace)
	plane.Grant(t, c.namespace, bare, fixture.Authority("billing", "approve"))
	vote := func() error {
		return plane.Client(t, bare).Status().Patch(t.Context(), request.DeepCopy(), merge(`{"status":`+approve+`}`))
	}
	if err := vote(); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "admission webhook") || fixture.RefusedBy(err, requestsStatusPolicy) {
		t.Errorf("the verb without patch on status: %v, want it refused by RBAC", err)
	}
	plane.Grant(t, c.namespace, bare, fixture.Rule("approvalrequests/status", "patch"))
	taken(t, "the verb and patch on status", vote())
}
