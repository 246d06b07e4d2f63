// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestACallThatWaitsAtOneGatewayRunsOnceItIsApprovedThroughAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.openDoor("gw-a"), w.openDoor("gw-b")
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_invoice","arguments":` + note + `}}`
	ctx, leave := context.WithCancel(t.Context())
	left, waits := make(chan answer, 1), make(chan answer, 1)
	go func() { left <- a.post(ctx, call) }()
	r := w.theRequest(v1alpha1.PhasePending)
	go func() { waits <- b.post(t.Context(), call) }()
	b.sees(r, v1alpha1.PhasePending)
	leave()
	<-left
	w.decide(r.Name, v1alpha1.DecisionApproved)
	decided := time.Now()
	got := <-waits
	if err := wantServerAnswer(got); err != nil {
		t.Errorf("the call that waits: %v", err)
	}
	// One second from the event; the rest is for the event itself on a busy machine.
	if took := time.Since(decided); took > 3*time.Second {
		t.Errorf("it went on after %v", took)
	}
	w.executions("update_invoice", 1)
	if e := w.request(r.Name).Status.Execution; e == nil || e.Gateway != "gw-b" {
		t.Errorf("executed by %+v", e)
	}
}

// ways are messages that ask for a tool in all the ways there are, and some that there are not.
func ways(tool string) map[string]string {
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	plain := `"name":"` + tool + `","arguments":{"accountId":"a","invoiceId":"a","note":"n"}`
	escaped := strings.Replace(plain, tool, fmt.Sprintf(`\u%04x`, tool[0])+tool[1:], 1)
	return map[string]string{
		"a call":                   call(`{` + plain + `}`),
		"a call with null for id":  strings.Replace(call(`{`+plain+`}`), `"id":1`, `"id":null`, 1),
		"a notification":           strings.Replace(call(`{`+plain+`}`), `"id":1,`, ``, 1),
		"a task":                   call(`{` + plain + `,"task":{"ttl":60000}}`),
		"a second round":           call(`{` + plain + `,"requestState":"s","inputResponses":{}}`),
		"an escaped name":          call(`{` + escaped + `}`),
		"an escaped method":        strings.Replace(call(`{`+plain+`}`), "tools/call", `tools\/c\u0061ll`, 1),
		"another case":             strings.Replace(call(`{`+plain+`}`), "tools/call", "Tools/Call", 1),
		"a space behind":           strings.Replace(call(`{`+plain+`}`), "tools/call", "tools/call ", 1),
		"two names":                call(`{"name":"get_invoice",` + plain + `}`),
		"a read by another case":   call(`{` + plain + `,"Name":"get_invoice"}`),
		"a batch":                  `[` + call(`{"name":"get_invoice","arguments":{"invoiceId":"a"}}`) + `,` + call(`{`+plain+`}`) + `]`,
		"two messages":             `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n" + call(`{`+plain+`}`),
		"behind a byte order mark": "\ufeff" + call(`{`+plain+`}`),
		"two methods":              strings.Replace(call(`{`+plain+`}`), `"id":1`, `"id":1,"method":"ping"`, 1),
		"a method of no protocol":  strings.Replace(call(`{`+plain+`}`), "tools/call", "tools/invoke", 1),
		"a prompt":                 strings.Replace(call(`{`+plain+`}`), "tools/call", "prompts/get", 1),
		"a resource":               strings.Replace(call(`{"uri":"tool://`+tool+`",`+plain+`}`), "tools/call", "resources/read", 1),
		"a task of its own":        strings.Replace(call(`{`+plain+`}`), "tools/call", "tasks/create", 1),
		"an answer to a task":      `{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{"taskId":"t","inputResponses":{"confirm":{}},` + plain + `}}`,
		"an answer":                `{"jsonrpc":"2.0","id":1,"result":{"method":"tools/call",` + plain + `}}`,
	}
}

func TestNoWayAroundTheGateRunsAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	send := func(method, path, contentType, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(d.url, "/mcp")+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Session-Id", d.session)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		resp, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return
		}
		defer resp.Body.Close()
		if method != http.MethodGet { // a stream has no end
			io.Copy(io.Discard, resp.Body)
		}
	}
	tools := []string{"delete_account", "send_invoice", "update_invoice"}
	for _, tool := range tools {
		for _, body := range ways(tool) {
			send(http.MethodPost, "/mcp", "application/json", body)
			send(http.MethodPost, "/"+w.namespace+"/billing/mcp?x=1", "application/json", body)
		}
		call := ways(tool)["a call"]
		for _, path := range []string{"/sse", "/message", "/messages", "/mcp/", "//mcp", "/mcp/mcp", "/", "/%6dcp"} {
			send(http.MethodPost, path, "application/json", call)
		}
		for _, contentType := range []string{"text/plain", "application/json; charset=utf-16le", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
			send(http.MethodPost, "/mcp", contentType, call)
		}
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodGet, "post"} {
			send(method, "/mcp", "application/json", call)
		}
		for _, headers := range [][]string{
			{"Mcp-Method", "tools/list"}, {"Mcp-Name", "get_invoice"}, {"X-Http-Method-Override", "PUT"}, {"Mcp-Protocol-Version", "2025-03-26"},
			{"Mcp-Protocol-Version", "2024-11-05"}, {"Accept", "text/event-stream"}, {"Accept", "application/json"}, {"Last-Event-Id", "1"},
		} {
			d.post(t.Context(), call, headers...)
		}
		w.executions(tool, 0)
	}
	for _, tool := range tools {
		var r string
		w.eventually("people are asked", func() error {
			if r = d.post(t.Context(), ways(tool)["a call"]).request(); r == "" {
				return fmt.Errorf("no request for %s", tool)
			}
			return nil
		})
		w.decide(r, v1alpha1.DecisionApproved)
		w.eventually("the approved call runs", func() error { return wantServerAnswer(d.post(t.Context(), ways(tool)["a call"])) })
		w.executions(tool, 1)
	}
}

func TestThreeMegabytesAreApprovedByWhatCanBeShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	arguments := `{"accountId":"acc_1","note":"` + strings.Repeat("x", 3<<20) + `"}`
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_account","arguments":` + arguments + `}}`
	got := d.post(t.Context(), call)
	if got.code() != "ApprovalPending" {
		t.Fatalf("got %.300s", got.raw)
	}
	r := w.request(got.request())
	if len(r.Spec.Arguments) > 8<<10 || r.Spec.ArgumentsSize != int64(len(arguments)) || r.Spec.BlastRadius.Scope == v1alpha1.BlastSingle {
		t.Errorf("%d bytes shown of %d, radius %+v", len(r.Spec.Arguments), r.Spec.ArgumentsSize, r.Spec.BlastRadius)
	}
	if !strings.Contains(r.Spec.Arguments, `"accountId":"acc_1"`) || !strings.Contains(r.Spec.Arguments, "3145728 bytes, sha256 ") {
		t.Errorf("shown: %s", r.Spec.Arguments)
	}
	w.decide(r.Name, v1alpha1.DecisionApproved)
	d.sees(r, v1alpha1.PhaseApproved)
	other := strings.Replace(call, "xx\"}", "xy\"}", 1)
	if got := d.post(t.Context(), other); got.code() != "ApprovalPending" || got.request() == r.Name {
		t.Errorf("another letter at the end: %.300s", got.raw)
	}
	w.executions("delete_account", 0)
	if err := wantServerAnswer(d.post(t.Context(), call)); err != nil {
		t.Errorf("the approved call: %v", err)
	}
	if w.lastCall().body != call {
		t.Error("the server did not get the bytes that were approved")
	}
	w.executions("delete_account", 1)
}

func TestEveryToolOfManyPagesIsGoverned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	var ran [250]atomic.Int64
	many := server.NewMCPServer("many", "1", server.WithToolCapabilities(true), server.WithPaginationLimit(100))
	for i := range ran {
		many.AddTool(mcp.NewTool(fmt.Sprintf("get_box_%03d", i), mcp.WithDescription("Shows a box.")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ran[i].Add(1)
			return mcp.NewToolResultText("a box"), nil
		})
	}
	handler := server.NewStreamableHTTPServer(many)
	w.intercept = func(rw http.ResponseWriter, r *http.Request, _ http.Handler) { handler.ServeHTTP(rw, r) }
	w.discover()
	if n := len(w.governed().Status.Tools); n != len(ran) {
		t.Errorf("the status has %d tools, want %d", n, len(ran))
	}
	w.policy("last", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{"get_box_249"}, Tier: v1alpha1.TierIrreversible, Reason: "it is the last"}}
	})
	d := w.openQuietDoor("gw")
	w.eventually("the policy is in force", func() error {
		if got := d.call("get_box_249", `{}`); got.code() != "ApprovalPending" {
			return errorString(got.raw)
		}
		return nil
	})
	seen, cursor, pages := map[string]bool{}, "", 0
	for ; pages == 0 || cursor != ""; pages++ {
		raw := []byte(d.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":%q}}`, cursor)).raw)
		if data := lastData(raw); data != nil {
			raw = data
		}
		var page struct {
			Result struct {
				Tools      []struct{ Name string }
				NextCursor string
			}
		}
		if err := json.Unmarshal(raw, &page); err != nil || len(page.Result.Tools) == 0 || pages > 5 {
			t.Fatalf("page %d: %v in %.300s", pages, err, raw)
		}
		for _, tool := range page.Result.Tools {
			if seen[tool.Name] {
				t.Errorf("%s is listed twice", tool.Name)
			}
			seen[tool.Name] = true
		}
		cursor = page.Result.NextCursor
	}
	if len(seen) != len(ran) || pages != 3 {
		t.Errorf("the agent sees %d tools on %d pages, want %d on 3", len(seen), pages, len(ran))
	}
	if err := wantServerAnswer(d.call("get_box_248", `{}`)); err != nil {
		t.Errorf("the one before the last: %v", err)
	}
	if last, before := ran[249].Load(), ran[248].Load(); last != 0 || before != 1 {
		t.Errorf("the last ran %d times, the one before %d", last, before)
	}
}
