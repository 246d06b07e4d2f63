// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// counting is a server's tool that says what a call would affect.
type counting struct {
	mu     sync.Mutex
	calls  []string
	answer string
	err    error
	before func(n int) // what happens while the n-th call runs
}

func (c *counting) call(_ context.Context, _ endpoint.Upstream, definition tool.Descriptor, arguments []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, definition.Name+string(arguments))
	if c.before != nil {
		c.before(len(c.calls))
	}
	return []byte(c.answer), c.err
}

func (c *counting) says(answer string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer, c.err = answer, err
}

func (c *counting) made() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func rows(n int) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":"matches %d rows"}],"_meta":{"at":%d}}`, n, n)
}

// previewing is a policy that has get_invoice asked before people are asked about update_invoice.
func previewing(recheck bool) v1alpha1.ToolPolicy {
	p := team()
	p.Spec.Preview = []v1alpha1.PreviewRule{{
		Tools: []string{"update_*"}, Call: v1alpha1.PreviewCall{Tool: "get_invoice", Args: `{"filter": args.n}`}, Recheck: recheck,
	}}
	return p
}

func newPreviewRig(t *testing.T, recheck bool) (*rig, *counting) {
	r, c := newRig(t), &counting{answer: rows(7)}
	r.server.Call = c.call
	r.govern(previewing(recheck))
	return r, c
}

func TestAPersonIsShownWhatTheServerSays(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	r.hold(0)
	body := toolCall("update_invoice", `{"n":1}`)
	got := r.post(body)
	if got.code() != codePending || strings.Contains(got.body, "matches 7") {
		t.Fatalf("got %s", got.body)
	}
	r.post(body) // the request is there: nothing is asked again
	p := r.request().Spec.Preview
	if p == nil || p.Tool != "get_invoice" || p.Result != "matches 7 rows" || !p.Recheck || p.Failure != "" || len(p.ResultDigest) != 71 {
		t.Errorf("preview %+v", p)
	}
	if diff := cmp.Diff([]string{`get_invoice{"filter":1}`}, c.made()); diff != "" {
		t.Errorf("previews (-want +got):\n%s", diff)
	}
	r.decide(v1alpha1.DecisionApproved)
	if got := r.post(body); got.code() != "" {
		t.Fatalf("refused: %s", got.body)
	}
	r.ran(body) // the preview never counts as the action
	var codes []string
	for _, line := range r.receiptLines()[1:] {
		codes = append(codes, line.Code+"/"+line.Tool)
		switch {
		case line.Code == "Preview" && (line.Tier != "Read" || line.Verdict != receipt.VerdictAllow || line.CallID == "" || line.ActionHash != "" || line.Requester != agent):
			t.Errorf("receipt %+v", line)
		case line.Code == "Approved" && line.Preview != p.ResultDigest:
			t.Errorf("the receipt names the preview %q", line.Preview)
		}
	}
	want := []string{
		"Preview/get_invoice", "ApprovalPending/update_invoice", "ApprovalPending/update_invoice",
		"Preview/get_invoice", "Approved/update_invoice", "Preview/get_invoice", "Approved/update_invoice", // the outcome
	}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
}

func TestAPreviewThatFailsIsToldAndKeepsNobodyFromBeingAsked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit  func(*rig, *counting)
		says  string // part of the failure; "" for none
		calls int
	}{
		"control":            {func(*rig, *counting) {}, "", 1},
		"the server is down": {func(_ *rig, c *counting) { c.says("", errors.New("the server does not answer in time")) }, "in time", 1},
		"the tool fails": {func(_ *rig, c *counting) {
			c.says(`{"content":[{"type":"text","text":"no \"db\u001b"}],"isError":true}`, nil)
		}, `says: "no \u0022db\u001b"`, 1},
		"it fails oddly":       {func(_ *rig, c *counting) { c.says(`{"content":[],"isError":"yes"}`, nil) }, "failed", 1},
		"it answers in rounds": {func(_ *rig, c *counting) { c.says(`{"resultType":"input_required"}`, nil) }, "one round", 1},
		"two answers in one":   {func(_ *rig, c *counting) { c.says(`{"content":[],"content":[]}`, nil) }, "beyond doubt", 1},
		"it says nothing":      {func(_ *rig, c *counting) { c.says(`{"content":[{"type":"image","data":"x"}]}`, nil) }, "no text", 1},
		"its tier was raised":  {func(r *rig, _ *counting) { r.govern(previewing(true), raiseTo("get_invoice")) }, "only a Read tool", 0},
		"its calls are denied": {func(r *rig, _ *counting) {
			r.govern(previewing(true), second(rule(v1alpha1.EffectDeny, "get_invoice")))
		}, "does not let", 0},
		"its arguments are none": {func(r *rig, _ *counting) { r.govern(previewOf("get_invoice", "{'a': args.none}")) }, "cannot be evaluated", 0},
		"there is no such tool":  {func(r *rig, _ *counting) { r.govern(previewOf("count_rows", "{}")) }, "lists no tool count_rows", 0},
		"too many at once":       {func(r *rig, _ *counting) { r.server.previews.Add(maxPreviews) }, "too many", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c := newPreviewRig(t, true)
			tc.edit(r, c)
			if got := r.post(toolCall("update_invoice", `{"n":1}`)); got.code() != codePending {
				t.Fatalf("not asked: %s", got.body)
			}
			p := r.request().Spec.Preview
			if p == nil || !strings.Contains(p.Failure, tc.says) || (p.Failure == "") != (tc.says == "") || (p.ResultDigest == "") != (tc.says != "") {
				t.Errorf("preview %+v", p)
			}
			if len(c.made()) != tc.calls {
				t.Errorf("the server was asked %q", c.made())
			}
		})
	}
}

