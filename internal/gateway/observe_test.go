// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// mode puts the server into a mode.
func (r *rig) mode(m v1alpha1.Mode) { r.edit(func() { r.governed.Spec.Mode = m }) }

// baseline is a policy of the operator that covers every server.
func baseline(rules ...v1alpha1.Rule) v1alpha1.ToolPolicy {
	return v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tidewaiter-system", Name: "fleet", UID: "fleet", Generation: 1},
		Spec:       v1alpha1.ToolPolicySpec{NamespaceSelector: &metav1.LabelSelector{}, Rules: rules},
	}
}

func TestWhatIsObservedPassesAndIsRecorded(t *testing.T) {
	t.Parallel()
	deny := rule(v1alpha1.EffectDeny, "update_*")
	task := strings.Replace(toolCall("update_invoice", `{"n":1}`), `"arguments"`, `"task":{},"arguments"`, 1)
	for name, tc := range map[string]struct {
		body string
		edit func(*rig)
		want receipt.Observed
		// kinds of the receipts
		outcome bool
	}{
		"a would-be denial":            {toolCall("update_invoice", `{"n":1}`), func(r *rig) { r.govern(team(deny)) }, receipt.Observed{Verdict: "Deny", Code: "RuleDenied", GatedBy: "ToolPolicy/team rule deny"}, true},
		"what would wait":              {toolCall("update_invoice", `{"n":1}`), func(*rig) {}, receipt.Observed{Verdict: "RequireApproval", Code: "ApprovalRequired", GatedBy: "tier"}, true},
		"what cannot be undone":        {toolCall("delete_account", `{"n":1}`), func(*rig) {}, receipt.Observed{Verdict: "RequireApproval", Code: "ApprovalRequired", GatedBy: "tier"}, true},
		"what would run":               {toolCall("update_invoice", `{"n":1}`), (*rig).promote, receipt.Observed{Verdict: "Allow", Code: "Unattended", GatedBy: "ToolPolicy/team spec.autonomy[0]"}, true},
		"a read":                       {toolCall("get_invoice", `{"n":1}`), func(*rig) {}, receipt.Observed{Verdict: "Allow", Code: "ReadTool", GatedBy: "tier"}, false},
		"a read that would be denied":  {toolCall("get_invoice", `{"n":1}`), func(r *rig) { r.govern(team(rule(v1alpha1.EffectDeny, "*"))) }, receipt.Observed{Verdict: "Deny", Code: "RuleDenied", GatedBy: "ToolPolicy/team rule deny"}, false},
		"a tool that nobody knows":     {toolCall("no_such_tool", `{"n":1}`), func(*rig) {}, receipt.Observed{Verdict: "Deny", Code: "ToolUnknown"}, true},
		"a task":                       {task, func(*rig) {}, receipt.Observed{Verdict: "Deny", Code: "TaskNotSupported"}, true},
		"a round that nobody asked":    {strings.Replace(toolCall("update_invoice", `{"n":1}`), `"arguments"`, `"requestState":"s","arguments"`, 1), func(*rig) {}, receipt.Observed{Verdict: "Deny", Code: "RoundUnknown"}, true},
		"a tool that is not described": {toolCall("update_invoice", `{"n":1}`), func(r *rig) { r.listErr = errors.New("down") }, receipt.Observed{Verdict: "Deny", Code: "DefinitionUnavailable"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			tc.edit(r)
			r.mode(v1alpha1.ModeObserve)
			if got := r.post(tc.body); got.code() != "" || got.status != 200 {
				t.Errorf("refused: HTTP %d %s", got.status, got.body)
			}
			r.ran(tc.body)
			if n := len(r.requests()); n > 0 {
				t.Errorf("%d requests were opened", n)
			}
			lines := r.receiptLines()[1:]
			if len(lines) != 1 && !tc.outcome || len(lines) != 2 && tc.outcome {
				t.Fatalf("%d receipts", len(lines))
			}
			for _, line := range lines {
				if line.Verdict != receipt.VerdictAllow || line.Code != "Observed" || len(line.Steps) > 0 || line.RequestUID != "" {
					t.Errorf("receipt %+v", line)
				}
				if diff := cmp.Diff(&tc.want, line.Observed); diff != "" {
					t.Errorf("observed (-want +got):\n%s", diff)
				}
			}
			if tc.outcome && (lines[0].Kind != receipt.KindDecision || lines[1].Kind != receipt.KindOutcome || lines[1].Outcome != "Succeeded") {
				t.Errorf("receipts %+v", lines)
			}
		})
	}
}

