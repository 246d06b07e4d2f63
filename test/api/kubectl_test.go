// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// kubectl runs kubectl as the one who sets scenes: what is tested here is the shape of the kinds, not rights.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	stdout, stderr, exit := plane.Kubectl(t, plane.Admin, stdin, args...)
	if exit != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s", strings.Join(args, " "), exit, stderr)
	}
	return stdout
}

func TestExplainReadsLikeDocumentation(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"governedserver":                    "puts an MCP server under governance",
		"gsrv.spec.approvals.hold":          "default 45s",
		"gsrv.spec.endpoint.headers":        "sent with every request",
		"toolpolicy":                        "what a team has decided",
		"tpol.spec.autonomy.mode":           "Unattended",
		"approvalrequest":                   "one gated action",
		"areq.spec.blastRadius.summary":     "one sentence",
		"areq.status.decision":              "what a person patches",
		"areq.status.execution.outcome":     "outcome of the call",
		"approvalrequest.spec.requester":    "who calls",
		"governedserver.status.tools.tier":  "effective",
		"governedserver.spec.autonomy":      "run unattended",
		"toolpolicy.status.notInForce":      "not in force",
		"toolpolicy.spec.tiers.digest":      "definition",
		"governedserver.spec.callTimeout":   "5m",
		"governedserver.spec.endpoint.url":  "without user, query or fragment",
		"governedserver.spec.mode":          "Enforce",
		"approvalrequest.spec.approveVerbs": "a vote needs",
	} {
		if out := strings.Join(strings.Fields(kubectl(t, "", "explain", path)), " "); !strings.Contains(out, want) {
			t.Errorf("kubectl explain %s lacks %q:\n%s", path, want, out)
		}
	}
}

func TestGetShowsWhatPeopleAskFor(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	admin := plane.Client(t, plane.Admin)
	server, policy := fixture.GovernedServer(namespace, "billing"), fixture.ToolPolicy(namespace, "house", "billing")
	request := fixture.ApprovalRequest(namespace, "billing", 1)
	for _, object := range []client.Object{&server, &policy, &request} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for kinds, want := range map[string][]string{
		"tidewaiter": {"governedserver.tidewaiter.dev/billing", "toolpolicy.tidewaiter.dev/house", "approvalrequest.tidewaiter.dev/" + request.Name},
		"gsrv":       {"NAME READY READ REVERSIBLE IRREVERSIBLE AGE"},
		"tpol":       {"NAME ACCEPTED EFFECTIVE TARGETS AGE", `["billing"]`},
		"areq":       {"NAME SERVER TOOL TIER PHASE BLAST RADIUS AGE", `billing refund_invoice Reversible Pending scoped to invoice="inv_17"`},
	} {
		out := strings.Join(strings.Fields(kubectl(t, "", "get", kinds, "-n", namespace)), " ")
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("kubectl get %s lacks %q:\n%s", kinds, text, out)
			}
		}
	}
	if wide := kubectl(t, "", "get", "areq", "-o", "wide", "-n", namespace); !strings.Contains(wide, "system:serviceaccount:agents:bookkeeper") ||
		!strings.Contains(wide, "inv_17") {
		t.Errorf("kubectl get areq -o wide shows neither requester nor arguments:\n%s", wide)
	}
}

func TestRequestsAreSelectedByPhaseAndServer(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	admin := plane.Client(t, plane.Admin)
	cancelled := fixture.ApprovalRequest(namespace, "billing", 1)
	others := []v1alpha1.ApprovalRequest{fixture.ApprovalRequest(namespace, "billing", 2), fixture.ApprovalRequest(namespace, "payroll", 1)}
	for _, request := range append(others, cancelled) {
		if err := admin.Create(t.Context(), &request); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, "", "patch", "areq", cancelled.Name, "-n", namespace, "--subresource=status", "--type=merge",
		"-p", `{"status":{"phase":"Cancelled","cancellation":{"reason":"Withdrawn"}}}`)
	for selector, want := range map[string][]string{
		"status.phase=Pending":                             {others[0].Name, others[1].Name},
		"status.phase=Cancelled":                           {cancelled.Name},
		"spec.serverRef.name=payroll":                      {others[1].Name},
		"spec.serverRef.name=billing,status.phase=Pending": {others[0].Name},
		"status.phase=Approved":                            nil,
	} {
		var got []string
		for line := range strings.Lines(kubectl(t, "", "get", "areq", "-n", namespace, "-o", "name", "--field-selector", selector)) {
			got = append(got, strings.TrimPrefix(strings.TrimSpace(line), "approvalrequest.tidewaiter.dev/"))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", selector, got, want)
		}
	}
}

// A policy with a slip of the pen must not become one that says less.
func TestAMisspeltPolicyIsRefused(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	good := fmt.Sprintf(policyHead, "house") + tiers("{tools: [a], tier: Irreversible, reason: r}")
	for name, manifest := range map[string]string{
		"a misspelt key":          strings.Replace(good, "tiers:", "teirs:", 1),
		"a misspelt nested key":   strings.Replace(good, "reason: r", "reason: r, becuase: x", 1),
		"a key of a later schema": good + "\n  rules: [{name: a, decision: Deny}]",
		"another version":         strings.Replace(good, "v1alpha1", "v1", 1),
	} {
		if _, stderr, exit := plane.Kubectl(t, plane.Admin, manifest, "apply", "-n", namespace, "-f", "-"); exit == 0 {
			t.Errorf("%s was taken; %s", name, stderr)
		}
	}
	kubectl(t, good, "apply", "-n", namespace, "-f", "-")
}
