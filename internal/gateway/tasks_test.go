// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	taskOf2025 = `{"task":{"taskId":"t1","status":"working","ttl":60000}}`
	taskOf2026 = `{"resultType":"task","taskId":"t1","status":"working","ttlMs":60000}`
	asTask     = `,"task":{"ttl":60000}`
)

// about is a request about the task t1.
func about(method, members string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":9,"method":"tasks/%s","params":{"taskId":"t1"%s}}`, method, members)
}

// tasking has the server say that update_invoice runs as a task.
func (r *rig) tasking() {
	r.t.Helper()
	d, err := tool.Parse([]byte(`{"name":"update_invoice","description":"x","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}`))
	if err != nil {
		r.t.Fatal(err)
	}
	r.edit(func() {
		for i := range r.listed {
			if r.listed[i].Name == d.Name {
				r.listed[i] = d
			}
		}
		for i := range r.governed.Status.Tools {
			if r.governed.Status.Tools[i].Name == d.Name {
				r.governed.Status.Tools[i].Digest = d.Digest()
			}
		}
	})
}

// tasked has a call approved and sent, which the server runs as a task.
func (r *rig) tasked(answer string) {
	r.t.Helper()
	r.tasking()
	body := callOf(1, asTask)
	if got := r.post(body); got.anyCode() != codePending || !strings.Contains(got.body, `"error":{"code":-32010`) {
		r.t.Fatalf("not asked: %s", got.body)
	}
	r.decide(v1alpha1.DecisionApproved)
	r.upstream.answers(answerJSON(answer))
	if got := r.post(body); !strings.Contains(got.body, answer) {
		r.t.Fatalf("the first answer: %s", got.body)
	}
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
		r.t.Fatalf("once the task runs the request is %s", phase)
	}
}

func TestATaskKeepsItsRequestExecutingToItsEnd(t *testing.T) {
	t.Parallel()
	state := func(status, more string) string { return fmt.Sprintf(`{"taskId":"t1","status":%q%s}`, status, more) }
	type step struct {
		body, answer string
		after        time.Duration
		want         v1alpha1.Phase
	}
	const executing, succeeded, failed, ambiguous = v1alpha1.PhaseExecuting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseAmbiguous
	for name, steps := range map[string][]step{
		"the result is fetched":        {{about("get", ""), state("working", ""), 0, executing}, {about("get", ""), state("completed", ""), 0, executing}, {about("result", ""), `{"content":[]}`, 0, succeeded}},
		"the tool failed":              {{about("get", ""), state("completed", ""), 0, executing}, {about("result", ""), `{"content":[],"isError":true}`, 0, failed}},
		"nobody fetches the result":    {{about("get", ""), state("completed", ""), 0, executing}, {"", "", 11 * time.Second, succeeded}},
		"the result comes inline":      {{about("get", ""), state("completed", `,"result":{"content":[]}`), 0, succeeded}},
		"an error comes inline":        {{about("get", ""), state("completed", `,"result":{"isError":true}`), 0, failed}},
		"it fails":                     {{about("get", ""), state("failed", `,"error":{"code":-32603}`), 0, executing}, {"", "", 11 * time.Second, ambiguous}},
		"it is cancelled":              {{about("cancel", ""), state("cancelled", ""), 0, ambiguous}},
		"a cancellation that is taken": {{about("cancel", ""), `{"resultType":"complete"}`, 0, executing}, {"", "", time.Minute, ambiguous}},
		"nobody asks":                  {{"", "", 59 * time.Second, executing}, {"", "", time.Second, ambiguous}},
		"lost and found":               {{"", "", time.Minute, ambiguous}, {about("result", ""), `{"content":[]}`, 0, succeeded}},
		"the state of another task":    {{about("get", ""), `{"taskId":"t2","status":"completed","result":{}}`, 0, executing}},
	} {
		for _, made := range []string{taskOf2025, taskOf2026} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.tasked(made)
				for i, step := range steps {
					if step.body == "" {
						r.clock.Step(step.after)
						r.server.Prove(r.clock.Now())
						r.gateway.follow(t.Context())
					} else {
						r.upstream.answers(answerJSON(step.answer))
						if got := r.post(step.body); !strings.Contains(got.body, step.answer) {
							t.Errorf("step %d: %s", i, got.body)
						}
					}
					if phase := r.request().CurrentPhase(); phase != step.want {
						t.Errorf("step %d: the request is %s, want %s", i, phase, step.want)
					}
				}
			})
		}
	}
}

