// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	const (
		succeeded = v1alpha1.OutcomeSucceeded
		toolError = v1alpha1.OutcomeToolError
		rejected  = v1alpha1.OutcomeRejected
		unclear   = v1alpha1.OutcomeUnclear
	)
	failure := func(code, message string) string {
		return `{"jsonrpc":"2.0","id":1,"error":{"code":` + code + `,"message":"` + message + `"}}`
	}
	for name, tc := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   v1alpha1.ExecutionOutcome
	}{
		"a result":                         {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, succeeded},
		"isError false":                    {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"isError":false}}`, succeeded},
		"complete":                         {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`, succeeded},
		"isError":                          {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"isError":true}}`, toolError},
		"isError of another type":          {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"isError":"false"}}`, toolError},
		"input required":                   {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"}}`, unclear},
		"a task":                           {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t"}}}`, unclear},
		"a result that is no object":       {200, nil, `{"jsonrpc":"2.0","id":1,"result":[]}`, unclear},
		"the answer to another call":       {200, nil, `{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`, unclear},
		"an id of another type":            {200, nil, `{"jsonrpc":"2.0","id":"1","result":{"content":[]}}`, unclear},
		"an error without an id":           {200, nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":""}}`, unclear},
		"nothing anybody can read":         {200, nil, `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`, unclear},
		"no body":                          {202, nil, ``, unclear},
		"a parse error":                    {200, nil, failure("-32700", ""), rejected},
		"an invalid request":               {200, nil, failure("-32600", ""), rejected},
		"no such method":                   {200, nil, failure("-32601", ""), rejected},
		"invalid params":                   {200, nil, failure("-32602", "note is too long"), unclear},
		"an unknown tool":                  {200, nil, failure("-32602", "Unknown tool: x"), rejected},
		"headers that differ":              {400, nil, failure("-32020", ""), rejected},
		"a missing capability":             {400, nil, failure("-32021", ""), rejected},
		"an unsupported version":           {400, nil, failure("-32022", ""), rejected},
		"an internal error":                {200, nil, failure("-32603", "internal"), unclear},
		"a code of the server's own":       {200, nil, failure("-32000", ""), unclear},
		"a code that is no number":         {200, nil, failure(`"-32601"`, ""), unclear},
		"refused, and no id could be read": {400, nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":""}}`, rejected},
		"401":                              {401, nil, "", rejected},
		"403 that asks for a token":        {403, map[string]string{"WWW-Authenticate": "Bearer"}, "", rejected},
		"403":                              {403, nil, "", unclear},
		"404 of a session":                 {404, nil, "", rejected},
		"500":                              {500, nil, "", unclear},
		"502 with a result":                {502, nil, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, unclear},
		"a redirect":                       {307, map[string]string{"Location": "http://127.0.0.1:1/"}, "", unclear},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := &http.Response{StatusCode: tc.status, Header: http.Header{}, Request: &http.Request{Header: http.Header{"Mcp-Session-Id": {"s"}}}}
			for name, value := range tc.header {
				resp.Header.Set(name, value)
			}
			if got := outcomeOfResponse(resp, []byte(tc.body), []byte("1")); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			answer, found, err := wire.ScanAnswer([]byte(tc.body))
			if tc.status == 200 && err == nil && found && string(answer.ID) == "1" && outcomeOf(answer) != tc.want {
				t.Errorf("as an event: got %s, want %s", outcomeOf(answer), tc.want)
			}
		})
	}
	if got := outcomeOfResponse(&http.Response{StatusCode: 404, Request: &http.Request{}}, nil, []byte("1")); got != unclear {
		t.Errorf("404 without a session: %s", got)
	}
}

