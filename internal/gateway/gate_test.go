// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// nothingSent fails when the server has got anything.
func (r *rig) nothingSent() {
	r.t.Helper()
	if seen := r.upstream.requests(); len(seen) > 0 {
		r.t.Errorf("the server got %+v", seen)
	}
}

// ran fails unless the server got exactly these bodies.
func (r *rig) ran(bodies ...string) {
	r.t.Helper()
	seen := r.upstream.requests()
	if len(seen) != len(bodies) {
		r.t.Fatalf("the server got %d requests, want %d", len(seen), len(bodies))
	}
	for i, body := range bodies {
		if seen[i].body != body {
			r.t.Errorf("the server got %s, want %s", seen[i].body, body)
		}
	}
}

func (r *rig) hold(d time.Duration) {
	r.edit(func() { r.governed.Spec.Approvals.Hold = &metav1.Duration{Duration: d} })
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tool   string
		edit   func(*rig)
		want   string // the gateway's code; "" for the server's answer
		status int
	}{
		"a read":                             {"get_invoice", nil, "", 200},
		"a reversible tool":                  {"update_invoice", nil, codePending, 200},
		"a promoted one":                     {"update_invoice", (*rig).promote, "", 200},
		"an irreversible one":                {"delete_account", nil, codePending, 200},
		"an unknown one":                     {"other", nil, "ToolUnknown", 200},
		"one spelt otherwise":                {"Get_invoice", nil, "ToolUnknown", 200},
		"a read with a minimum tier":         {"get_invoice", func(r *rig) { r.edit(func() { r.governed.Spec.Classification.MinimumTier = v1alpha1.TierReversible }) }, codePending, 200},
		"an irreversible one, promoted":      {"delete_account", (*rig).promoteIrreversible, codePending, 200},
		"the tools of another endpoint":      {"get_invoice", func(r *rig) { r.edit(func() { r.governed.Status.EndpointDigest = "sha256:other" }) }, "ToolUnknown", 200},
		"no server":                          {"get_invoice", func(r *rig) { r.edit(func() { r.governed = nil }) }, "", 503},
		"a read, API silent for 4 minutes":   {"get_invoice", func(r *rig) { r.promote(); r.clock.Step(4 * time.Minute) }, "", 200},
		"a read, API silent for 6 minutes":   {"get_invoice", func(r *rig) { r.promote(); r.clock.Step(6 * time.Minute) }, "PolicyStale", 200},
		"promoted, API silent for a minute":  {"update_invoice", func(r *rig) { r.promote(); r.clock.Step(time.Minute) }, "", 200},
		"promoted, API silent for 91 s":      {"update_invoice", func(r *rig) { r.promote(); r.clock.Step(91 * time.Second) }, "PolicyStale", 200},
		"promoted, a denial seen":            {"update_invoice", func(r *rig) { r.promote(); r.denied("update_invoice") }, codePending, 200},
		"promoted, another tool was denied":  {"update_invoice", func(r *rig) { r.promote(); r.denied("delete_account") }, "", 200},
		"promoted, then attended by another": {"update_invoice", func(r *rig) { r.promote(); r.edit(func() { r.policies = append(r.policies, r.attended()) }) }, codePending, 200},
		"no word of the server on its tools": {"update_invoice", func(r *rig) { r.listErr = errors.New("down") }, "DefinitionUnavailable", 200},
		"promoted, no word of the server":    {"update_invoice", func(r *rig) { r.promote(); r.listErr = errors.New("down") }, "DefinitionUnavailable", 200},
		"the server has another definition":  {"update_invoice", func(r *rig) { r.promote(); r.redefine("update_invoice", false) }, codePending, 200},
		"the server no longer has the tool":  {"update_invoice", func(r *rig) { r.listed = nil }, "DefinitionUnavailable", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if tc.edit != nil {
				tc.edit(r)
			}
			body := toolCall(tc.tool, `{"n":1}`)
			got := r.post(body)
			if got.status != tc.status || got.code() != tc.want {
				t.Errorf("HTTP %d, code %q, want %d, %q: %s", got.status, got.code(), tc.status, tc.want, got.body)
			}
			if tc.want == "" && tc.status == 200 {
				r.ran(body)
			} else {
				r.nothingSent()
			}
		})
	}
}

