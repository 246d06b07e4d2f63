// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// connects opens a session of mcp-go's own client of HTTP+SSE.
func (r *rig) connects() (agent *client.Client, told <-chan string) {
	r.t.Helper()
	agent, err := client.NewSSEMCPClient(r.front.URL + "/finance/billing/mcp")
	if err != nil {
		r.t.Fatal(err)
	}
	notes := make(chan string, 64)
	agent.OnNotification(func(n mcp.JSONRPCNotification) { notes <- fmt.Sprint(n.Method, n.Params.AdditionalFields["data"]) })
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	if err := agent.Start(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { agent.Close() })
	hello := mcp.InitializeRequest{}
	hello.Params.ProtocolVersion = mcp.ProtocolVersion20241105
	got, err := agent.Initialize(ctx, hello)
	if err != nil || got.ServerInfo.Name != "billing" || got.ProtocolVersion != mcp.ProtocolVersion20241105 {
		r.t.Fatalf("initialize: %+v, %v", got, err)
	}
	return agent, notes
}

func calling(name string) mcp.CallToolRequest {
	request := mcp.CallToolRequest{}
	request.Params.Name, request.Params.Arguments = name, map[string]any{"n": 1}
	return request
}

func textOfResult(result *mcp.CallToolResult) string {
	if result == nil || len(result.Content) == 0 {
		return ""
	}
	text, _ := result.Content[0].(mcp.TextContent)
	return text.Text
}

func TestARealClientAndServerOfHTTPAndSSEAreGoverned(t *testing.T) {
	t.Parallel()
	r, s := newRealSSE(t)
	r.govern(team(rule(v1alpha1.EffectDeny, "delete_*")))
	agent, told := r.connects()
	ctx := t.Context()
	list, err := agent.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	behaviours := map[string]any{}
	for _, tool := range list.Tools {
		behaviours[tool.Name] = tool.Meta.AdditionalFields["tidewaiter.dev/behaviour"]
	}
	if diff := cmp.Diff(map[string]any{"get_invoice": "Immediate", "update_invoice": "RequiresApproval"}, behaviours); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}

	got, err := agent.CallTool(ctx, calling("get_invoice"))
	if err != nil || textOfResult(got) != "did get_invoice" || s.runs("get_invoice") != 1 {
		t.Errorf("a read: %+v, %v", got, err)
	}
	if note := <-told; note != "notifications/messageruns get_invoice" {
		t.Errorf("told: %s", note)
	}

	got, err = agent.CallTool(ctx, calling("update_invoice"))
	if err != nil || !got.IsError || s.runs("update_invoice") != 0 {
		t.Fatalf("before it is approved: %+v, %v", got, err)
	}
	r.decide(v1alpha1.DecisionApproved)
	got, err = agent.CallTool(ctx, calling("update_invoice"))
	if err != nil || got.IsError || textOfResult(got) != "did update_invoice" || s.runs("update_invoice") != 1 {
		t.Errorf("approved: %+v, %v", got, err)
	}
	r.until("the outcome", func() bool { return r.request().CurrentPhase() == v1alpha1.PhaseSucceeded })
	if got, err = agent.CallTool(ctx, calling("delete_account")); err != nil || !got.IsError || s.runs("delete_account") != 0 {
		t.Errorf("denied: %+v, %v", got, err)
	}

	s.AddTool(mcp.NewTool("another"), s.run)
	for note := ""; note != "notifications/tools/list_changed<nil>"; {
		select {
		case note = <-told:
		case <-time.After(45 * time.Second):
			t.Fatal("a change of the list is not told")
		}
	}
	if resource, err := agent.ReadResource(ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "file:///report"}}); err != nil || len(resource.Contents) != 1 {
		t.Errorf("a resource: %+v, %v", resource, err)
	}
}

func TestNothingRunsOverHTTPAndSSEWithoutApproval(t *testing.T) {
	t.Parallel()
	r, s := newRealSSE(t)
	r.edit(func() { r.governed.Spec.OtherMethods = v1alpha1.OtherMethodsDeny })
	r.govern(team(rule(v1alpha1.EffectRequireApproval, "*")))
	a := r.listens()
	a.sends(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`)
	a.next()
	a.sends(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	id := 10
	for _, name := range []string{"get_invoice", "update_invoice", "delete_account"} {
		call := toolCall(name, `{"n":1}`)
		for _, body := range []string{
			call, withID(`"x"`, call), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{"n":1},"task":{"ttl":1}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///report"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"summary"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"1"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"vendor/run","params":{"name":"` + name + `"}}`,
		} {
			id++
			a.sends(withID(fmt.Sprint(id), body))
			if got := a.next(); got == "" {
				t.Fatal("no answer")
			}
		}
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"` + name + `"}}`, "[" + call + "]", call + call,
			`{"jsonrpc":"2.0","id":1,"method":"tools/Call","params":{"name":"` + name + `"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"` + name + `"}}`,
			`{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"` + name + `"}}`,
		} {
			if got := a.post(body); got.status < 400 {
				t.Errorf("%s: HTTP %d", body, got.status)
			}
		}
		// The addresses of the server itself, and of nobody's stream.
		for _, path := range []string{"/message" + a.path, "/message?sessionId=theirs", "/sse", "/mcp", "/mcp?sessionId=other", a.path + "&sessionId=other"} {
			if got := r.postTo(path, call); got.status < 400 {
				t.Errorf("%s: HTTP %d", path, got.status)
			}
		}
	}
	s.mu.Lock()
	ran := maps.Clone(s.ran)
	s.mu.Unlock()
	if len(ran) > 0 {
		t.Fatalf("the server ran %v", ran)
	}
	// The twin: one of the calls, approved.
	for _, request := range r.requests() {
		if request.Spec.Tool == "update_invoice" {
			r.decideOn(&request, v1alpha1.DecisionApproved, "alice")
		}
	}
	a.sends(withID("99", toolCall("update_invoice", `{"n":1}`)))
	for block := ""; !slices.Contains([]int{1}, s.runs("update_invoice")); {
		if block = a.next(); block == "" {
			t.Fatal("the approved call does not run")
		}
	}
}
