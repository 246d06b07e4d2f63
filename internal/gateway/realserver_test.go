// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// real puts a server of mcp-go behind the gateway, and returns how often its tool took effect.
func (r *rig) real() *atomic.Int64 {
	var effects atomic.Int64
	s := server.NewMCPServer("billing", "1", server.WithTaskCapabilities(true, true, true), server.WithToolCapabilities(true), server.WithElicitation())
	s.AddTool(mcp.NewTool("update_invoice", mcp.WithTaskSupport(mcp.TaskSupportOptional)),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if request.Params.Task != nil {
				effects.Add(1)
				return mcp.NewToolResultText("done as a task"), nil
			}
			answer := server.ElicitationResponse(request.Params.InputResponses, "confirm")
			if answer == nil {
				return server.NewInputRequestBuilder("n=1").Elicit("confirm", mcp.ElicitationParams{
					Message: "Sure?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
				}).ToolResult(), nil
			}
			effects.Add(1)
			return mcp.NewToolResultText("done with " + request.Params.RequestState), nil
		})
	handler := server.NewStreamableHTTPServer(s)
	r.upstream.answers(handler.ServeHTTP)
	return &effects
}

type accepting struct{}

func (accepting) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{}}}, nil
}

// connected is a client of mcp-go, at the front of the gateway.
func (r *rig) connected(options ...client.ClientOption) *client.Client {
	r.t.Helper()
	return r.connectedAs(mcp.LATEST_PROTOCOL_VERSION, options...)
}

// connectedAs is a client that asks for a revision of the protocol.
func (r *rig) connectedAs(version string, options ...client.ClientOption) *client.Client {
	r.t.Helper()
	wire, err := transport.NewStreamableHTTP(r.front.URL + "/mcp")
	if err != nil {
		r.t.Fatal(err)
	}
	c := client.NewClient(wire, append(options, client.WithElicitationHandler(accepting{}))...)
	r.t.Cleanup(func() { c.Close() })
	if err := c.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "agent", Version: "1"}
	hello.Params.ProtocolVersion = version
	if _, err := c.Initialize(r.t.Context(), hello); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestRealClientsOfAllRevisionsAreGovernedAlike(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-03-26", "2025-06-18", mcp.ProtocolVersion20251125, mcp.ProtocolVersion20260728} {
		for _, stateless := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stateless=%t", version, stateless), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				var ran atomic.Int64
				s := server.NewMCPServer("billing", "1", server.WithToolCapabilities(true))
				for _, name := range []string{"update_invoice", "get_invoice", "not_classified"} {
					s.AddTool(mcp.NewTool(name), func(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						ran.Add(1)
						return mcp.NewToolResultText("ran " + call.Params.Name), nil
					})
				}
				r.upstream.answers(server.NewStreamableHTTPServer(s, server.WithStateLess(stateless)).ServeHTTP)
				c := r.connectedAs(version)
				if got := c.ProtocolVersion(); got != version {
					t.Errorf("the revision is %s", got)
				}
				if sessions := !stateless && version != mcp.ProtocolVersion20260728; (c.GetSessionId() != "") != sessions {
					t.Errorf("the session is %q", c.GetSessionId())
				}
				tools, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
				if err != nil || len(tools.Tools) != 2 {
					t.Errorf("listed: %+v, %v", tools, err)
				}
				call := func(name, want string) {
					t.Helper()
					var request mcp.CallToolRequest
					request.Params.Name, request.Params.Arguments = name, map[string]any{"n": 1}
					if got, err := c.CallTool(t.Context(), request); err != nil || !strings.Contains(text(got), want) {
						t.Errorf("%s: %v %s", name, err, text(got))
					}
				}
				call("get_invoice", "ran get_invoice")
				call("not_classified", "not among the tools that were discovered")
				call("update_invoice", "needs a person's approval")
				r.decide(v1alpha1.DecisionApproved)
				call("update_invoice", "ran update_invoice")
				if n := ran.Load(); n != 2 {
					t.Errorf("%d calls ran, want 2", n)
				}
			})
		}
	}
}

func TestARealClientAndServerFinishACallOfTwoRounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		says v1alpha1.InputRule
		want string
		runs int64
	}{
		"answers are refused":      {"", "nobody who let the call through has seen", 0},
		"a rule allows the answer": {v1alpha1.InputAllow, "done with n=1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(inputs(tc.says))
			effects := r.real()
			c := r.connected()
			var call mcp.CallToolRequest
			call.Params.Name, call.Params.Arguments = "update_invoice", map[string]any{"n": 1}
			got, err := c.CallTool(t.Context(), call)
			if err != nil || !strings.Contains(text(got), "needs a person's approval") {
				t.Fatalf("%v: %s", err, text(got))
			}
			r.decide(v1alpha1.DecisionApproved)
			if got, err = c.CallTool(t.Context(), call); err != nil || !strings.Contains(text(got), tc.want) {
				t.Errorf("%v: %s", err, text(got))
			}
			if n := effects.Load(); n != tc.runs {
				t.Errorf("it took effect %d times, want %d", n, tc.runs)
			}
			if tc.runs == 1 && r.request().CurrentPhase() != v1alpha1.PhaseSucceeded {
				t.Errorf("the request is %s", r.request().CurrentPhase())
			}
		})
	}
}

func text(result *mcp.CallToolResult) string {
	if result == nil {
		return ""
	}
	all, _ := json.Marshal(result.Content)
	return string(all)
}

func TestARealClientAndServerFinishATask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasking()
	effects := r.real()
	c := r.connected(client.WithProtocolVersion(mcp.ProtocolVersion20251125))
	call := func(id int64) string {
		t.Helper()
		answer, err := c.GetTransport().SendRequest(t.Context(), transport.JSONRPCRequest{
			JSONRPC: "2.0", ID: mcp.NewRequestId(id), Method: "tools/call",
			Params: json.RawMessage(`{"name":"update_invoice","arguments":{"n":1},"task":{"ttl":60000}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := call(101); !strings.Contains(got, codePending) {
		t.Fatalf("not asked: %s", got)
	}
	r.decide(v1alpha1.DecisionApproved)
	var made struct{ Result mcp.CreateTaskResult }
	if got := call(102); json.Unmarshal([]byte(got), &made) != nil || made.Result.Task.TaskId == "" {
		t.Fatalf("no task: %s", got)
	}
	id := made.Result.Task.TaskId
	var get mcp.GetTaskRequest
	get.Params.TaskId = id
	if _, err := c.GetTask(t.Context(), get); err != nil {
		t.Error(err)
	}
	list, err := c.ListTasks(t.Context(), mcp.ListTasksRequest{})
	if err != nil || len(list.Tasks) != 1 {
		t.Errorf("%v: %+v", err, list)
	}
	var fetch mcp.TaskResultRequest
	fetch.Params.TaskId = id
	result, err := c.TaskResult(t.Context(), fetch)
	if err != nil || len(result.Content) != 1 {
		t.Errorf("%v: %+v", err, result)
	}
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseSucceeded || effects.Load() != 1 {
		t.Errorf("the request is %s, it took effect %d times", phase, effects.Load())
	}
}
