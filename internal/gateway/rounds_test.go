// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

const (
	asks     = `{"resultType":"input_required","requestState":"s1","inputRequests":{"confirm":{"method":"elicitation/create","params":{}}}}`
	later    = `{"resultType":"input_required","requestState":"s1"}`
	answered = `,"requestState":"s1","inputResponses":{"confirm":{"action":"accept"}}`
	goesOn   = `,"requestState":"s1"`
)

// callOf is a call of update_invoice with more members.
func callOf(n int, members string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"update_invoice","arguments":{"n":1}%s}}`, n, members)
}

// inputs is a policy with a rule that says something of answers in the middle of a call.
func inputs(says v1alpha1.InputRule) v1alpha1.ToolPolicy {
	with := rule(v1alpha1.EffectRequireApproval, "*")
	with.InputResponses = says
	return team(with)
}

// begun has a call approved and sent; the server answers it as told.
func (r *rig) begun(answer string) {
	r.t.Helper()
	if got := r.post(callOf(1, "")); got.code() != codePending {
		r.t.Fatalf("not asked: %s", got.body)
	}
	r.decide(v1alpha1.DecisionApproved)
	r.upstream.answers(answerJSON(answer))
	if got := r.post(callOf(1, "")); got.code() != "" || !strings.Contains(got.body, answer) {
		r.t.Fatalf("the first answer: %s", got.body)
	}
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
		r.t.Fatalf("after the first answer the request is %s", phase)
	}
}

func TestACallOfSeveralRoundsIsOneApprovedAction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begun(later)
	// The call itself, sent again, is not a round: it waits for the end of the one that runs.
	if got := r.post(callOf(2, "")); got.code() != codePending || !strings.Contains(got.body, "being used") {
		t.Errorf("the call again: %s", got.body)
	}
	r.upstream.answers(answerJSON(`{"resultType":"input_required","requestState":"s2"}`))
	if got := r.post(callOf(3, goesOn)); got.code() != "" || r.request().CurrentPhase() != v1alpha1.PhaseExecuting {
		t.Errorf("the second round: %s", got.body)
	}
	if got := r.post(callOf(4, goesOn)); got.code() != "RoundUnknown" {
		t.Errorf("a round that was sent: %s", got.body)
	}
	r.upstream.answers(answerJSON(`{"resultType":"complete","content":[]}`))
	if got := r.post(callOf(5, `,"requestState":"s2"`)); got.code() != "" || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("the last round: %s, the request is %s", got.body, r.request().CurrentPhase())
	}
	if got := r.post(callOf(6, `,"requestState":"s2"`)); got.code() != "RoundUnknown" {
		t.Errorf("a round of a call that has ended: %s", got.body)
	}
	r.ran(callOf(1, ""), callOf(3, goesOn), callOf(5, `,"requestState":"s2"`))
	lines := r.of("update_invoice")
	want := []string{"Decision RequireApproval ApprovalPending", "Decision Allow Approved", "Decision RequireApproval ApprovalPending", "Decision Allow NextRound",
		"Decision Deny RoundUnknown", "Decision Allow NextRound", "Outcome Allow NextRound", "Decision Deny RoundUnknown"}
	var got []string
	for _, line := range lines {
		got = append(got, fmt.Sprint(line.Kind, " ", line.Verdict, " ", line.Code))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("receipts:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, i := range []int{3, 5, 6} {
		if lines[i].CallID != lines[1].CallID || lines[i].RequestUID == "" || len(lines[i].ApprovedBy) != 1 {
			t.Errorf("receipt %d: %+v", i, lines[i])
		}
	}
}

// of returns the receipts about a tool.
func (r *rig) of(tool string) []receipt.Receipt {
	r.t.Helper()
	var all []receipt.Receipt
	for _, line := range r.receiptLines() {
		if line.Tool == tool {
			all = append(all, line)
		}
	}
	return all
}

func TestOnlyARoundOfTheApprovedCallGoesOnWithIt(t *testing.T) {
	t.Parallel()
	other := func(old, new string) string { return strings.Replace(callOf(2, goesOn), old, new, 1) }
	for name, tc := range map[string]struct {
		body string
		edit func(*rig)
		want string // the gateway's code; "" passes
	}{
		"the round":                     {callOf(2, goesOn), nil, ""},
		"spelt otherwise":               {other(`"requestState":"s1"`, `"requestState":"\u0073\u0031","inputResponses":{}`), nil, ""},
		"other arguments":               {other(`"n":1`, `"n":2`), nil, "RoundUnknown"},
		"another tool":                  {other("update_invoice", "delete_account"), nil, "RoundUnknown"},
		"another state":                 {other("s1", "s2"), nil, "RoundUnknown"},
		"another member":                {other(`,"requestState"`, `,"vendor":1,"requestState"`), nil, "RoundUnknown"},
		"as a task":                     {other(`,"requestState"`, `,"task":{},"requestState"`), nil, "TaskNotSupported"},
		"an answer that nobody asked":   {callOf(2, answered), func(r *rig) { r.govern(inputs(v1alpha1.InputAllow)) }, "InputNotAsked"},
		"the tool is stopped meanwhile": {callOf(2, goesOn), func(r *rig) { r.mode(v1alpha1.ModeStopped) }, "ServerStopped"},
		"the policy denies meanwhile": {callOf(2, goesOn), func(r *rig) {
			denies := rule(v1alpha1.EffectDeny, "*")
			denies.Message = "no more"
			r.govern(team(denies))
		}, "RuleDenied"},
		"the policy asks for more":    {callOf(2, goesOn), func(r *rig) { r.edit(func() { r.governed.Spec.Approvals.Required.Reversible = 2 }) }, "PolicyChanged"},
		"a voting key is removed":     {callOf(2, goesOn), func(r *rig) { r.mu.Lock(); r.keys = published(); r.mu.Unlock() }, "VotesVoid"},
		"the tool is redefined":       {callOf(2, goesOn), func(r *rig) { r.redefine("update_invoice", false); r.server.learn(r.server.dials(), r.listed, true) }, "RoundUnknown"},
		"the time of the call is up":  {callOf(2, goesOn), func(r *rig) { r.clock.Step(time.Minute); r.server.Prove(r.clock.Now()); r.gateway.follow(t.Context()) }, "RoundUnknown"},
		"a gateway that started anew": {callOf(2, goesOn), func(r *rig) { r.server.flows.End(r.flow()) }, "RoundUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.begun(later)
			if tc.edit != nil {
				tc.edit(r)
			}
			r.upstream.answers(answerJSON(`{"content":[]}`))
			got := r.post(tc.body)
			if code := got.anyCode(); code != tc.want {
				t.Errorf("code %q, want %q: %s", code, tc.want, got.body)
			}
			sent := []string{callOf(1, "")}
			if tc.want == "" {
				sent = append(sent, tc.body)
			}
			r.ran(sent...)
		})
	}
}

// flow returns the only call that has not ended.
func (r *rig) flow() *openCall {
	r.t.Helper()
	r.server.flows.Overdue(time.Time{})
	all := r.server.flows.Overdue(noon.Add(24 * time.Hour))
	if len(all) != 1 {
		r.t.Fatalf("%d calls go on", len(all))
	}
	return all[0].Flow
}

// anyCode is the code of a notice, as a result of a tool or as an error.
func (g got) anyCode() string {
	if code := g.code(); code != "" {
		return code
	}
	var message struct {
		Error struct{ Data struct{ Code string } }
	}
	if json.Unmarshal([]byte(g.body), &message) != nil {
		return ""
	}
	return message.Error.Data.Code
}

func TestAnswersThatNobodySawAreRefusedUnlessThePolicySaysOtherwise(t *testing.T) {
	t.Parallel()
	allow, deny, nothing := inputs(v1alpha1.InputAllow), inputs(v1alpha1.InputDeny), inputs("")
	deny.Name, deny.UID = "strict", "strict"
	nothing.Name, nothing.UID = "silent", "silent"
	for name, tc := range map[string]struct {
		before, after []v1alpha1.ToolPolicy
		body, want    string
	}{
		"nobody says anything":                 {nil, nil, callOf(2, answered), codeUnseen},
		"a rule allows them":                   {[]v1alpha1.ToolPolicy{allow}, []v1alpha1.ToolPolicy{allow}, callOf(2, answered), ""},
		"a second policy says nothing":         {[]v1alpha1.ToolPolicy{allow, nothing}, []v1alpha1.ToolPolicy{allow, nothing}, callOf(2, answered), ""},
		"a second policy refuses them":         {[]v1alpha1.ToolPolicy{allow, deny}, []v1alpha1.ToolPolicy{allow, deny}, callOf(2, answered), codeUnseen},
		"allowed since, the approver not told": {[]v1alpha1.ToolPolicy{nothing}, []v1alpha1.ToolPolicy{allow}, callOf(2, answered), codeUnseen},
		"allowed then, not any more":           {[]v1alpha1.ToolPolicy{allow}, []v1alpha1.ToolPolicy{nothing}, callOf(2, answered), codeUnseen},
		"no answer, only the state":            {nil, nil, callOf(2, goesOn), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(tc.before...)
			r.begun(asks)
			if told := r.request().Spec.InputResponses == v1alpha1.InputAllow; told != (len(tc.before) > 0 && tc.before[0].Name == allow.Name && (len(tc.before) == 1 || tc.before[1].Name != deny.Name)) {
				t.Errorf("the person was told: %t", told)
			}
			r.govern(tc.after...)
			r.upstream.answers(answerJSON(`{"content":[]}`))
			got := r.post(tc.body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(callOf(1, ""), tc.body)
				if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseSucceeded {
					t.Errorf("the request is %s", phase)
				}
				return
			}
			r.ran(callOf(1, ""))
			if last := r.of("update_invoice"); last[len(last)-1].Code != codeUnseen || last[len(last)-1].Verdict != receipt.VerdictDeny {
				t.Errorf("receipt %+v", last[len(last)-1])
			}
			// Without a further word the call is lost, for a person to find out.
			r.clock.Step(time.Minute)
			r.gateway.follow(t.Context())
			if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseAmbiguous {
				t.Errorf("after the deadline the request is %s", phase)
			}
		})
	}
}

func TestManyMessagesOfOneRoundAreSentOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begun(later)
	r.upstream.answers(answerJSON(`{"content":[]}`))
	codes := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			got := r.post(callOf(i+2, goesOn))
			mu.Lock()
			defer mu.Unlock()
			codes[got.code()]++
		})
	}
	all.Wait()
	if codes[""] != 1 || codes["RoundUnknown"] != 7 || len(r.upstream.requests()) != 2 {
		t.Errorf("%v, the server got %d messages", codes, len(r.upstream.requests()))
	}
}

func TestARoundThatDidNotLeaveCanBeSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begun(later)
	url := r.server.upstream.Load()
	r.server.Dial(nil, "")
	if got := r.post(callOf(2, goesOn)); got.code() != "DefinitionUnavailable" {
		t.Errorf("without an endpoint: %s", got.body)
	}
	up := url.own()
	r.server.Dial(&up, url.digest)
	broken := up
	broken.URL = "http://127.0.0.1:1/mcp"
	r.server.Dial(&broken, url.digest)
	if got := r.post(callOf(3, goesOn)); got.status != http.StatusBadGateway {
		t.Errorf("the server is down: HTTP %d %s", got.status, got.body)
	}
	r.server.Dial(&up, url.digest)
	r.upstream.answers(answerJSON(`{"content":[]}`))
	if got := r.post(callOf(4, goesOn)); got.code() != "" || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("the server is back: %s", got.body)
	}
	r.ran(callOf(1, ""), callOf(4, goesOn))
}

func TestWhatBecomesOfALaterRound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		code   string
		phase  v1alpha1.Phase
	}{
		"a result":               {answerJSON(`{"content":[]}`), "", v1alpha1.PhaseSucceeded},
		"an event":               {answerWith("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n"), "", v1alpha1.PhaseSucceeded},
		"the tool fails":         {answerJSON(`{"isError":true}`), "", v1alpha1.PhaseFailed},
		"more is asked by event": {answerWith("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"resultType\":\"input_required\",\"requestState\":\"s2\"}}\n\n"), "", v1alpha1.PhaseExecuting},
		"nothing to tell it by":  {answerJSON(`{"resultType":"input_required"}`), "", v1alpha1.PhaseAmbiguous},
		"torn":                   {cutOff("application/json", `{"jsonrpc":"2.0","id":2,`), codeAmbiguous, v1alpha1.PhaseAmbiguous},
		"refused":                {answerWith("application/json", `{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":""}}`), "", v1alpha1.PhaseAmbiguous},
		"it becomes a task":      {answerJSON(`{"resultType":"task","taskId":"t","status":"working"}`), "", v1alpha1.PhaseExecuting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.begun(later)
			r.upstream.answers(tc.answer)
			if got := r.post(callOf(2, goesOn)); got.code() != tc.code {
				t.Errorf("code %q, want %q: %s", got.code(), tc.code, got.body)
			}
			if phase := r.request().CurrentPhase(); phase != tc.phase {
				t.Errorf("the request is %s, want %s", phase, tc.phase)
			}
			r.ran(callOf(1, ""), callOf(2, goesOn))
		})
	}
}

func TestNoRoundLeavesWithoutARecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begun(later)
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		if kept, err := os.ReadFile(r.receipts); err != nil || !strings.Contains(string(kept), `"code":"NextRound"`) {
			t.Errorf("on disk when the round arrives: %v\n%s", err, kept)
		}
		answerJSON(later)(w, rq)
	})
	if got := r.post(callOf(2, goesOn)); got.code() != "" {
		t.Errorf("the first round: %s", got.body)
	}
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.post(callOf(3, goesOn)); got.code() != codeUnrecorded {
		t.Errorf("%s", got.body)
	}
	r.ran(callOf(1, ""), callOf(2, goesOn))

	writer, err := receipt.Open(receipt.Options{Path: r.receipts, Gateway: "gw", Now: r.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	r.gateway.Receipts = writer
	if got := r.post(callOf(4, goesOn)); got.code() != "" {
		t.Errorf("once there is a record again: %s", got.body)
	}
	r.ran(callOf(1, ""), callOf(2, goesOn), callOf(4, goesOn))
}

func TestARevocationCountsWhileTheRecordOfARoundIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begun(later)
	r.receiptClock(func() { r.govern(team(rule(v1alpha1.EffectDeny, "*"))) })
	if got := r.post(callOf(2, goesOn)); got.code() == "" {
		t.Errorf("%s", got.body)
	}
	r.ran(callOf(1, ""))
}

