// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance tests the released programs between servers and clients that are not ours: the conformance suite
// of the Model Context Protocol, its reference server, its inspector and its TypeScript SDK.
package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// tiers are what the tools of the pinned server are. echo and gzip-file-as-resource do no harm, which their names do
// not prove.
var tiers = map[string]v1alpha1.Tier{
	"echo":                           v1alpha1.TierReversible,
	"get-annotated-message":          v1alpha1.TierRead,
	"get-env":                        v1alpha1.TierRead,
	"get-resource-links":             v1alpha1.TierRead,
	"get-resource-reference":         v1alpha1.TierRead,
	"get-structured-content":         v1alpha1.TierRead,
	"get-sum":                        v1alpha1.TierRead,
	"get-tiny-image":                 v1alpha1.TierRead,
	"gzip-file-as-resource":          v1alpha1.TierReversible,
	"simulate-research-query":        v1alpha1.TierReversible,
	"toggle-simulated-logging":       v1alpha1.TierReversible,
	"toggle-subscriber-updates":      v1alpha1.TierReversible,
	"trigger-long-running-operation": v1alpha1.TierReversible,
}

// forItsClient is a tool that the server offers only to a client that says it has roots, as the inspector does and the
// manager does not.
const forItsClient = "get-roots-list"

func TestARealServerIsGoverned(t *testing.T) {
	s := newStage(t)
	if !t.Run("its tools are discovered and classified", s.discovered) {
		return
	}
	if !t.Run("calls", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"the list is filtered and says what a call will meet": s.listed,
			"what is not gated passes unchanged":                  s.unchanged,
			"an effect waits, and runs once when approved":        s.approved,
			"a stream of progress runs when approved":             s.streamed,
			"a denied effect does not run":                        s.denied,
			"a read that a policy raises waits":                   s.raised,
			"a task on a tool with effects runs once approved":    s.tasked,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	}) {
		return
	}
	t.Run("its receipts are whole", s.recorded)
}

func (s *stage) discovered(t *testing.T) {
	server := s.ready(t, "everything")
	got, digests := map[string]v1alpha1.Tier{}, map[string]string{}
	for _, tool := range server.Status.Tools {
		got[tool.Name], digests[tool.Name] = tool.Tier, tool.Digest
	}
	if diff := cmp.Diff(tiers, got); diff != "" {
		t.Errorf("tiers (-want +got):\n%s", diff)
	}
	if server.Status.Server == nil || server.Status.Server.Name != "mcp-servers/everything" {
		t.Errorf("server: got %+v", server.Status.Server)
	}
	if diff := cmp.Diff(digests, s.offline(t)); diff != "" {
		t.Errorf("digests (-manager +kubectl tidewaiter classify):\n%s", diff)
	}
	eventually(t, "the gateway has the tools", func() error {
		if got := s.inspect(t, s.gateway, "tools/list").tools(t); len(got) != len(tiers) {
			return fmt.Errorf("%d tools, want %d", len(got), len(tiers))
		}
		return nil
	})
}

// offline returns the digests that people see before anything is deployed: of the list as the inspector saved it.
func (s *stage) offline(t *testing.T) map[string]string {
	t.Helper()
	list, err := json.Marshal(s.inspect(t, s.direct, "tools/list").result)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t.Context(), filepath.Join(s.bin, "kubectl-tidewaiter"), "classify", "-f", file, "-o", "json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl tidewaiter classify: %v", err)
	}
	var tools []struct{ Name, Digest string }
	if err := json.Unmarshal(out, &tools); err != nil {
		t.Fatal(err)
	}
	digests := map[string]string{}
	for _, tool := range tools {
		if tool.Name != forItsClient {
			digests[tool.Name] = tool.Digest
		}
	}
	return digests
}