func TestWhatBecameOfAnApprovedCall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit  func(*rig)
		code  string // of the gateway's own answer
		phase v1alpha1.Phase
		sent  int
		again string // code of the same call sent again
	}{
		"success": {func(*rig) {}, "", v1alpha1.PhaseSucceeded, 1, codePending},
		"as an event": {func(r *rig) {
			r.upstream.answers(answerWith("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"))
		}, "", v1alpha1.PhaseSucceeded, 1, codePending},
		"tool error": {func(r *rig) { r.upstream.answers(answerJSON(`{"isError":true}`)) }, "", v1alpha1.PhaseFailed, 1, codePending},
		"cut off":    {func(r *rig) { r.upstream.answers(cutOff("application/json", `{"jsonrpc":"2.0","id":1,`)) }, codeAmbiguous, v1alpha1.PhaseAmbiguous, 1, codeAmbiguous},
		"event cut off": {func(r *rig) {
			r.upstream.answers(cutOff("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\ndata: {\"jso"))
		}, codeAmbiguous, v1alpha1.PhaseAmbiguous, 1, codeAmbiguous},
		"events without an answer": {func(r *rig) {
			r.upstream.answers(answerWith("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\ndata: {"))
		}, codeAmbiguous, v1alpha1.PhaseAmbiguous, 1, codeAmbiguous},
		"events to be fetched later": {func(r *rig) { r.upstream.answers(answerWith("text/event-stream", "id: 7\ndata:\n\n")) }, "", v1alpha1.PhaseAmbiguous, 1, codeAmbiguous},
		"closed without an answer": {func(r *rig) {
			r.upstream.answers(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}, codeAmbiguous, v1alpha1.PhaseAmbiguous, 1, codeAmbiguous},
		"connection refused": {func(r *rig) { r.upstream.Close() }, "", v1alpha1.PhaseFailed, 0, codePending},
		"no endpoint":        {func(r *rig) { r.server.Dial(nil, "") }, "DefinitionUnavailable", v1alpha1.PhaseApproved, 0, "DefinitionUnavailable"},
		"no answer in time": {func(r *rig) {
			r.upstream.answers(func(_ http.ResponseWriter, rq *http.Request) { <-rq.Context().Done() })
		}, codeAmbiguous, v1alpha1.PhaseAmbiguous, 1, codeAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.edit(func() { r.governed.Spec.CallTimeout = metav1.Duration{Duration: time.Second} })
			body := r.approved("update_invoice")
			tc.edit(r)
			got := r.post(body)
			if got.code() != tc.code || got.err != nil {
				t.Errorf("code %q, want %q: %+v", got.code(), tc.code, got)
			}
			if n := len(r.upstream.requests()); n != tc.sent {
				t.Errorf("the server got %d requests, want %d", n, tc.sent)
			}
			if request := r.request(); request.CurrentPhase() != tc.phase {
				t.Errorf("the request is %s, want %s", request.CurrentPhase(), tc.phase)
			}
			if again := r.post(body); again.code() != tc.again {
				t.Errorf("sent again: code %q, want %q: %s", again.code(), tc.again, again.body)
			}
			if n := len(r.upstream.requests()); n != tc.sent {
				t.Errorf("sent again, the server got %d requests, want %d", n, tc.sent)
			}
		})
	}
}

func TestACallThatLeftIsFollowedToItsEndWithoutItsClient(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"application/json", "text/event-stream"} {
		r := newRig(t)
		body := r.approved("update_invoice")
		arrived, answer := make(chan struct{}), make(chan struct{})
		r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
			close(arrived)
			<-answer
			text := `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
			if kind == "text/event-stream" {
				text = "data: " + text + "\n\n"
			}
			answerWith(kind, text)(w, rq)
		})
		r.watchClient()
		conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write([]byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + jsonLength(body) + "\r\n\r\n" + body))
		if err != nil {
			t.Fatal(err)
		}
		<-arrived
		conn.Close()
		r.until("the gateway sees that the client has gone", r.gone.Load)
		close(answer)
		r.until("the outcome is recorded", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded })
		r.ran(body)
	}
}

func TestAClientThatReadsNothingDoesNotHideWhatBecameOfItsCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway.Limits.ClientStall = time.Second
	body := r.approved("update_invoice")
	progress := `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"` + strings.Repeat("x", 1<<20) + "\"}}\n\n"
	r.upstream.answers(answerWith("text/event-stream", strings.Repeat(progress, 8)+"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"))
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write([]byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + jsonLength(body) + "\r\n\r\n" + body))
	if err != nil {
		t.Fatal(err)
	}
	r.until("the outcome is recorded", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded })
	r.ran(body)
}

func jsonLength(body string) string {
	text, _ := json.Marshal(len(body))
	return string(text)
}

func TestTheServerIsAskedOnceASecondWhatItsToolsAre(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.listed = nil
	for range 5 {
		r.post(toolCall("update_invoice", `{}`))
	}
	if r.lists != 1 {
		t.Errorf("asked %d times within one instant", r.lists)
	}
	r.clock.Step(time.Second)
	r.post(toolCall("update_invoice", `{}`))
	if r.lists != 2 {
		t.Errorf("asked %d times, want once more after a second", r.lists)
	}
	r.nothingSent()
}