// previewOf has another tool asked, or with other arguments.
func previewOf(name, args string) v1alpha1.ToolPolicy {
	p := previewing(true)
	p.Spec.Preview[0].Call = v1alpha1.PreviewCall{Tool: name, Args: args}
	return p
}

// second is a second policy of the team.
func second(rules ...v1alpha1.Rule) v1alpha1.ToolPolicy {
	p := team(rules...)
	p.Name, p.UID = "other", "other"
	return p
}

func raiseTo(name string) v1alpha1.ToolPolicy {
	p := second()
	p.Spec.Tiers = []v1alpha1.TierOverride{{Tools: []string{name}, Tier: v1alpha1.TierReversible, Reason: "x"}}
	return p
}

func TestAnApprovalIsUsedOnlyWhileThePreviewHolds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		recheck bool
		edit    func(*rig, *counting) // between the yes and the use
		want    string                // code; "" runs
		phase   v1alpha1.Phase
		reason  v1alpha1.CancellationReason
		calls   int // of the preview, also for a new request
	}{
		"nothing changed":                       {true, func(*rig, *counting) {}, "", v1alpha1.PhaseSucceeded, "", 3},
		"nothing is asked again":                {false, func(_ *rig, c *counting) { c.says(rows(9), nil) }, "", v1alpha1.PhaseSucceeded, "", 1},
		"only _meta changed":                    {true, func(_ *rig, c *counting) { c.says(strings.Replace(rows(7), `"at":7`, `"at":8`, 1), nil) }, "", v1alpha1.PhaseSucceeded, "", 3},
		"the answer changed":                    {true, func(_ *rig, c *counting) { c.says(rows(9), nil) }, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelStateChanged, 3},
		"the server is down":                    {true, func(_ *rig, c *counting) { c.says("", errors.New("down")) }, "PreviewUnavailable", v1alpha1.PhaseApproved, "", 2},
		"the tool reads no more":                {true, func(r *rig, _ *counting) { r.govern(previewing(true), raiseTo("get_invoice")) }, "PreviewUnavailable", v1alpha1.PhaseApproved, "", 1},
		"the policy asks for a recheck now":     {false, func(r *rig, _ *counting) { r.govern(previewing(true)) }, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged, 2},
		"the policy asks for no recheck now":    {true, func(r *rig, _ *counting) { r.govern(previewing(false)) }, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged, 2},
		"the policy asks for nothing now":       {false, func(r *rig, _ *counting) { r.govern() }, "", v1alpha1.PhaseSucceeded, "", 1},
		"the answer changed at the last moment": {true, func(_ *rig, c *counting) { c.before = func(n int) { c.lastMoment(n, rows(9), nil) } }, "StateChanged", v1alpha1.PhaseFailed, "", 3},
		"the server fails at the last moment":   {true, func(_ *rig, c *counting) { c.before = func(n int) { c.lastMoment(n, "", errors.New("down")) } }, "PreviewUnavailable", v1alpha1.PhaseFailed, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c := newPreviewRig(t, tc.recheck)
			body := r.approved("update_invoice")
			first := r.request().Name
			tc.edit(r, c)
			got := r.post(body)
			if got.code() != tc.want {
				t.Fatalf("got %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(body)
			} else {
				r.ran()
			}
			for _, request := range r.requests() {
				if request.Name == first {
					if c := request.Status.Cancellation; request.CurrentPhase() != tc.phase || (c != nil) != (tc.reason != "") || c != nil && c.Reason != tc.reason {
						t.Errorf("the request is %s, %+v", request.CurrentPhase(), c)
					}
				} else if p := request.Spec.Preview; tc.reason == v1alpha1.CancelStateChanged && (p.Result != "matches 9 rows" || !strings.Contains(got.body, first)) {
					t.Errorf("asked anew with %+v; the agent is told %s", p, got.body)
				}
			}
			if len(c.made()) != tc.calls {
				t.Errorf("the server was asked %q", c.made())
			}
		})
	}
}

// lastMoment changes the answer of the third call: the one after the claim.
func (c *counting) lastMoment(n int, answer string, err error) {
	if n == 3 {
		c.answer, c.err = answer, err
	}
}

func TestAnApprovalWithoutAPreviewHasNothingToCompare(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	c.says("", errors.New("down"))
	body := r.approved("update_invoice")
	if got := r.post(body); got.code() != "" {
		t.Fatalf("refused: %s", got.body)
	}
	r.ran(body)
}

