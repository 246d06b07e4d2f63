// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// call calls a tool that reads, as cmd/gateway does.
func call(ctx context.Context, up endpoint.Upstream, definition tool.Descriptor, arguments []byte) ([]byte, error) {
	transport := up.Transport()
	defer transport.CloseIdleConnections()
	return discovery.Call(ctx, discovery.Target{URL: up.URL, Headers: up.Headers, Transport: transport},
		discovery.ToolCall{Tool: definition.Name, Arguments: arguments, InputSchema: definition.InputSchema})
}

// table is an MCP server with rows, which counts what it is asked, by tool and filter.
type table struct {
	mu   sync.Mutex
	rows string // what count_rows says now
	fail bool
	ran  map[string]int
}

func newTable(t *testing.T) (*table, string) {
	t.Helper()
	rows := &table{rows: "40,213", ran: map[string]int{}}
	s := server.NewMCPServer("table", "1.0.0", server.WithToolCapabilities(true))
	filter := mcp.WithString("filter", mcp.Required())
	s.AddTool(mcp.NewTool("count_rows", mcp.WithDescription("Count the rows that a filter matches."), filter), rows.count)
	s.AddTool(mcp.NewTool("update_rows", mcp.WithDescription("Change the rows that a filter matches."), filter), rows.update)
	running := httptest.NewServer(server.NewStreamableHTTPServer(s))
	t.Cleanup(running.Close)
	return rows, running.URL + "/mcp"
}

func (r *table) count(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran["count_rows "+call.GetString("filter", "")]++
	if r.fail {
		return mcp.NewToolResultError("no such table"), nil
	}
	return mcp.NewToolResultText("matches " + r.rows + " rows"), nil
}

func (r *table) update(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran["update_rows "+call.GetString("filter", "")]++
	return mcp.NewToolResultText("done"), nil
}

// becomes changes what count_rows answers.
func (r *table) becomes(rows string, fail bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows, r.fail = rows, fail
}

// wantRan compares how often each tool ran for a filter.
func (r *table) wantRan(t *testing.T, filter string, counted, updated int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, u := r.ran["count_rows "+filter], r.ran["update_rows "+filter]; c != counted || u != updated {
		t.Errorf("filter %s: the server counted %d times and changed %d times, want %d and %d", filter, c, u, counted, updated)
	}
}

// previewed is a gateway of a table, with a policy that has rows counted before people are asked.
func previewed(t *testing.T, recheck bool) (*table, *world, *door) {
	t.Helper()
	rows, url := newTable(t)
	w := newWorld(t, tellAtOnce, func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = url })
	d := w.open("gw", func(d *door) error { return wantServerAnswer(d.call("count_rows", filtered("probe"))) })
	w.policy("preview", func(s *v1alpha1.ToolPolicySpec) {
		s.Preview = []v1alpha1.PreviewRule{{
			Tools: []string{"update_*"}, Call: v1alpha1.PreviewCall{Tool: "count_rows", Args: `{"filter": args.filter}`}, Recheck: recheck,
		}}
	})
	n := 0
	w.eventually("the gateway knows the policy", func() error {
		n++
		got := d.call("update_rows", filtered(fmt.Sprint("early", n)))
		if r := w.request(got.request()); r.Spec.Preview == nil {
			return errorString("no preview: " + got.raw)
		}
		return nil
	})
	return rows, w, d
}

func filtered(filter string) string { return fmt.Sprintf(`{"filter":%q}`, filter) }

// asks sends a call that people are asked about and returns its request.
func (d *door) asks(filter string) *v1alpha1.ApprovalRequest {
	d.w.t.Helper()
	got := d.call("update_rows", filtered(filter))
	if got.code() != "ApprovalPending" {
		d.w.t.Fatalf("not asked: %s", got.raw)
	}
	if strings.Contains(got.raw, "matches") {
		d.w.t.Errorf("the agent sees the preview: %s", got.raw)
	}
	return d.w.request(got.request())
}

// approved asks, and has the person say yes.
func (d *door) approved(filter string) *v1alpha1.ApprovalRequest {
	d.w.t.Helper()
	r := d.asks(filter)
	d.w.decide(r.Name, v1alpha1.DecisionApproved)
	d.sees(r, v1alpha1.PhaseApproved)
	return d.w.request(r.Name)
}