func TestATaskIsPartOfWhatIsApproved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasking()
	if got := r.post(callOf(1, "")); got.code() != codePending {
		t.Fatalf("not asked: %s", got.body)
	}
	r.decide(v1alpha1.DecisionApproved)
	for _, members := range []string{asTask, `,"task":{}`, `,"task":{"ttl":60000,"x":1}`} {
		if got := r.post(callOf(2, members)); got.anyCode() != codePending {
			t.Errorf("%s used the approval of the call without: %s", members, got.body)
		}
	}
	r.nothingSent()
	if got := r.post(callOf(3, "")); got.code() != "" {
		t.Errorf("the call that was approved: %s", got.body)
	}
}

func TestATaskMayTakeAsLongAsItIsToBeKept(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[int]time.Duration{0: time.Minute, 1000: time.Minute, 600_000: 10 * time.Minute, 86_400_000: time.Hour} {
		r := newRig(t)
		r.tasking()
		body := callOf(1, fmt.Sprintf(`,"task":{"ttl":%d}`, ttl))
		r.post(body)
		r.decide(v1alpha1.DecisionApproved)
		r.upstream.answers(answerJSON(taskOf2025))
		r.post(body)
		if e := r.request().Status.Execution; e == nil || e.Deadline.Sub(e.StartedAt.Time) != want {
			t.Errorf("ttl %d: %+v, want %v", ttl, e, want)
		}
	}
}

