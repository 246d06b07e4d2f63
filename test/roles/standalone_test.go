// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// The account of a standalone gateway has the rights of a gateway, the server's credential among them, and no other
// ServiceAccount of the namespace has that.
func TestTheCredentialIsForTheStandaloneGatewayAlone(t *testing.T) {
	t.Parallel()
	q := newQuay(t)
	q.edit(t, func(s *v1alpha1.GovernedServerSpec) {
		s.Gateway = &v1alpha1.GatewaySpec{Standalone: &v1alpha1.StandaloneGateway{Replicas: 2}}
	})
	q.authorized(t, metav1.ConditionTrue, v1alpha1.ReasonGranted)
	gateway := plane.Client(t, plane.ServiceAccount(t, q.namespace, "tidewaiter-billing"))
	expected := holders()["ServiceAccount gateway-billing"]
	expect(t, "the standalone gateway", gateway, q.namespace, expected.may, expected.mayNot)
	must(t, gateway.Get(t.Context(), q.key("billing-mcp"), &corev1.Secret{}))
	for _, name := range []string{"agent", "gateway-billing"} {
		other := plane.Client(t, plane.ServiceAccount(t, q.namespace, name))
		until(t, name+" does not read the credential", func(ctx context.Context) bool {
			return apierrors.IsForbidden(other.Get(ctx, q.key("billing-mcp"), &corev1.Secret{}))
		})
	}
}

// What runs a gateway is written by the manager, and nothing else that runs anything.
func TestTheManagerRunsDeploymentsAlone(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	verbs := []string{"get", "list", "watch", "create", "patch", "delete"}
	var may, mayNot []right
	for _, resource := range []string{"deployments", "services", "serviceaccounts", "poddisruptionbudgets"} {
		for _, verb := range verbs {
			may = append(may, right{verb: verb, resource: resource})
		}
		mayNot = append(mayNot, right{verb: "update", resource: resource}, right{verb: "deletecollection", resource: resource})
	}
	for _, resource := range []string{"pods", "statefulsets", "daemonsets", "deployments/scale", "deployments/status", "serviceaccounts/token", "pods/exec"} {
		for _, verb := range slices.Concat(verbs[3:], []string{"update"}) {
			mayNot = append(mayNot, right{verb: verb, resource: resource})
		}
	}
	mayNot = append(mayNot, rights("impersonate serviceaccounts", "escalate bind roles")...)
	expect(t, "the manager", plane.Client(t, plane.Manager(t)), namespace, may, mayNot)
}