func (s *stage) listed(t *testing.T) {
	want := s.inspect(t, s.direct, "tools/list").tools(t)
	if want[forItsClient] == nil {
		t.Errorf("the server does not offer %s to the inspector, so nothing shows that the filter works", forItsClient)
	}
	delete(want, forItsClient)
	behaviours := map[v1alpha1.Tier]string{v1alpha1.TierRead: "Immediate", v1alpha1.TierReversible: "RequiresApproval", v1alpha1.TierIrreversible: "RequiresApproval"}
	for name, tool := range want {
		// What the policy of another test raises is not known here.
		if name == raisedTool {
			continue
		}
		notes, _ := tool["_meta"].(map[string]any)
		notes = maps.Clone(notes)
		if notes == nil {
			notes = map[string]any{}
		}
		notes["tidewaiter.dev/tier"], notes["tidewaiter.dev/behaviour"] = string(tiers[name]), behaviours[tiers[name]]
		tool["_meta"] = notes
	}
	got := s.inspect(t, s.gateway, "tools/list").tools(t)
	if got[raisedTool] == nil {
		t.Errorf("%s is not listed", raisedTool)
	}
	delete(want, raisedTool)
	delete(got, raisedTool)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools/list (-server +gateway):\n%s", diff)
	}
	if got := s.call(t, forItsClient, `{}`); got.fault != "tool_not_found" {
		t.Errorf("call of %s: got %+v, want a tool that is not found", forItsClient, got)
	}
	s.passed.want(t, forItsClient, 0)
}

// unchanged compares what the inspector makes of the server itself with what it makes of it behind the gateway.
func (s *stage) unchanged(t *testing.T) {
	call := func(tool, arguments string) []string {
		return []string{"tools/call", "--tool-name", tool, "--tool-args-json", arguments}
	}
	for name, request := range map[string][]string{
		"a sum":                call("get-sum", `{"a":2.5,"b":40}`),
		"an image":             call("get-tiny-image", `{}`),
		"structured content":   call("get-structured-content", `{"location":"Chicago"}`),
		"links to resources":   call("get-resource-links", `{"count":3}`),
		"an error of the tool": call("get-sum", `{"a":"one","b":2}`),
		"resources":            {"resources/list"},
		"resource templates":   {"resources/templates/list"},
		"a resource":           {"resources/read", "--uri", "demo://resource/static/document/architecture.md"},
		"prompts":              {"prompts/list"},
		"a prompt":             {"prompts/get", "--prompt-name", "args-prompt", "--prompt-args", "city=Hamburg"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := s.inspect(t, s.direct, request[0], request[1:]...)
			got := s.inspect(t, s.gateway, request[0], request[1:]...)
			if len(want.result) == 0 {
				t.Fatalf("the server gives no result: %q", want.fault)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(reply{})); diff != "" {
				t.Errorf("answer (-server +gateway):\n%s", diff)
			}
		})
	}
}

func (s *stage) approved(t *testing.T) {
	s.runsWhenApproved(t, "echo", `{"message":"the tide is in"}`)
	// One approval is one execution: the same call asks anew.
	if got := s.call(t, "echo", `{"message":"the tide is in"}`).notice(t); got.Code != "ApprovalPending" {
		t.Errorf("the call after its execution: got %+v, want a new request", got)
	}
	s.passed.want(t, "echo", 1)
}

func (s *stage) streamed(t *testing.T) {
	s.runsWhenApproved(t, "trigger-long-running-operation", `{"duration":1,"steps":4}`)
}

// runsWhenApproved calls a tool with effects, approves the call, and sends it again.
func (s *stage) runsWhenApproved(t *testing.T, tool, arguments string) {
	t.Helper()
	request := s.held(t, tool, arguments, v1alpha1.TierReversible)
	s.decide(t, "approve", request)
	var got reply
	eventually(t, "the approved call runs", func() error {
		got = s.call(t, tool, arguments)
		if word := got.notice(t); word.Code != "" {
			return fmt.Errorf("%+v", word)
		}
		return nil
	})
	want := s.inspect(t, s.direct, "tools/call", "--tool-name", tool, "--tool-args-json", arguments)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(reply{})); diff != "" || want.fault != "" {
		t.Errorf("the server's answer, fault %q (-server +gateway):\n%s", want.fault, diff)
	}
	s.passed.want(t, tool, 1)
	if out, _ := s.kubectl(t, "", "get", "areq", request, "-o", "jsonpath={.status.phase}"); out != string(v1alpha1.PhaseSucceeded) {
		t.Errorf("phase of %s: got %s, want %s", request, out, v1alpha1.PhaseSucceeded)
	}
}

func (s *stage) denied(t *testing.T) {
	const tool, arguments = "toggle-simulated-logging", `{}`
	request := s.held(t, tool, arguments, v1alpha1.TierReversible)
	s.decide(t, "deny", request)
	eventually(t, "the denial is told", func() error {
		if word := s.call(t, tool, arguments).notice(t); word.Code != "ApprovalDenied" || word.Request != request {
			return fmt.Errorf("%+v", word)
		}
		return nil
	})
	s.passed.want(t, tool, 0)
}