func TestTheResultOfATaskIsWaitedForLongerThanOtherAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.CallTimeout.Duration = 100 * time.Millisecond })
	ended := make(chan struct{})
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		select {
		case <-ended:
			answerWith("application/json", `{"jsonrpc":"2.0","id":1,"result":{}}`)(w, rq)
		case <-rq.Context().Done():
		}
	})
	about := func(method string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"taskId":"t"}}`
	}
	result := r.later(t.Context(), about("tasks/result"))
	r.underWay(awaiting, 1)
	if got := r.post(about("tasks/get")); got.status != http.StatusGatewayTimeout {
		t.Errorf("HTTP %d %s", got.status, got.body)
	}
	close(ended)
	if got := <-result; got.status != http.StatusOK || got.err != nil {
		t.Errorf("the result: HTTP %d %v %s", got.status, got.err, got.body)
	}
}

func TestATaskIsItsCallersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasked(taskOf2025)
	r.authenticated()
	mine, theirs := []string{"Authorization", "Bearer " + agent}, []string{"Authorization", "Bearer eve"}
	list := `{"jsonrpc":"2.0","id":9,"method":"tasks/list","params":{}}`
	const both = `{"tasks":[{"taskId":"t1","status":"working"},{"taskId":"of a read","status":"working"}]}`
	before := len(r.upstream.requests())
	for _, method := range []string{"get", "result", "cancel", "update"} {
		got := r.post(about(method, ""), theirs...)
		if got.status != http.StatusOK || !strings.Contains(got.body, `"id":9,"error":{"code":-32602,"message":"Tidewaiter gateway: no such task"`) {
			t.Errorf("tasks/%s of another caller: HTTP %d %s", method, got.status, got.body)
		}
	}
	if got := r.post(strings.Replace(about("cancel", ""), `"id":9,`, "", 1), theirs...); got.status != http.StatusForbidden {
		t.Errorf("without an id: HTTP %d %s", got.status, got.body)
	}
	if n := len(r.upstream.requests()); n != before {
		t.Errorf("%d messages of another caller reached the server", n-before)
	}
	r.upstream.answers(answerJSON(both))
	if got := r.post(list, theirs...); strings.Contains(got.body, "t1") || !strings.Contains(got.body, "of a read") {
		t.Errorf("the list of another caller: %s", got.body)
	}
	if got := r.post(list, mine...); !strings.Contains(got.body, both) {
		t.Errorf("the list of the caller: %s", got.body)
	}
	r.upstream.answers(answerJSON(`{"tasks":[{"taskId":"x","TaskId":"t1"}]}`))
	if got := r.post(list, theirs...); strings.Contains(got.body, "t1") || !strings.Contains(got.body, "withheld") {
		t.Errorf("a list that cannot be read: %s", got.body)
	}
	// What the server says by itself.
	events := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks/status\",\"params\":{\"taskId\":\"t1\",\"status\":\"completed\"}}\n\n"
	for _, name := range []string{"notifications/tasks/status", `notifications\/tasks\/status`, `n\u006ftifications/tasks`, "notifications/t\\u0061sks"} {
		r.upstream.answers(answerWith("text/event-stream", strings.Replace(events, "notifications/tasks/status", name, 1)))
		if got := r.do(t.Context(), http.MethodGet, "", theirs...); got.body != "" {
			t.Errorf("another caller is told %q", got.body)
		}
	}
	r.upstream.answers(answerWith("text/event-stream", events))
	if got := r.do(t.Context(), http.MethodGet, "", mine...); got.body != events {
		t.Errorf("the caller is told %q", got.body)
	}
	r.upstream.answers(answerJSON(`{"content":[]}`))
	if got := r.post(about("result", ""), mine...); !strings.Contains(got.body, `{"content":[]}`) || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("the caller's own result: %s", got.body)
	}
	if got := r.post(about("result", ""), theirs...); !strings.Contains(got.body, "no such task") {
		t.Errorf("the result, after its end, of another caller: %s", got.body)
	}
	refused := 0
	for _, line := range r.receiptLines() {
		if line.Code == "ForeignTask" && line.Verdict == receipt.VerdictDeny && line.Requester == "eve" {
			refused++
		}
	}
	if refused != 6 {
		t.Errorf("%d receipts of refusals", refused)
	}
}

func TestWhatTheServerSaysByItselfEndsATask(t *testing.T) {
	t.Parallel()
	const completed = `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1","status":"completed","result":{"content":[]}}}`
	for name, send := range map[string]func(*rig) got{
		"on the stream of GET": func(r *rig) got { return r.do(r.t.Context(), http.MethodGet, "") },
		"on a subscription":    func(r *rig) got { return r.post(message("subscriptions/listen")) },
		"beside an answer":     func(r *rig) got { return r.post(about("get", "")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.tasked(taskOf2026)
			r.upstream.answers(answerWith("text/event-stream", "data: "+completed+"\n\n"))
			if got := send(r); got.body != "data: "+completed+"\n\n" {
				t.Errorf("it is told %q", got.body)
			}
			r.gateway.follow(t.Context())
			if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseSucceeded {
				t.Errorf("the request is %s", phase)
			}
		})
	}
}

func TestAnswersToATaskThatNobodySawAreRefusedUnlessThePolicySaysOtherwise(t *testing.T) {
	t.Parallel()
	update := about("update", `,"inputResponses":{"confirm":{"action":"accept"}}`)
	for name, tc := range map[string]struct {
		before, after []v1alpha1.ToolPolicy
		body, want    string
	}{
		"nobody says anything": {nil, nil, update, codeUnseen},
		"a rule allows them":   {[]v1alpha1.ToolPolicy{inputs(v1alpha1.InputAllow)}, []v1alpha1.ToolPolicy{inputs(v1alpha1.InputAllow)}, update, ""},
		"not any more":         {[]v1alpha1.ToolPolicy{inputs(v1alpha1.InputAllow)}, nil, update, codeUnseen},
		"not at first":         {nil, []v1alpha1.ToolPolicy{inputs(v1alpha1.InputAllow)}, update, codeUnseen},
		"no answer":            {nil, nil, about("update", `,"inputResponses":{}`), ""},
		"another task":         {nil, nil, strings.Replace(update, "t1", "t2", 1), "TaskUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(tc.before...)
			r.tasked(taskOf2026)
			r.govern(tc.after...)
			r.upstream.answers(answerJSON(`{"resultType":"complete"}`))
			got := r.post(tc.body)
			if got.anyCode() != tc.want {
				t.Errorf("code %q, want %q: %s", got.anyCode(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(callOf(1, asTask), tc.body)
				return
			}
			r.ran(callOf(1, asTask))
			lines := r.receiptLines()
			if last := lines[len(lines)-1]; last.Code != tc.want || last.Verdict != receipt.VerdictDeny || last.Method != "tasks/update" {
				t.Errorf("receipt %+v", last)
			}
		})
	}
}

func TestAnAllowedAnswerToATaskIsOnDiskFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.govern(inputs(v1alpha1.InputAllow))
	r.tasked(taskOf2026)
	update := about("update", `,"inputResponses":{"confirm":{}}`)
	r.post(update)
	lines := r.receiptLines()
	if last := lines[len(lines)-1]; last.Code != codeRound || last.Verdict != receipt.VerdictAllow || last.CallID != lines[2].CallID || last.Tool != "update_invoice" || last.RequestUID == "" {
		t.Errorf("receipt %+v", last)
	}
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.post(update); got.anyCode() != codeUnrecorded {
		t.Errorf("without receipts: %s", got.body)
	}
	r.ran(callOf(1, asTask), update)
}

