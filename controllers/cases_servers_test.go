// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestNothingHoldsBackTheDeletionOfAServer(t *testing.T) {
	t.Parallel()
	up, gone := newPier(t), httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, tc := range map[string]struct{ url, reason string }{
		"one that answers":        {up.url, v1alpha1.ReasonUnauthorized},
		"one that is unreachable": {gone.URL + "/mcp", v1alpha1.ReasonUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.editServer(t, func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = tc.url })
			y.govern(t)
			y.until(t, "it was tried", reachableFor(tc.reason))
			if err := y.admin.Delete(t.Context(), y.server); err != nil {
				t.Fatal(err)
			}
			// It is gone with the answer: whatever had to run first would leave it there, terminating.
			var left v1alpha1.GovernedServer
			if err := y.admin.Get(t.Context(), client.ObjectKeyFromObject(y.server), &left); !apierrors.IsNotFound(err) {
				t.Errorf("%v, finalizers %v", err, left.Finalizers)
			}
		})
	}
}

func TestToolsOfManyPagesAreCounted(t *testing.T) {
	t.Parallel()
	many := server.NewMCPServer("many", "1", server.WithToolCapabilities(true), server.WithPaginationLimit(100))
	for i := range 250 {
		verb := []string{"get", "update", "delete", "list", "get"}[i%5]
		many.AddTool(mcp.NewTool(fmt.Sprintf("%s_box_%03d", verb, i), mcp.WithDescription("About a box.")), nil)
	}
	running := httptest.NewServer(server.NewStreamableHTTPServer(many))
	t.Cleanup(running.Close)
	t.Cleanup(running.CloseClientConnections)
	y := newYard(t)
	y.editServer(t, func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = running.URL + "/mcp" })
	y.govern(t)
	status := y.until(t, "it is listed", reachableFor(v1alpha1.ReasonListed))
	want := v1alpha1.TierCounts{Read: 150, Reversible: 50, Irreversible: 50}
	if len(status.Tools) != 250 || status.Counts == nil || *status.Counts != want {
		t.Errorf("%d tools, counts %+v, want %+v", len(status.Tools), status.Counts, want)
	}
}

func TestADenialOutlivesItsRequestItsToolAndItsWords(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		how  edit
		want v1alpha1.Autonomy
	}{
		"denied":   {ended(v1alpha1.PhaseDenied, ""), v1alpha1.AutonomyDisqualified},
		"approved": {clean, v1alpha1.AutonomyEligible},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepts := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "accepts"}, Spec: v1alpha1.ToolPolicySpec{
				Targets: []string{"cranes"}, Pins: []v1alpha1.Pin{{Tool: "lift_box", Digest: "sha256:t"}, {Tool: "lift_box", Digest: "sha256:t2"}},
			}}
			d := newDock(t, interceptor.Funcs{}, accepts, cranes(func(s *v1alpha1.GovernedServer) { s.Spec.Autonomy.CleanApprovals = 1 }))
			decide := func(uid, digest string, how edit) {
				request := newRequest(how, withUID(uid), func(r *v1alpha1.ApprovalRequest) {
					r.Spec.EndpointDigest, r.Spec.ToolDigest = endpointOf(t, cranes()), digest
				})
				if err := d.api.Create(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				for range 3 { // count it, mark it, let it go
					if _, err := d.reconcile(t); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.api.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil || !isAccounted(request) {
					t.Fatalf("the request is not marked: %v", err)
				}
				if err := d.api.Delete(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
			d.see(t, listed(liftBox()))
			decide("1", "sha256:t", tc.how)
			d.see(t, listed(getBox()))
			d.see(t, listed(getBox(), liftBox(func(s *v1alpha1.ToolStatus) { s.Digest = "sha256:t2" })))
			decide("2", "sha256:t2", clean)
			restarted := newDock(t, interceptor.Funcs{}, d.stored(t), accepts)
			got := restarted.see(t, listed(getBox(), liftBox(func(s *v1alpha1.ToolStatus) { s.Digest = "sha256:t2" })))
			for _, r := range got.Status.Records {
				if r.Tool == "lift_box" && r.Autonomy != tc.want {
					t.Errorf("the record is %+v, want %s", r, tc.want)
				}
			}
			if len(got.Status.Records) != 1 {
				t.Errorf("records are %+v", got.Status.Records)
			}
		})
	}
}