// held calls a tool, and returns the request that now waits for a person.
func (s *stage) held(t *testing.T, tool, arguments string, tier v1alpha1.Tier) string {
	t.Helper()
	got := s.call(t, tool, arguments)
	word := got.notice(t)
	if word.Code != "ApprovalPending" || word.Tier != string(tier) || got.fault != "tool_is_error" {
		t.Fatalf("%s %s was not held: %+v", tool, arguments, got)
	}
	s.passed.want(t, tool, 0)
	return word.Request
}

// decide decides on a request as the approver.
func (s *stage) decide(t *testing.T, verb, request string) {
	t.Helper()
	if out, exit := s.kubectl(t, "", verb, request, "--reason", "looked at it"); exit != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s", verb, exit, out)
	}
}

// raisedTool gives the server's environment away, so a team may want to be asked.
const raisedTool = "get-env"

const raisingPolicy = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: everything-tiers}
spec:
  targets: [everything]
  tiers:
  - {tools: [get-env*], tier: Irreversible, reason: What was read cannot be taken back}
`

func (s *stage) raised(t *testing.T) {
	if word := s.call(t, raisedTool, `{}`).notice(t); word.Code != "" {
		t.Fatalf("before the policy: got %+v, want the server's answer", word)
	}
	if out, exit := s.kubectl(t, raisingPolicy, "apply", "-f", "-"); exit != 0 {
		t.Fatalf("kubectl apply: exit %d\n%s", exit, out)
	}
	eventually(t, "the call waits", func() error {
		if word := s.call(t, raisedTool, `{}`).notice(t); word.Code != "ApprovalPending" || word.Tier != string(v1alpha1.TierIrreversible) {
			return fmt.Errorf("%+v", word)
		}
		return nil
	})
}

// tasked calls a tool that the server runs as a task only. The inspector waits for a task, and shows of a refusal only
// that there is one, so the receipt is what names the request. Once that is approved the task runs, and its request is
// settled by the result that passes.
func (s *stage) tasked(t *testing.T) {
	const tool, arguments = "simulate-research-query", `{"topic":"tides"}`
	if got := s.inspect(t, s.direct, "tools/call", "--tool-name", tool, "--tool-args-json", arguments); got.fault != "" {
		t.Errorf("the server itself refuses: %+v", got)
	}
	if got := s.call(t, tool, arguments); got.fault == "" {
		t.Errorf("the call passed: %+v", got)
	}
	s.passed.want(t, tool, 0)
	var request string
	eventually(t, "the request is on record", func() error {
		for _, r := range s.decisions(t) {
			if r.Tool == tool && r.Verdict == receipt.VerdictRequireApproval && r.Code == "ApprovalPending" {
				request = r.Request
				return nil
			}
		}
		return errors.New("no receipt of it")
	})
	s.decide(t, "approve", request)
	eventually(t, "the approved task runs", func() error {
		if got := s.call(t, tool, arguments); got.fault != "" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	s.passed.want(t, tool, 1)
	eventually(t, "its result settles the request", func() error {
		if out, _ := s.kubectl(t, "", "get", "areq", request, "-o", "jsonpath={.status.phase}"); out != string(v1alpha1.PhaseSucceeded) {
			return fmt.Errorf("phase of %s: %s", request, out)
		}
		return nil
	})
}

// decisions returns the receipts of decisions that are written by now.
func (s *stage) decisions(t *testing.T) []receipt.Receipt {
	t.Helper()
	text, err := os.ReadFile(s.receipts)
	if err != nil {
		t.Fatal(err)
	}
	var all []receipt.Receipt
	for line := range bytes.Lines(text) {
		var r receipt.Receipt
		// The last line may be half written.
		if json.Unmarshal(line, &r) == nil && r.Kind == receipt.KindDecision {
			all = append(all, r)
		}
	}
	return all
}

// recorded looks at the receipts of all calls: reads are among them, and the chain is whole.
func (s *stage) recorded(t *testing.T) {
	eventually(t, "reads are on record", func() error {
		for _, r := range s.decisions(t) {
			if r.Tool == "get-tiny-image" && r.Verdict == receipt.VerdictAllow {
				return nil
			}
		}
		return errors.New("no receipt of get-tiny-image")
	})
	file, err := os.Open(s.receipts)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	report, err := receipt.Verify(file)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("receipts: %v, %+v", err, report)
	}
}