func TestObservingLoosensNothingElse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body    string
		headers []string
		edit    func(*rig)
		want    string // in the answer
	}{
		"a baseline that denies":        {toolCall("update_invoice", `{"n":1}`), nil, func(r *rig) { r.govern(baseline(rule(v1alpha1.EffectDeny, "update_*"))) }, `"ToolUnknown"`},
		"a baseline that asks":          {toolCall("get_invoice", `{"n":1}`), nil, func(r *rig) { r.govern(baseline(rule(v1alpha1.EffectRequireApproval, "get_*"))) }, `"ApprovalPending"`},
		"a baseline that stops":         {toolCall("get_invoice", `{"n":1}`), nil, func(r *rig) { r.govern(stopped()) }, `"ServerStopped"`},
		"a baseline that is read-only":  {toolCall("update_invoice", `{"n":1}`), nil, func(r *rig) { p := baseline(); p.Spec.Mode = v1alpha1.BaselineReadOnly; r.govern(p) }, `"ServerReadOnly"`},
		"what is malformed":             {ping + ping, nil, func(*rig) {}, `-32700`},
		"a header that contradicts":     {toolCall("update_invoice", `{"n":1}`), []string{"Mcp-Param-Amount", "2"}, func(*rig) {}, `-32020`},
		"a header that nobody can read": {toolCall("no_such_tool", `{"n":1}`), []string{"Mcp-Param-Amount", "2"}, func(*rig) {}, `"DefinitionUnavailable"`},
		"no policy":                     {toolCall("get_invoice", `{"n":1}`), nil, func(r *rig) { r.edit(func() { r.governed = nil }) }, `no policy is loaded`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.mode(v1alpha1.ModeObserve)
			tc.edit(r)
			if got := r.post(tc.body, tc.headers...); !strings.Contains(got.body, tc.want) {
				t.Errorf("HTTP %d %s", got.status, got.body)
			}
			r.nothingSent()
		})
	}
}

func TestNothingIsUsedOrCancelledWhileTheServerObserves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := r.approved("update_invoice")
	r.mode(v1alpha1.ModeObserve)
	r.govern(team(rule(v1alpha1.EffectDeny, "update_*")))
	for range 2 {
		if got := r.post(body); got.code() != "" {
			t.Errorf("observed: %s", got.body)
		}
	}
	r.ran(body, body)
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseApproved {
		t.Errorf("the request is %s", phase)
	}
	r.govern()
	r.mode(v1alpha1.ModeEnforce)
	if got := r.post(body); got.code() != "" || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("the approval, afterwards: %s", got.body)
	}
}

func TestAnObservedEffectIsOnDiskBeforeItLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mode(v1alpha1.ModeObserve)
	body := toolCall("update_invoice", `{"n":1}`)
	// The last moment before the call leaves: the server observes no more.
	r.receiptClock(func() { r.mode(v1alpha1.ModeEnforce) })
	if got := r.post(body); got.code() != "PolicyChanged" {
		t.Errorf("the mode changed while the receipt was written: %s", got.body)
	}
	r.nothingSent()
	r.mode(v1alpha1.ModeObserve)
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.post(body); got.code() != "ReceiptNotWritten" {
		t.Errorf("without receipts: %s", got.body)
	}
	r.nothingSent()
}
