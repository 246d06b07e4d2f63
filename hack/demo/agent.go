// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// listTools prints the tools that the agent sees.
func (p *player) listTools(ctx context.Context) error {
	p.say("  agent> tools/list")
	list, err := p.agent.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	for _, tool := range list.Tools {
		var tier, behaviour any
		if tool.Meta != nil {
			tier, behaviour = tool.Meta.AdditionalFields["tidewaiter.dev/tier"], tool.Meta.AdditionalFields["tidewaiter.dev/behaviour"]
		}
		p.show(fmt.Sprintf("%-16s %-13v %v", tool.Name, tier, behaviour))
	}
	if len(list.Tools) != 7 {
		return fmt.Errorf("the agent sees %d tools, want 7", len(list.Tools))
	}
	return nil
}

// readReceipts returns the receipts of calls.
func (p *player) readReceipts() ([]receipt.Receipt, error) {
	file, err := os.Open(p.receipts)
	if err != nil {
		return nil, fmt.Errorf("open receipts: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	var all []receipt.Receipt
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r receipt.Receipt
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read receipts: %w", err)
		}
		if r.Kind == receipt.KindDecision || r.Kind == receipt.KindOutcome {
			all = append(all, r)
		}
	}
	return all, lines.Err()
}

// written waits until there is a decision on disk for each call of the agent.
func (p *player) written(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		all, err := p.readReceipts()
		if err != nil {
			return err
		}
		got := 0
		for _, r := range all {
			if r.Kind == receipt.KindDecision && r.Code != "Preview" {
				got++
			}
		}
		if got == p.calls {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d decisions are on record, of %d calls", got, p.calls)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// summary prints a line for every receipt of a call.
func (p *player) summary() error {
	all, err := p.readReceipts()
	if err != nil {
		return err
	}
	p.say("  Line 1 of the file says that the gateway opened it. Then one for each decision, and one for the outcome of each call with effects:")
	for _, r := range all {
		what := string(r.Verdict) + " " + r.Code
		if r.Kind == receipt.KindOutcome {
			what = "outcome " + r.Outcome
		}
		p.show(fmt.Sprintf("%3d %-9s %-15s %-35s %s", r.Seq, r.Kind, r.Tool, what, r.Request))
	}
	p.say("  The chain is whole, each line bears the hash of the one before it.")
	return nil
}

// ready waits until a probe answers that all is well.
func ready(ctx context.Context, program, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close() //nolint:errcheck // the status is all that counts
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the %s does not become ready; see its log", program)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