func (r *rig) promoteIrreversible() {
	r.promote()
	r.edit(func() {
		record := r.governed.Status.Records[0]
		record.Tool, record.Digest, record.Approved = "delete_account", r.digest("delete_account"), 100
		r.governed.Status.Records = append(r.governed.Status.Records, record)
		r.policies[0].Spec.Autonomy = append(r.policies[0].Spec.Autonomy, v1alpha1.AutonomyRule{Tool: "delete_account", Digest: r.digest("delete_account"), Mode: v1alpha1.ModeUnattended})
	})
}

func (r *rig) attended() v1alpha1.ToolPolicy {
	policy := *r.policies[0].DeepCopy()
	policy.Name, policy.UID = "zz", "zz"
	policy.Spec.Autonomy = []v1alpha1.AutonomyRule{{Tool: "update_invoice", Mode: v1alpha1.ModeAttended}}
	return policy
}

// denied puts a request of a tool there that a person denied, and the manager has not seen.
func (r *rig) denied(tool string) {
	request := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: "billing-denied-1"}}
	request.Spec = v1alpha1.ApprovalRequestSpec{ServerRef: v1alpha1.ServerReference{Name: billing.Name, UID: "server-uid"}, Tool: tool, ActionHash: "sha256:another", TTLSeconds: 60}
	if err := r.api.Create(context.Background(), request); err != nil {
		r.t.Fatal(err)
	}
	request.Status.Decision = v1alpha1.DecisionDenied
	if err := r.api.Status().Update(context.Background(), request); err != nil {
		r.t.Fatal(err)
	}
}

func TestRefusedFlows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	call := func(name, member string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{"n":1}` + member + `}}`
	}
	for _, member := range []string{`,"inputResponses":{}`, `,"requestState":"x"`} {
		if got := r.post(call("update_invoice", member)); got.code() != "RoundUnknown" {
			t.Errorf("%s: %s", member, got.body)
		}
	}
	for _, member := range []string{`,"inputResponses":null`, `,"requestState":7`} {
		if got := r.post(call("update_invoice", member)); !strings.Contains(got.body, `"code":-32602`) {
			t.Errorf("%s: %s", member, got.body)
		}
	}
	for _, member := range []string{`,"task":{}`, `,"task":null`} {
		if got := r.post(call("update_invoice", member)); !strings.Contains(got.body, `"error":{"code":-32010,`) || !strings.Contains(got.body, `"data":{"code":"TaskNotSupported"`) {
			t.Errorf("%s: %s", member, got.body)
		}
	}
	if got := r.post(call("update_invoice", ""), "Mcp-Param-Amount", "2"); got.status != 400 || !strings.Contains(got.body, "-32020") {
		t.Errorf("a header that contradicts the argument: HTTP %d %s", got.status, got.body)
	}
	if got := r.post(call("get_invoice", ""), "Mcp-Param-Amount", "2"); got.status != 400 {
		t.Errorf("the same on a read: HTTP %d %s", got.status, got.body)
	}
	r.nothingSent()
	for _, body := range []string{call("get_invoice", `,"task":{}`), call("update_invoice", "")} {
		if got := r.post(body, "Mcp-Param-Amount", "1"); got.status != 200 || got.code() != "" {
			t.Errorf("HTTP %d: %s", got.status, got.body)
		}
	}
	r.ran(call("get_invoice", `,"task":{}`), call("update_invoice", ""))
}

func TestHostileMessagesNeverReachTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"delete_account"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call ","params":{"name":"delete_account"}}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"update_invoice"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"update_invoice"}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_invoice"}}]`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_invoice","Name":"delete_account"}}`,
		ping + ping,
	} {
		if got := r.post(body); got.status != 400 {
			t.Errorf("%s: HTTP %d %s", body, got.status, got.body)
		}
	}
	if got := r.post(toolCall("get_invoice", `{}`), "Mcp-Name", "update_invoice"); got.status != 400 {
		t.Errorf("a header with another name: HTTP %d", got.status)
	}
	if got := r.post(toolCall("get_invoice", `{"x":"`+strings.Repeat("a", 4<<20)+`"}`)); got.status != 413 {
		t.Errorf("a body over the limit: HTTP %d", got.status)
	}
	r.nothingSent()
}