func TestWhatNobodyIsAskedAboutIsNotPreviewed(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*rig){
		"observed":   func(r *rig) { r.mode(v1alpha1.ModeObserve) },
		"unattended": func(r *rig) { r.promote(); r.edit(func() { r.policies = append(r.policies, previewing(true)) }) },
		"denied":     func(r *rig) { r.govern(previewing(true), second(rule(v1alpha1.EffectDeny, "update_*"))) },
		"a limit":    func(r *rig) { r.edit(func() { r.governed.Spec.Approvals.MaxPending = 0 }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c := newPreviewRig(t, true)
			edit(r)
			r.post(toolCall("update_invoice", `{"n":1}`))
			if len(c.made()) > 0 || len(r.requests()) > 0 {
				t.Errorf("the server was asked %q", c.made())
			}
		})
	}
}

func TestIdenticalCallsShareAPreview(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	release := make(chan struct{})
	c.before = func(int) { <-release }
	body := toolCall("update_invoice", `{"n":1}`)
	one, two := r.later(t.Context(), body), r.later(t.Context(), body)
	r.until("both under way", func() bool {
		return r.gateway.callers.holds(ofEffects) == int64(2*len(body)) && r.server.previews.Load() == 1
	})
	close(release)
	for _, answer := range []<-chan got{one, two} {
		if got := <-answer; got.code() != codePending {
			t.Errorf("got %s", got.body)
		}
	}
	r.request()
}

func TestAnAgentThatGoesDuringThePreviewHasNobodyAsked(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	r.watchClient()
	release := make(chan struct{})
	c.before = func(int) { <-release }
	ctx, leave := context.WithCancel(t.Context())
	answer := r.later(ctx, toolCall("update_invoice", `{"n":1}`))
	r.until("it is under way", func() bool { return r.server.previews.Load() == 1 })
	leave()
	<-answer
	r.until("the gateway knows", r.gone.Load)
	r.until("nothing is held", func() bool { return r.gateway.callers.holds(ofEffects) == 0 })
	close(release)
	r.until("it is over", func() bool { return r.server.previews.Load() == 0 })
	if n := len(r.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestNobodyIsAskedAboutWhatIsDeniedByThen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		during   func(*rig)
		want     string
		requests int
	}{
		"control":          {func(*rig) {}, codePending, 1},
		"the server stops": {func(r *rig) { r.mode(v1alpha1.ModeStopped) }, "ServerStopped", 0},
		"a rule denies it": {func(r *rig) { r.govern(previewing(true), second(rule(v1alpha1.EffectDeny, "update_*"))) }, "ToolUnknown", 0},
		"the server is gone": {func(r *rig) {
			if err := r.server.Update(nil); err != nil {
				r.t.Error(err)
			}
		}, "ServerGone", 0},
		"a rule asks for more": {func(r *rig) { r.govern(previewing(true), second(rule(v1alpha1.EffectRequireApproval, "update_*"))) }, codePending, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c := newPreviewRig(t, true)
			c.before = func(int) { tc.during(r) }
			if got := r.post(toolCall("update_invoice", `{"n":1}`)); got.code() != tc.want {
				t.Errorf("got %s", got.body)
			}
			if n := len(r.requests()); n != tc.requests {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestWhatAPersonGaveIsNotLostForOnePreviewTooMany(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	body := r.approved("update_invoice")
	c.before = func(n int) {
		if n == 2 { // others begin once this one is before its claim
			r.server.previews.Add(maxPreviews)
		}
	}
	if got := r.post(body); got.code() != "" {
		t.Fatalf("refused: %s", got.body)
	}
	r.ran(body)
	got := r.post(body)
	if !slices.ContainsFunc(r.requests(), func(a v1alpha1.ApprovalRequest) bool { return strings.Contains(a.Spec.Preview.Failure, "too many") }) {
		t.Errorf("the control, a first preview: %s", got.body)
	}
}

func TestIdenticalCallsOfOneApprovalDoNotCancelIt(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	body := r.approved("update_invoice")
	c.before = func(n int) {
		if n != 2 {
			return
		}
		c.answer = rows(6) // the other call, through another gateway, asked before this one, and runs
		request := r.request()
		request.Status.Phase, request.Status.Execution = v1alpha1.PhaseExecuting, &v1alpha1.Execution{Gateway: "other", Claim: "c"}
		if err := r.api.Status().Update(t.Context(), request); err != nil {
			t.Error(err)
		}
	}
	r.post(body)
	if request := r.request(); request.CurrentPhase() != v1alpha1.PhaseExecuting || request.Status.Cancellation != nil {
		t.Errorf("the request is %s, %+v", request.CurrentPhase(), request.Status.Cancellation)
	}
	r.ran()
}

func TestAHoldDoesNotWaitForThePreview(t *testing.T) {
	t.Parallel()
	r, c := newPreviewRig(t, true)
	r.hold(time.Minute)
	c.before = func(int) { r.clock.Step(time.Minute); r.server.Prove(r.clock.Now()) }
	if got := r.post(toolCall("update_invoice", `{"n":1}`)); got.code() != codePending {
		t.Errorf("got %s", got.body)
	}
}