func TestACallThatHasEndedIsNotTakenUpByALaterWordOfTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := r.post(callOf(1, "")); got.code() != codePending {
		t.Fatalf("not asked: %s", got.body)
	}
	r.decide(v1alpha1.DecisionApproved)
	r.upstream.answers(answerWith("text/event-stream", `data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}`+"\n\n"+`data: {"jsonrpc":"2.0","id":1,"result":`+later+"}\n\n"))
	if got := r.post(callOf(1, "")); got.status != http.StatusOK || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Fatalf("the request is %s: %s", r.request().CurrentPhase(), got.body)
	}
	if got := r.post(callOf(2, goesOn)); got.code() != "RoundUnknown" {
		t.Errorf("a round of it: %s", got.body)
	}
	r.ran(callOf(1, ""))
}

func TestARoundNeedsNoApprovalThatIsStillFresh(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() {
		r.governed.Spec.Approvals.TTL.Duration, r.governed.Spec.CallTimeout.Duration = time.Minute, time.Hour
	})
	r.begun(later)
	r.clock.Step(2 * time.Minute) // the approval would have expired, if it had not been used
	r.server.Prove(r.clock.Now())
	r.upstream.answers(answerJSON(`{"content":[]}`))
	if got := r.post(callOf(2, goesOn)); got.code() != "" || r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
		t.Errorf("%s", got.body)
	}
}
