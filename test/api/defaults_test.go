// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// read returns one field of an object as the API server gives it back.
func read(t *testing.T, namespace, kind, name, field string) any {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := plane.Client(t, plane.Admin).Get(t.Context(), key, object); err != nil {
		t.Fatal(err)
	}
	return object.Object[field]
}

// A default in a marker that does not take is found here: what is not set reads back as documented.
func TestDefaultsOfAServerAreReadBack(t *testing.T) {
	t.Parallel()
	defaults := func(endpoint map[string]any) map[string]any {
		return map[string]any{
			"endpoint":       endpoint,
			"mode":           "Enforce",
			"pinning":        "Report",
			"otherMethods":   "Pass",
			"discovery":      map[string]any{"interval": "10m0s", "timeout": "30s"},
			"classification": map[string]any{"trustReadOnlyHint": false, "minimumTier": "Read"},
			"approvals":      approvals("45s"),
			"autonomy":       map[string]any{"cleanApprovals": int64(3)},
			"callTimeout":    "5m0s",
		}
	}
	url := map[string]any{"url": "https://mcp.example.com", "transport": "StreamableHTTP"}
	for name, tc := range map[string]struct {
		spec string
		want map[string]any
	}{
		"url": {
			spec: "  endpoint: {url: 'https://mcp.example.com'}",
			want: defaults(url),
		},
		"service": {
			spec: "  endpoint: {service: {name: billing-mcp, port: 8080}}",
			want: defaults(map[string]any{"service": map[string]any{
				"name": "billing-mcp", "port": int64(8080), "path": "/mcp", "scheme": "http",
			}, "transport": "StreamableHTTP"}),
		},
		"empty groups": {
			spec: "  endpoint: {url: 'https://mcp.example.com'}\n  discovery: {}\n  classification: {}\n  approvals: {}\n  autonomy: {}",
			want: defaults(url),
		},
		"a hold of nothing is kept": {
			spec: "  endpoint: {url: 'https://mcp.example.com'}\n  approvals: {hold: 0s}",
			want: with(defaults(url), "approvals", approvals("0s")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			plane.MustCreate(t, plane.Admin, namespace, fmt.Sprintf(serverHead, "billing")+tc.spec)
			if diff := cmp.Diff(any(tc.want), read(t, namespace, "GovernedServer", "billing", "spec")); diff != "" {
				t.Errorf("spec read back (-want +got):\n%s", diff)
			}
		})
	}
}

// approvals returns what spec.approvals reads back as, with a hold.
func approvals(hold string) map[string]any {
	return map[string]any{
		"hold": hold, "ttl": "1h0m0s", "maxPending": int64(20), "maxPerHour": int64(60), "allowServiceAccounts": false,
		"required": map[string]any{"reversible": int64(1), "irreversible": int64(1)},
	}
}

func with(spec map[string]any, field string, value any) map[string]any {
	spec[field] = value
	return spec
}

// Typed clients must send what the schema takes, and read back what they sent.
func TestGoTypesAndSchemaAgree(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	admin := plane.Client(t, plane.Admin)
	server, policy := fixture.GovernedServer(namespace, "billing"), fixture.ToolPolicy(namespace, "house", "billing")
	request := fixture.ApprovalRequest(namespace, "billing", 1)
	for _, object := range []client.Object{&server, &policy, &request} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if err := admin.Update(t.Context(), object); err != nil {
			t.Errorf("put %T back: %v", object, err)
		}
	}
	if diff := cmp.Diff(fixture.ToolPolicy(namespace, "house", "billing").Spec, policy.Spec); diff != "" {
		t.Errorf("ToolPolicy read back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fixture.ApprovalRequest(namespace, "billing", 1).Spec, request.Spec); diff != "" {
		t.Errorf("ApprovalRequest read back (-want +got):\n%s", diff)
	}
}

func TestARequestIsBornPending(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	admin := plane.Client(t, plane.Admin)
	request := fixture.ApprovalRequest(namespace, "billing", 1)
	request.Status = v1alpha1.ApprovalRequestStatus{Phase: v1alpha1.PhaseApproved, Decision: v1alpha1.DecisionApproved}
	if err := admin.Create(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
	want := any(map[string]any{"phase": "Pending"})
	if diff := cmp.Diff(want, read(t, namespace, "ApprovalRequest", request.Name, "status")); diff != "" {
		t.Errorf("status read back (-want +got):\n%s", diff)
	}
}
