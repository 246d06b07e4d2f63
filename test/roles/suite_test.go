// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roles tests who may do what by the Roles that are shipped, shown and made: on a real Kubernetes API, as real
// users, with the webhook of votes.
package roles

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
)

var (
	plane *fixture.ControlPlane
	votes *booth.Booth
)

func TestMain(m *testing.M) { os.Exit(booth.Main(m, &plane, &votes, clock.RealClock{})) }

// right is one thing that somebody may or may not do: a verb, a resource and, where it matters, a name.
type right struct{ verb, resource, name string }

// rights reads lines such as "get list governedservers billing".
func rights(lines ...string) []right {
	var all []right
	for _, line := range lines {
		words := strings.Fields(line)
		end := slices.IndexFunc(words, func(w string) bool { return resources[resourceOf(w)] != "" })
		name := ""
		if end+1 < len(words) {
			name = words[end+1]
		}
		for _, verb := range words[:end] {
			all = append(all, right{verb, words[end], name})
		}
	}
	return all
}

// resources maps those of these tests to their groups.
var resources = map[string]string{
	"governedservers": "tidewaiter.dev", "toolpolicies": "tidewaiter.dev", "approvalrequests": "tidewaiter.dev",
	"leases": "coordination.k8s.io", "secrets": "core", "services": "core", "pods": "core", "serviceaccounts": "core",
	"deployments": "apps", "statefulsets": "apps", "daemonsets": "apps", "poddisruptionbudgets": "policy",
	"roles": "rbac.authorization.k8s.io", "rolebindings": "rbac.authorization.k8s.io",
}

func resourceOf(path string) string {
	resource, _, _ := strings.Cut(path, "/")
	return resource
}

// may asks the API server as the client itself.
func may(ctx context.Context, t *testing.T, as client.Client, namespace string, r right) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(r.resource, "/")
	group := resources[resource]
	if group == "core" {
		group = ""
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.verb, Group: group, Resource: resource, Subresource: subresource, Name: r.name,
		},
	}}
	if err := as.Create(ctx, review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// until waits for a condition.
func until(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return is(ctx), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// expect waits until all of the allowed rights are given, and wants none of the others.
func expect(t *testing.T, who string, as client.Client, namespace string, allowed, refused []right) {
	t.Helper()
	for _, r := range allowed {
		until(t, who+" may not "+r.verb+" "+r.resource+" "+r.name, func(ctx context.Context) bool { return may(ctx, t, as, namespace, r) })
	}
	for _, r := range refused {
		if may(t.Context(), t, as, namespace, r) {
			t.Errorf("%s may %s %s %s", who, r.verb, r.resource, r.name)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