// A person votes on what the server says that a call would affect, and what is different in the end does not run.
func TestAnApprovalHoldsForWhatTheServerSaidOfTheCall(t *testing.T) {
	t.Parallel()
	rows, w, d := previewed(t, true)

	r := d.approved("north")
	first, p := r, r.Spec.Preview
	if p == nil || p.Tool != "count_rows" || p.Result != "matches 40,213 rows" || !p.Recheck || p.Failure != "" || p.ResultDigest == "" {
		t.Fatalf("the request shows %+v", p)
	}
	rows.wantRan(t, "north", 1, 0)
	if err := wantServerAnswer(d.call("update_rows", filtered("north"))); err != nil {
		t.Errorf("the control, nothing changed: %v", err)
	}
	rows.wantRan(t, "north", 3, 1)

	r = d.approved("south")
	rows.becomes("9", false)
	again := d.asks("south")
	w.wantCancelled(r.Name, v1alpha1.CancelStateChanged)
	if again.Name == r.Name || again.Spec.Preview.Result != "matches 9 rows" {
		t.Errorf("asked anew as %s with %+v", again.Name, again.Spec.Preview)
	}
	rows.wantRan(t, "south", 3, 0)
	w.decide(again.Name, v1alpha1.DecisionApproved)
	d.used("update_rows", filtered("south"))
	rows.wantRan(t, "south", 5, 1)

	r = d.approved("east")
	rows.becomes("9", true)
	got := d.call("update_rows", filtered("east"))
	if got.code() != "PreviewUnavailable" || !strings.Contains(got.raw, "no such table") {
		t.Errorf("the server cannot say it again: %s", got.raw)
	}
	if err := wantPhase(w.request(r.Name), v1alpha1.PhaseApproved); err != nil {
		t.Error(err)
	}
	rows.becomes("9", false)
	if err := wantServerAnswer(d.call("update_rows", filtered("east"))); err != nil {
		t.Errorf("the same approval later: %v", err)
	}
	rows.wantRan(t, "east", 4, 1)

	d.stop()
	var codes []string
	for _, line := range d.about(first) {
		codes = append(codes, line.Code+" "+line.Tool)
		if line.Code == "Preview" && (line.Tier != "Read" || line.Verdict != receipt.VerdictAllow || line.GatedBy != "ToolPolicy/preview spec.preview[0]") ||
			line.Code == "Approved" && line.Preview != p.ResultDigest {
			t.Errorf("receipt %+v", line)
		}
	}
	want := []string{
		"Preview count_rows", "ApprovalPending update_rows",
		"Preview count_rows", "Approved update_rows", "Preview count_rows", "Approved update_rows", // the outcome
	}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Errorf("receipts of the first action (-want +got):\n%s", diff)
	}
}

// about returns the receipts of a stopped gateway about the calls of one action, once their chain was checked.
func (d *door) about(request *v1alpha1.ApprovalRequest) (lines []receipt.Receipt) {
	d.w.t.Helper()
	d.wantReceipts("a secret that nobody wrote")
	var all []receipt.Receipt
	calls := map[string]bool{}
	for text := range strings.Lines(readFile(d.w.t, d.path)) {
		var r receipt.Receipt
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			d.w.t.Fatal(err)
		}
		all = append(all, r)
		if r.ActionHash == request.Spec.ActionHash {
			calls[r.CallID] = true
		}
	}
	for _, r := range all {
		if calls[r.CallID] {
			lines = append(lines, r)
		}
	}
	return lines
}

// Without recheck a preview is for the person alone, and one that cannot be made keeps nobody from being asked.
func TestAPreviewInformsAndKeepsNobodyFromBeingAsked(t *testing.T) {
	t.Parallel()
	rows, w, d := previewed(t, false)

	r := d.approved("north")
	if p := r.Spec.Preview; p.Result != "matches 40,213 rows" || p.Recheck {
		t.Errorf("the request shows %+v", p)
	}
	rows.becomes("9", false)
	if err := wantServerAnswer(d.call("update_rows", filtered("north"))); err != nil {
		t.Errorf("nothing is compared: %v", err)
	}
	rows.wantRan(t, "north", 1, 1)

	rows.becomes("9", true)
	if p := d.asks("south").Spec.Preview; !strings.Contains(p.Failure, "no such table") || p.Result != "" || p.ResultDigest != "" {
		t.Errorf("a tool that fails: %+v", p)
	}
	rows.becomes("9", false)
	rows.wantRan(t, "south", 1, 0)

	w.policy("raise", func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{"count_*"}, Tier: v1alpha1.TierReversible, Reason: "it locks the table"}}
	})
	w.eventually("the gateway knows", func() error { return d.wantListed("count_rows", "Reversible") })
	r = d.approved("west")
	if p := r.Spec.Preview; !strings.Contains(p.Failure, "count_rows is Reversible, and only a Read tool is called for a preview") || p.Result != "" {
		t.Errorf("a tool that is not Read: %+v", p)
	}
	if err := wantServerAnswer(d.call("update_rows", filtered("west"))); err != nil {
		t.Errorf("approved without a preview: %v", err)
	}
	rows.wantRan(t, "west", 0, 1)
}
