// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// repository is what a team would have in Git: a policy and its test.
//
//go:embed policy
var repository embed.FS

const stopManifest = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: stop, namespace: %s}
spec:
  namespaceSelector: {}   # every namespace; labels would narrow it
  mode: Stopped           # ReadOnly would let tools go on that only read
`

// refund returns the arguments of the call that three chapters are about.
func refund(amount int) map[string]any {
	return map[string]any{"accountId": "acc_17", "amount": amount}
}

// lint tries the policy before it is applied.
func (p *player) lint(ctx context.Context) error {
	policy, err := p.checkOut(ctx)
	if err != nil {
		return err
	}
	p.say("  The repository of the team has refunds.yaml, its test refunds_test.yaml, and tools.json, the server's answer to tools/list.")
	p.show(policy)
	p.say("  Somebody writes args.amont:")
	if err := p.commit("refunds.yaml", strings.Replace(policy, "args.amount > 100", "args.amont > 100", 1)); err != nil {
		return err
	}
	lint := []string{"tidewaiter", "lint", "--strict", "--tools", p.file("tools.json"), p.file("refunds.yaml")}
	out, err := p.run(ctx, "approver", "", 1, lint...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "did you mean amount?") {
		return fmt.Errorf("lint does not say what was meant: %s", out)
	}
	p.say("  Mended:")
	if err := p.commit("refunds.yaml", policy); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, lint...); err != nil {
		return err
	}
	p.say("  And its test, without a cluster:")
	_, err = p.run(ctx, "approver", "", 0, "tidewaiter", "test", "--min-coverage", "100", p.file("."))
	return err
}

// refuse has a rule deny a call by its arguments.
func (p *player) refuse(ctx context.Context) error {
	if _, err := p.run(ctx, "approver", "", 0, "apply", "-f", p.file("refunds.yaml")); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "wait", "--for=condition=Ready", "tpol/billing-refunds"); err != nil {
		return err
	}
	r, err := p.becomes(ctx, "refund_invoices", refund(500), "ApprovalPending", "RuleDenied")
	if err != nil {
		return err
	}
	if !strings.Contains(r.text, "Open a ticket there") {
		return errors.New("the refusal does not have the message of the rule")
	}
	p.say("  Why? The same steps are in the receipt of the refusal:")
	out, err := p.run(ctx, "approver", "", 0, "tidewaiter", "explain", "billing", "refund_invoices", "--as", namespace+"/invoice-agent", "--args", `{"accountId":"acc_17","amount":500}`)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "not-by-agents") {
		return fmt.Errorf("explain does not name the rule: %s", out)
	}
	return p.executed("refund_invoices", 0)
}

// preview has two people decide on a call of which the server itself says what it would affect.
func (p *player) preview(ctx context.Context) error {
	held, err := p.expect(ctx, "refund_invoices", refund(50), "ApprovalPending")
	if err != nil {
		return err
	}
	p.say("  The gateway has called count_invoices before, as the policy says. The answer is part of the request, so every vote is over it:")
	out, err := p.run(ctx, "approver", "", 0, "tidewaiter", "describe", held.request)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "acc_17 has 412 invoices") {
		return errors.New("the request does not say what the call would affect")
	}
	if out, err = p.run(ctx, "approver", "", 0, "approve", held.request, "--reason", "goodwill for the outage"); err != nil {
		return err
	}
	if !strings.Contains(out, "1 of 2") {
		return errors.New("one vote was taken for two")
	}
	if _, err := p.expect(ctx, "refund_invoices", refund(50), "ApprovalPending"); err != nil {
		return err
	}
	if _, err := p.run(ctx, "colleague", "", 0, "approve", held.request, "--reason", "agreed"); err != nil {
		return err
	}
	p.say("  The gateway asks count_invoices again, and has the same answer:")
	if err := p.retry(ctx, "refund_invoices", refund(50)); err != nil {
		return err
	}
	return p.executed("refund_invoices", 1)
}

// stop stops every server by a baseline, and lets it go on.
func (p *player) stop(ctx context.Context) error {
	invoice := map[string]any{"invoiceId": "2026-17"}
	manifest := fmt.Sprintf(stopManifest, fixture.SystemNamespace)
	p.show(manifest)
	p.say("  Nobody of the team may write it; the platform engineer governs all servers, from the operator's namespace:")
	if _, err := p.run(ctx, "approver", manifest, 1, "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := p.run(ctx, "platform", manifest, 0, "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := p.becomes(ctx, "get_invoice", invoice, "", "ServerStopped"); err != nil {
		return err
	}
	stopped := p.billing.Executions()["get_invoice"]
	if _, err := p.expect(ctx, "get_invoice", invoice, "ServerStopped"); err != nil {
		return err
	}
	if err := p.executed("get_invoice", stopped); err != nil {
		return err
	}
	p.say("  Taken away, and it goes on:")
	if _, err := p.run(ctx, "platform", "", 0, "delete", "tpol", "stop", "-n", fixture.SystemNamespace); err != nil {
		return err
	}
	if _, err := p.becomes(ctx, "get_invoice", invoice, "ServerStopped", ""); err != nil {
		return err
	}
	return p.executed("get_invoice", stopped+1)
}

// drift has the server change what a tool says of itself, and a person accept it.
func (p *player) drift(ctx context.Context) error {
	invoice := map[string]any{"invoiceId": "2026-17"}
	p.say("  A new release of the server describes get_invoice otherwise. That text is what a model reads and follows. The manager sees what changed:")
	p.billing.Redescribe("get_invoice", "Get one invoice, with all of its lines.", mcp.WithString("invoiceId", mcp.Required(), mcp.Description("Number of the invoice")))
	event := []string{"get", "events", "--field-selector", "reason=ToolsChanged", "-o", "jsonpath={.items[*].message}"}
	if _, err := p.until(ctx, "the Event", "with all of its lines", event...); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, event...); err != nil {
		return err
	}
	if _, err := p.becomes(ctx, "get_invoice", invoice, "", "DefinitionNotAccepted"); err != nil {
		return err
	}
	p.say("  CI asks whether the server is the one that was accepted; 1 is no:")
	check := []string{"tidewaiter", "pin", "billing", "--check"}
	if _, err := p.run(ctx, "approver", "", 1, check...); err != nil {
		return err
	}
	p.say("  A person has read the new text, and accepts it. The pins go to Git, with tools.json as it is now:")
	pins, err := p.run(ctx, "approver", "", 0, "tidewaiter", "pin", "billing", "--write")
	if err != nil {
		return err
	}
	tools, err := p.dump(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(p.commit("pins.yaml", pins), p.commit("tools.json", tools)); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "apply", "-f", p.file("pins.yaml")); err != nil {
		return err
	}
	if _, err := p.until(ctx, "the pins", "True", "get", "gsrv", "billing", "-o", `jsonpath={.status.conditions[?(@.type=="PinsMatch")].status}`); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, check...); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "tidewaiter", "lint", "--strict", "--tools", p.file("tools.json"), p.file(".")); err != nil {
		return err
	}
	_, err = p.becomes(ctx, "get_invoice", invoice, "DefinitionNotAccepted", "")
	return err
}

// file is where a file of the team's repository is.
func (p *player) file(name string) string { return filepath.Join(folder, "policy", name) }

// commit writes a file of the team's repository.
func (p *player) commit(name, text string) error {
	if err := os.WriteFile(p.file(name), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// checkOut puts the team's repository into the folder of the demo, with the tools as the server lists them now, and
// returns the policy.
func (p *player) checkOut(ctx context.Context) (policy string, err error) {
	if err := os.RemoveAll(p.file(".")); err != nil {
		return "", fmt.Errorf("remove an old repository: %w", err)
	}
	if err := os.CopyFS(folder, repository); err != nil {
		return "", fmt.Errorf("make the repository: %w", err)
	}
	tools, err := p.dump(ctx)
	if err != nil {
		return "", err
	}
	if err := p.commit("tools.json", tools); err != nil {
		return "", err
	}
	text, err := os.ReadFile(p.file("refunds.yaml"))
	if err != nil {
		return "", fmt.Errorf("read the policy: %w", err)
	}
	return string(text), nil
}

// dump returns the server's own answer to tools/list.
func (p *player) dump(ctx context.Context) (string, error) {
	direct, err := client.NewStreamableHttpClient(p.billingURL)
	if err != nil {
		return "", fmt.Errorf("make a client: %w", err)
	}
	defer direct.Close() //nolint:errcheck // nothing is left to be sent
	if _, err := direct.Initialize(ctx, hello("author")); err != nil {
		return "", fmt.Errorf("open a session with the server: %w", err)
	}
	list, err := direct.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return "", fmt.Errorf("list tools: %w", err)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write the tools: %w", err)
	}
	return string(text) + "\n", nil
}
