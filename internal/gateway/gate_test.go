// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/wire"
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
		"the server has another definition":  {"update_invoice", func(r *rig) { r.promote(); r.redescribe() }, codePending, 200},
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

func (r *rig) redescribe() {
	changed := describe(r.t, "update_invoice", "changed")
	r.edit(func() {
		for i := range r.listed {
			if r.listed[i].Name == changed.Name {
				r.listed[i] = changed
			}
		}
	})
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
	for _, member := range []string{`,"task":{}`, `,"inputResponses":{}`, `,"requestState":"x"`, `,"task":null`} {
		if got := r.post(call("update_invoice", member)); got.code() != "FlowNotGoverned" {
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
	if got := r.post(toolCall("get_invoice", `{"x":"`+strings.Repeat("a", maxBody)+`"}`)); got.status != 413 {
		t.Errorf("a body over the limit: HTTP %d", got.status)
	}
	r.nothingSent()
}

func TestAHoldShowsSignsOfLifeToWhoAskedForThem(t *testing.T) {
	t.Parallel()
	withToken := `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"update_invoice","arguments":{},"_meta":{"progressToken":"t\u00e9"}}}`
	for name, tc := range map[string]struct {
		body       string
		headers    []string
		wantEvents int
	}{
		"with a token":                 {withToken, nil, 4},
		"without one":                  {toolCall("update_invoice", `{}`), nil, 0},
		"a client that reads no event": {withToken, []string{"Accept", "application/json"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(45 * time.Second)
			answers := make(chan got, 1)
			go func() {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.front.URL+"/mcp", strings.NewReader(tc.body))
				req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
				if tc.headers != nil {
					req.Header.Set(tc.headers[0], tc.headers[1])
				}
				answers <- read(http.DefaultTransport.RoundTrip(req))
			}()
			for range 9 {
				r.held()
				r.clock.Step(2500 * time.Millisecond)
				r.edit(nil) // changes that follow each other put nothing off
				r.held()
				r.clock.Step(2500 * time.Millisecond)
			}
			got := <-answers
			if n := strings.Count(got.body, "notifications/progress"); n != tc.wantEvents {
				t.Errorf("%d signs of life, want %d: %s", n, tc.wantEvents, got.body)
			}
			last := 0.0
			for line := range strings.Lines(got.body) {
				var message struct {
					Params struct {
						ProgressToken string
						Progress      float64
					}
				}
				if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &message) != nil || message.Params.Progress == 0 {
					continue
				}
				if message.Params.ProgressToken != "té" || message.Params.Progress <= last || message.Params.Progress >= 1 {
					t.Errorf("sign %s", line)
				}
				last = message.Params.Progress
			}
			if got.code() != codePending {
				t.Errorf("after the hold: %s", got.body)
			}
			r.nothingSent()
		})
	}
}