func TestNoticesAreMessagesWhateverTheID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`"a\"\u00e9"`, `0`, `-7`, `99999999999999999999999999`, `""`} {
		for _, stateless := range []bool{false, true} {
			n := notice{code: "X\"", text: "a \u2028 line\nand \"quotes\"", tier: "Read", rule: "r", request: "q", namespace: "n", expiry: "e", retryAfter: 7}
			var message struct {
				ID     json.RawMessage
				Result struct {
					ResultType string
					IsError    bool
					Content    []struct{ Type, Text string }
					Meta       map[string]map[string]any `json:"_meta"`
				}
			}
			if err := json.Unmarshal(n.body([]byte(id), stateless), &message); err != nil {
				t.Fatalf("%s: %v in %s", id, err, n.body([]byte(id), stateless))
			}
			decision := message.Result.Meta["tidewaiter.dev/decision"]
			if string(message.ID) != id || !message.Result.IsError || message.Result.Content[0].Text != "Tidewaiter gateway: "+n.text ||
				decision["code"] != n.code || decision["retryAfterSeconds"] != 7.0 || (message.Result.ResultType == "complete") != stateless {
				t.Errorf("%s: %s", id, n.body([]byte(id), stateless))
			}
		}
	}
	r := newRig(t)
	body := strings.Replace(toolCall("update_invoice", `{}`), `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},`, 1)
	got := r.post(body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "update_invoice")
	if !strings.Contains(got.body, `"result":{"resultType":"complete"`) {
		t.Errorf("the newest revision: %s", got.body)
	}
}

func TestReceiptsSayWhatWasDecidedAndNoSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	for _, name := range []string{"get_invoice", "update_invoice", "delete_account", "other"} {
		r.post(toolCall(name, `{"password":"hunter2","note":"very private"}`))
	}
	r.edit(func() { r.governed = nil })
	r.post(toolCall("get_invoice", `{"password":"hunter2"}`))
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.receipts)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "private") {
		t.Errorf("arguments are in the receipts:\n%s", text)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		var receipt struct{ Kind, Tool, Verdict, Code, Outcome string }
		if err := json.Unmarshal([]byte(line), &receipt); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Join([]string{receipt.Kind, receipt.Tool, receipt.Verdict, receipt.Code, receipt.Outcome}, " "))
	}
	want := []string{
		"Opened    ", "Decision get_invoice Allow ReadTool ", "Decision update_invoice Allow Unattended ", "Outcome update_invoice Allow Unattended Succeeded",
		"Decision delete_account RequireApproval ApprovalPending ", "Decision other Deny ToolUnknown ", "Decision get_invoice Deny NotReady ",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("receipts:\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestAnUnattendedCallOfUnknownOutcomeIsAPersonsToRepeat(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	body := toolCall("update_invoice", `{"n":1}`)
	r.upstream.answers(cutOff("application/json", `{"jsonrpc":"2.0","id":1,`))
	if got := r.post(body); got.code() != codeAmbiguous {
		t.Fatalf("a torn answer: code %q", got.code())
	}
	r.upstream.answers(answerJSON(`{}`))
	got := r.post(body)
	if got.code() != codePending || len(r.upstream.requests()) != 1 {
		t.Errorf("the same call again: code %q, %d requests to the server, want %s and 1", got.code(), len(r.upstream.requests()), codePending)
	}
	if gatedBy := r.request().Spec.GatedBy; gatedBy != "an earlier call of unknown outcome" {
		t.Errorf("gatedBy: %q", gatedBy)
	}
	// The control: another action of the same tool runs unattended as before.
	if got := r.post(toolCall("update_invoice", `{"n":2}`)); got.code() != "" || len(r.upstream.requests()) != 2 {
		t.Errorf("another call: code %q, %d requests to the server", got.code(), len(r.upstream.requests()))
	}
	// A person who lets it run settles it.
	r.decide(v1alpha1.DecisionApproved)
	if got := r.post(body); got.code() != "" || len(r.upstream.requests()) != 3 {
		t.Errorf("approved: code %q: %s", got.code(), got.body)
	}
	if got := r.post(body); got.code() != "" || len(r.upstream.requests()) != 4 {
		t.Errorf("settled: code %q: %s", got.code(), got.body)
	}
}