func TestTheTaskOfAReadIsNobodysBusiness(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.upstream.answers(answerJSON(taskOf2026))
	read := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_invoice","_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`
	update := about("update", `,"inputResponses":{"confirm":{}}`)
	all := []string{read, about("get", ""), update, about("cancel", "")}
	for _, body := range all {
		if got := r.post(body); !strings.Contains(got.body, taskOf2026) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	r.ran(all...)
}

func TestATaskIsFollowedWhereOtherMethodsAreDenied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasked(taskOf2025)
	r.edit(func() { r.governed.Spec.OtherMethods = v1alpha1.OtherMethodsDeny })
	if got := r.post(strings.Replace(about("get", ""), "t1", "t2", 1)); got.anyCode() != "MethodDenied" {
		t.Errorf("another task: %s", got.body)
	}
	if got := r.post(`{"jsonrpc":"2.0","id":9,"method":"tasks/list"}`); got.anyCode() != "MethodDenied" {
		t.Errorf("the list: %s", got.body)
	}
	r.upstream.answers(answerJSON(`{"content":[]}`))
	if got := r.post(about("result", "")); got.anyCode() != "" || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("the caller's own: %s", got.body)
	}
	r.mode(v1alpha1.ModeStopped)
	if got := r.post(about("result", "")); got.anyCode() != "ServerStopped" {
		t.Errorf("stopped: %s", got.body)
	}
}

func TestTheTaskOfAnUnattendedCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasking()
	r.promote()
	r.upstream.answers(answerJSON(taskOf2025))
	body := callOf(1, asTask)
	if got := r.post(body); !strings.Contains(got.body, taskOf2025) {
		t.Fatalf("%s", got.body)
	}
	r.upstream.answers(answerJSON(`{"content":[]}`))
	r.post(about("result", ""))
	r.upstream.answers(answerJSON(strings.Replace(taskOf2025, "t1", "t3", 1)))
	r.post(body)
	r.clock.Step(time.Minute)
	r.server.Prove(r.clock.Now())
	r.gateway.follow(t.Context())
	if got := r.post(body); got.anyCode() != codePending {
		t.Errorf("lost, and sent again: %s", got.body)
	}
	lines := r.of("update_invoice")
	if len(lines) != 5 || lines[1].Kind != receipt.KindOutcome || lines[1].Outcome != "Succeeded" || lines[1].CallID != lines[0].CallID ||
		lines[3].Outcome != "Unclear" || lines[3].CallID != lines[2].CallID {
		t.Errorf("receipts %+v", lines)
	}
}

func TestArgumentsAreForgottenWithTheOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := &fate{gateway: r.gateway, server: r.server, sentAt: noon, kept: []byte(`{"n":1}`)}
	if got := f.arguments(); got == nil || f.kept == nil {
		t.Error("they are not known while the call runs")
	}
	f.settle(receipt.Receipt{Kind: receipt.KindOutcome}, v1alpha1.OutcomeSucceeded, nil)
	if f.kept != nil {
		t.Error("they are kept although the call is over")
	}
}