func TestAnAnswerAfterSignsOfLifeIsStillTheServers(t *testing.T) {
	t.Parallel()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":{},"_meta":{"progressToken":1}}}`
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
		phase  v1alpha1.Phase
	}{
		"JSON over several lines": {answerWith("application/json", "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"result\":{\"content\":[]}}\n"), "data: {\"jsonrpc\":\"2.0\",  \"id\":1, \"result\":{\"content\":[]}} \n\n", v1alpha1.PhaseSucceeded},
		"events with a mark":      {answerWith("text/event-stream", "\ufeffdata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"), "\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", v1alpha1.PhaseSucceeded},
		"an error with a status":  {answerStatus(404, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`), "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no\"}}\n\n", v1alpha1.PhaseFailed},
		"no message":              {answerStatus(503, "text/plain", "busy"), "HTTP 503", v1alpha1.PhaseAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(45 * time.Second)
			r.upstream.answers(tc.answer)
			answers := r.later(t.Context(), body)
			r.held()
			r.clock.Step(11 * time.Second)
			r.held()
			r.decide(v1alpha1.DecisionApproved)
			got := <-answers
			if !strings.Contains(got.body, tc.want) || !strings.Contains(got.body, "notifications/progress") {
				t.Errorf("got %q, want it to end in %q", got.body, tc.want)
			}
			if phase := r.request().CurrentPhase(); phase != tc.phase {
				t.Errorf("the request is %s, want %s", phase, tc.phase)
			}
			r.ran(body)
		})
	}
}

func TestNothingRunsForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hold(45 * time.Second)
	body := toolCall("update_invoice", `{"n":1}`)
	ctx, leave := context.WithCancel(t.Context())
	answers := r.later(ctx, body)
	r.held()
	leave()
	<-answers
	r.until("the hold ended", func() bool { return !r.clock.HasWaiters() })
	r.decide(v1alpha1.DecisionApproved)
	r.nothingSent()
	if got := r.post(body); got.code() != "" {
		t.Errorf("sent again: %s", got.body)
	}
	r.ran(body)
}

func TestNobodyIsAskedAndNothingSpentForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"gone": true, "there": false} {
		r := newRig(t)
		body := r.approved("update_invoice")
		other := toolCall("delete_account", `{"n":2}`)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		make := func(body string) *gated {
			message, refusal := wire.Parse([]byte(body))
			if refusal != nil {
				t.Fatal(refusal)
			}
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
			c := &call{Gateway: r.gateway, server: r.server, message: message, request: request, id: "id", started: r.clock.Now(), reply: newReply(httptest.NewRecorder(), request, message)}
			j, _ := c.judge()
			want, err := c.describe(j, j.snap.Definitions[message.Call.Name])
			if err != nil {
				t.Fatal(err)
			}
			return &gated{call: c, judged: j, want: want}
		}
		use, ask := make(body), make(other)
		if gone {
			leave()
		}
		use.use(r.request())
		ask.gate()
		phases := map[v1alpha1.Phase]int{}
		for _, request := range r.requests() {
			phases[request.CurrentPhase()]++
		}
		want := map[v1alpha1.Phase]int{v1alpha1.PhaseSucceeded: 1, v1alpha1.PhasePending: 1}
		if gone {
			want = map[v1alpha1.Phase]int{v1alpha1.PhaseApproved: 1}
			r.nothingSent()
		}
		if !maps.Equal(phases, want) {
			t.Errorf("%s: requests by phase %v, want %v", name, phases, want)
		}
	}
}

func TestAClientThatGoesWhileTheClaimIsWrittenGetsNothingExecuted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := r.approved("update_invoice")
	ctx, leave := context.WithCancel(t.Context())
	r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
		if o.Status.Phase == v1alpha1.PhaseExecuting {
			leave()
			r.until("the gateway sees that the client has gone", func() bool { return r.gone.Load() })
		}
		return update()
	}
	r.watchClient()
	r.do(ctx, http.MethodPost, body)
	r.until("the outcome is recorded", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseFailed })
	if got := r.request().Status.Execution.Outcome; got != v1alpha1.OutcomeNotSent {
		t.Errorf("outcome %s", got)
	}
	r.nothingSent()
}

func TestApprovalsAreUsedOnlyAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*rig) // between the yes and the use
		want string     // code; "" runs
		// phase of the approved request afterwards, and why if it was cancelled
		phase  v1alpha1.Phase
		reason v1alpha1.CancellationReason
	}{
		"nothing happened": {nil, "", v1alpha1.PhaseSucceeded, ""},
		"an unrelated policy came": {func(r *rig) {
			r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("get_invoice", v1alpha1.TierReversible)} })
		}, "", v1alpha1.PhaseSucceeded, ""},
		"the tool was promoted": {(*rig).promote, "", v1alpha1.PhaseSucceeded, ""},
		"59 minutes passed":     {func(r *rig) { r.clock.Step(59*time.Minute + 59*time.Second); r.server.Prove(r.clock.Now()) }, "", v1alpha1.PhaseSucceeded, ""},
		"an hour passed":        {func(r *rig) { r.clock.Step(time.Hour); r.server.Prove(r.clock.Now()) }, "ApprovalExpired", v1alpha1.PhaseApproved, ""},
		"the tier was raised": {func(r *rig) {
			r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("update_invoice", v1alpha1.TierIrreversible)} })
		}, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"the tool changed":       {func(r *rig) { r.redescribe(); r.edit(r.accept); r.clock.Step(2 * time.Second) }, codePending, v1alpha1.PhaseCancelled, v1alpha1.CancelToolChanged},
		"the tool is gone":       {func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) }, "ToolUnknown", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"the endpoint moved":     {(*rig).move, "ToolUnknown", v1alpha1.PhaseCancelled, v1alpha1.CancelToolChanged},
		"the gateway lost touch": {func(r *rig) { r.clock.Step(6 * time.Minute) }, "PolicyStale", v1alpha1.PhaseApproved, ""},
		"another said no": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Decision = v1alpha1.DecisionDenied })
		}, "ApprovalDenied", v1alpha1.PhaseApproved, ""},
		"the phase was forged":         {func(r *rig) { r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Decision = "" }) }, "RequestMismatch", v1alpha1.PhaseApproved, ""},
		"another gateway uses it":      {func(r *rig) { r.setStatus(executingUntil(noon.Add(time.Minute))) }, codePending, v1alpha1.PhaseExecuting, ""},
		"another gateway died with it": {func(r *rig) { r.setStatus(executingUntil(noon)) }, codeAmbiguous, v1alpha1.PhaseExecuting, ""},
		"a call of it was lost": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseAmbiguous })
		}, codeAmbiguous, v1alpha1.PhaseAmbiguous, ""},
		"these receipts say that it was used": {(*rig).usedBefore, "ApprovalUsed", v1alpha1.PhaseApproved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice")
			approvedName := r.request().Name
			if tc.edit != nil {
				tc.edit(r)
			}
			got := r.post(body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(body)
			} else {
				r.nothingSent()
			}
			for _, request := range r.requests() {
				if request.Name != approvedName {
					continue
				}
				var reason v1alpha1.CancellationReason
				if request.Status.Cancellation != nil {
					reason = request.Status.Cancellation.Reason
				}
				if request.CurrentPhase() != tc.phase || reason != tc.reason {
					t.Errorf("the request is %s (%s), want %s (%s)", request.CurrentPhase(), reason, tc.phase, tc.reason)
				}
			}
			if tc.phase == v1alpha1.PhaseCancelled && tc.want == codePending && !strings.Contains(got.body, approvedName+" was cancelled") {
				t.Errorf("the caller is not told which: %s", got.body)
			}
		})
	}
}

func raise(tool string, tier v1alpha1.Tier) v1alpha1.ToolPolicy {
	return v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: "raise", UID: "raise"},
		Spec:       v1alpha1.ToolPolicySpec{Targets: []string{billing.Name}, Tiers: []v1alpha1.TierOverride{{Tools: []string{tool}, Tier: tier, Reason: "r"}}},
	}
}

// accept brings what the manager knows to what the server says.
func (r *rig) accept() {
	for i := range r.governed.Status.Tools {
		for _, d := range r.listed {
			if d.Name == r.governed.Status.Tools[i].Name {
				r.governed.Status.Tools[i].Digest = d.Digest()
			}
		}
	}
}

// move is what a person does; the manager has not discovered the new endpoint yet.
func (r *rig) move() {
	r.edit(func() {
		r.governed.Status.EndpointDigest = r.server.Snapshot().EndpointDigest
		r.governed.Spec.Endpoint.URL = "https://production.example.com/mcp"
		r.governed.Generation++
	})
}

func (r *rig) setStatus(edit func(*v1alpha1.ApprovalRequestStatus)) {
	request := r.request()
	edit(&request.Status)
	if err := r.api.Status().Update(context.Background(), request); err != nil {
		r.t.Fatal(err)
	}
}

func executingUntil(deadline time.Time) func(*v1alpha1.ApprovalRequestStatus) {
	return func(s *v1alpha1.ApprovalRequestStatus) {
		at := metav1.NewMicroTime(deadline)
		s.Phase, s.Execution = v1alpha1.PhaseExecuting, &v1alpha1.Execution{Claim: "theirs", Deadline: &at}
	}
}

func (r *rig) usedBefore() {
	_, err := r.gateway.Receipts.Append(receipt.Receipt{Kind: receipt.KindDecision, Verdict: receipt.VerdictAllow, RequestUID: string(r.request().UID)}, receipt.Sync)
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestTheLastLookStopsWhatChangedWhileTheClaimWasWritten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*rig)
		want   string
	}{
		"nothing":            {func(*rig) {}, ""},
		"the tool is gone":   {func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) }, "ToolUnknown"},
		"the server is gone": {func(r *rig) { r.edit(func() { r.governed = nil }) }, "ServerGone"},
		"the tier rose": {func(r *rig) {
			r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("*", v1alpha1.TierIrreversible)} })
		}, "PolicyChanged"},
		"the definition changed": {func(r *rig) { r.redescribe(); r.edit(r.accept) }, "PolicyChanged"},
		"the approval expired":   {func(r *rig) { r.clock.Step(2 * time.Hour); r.server.Prove(r.clock.Now()) }, "ApprovalExpired"},
		"the API fell silent":    {func(r *rig) { r.clock.Step(6 * time.Minute) }, "PolicyStale"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice")
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				err := update()
				if o.Status.Phase == v1alpha1.PhaseExecuting {
					tc.change(r)
				}
				return err
			}
			got := r.post(body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			want := v1alpha1.PhaseFailed
			if tc.want == "" {
				want = v1alpha1.PhaseSucceeded
				r.ran(body)
			} else {
				r.nothingSent()
			}
			if request := r.request(); request.CurrentPhase() != want {
				t.Errorf("the request is %s, want %s", request.CurrentPhase(), want)
			}
		})
	}
}

func TestACallGoesOnlyToTheEndpointItWasJudgedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	body := r.approved("delete_account")
	old := r.server.Snapshot().EndpointDigest
	r.server.upstream.Store(r.dialled("sha256:another")) // the snapshot still speaks of the old one
	if got := r.post(toolCall("get_invoice", `{}`)); got.status != http.StatusBadGateway {
		t.Errorf("a read: HTTP %d %s", got.status, got.body)
	}
	for _, call := range []string{toolCall("update_invoice", `{}`), body} {
		if got := r.post(call); got.code() != "DefinitionUnavailable" {
			t.Errorf("%s: %s", call, got.body)
		}
	}
	if request := r.request(); request.CurrentPhase() != v1alpha1.PhaseApproved {
		t.Errorf("the approved request is %s", request.CurrentPhase())
	}
	r.server.upstream.Store(r.dialled(old))
	r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
		if o.Status.Phase == v1alpha1.PhaseExecuting {
			r.server.upstream.Store(r.dialled("sha256:another"))
		}
		return update()
	}
	if got := r.post(body); got.status != http.StatusBadGateway {
		t.Errorf("moved while the claim was written: HTTP %d %s", got.status, got.body)
	}
	if request := r.request(); request.CurrentPhase() != v1alpha1.PhaseFailed {
		t.Errorf("the approved request is %s", request.CurrentPhase())
	}
	r.nothingSent()
}

// dialled returns the rig's upstream as that of another endpoint.
func (r *rig) dialled(digest string) *dialled {
	next := *r.server.upstream.Load()
	next.digest = digest
	return &next
}

func TestARevocationCountsWhileTheReceiptIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	r.gateway.NewID = func() string { return "id" }
	// The receipt's clock is read while the receipt is written: the very last moment before the last look.
	r.receiptClock(func() { r.edit(func() { r.policies = nil }) })
	if got := r.post(toolCall("update_invoice", `{}`)); got.code() != "PolicyChanged" {
		t.Errorf("revoked while the receipt was written: %s", got.body)
	}
	r.nothingSent()
}

func TestFailuresOfTheAPI(t *testing.T) {
	t.Parallel()
	down := errors.New("the server is currently unable to handle the request")
	phaseFails := func(phase v1alpha1.Phase) func(*rig) {
		return func(r *rig) {
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				if o.Status.Phase == phase {
					return down
				}
				return update()
			}
		}
	}
	t.Run("asking", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.creates = func(*v1alpha1.ApprovalRequest, func() error) error { return down }
		if got := r.post(toolCall("update_invoice", `{}`)); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
	})
	t.Run("claiming", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		phaseFails(v1alpha1.PhaseExecuting)(r)
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
		r.updates = nil
		if got := r.post(body); got.code() != "" {
			t.Errorf("once it works again: %s", got.body)
		}
		r.ran(body)
	})
	t.Run("claiming, and nobody can tell", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
			err := update()
			if o.Status.Phase == v1alpha1.PhaseExecuting {
				return down
			}
			return err
		}
		reads := 0
		r.gets = func(get func() error) error {
			if reads++; reads == 1 {
				return down
			}
			return get()
		}
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.until("given back", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseFailed })
		r.nothingSent()
	})
	t.Run("cancelling for a stricter policy does not turn in circles", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		phaseFails(v1alpha1.PhaseCancelled)(r)
		r.edit(func() { r.policies = []v1alpha1.ToolPolicy{raise("*", v1alpha1.TierIrreversible)} })
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
	})
	t.Run("withdrawing what needs no person any more", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := toolCall("update_invoice", `{"n":1}`)
		if got := r.post(body); got.code() != codePending {
			t.Fatalf("got %s", got.body)
		}
		phaseFails(v1alpha1.PhaseCancelled)(r)
		r.promote()
		if got := r.post(body); got.code() != "ApprovalUnavailable" {
			t.Errorf("got %s", got.body)
		}
		r.nothingSent()
		r.updates = nil
		if got := r.post(body); got.code() != "" {
			t.Errorf("once it works again: %s", got.body)
		}
		r.ran(body)
		if request := r.request(); request.Status.Cancellation == nil || request.Status.Cancellation.Reason != v1alpha1.CancelWithdrawn {
			t.Errorf("the request is %s", request.CurrentPhase())
		}
	})
	t.Run("recording the outcome keeps no agent waiting", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		body := r.approved("update_invoice")
		var works atomic.Bool
		r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
			if o.Status.Phase == v1alpha1.PhaseSucceeded && !works.Load() {
				return down
			}
			return update()
		}
		got := r.post(body)
		if got.code() != "" || got.err != nil || got.status != 200 {
			t.Fatalf("got %+v", got)
		}
		r.ran(body)
		if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
			t.Errorf("the request is %s", phase)
		}
		// The connection is busy with the record; another call does not wait for it.
		if got := r.post(toolCall("get_invoice", `{}`)); got.status != 200 {
			t.Errorf("a read meanwhile: %+v", got)
		}
		works.Store(true)
		r.until("the outcome is recorded", func() bool {
			r.clock.Step(outcomeRetry)
			return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded
		})
	})
}

func TestReceiptsComeBeforeEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	body := r.approved("delete_account")
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{toolCall("get_invoice", `{}`), toolCall("update_invoice", `{}`), body, toolCall("other", `{}`)} {
		if got := r.post(call); got.code() != "ReceiptNotWritten" {
			t.Errorf("%s: %s", call, got.body)
		}
	}
	r.nothingSent()
	if r.gateway.Ready() == nil {
		t.Error("ready although nothing can be recorded")
	}
	request := r.request()
	if request.CurrentPhase() != v1alpha1.PhaseFailed || request.Status.Execution.Outcome != v1alpha1.OutcomeNotSent {
		t.Errorf("the approved request is %s", request.CurrentPhase())
	}
}

func TestWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*rig)
		want    string
		runs    bool
	}{
		"yes":                  {func(r *rig) { r.decide(v1alpha1.DecisionApproved) }, "", true},
		"no":                   {func(r *rig) { r.decide(v1alpha1.DecisionDenied) }, "ApprovalDenied", false},
		"not now":              {func(r *rig) { r.decide(v1alpha1.DecisionDismissed) }, "ApprovalDismissed", false},
		"the tool is promoted": {(*rig).promote, "", true},
		"the request is deleted": {func(r *rig) {
			if err := r.api.Delete(context.Background(), r.request()); err != nil {
				r.t.Error(err)
			}
			r.edit(nil)
		}, "RequestGone", false},
		"the server is deleted": {func(r *rig) { r.edit(func() { r.governed = nil }) }, "ServerGone", false},
		"the tool is gone":      {func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) }, "ToolUnknown", false},
		"another used it": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseSucceeded })
		}, "ApprovalUsed", false},
		"another lost it": {func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseAmbiguous })
		}, codeAmbiguous, false},
		"it expires": {func(r *rig) { r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhaseExpired }) }, "ApprovalExpired", false},
		"nothing":    {func(r *rig) { r.clock.Step(46 * time.Second) }, codePending, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(45 * time.Second)
			body := toolCall("update_invoice", `{"n":1}`)
			answers := r.later(t.Context(), body)
			r.held()
			r.edit(nil) // the watch has shown the request
			tc.happens(r)
			got := <-answers
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.runs {
				r.ran(body)
			} else {
				r.nothingSent()
			}
		})
	}
}

func TestPendingRequestsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.MaxPending = 3 })
	codes := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			got := r.post(toolCall("update_invoice", fmt.Sprintf(`{"n":%d}`, i)))
			mu.Lock()
			defer mu.Unlock()
			codes[got.code()]++
		})
	}
	all.Wait()
	if n := len(r.requests()); n != 3 || codes[codePending] != 3 || codes["TooManyPending"] != 37 {
		t.Errorf("%d requests, answers by code %v", n, codes)
	}
	r.nothingSent()
	// The place of one that ended is free again.
	request := r.requests()[0]
	request.Status.Phase = v1alpha1.PhaseDismissed
	if err := r.api.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
	if got := r.post(toolCall("update_invoice", `{"n":99}`)); got.code() != codePending {
		t.Errorf("after one ended: %s", got.body)
	}
}

func TestARequestThatIsBeingOpenedCountsAsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Approvals.MaxPending = 1 })
	opening, open := make(chan struct{}), make(chan struct{})
	r.creates = func(_ *v1alpha1.ApprovalRequest, create func() error) error {
		close(opening)
		<-open
		return create() // the watch does not show it yet
	}
	first := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`))
	<-opening
	if got := r.post(toolCall("update_invoice", `{"n":2}`)); got.code() != "TooManyPending" {
		t.Errorf("while the first is being opened: %s", got.body)
	}
	close(open)
	if got := <-first; got.code() != codePending {
		t.Errorf("the first: %s", got.body)
	}
	if got := r.post(toolCall("update_invoice", `{"n":3}`)); got.code() != "TooManyPending" {
		t.Errorf("before the watch shows the first: %s", got.body)
	}
}

func TestForgedRequestsAreNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := toolCall("update_invoice", `{"n":1}`)
	r.creates = func(o *v1alpha1.ApprovalRequest, create func() error) error {
		o.Spec.Arguments = `{"n":0}` // the display is harmless, the hash another's
		defer r.edit(nil)
		return create()
	}
	r.post(body)
	r.decide(v1alpha1.DecisionApproved)
	if got := r.post(body); got.code() != "RequestMismatch" {
		t.Errorf("got %s", got.body)
	}
	r.nothingSent()
}

func TestFreshness(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tc := range []struct {
		promoted bool
		age      time.Duration
		want     string
	}{
		{false, 0, "Fresh"}, {false, 91 * time.Second, "Fresh"}, {false, 5 * time.Minute, "Fresh"}, {false, 5*time.Minute + 1, "Stale"},
		{true, 90 * time.Second, "Fresh"}, {true, 90*time.Second + 1, "Unproven"}, {true, 5 * time.Minute, "Unproven"}, {true, 5*time.Minute + 1, "Stale"},
	} {
		if tc.promoted {
			r.promote()
		}
		got := map[int]string{0: "Stale", 1: "Unproven", 2: "Fresh"}[int(r.server.Freshness(noon.Add(tc.age), 5*time.Minute))]
		if got != tc.want {
			t.Errorf("promoted %v, age %v: %s, want %s", tc.promoted, tc.age, got, tc.want)
		}
	}
	if got := (&Server{Key: billing}).Freshness(noon, time.Hour); got != 0 {
		t.Errorf("without a snapshot: %d", got)
	}
	fresh := &Server{Key: billing}
	fresh.view.Swap(r.server.Snapshot())
	if got := fresh.Freshness(noon, time.Hour); got != 0 {
		t.Errorf("without a proof: %d", got)
	}
}
