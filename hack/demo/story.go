// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

const serverManifest = `apiVersion: tidewaiter.dev/v1alpha1
kind: GovernedServer
metadata: {name: billing}
spec:
  endpoint: {url: %q}
  approvals: {hold: 0s}        # tell the agent at once that a person is asked; the default holds the call for 45s
  autonomy: {cleanApprovals: 3}
  pinning: Enforce             # a tool that changes is refused until a person has accepted it
  gateway: {serviceAccountName: gateway-billing}   # the manager gives it what a gateway needs
`

const overrideManifest = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: billing-tiers}
spec:
  targets: [billing]
  tiers:
  - tool: send_invoice
    digest: %s
    tier: Reversible
    reason: An invoice that was sent can be voided with a credit note; finance agreed.
`

const promotionManifest = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: %s}
spec:
  targets: [billing]
  autonomy:
  - {tool: %s, digest: %q, mode: Unattended}
`

// story tells the whole cycle, chapter by chapter.
func story(ctx context.Context, t *teller, s *stage) error {
	p := &player{teller: t, stage: s}
	for _, chapter := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"A platform engineer registers an MCP server", p.register},
		{"A gateway is put in front of it, and an agent connects", p.openGateway},
		{"A team knows better about one tool", p.override},
		{"Reading needs nobody", p.read},
		{"What cannot be undone waits for a person, who may decide", p.decide},
		{"This time the answer is no", p.deny},
		{"A reversible tool earns trust: three calls, three approvals", p.earn},
		{"The operator offers, a person promotes", p.promote},
		{"Revoked: the very next call waits again", p.revoke},
		{"An irreversible tool is never promoted, whatever Git says", p.ceiling},
		{"A policy in Git: a misspelt argument does not get far", p.lint},
		{"A rule looks at the amount, and says why", p.refuse},
		{"Two people see what the call would affect", p.preview},
		{"One object stops the whole fleet", p.stop},
		{"The server says something else than before", p.drift},
		{"Every decision has left a receipt", p.receiptsTold},
	} {
		t.chapter(chapter.title)
		if err := chapter.tell(ctx); err != nil {
			return fmt.Errorf("step %d (%s): %w", t.step, chapter.title, err)
		}
	}
	t.say("\nAll %d steps went as they should.", t.step)
	return nil
}

func (p *player) register(ctx context.Context) error {
	if _, err := p.run(ctx, "approver", fmt.Sprintf(serverManifest, p.billingURL), 0, "apply", "-f", "-"); err != nil {
		return err
	}
	p.say("  The manager lists its tools and gives each a tier:")
	if _, err := p.until(ctx, "the tools", "True", "get", "gsrv", "billing", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "get", "gsrv", "billing"); err != nil {
		return err
	}
	out, err := p.quiet(ctx, "approver", "", "get", "gsrv", "billing", "-o", `go-template={{range .status.tools}}{{printf "%-16s %-13s %s\n" .name .tier .reason}}{{end}}`)
	if err != nil {
		return fmt.Errorf("read the tools: %w", err)
	}
	p.show(out)
	for tool, tier := range map[string]string{
		"get_invoice": "Read", "list_invoices": "Read", "count_invoices": "Read",
		"update_invoice": "Reversible", "send_invoice": "Irreversible", "refund_invoices": "Irreversible", "delete_account": "Irreversible",
	} {
		if err := p.tier(ctx, tool, tier); err != nil {
			return err
		}
	}
	return nil
}

// tier waits until a tool has an effective tier.
func (p *player) tier(ctx context.Context, tool, want string) error {
	_, err := p.until(ctx, tool+" to be "+want, want, "get", "gsrv", "billing", "-o", fmt.Sprintf(`jsonpath={.status.tools[?(@.name==%q)].tier}`, tool))
	return err
}

func (p *player) digest(ctx context.Context, tool string) (string, error) {
	return p.until(ctx, "the digest of "+tool, "sha256:", "get", "gsrv", "billing", "-o", fmt.Sprintf(`jsonpath={.status.tools[?(@.name==%q)].digest}`, tool))
}

func (p *player) openGateway(ctx context.Context) error {
	agents, ops, err := freeAddresses(ctx)
	if err != nil {
		return err
	}
	p.gatewayURL = "http://" + agents + "/mcp"
	root, err := p.votingRoot(ctx)
	if err != nil {
		return err
	}
	p.say("  gateway --server %s/billing --voting-root-key %s…", namespace, root[:12])
	p.say("  It runs as system:serviceaccount:%s:gateway-billing, with the rights that the manager gave it: serve on billing, nothing else.", namespace)
	if err := p.start("gateway", "--kubeconfig", p.files["gateway-billing"], "--server", namespace+"/billing", "--name", "gateway-demo",
		"--voting-root-key", root, "--listen", agents, "--ops-listen", ops, "--receipts", p.receipts, "--allow-address", "127.0.0.0/8"); err != nil {
		return err
	}
	if err := ready(ctx, "gateway", "http://"+ops+"/readyz"); err != nil {
		return err
	}
	p.say("  The agent is system:serviceaccount:%s:invoice-agent; its token is for %s alone.", namespace, p.gatewayURL)
	if err := p.connect(ctx); err != nil {
		return err
	}
	return p.listTools(ctx)
}

func (p *player) override(ctx context.Context) error {
	p.say("  send_invoice cannot be unsent, so the classifier says Irreversible. The team can void one, so it says Reversible:")
	digest, err := p.digest(ctx, "send_invoice")
	if err != nil {
		return err
	}
	manifest := fmt.Sprintf(overrideManifest, digest)
	p.show(manifest)
	p.say("  The editor has Kubernetes' role edit:")
	if _, err := p.run(ctx, "editor", manifest, 1, "apply", "-f", "-"); err != nil {
		return err
	}
	if err := p.giveEditorTheKinds(ctx); err != nil {
		return err
	}
	p.say("  Even with every right on the three kinds, the verb govern on this server is missing:")
	if out, err := p.run(ctx, "editor", manifest, 1, "apply", "-f", "-"); err != nil {
		return err
	} else if !strings.Contains(out, "govern") {
		return fmt.Errorf("the refusal does not name the verb: %s", out)
	}
	p.say("  The approver has it:")
	if _, err := p.run(ctx, "approver", manifest, 0, "apply", "-f", "-"); err != nil {
		return err
	}
	return p.tier(ctx, "send_invoice", "Reversible")
}

func (p *player) read(ctx context.Context) error {
	before := p.billing.Executions()["get_invoice"]
	if _, err := p.expect(ctx, "get_invoice", map[string]any{"invoiceId": "2026-17"}, ""); err != nil {
		return err
	}
	return p.executed("get_invoice", before+1)
}

// forgery is a status as somebody writes it who wants an approval without a vote of their own.
const forgery = `{"status":{"phase":"Approved","decision":"Approved","votes":[{"username":"approver","decision":"Approved","time":"2026-01-01T00:00:00Z","keyID":"0011223344556677","specDigest":"sha256:00","signature":"AAAA"}]}}`

// deletion is the call that the next two chapters are about.
var deletion = map[string]any{"accountId": "acc_991", "force": true}

func (p *player) decide(ctx context.Context) error {
	held, err := p.expect(ctx, "delete_account", deletion, "ApprovalPending")
	if err != nil {
		return err
	}
	p.held = held.request
	if _, err := p.run(ctx, "approver", "", 0, "tidewaiter", "describe", p.held); err != nil {
		return err
	}
	for _, attempt := range []struct {
		say, who, word string
		args           []string
	}{
		{"The editor has every right on the three kinds, and not the verb:", "editor", "approve-irreversible", []string{"approve", p.held, "--reason", "looks fine"}},
		{"The agent's own account was given the verb by mistake:", "invoice-agent", "somebody else", []string{"approve", p.held, "--reason", "I need it"}},
		{"The editor writes a status by hand, with a vote of the approver in it:", "editor", "", []string{"patch", "areq", p.held, "--subresource=status", "--type=merge", "-p", forgery}},
	} {
		p.say("  %s", attempt.say)
		out, err := p.run(ctx, attempt.who, "", 1, attempt.args...)
		if err != nil {
			return err
		}
		if !strings.Contains(out, attempt.word) {
			return fmt.Errorf("the refusal does not say %q: %s", attempt.word, out)
		}
	}
	if _, err := p.expect(ctx, "delete_account", deletion, "ApprovalPending"); err != nil {
		return err
	}
	return p.executed("delete_account", 0)
}

func (p *player) deny(ctx context.Context) error {
	if _, err := p.run(ctx, "approver", "", 0, "deny", p.held, "--reason", "this account is in use"); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "get", "areq", p.held, "-o", "jsonpath={.status.votes[0].username} said {.status.votes[0].decision}, signed with voting key {.status.votes[0].keyID}"); err != nil {
		return err
	}
	p.say("  The agent tries again, and gets the answer that was given:")
	if _, err := p.expect(ctx, "delete_account", deletion, "ApprovalDenied"); err != nil {
		return err
	}
	return p.executed("delete_account", 0)
}

func (p *player) earn(ctx context.Context) error {
	for n := 1; n <= 3; n++ {
		arguments := map[string]any{"invoiceId": fmt.Sprint("2026-", n), "note": "paid"}
		held, err := p.expect(ctx, "update_invoice", arguments, "ApprovalPending")
		if err != nil {
			return err
		}
		if _, err := p.run(ctx, "approver", "", 0, "approve", held.request, "--reason", "checked with finance"); err != nil {
			return err
		}
		p.say("  The agent sends the identical call again:")
		if err := p.retry(ctx, "update_invoice", arguments); err != nil {
			return err
		}
		if err := p.executed("update_invoice", n); err != nil {
			return err
		}
	}
	return nil
}

// retry sends a call that was just approved until it runs.
func (p *player) retry(ctx context.Context, tool string, arguments map[string]any) error {
	_, err := p.becomes(ctx, tool, arguments, "ApprovalPending", "")
	return err
}

// becomes sends a call until the gateway's watch has brought what was just changed: until then it gets the code that it
// had, and nothing else.
func (p *player) becomes(ctx context.Context, tool string, arguments map[string]any, was, want string) (reply, error) {
	for range 20 {
		r, err := p.call(ctx, tool, arguments)
		if err != nil || r.code == want {
			return r, err
		}
		if r.code != was {
			return r, fmt.Errorf("call of %s: got %q, want %q", tool, r.code, want)
		}
	}
	return reply{}, fmt.Errorf("call of %s: still %q, want %q", tool, was, want)
}

func (p *player) promote(ctx context.Context) error {
	const autonomy = `jsonpath={.status.records[?(@.tool=="update_invoice")].autonomy}`
	if _, err := p.until(ctx, "the offer", "Eligible", "get", "gsrv", "billing", "-o", autonomy); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "get", "gsrv", "billing", "-o", `jsonpath={.status.records[?(@.tool=="update_invoice")]}`); err != nil {
		return err
	}
	p.say("  What to commit to Git, and what earned it:")
	if _, err := p.run(ctx, "approver", "", 0, "tidewaiter", "promote", "billing", "update_invoice", "--policy", "billing-autonomy", "--dry-run=client", "-o", "yaml"); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "tidewaiter", "promote", "billing", "update_invoice", "--policy", "billing-autonomy"); err != nil {
		return err
	}
	if _, err := p.until(ctx, "the promotion", "Unattended", "get", "gsrv", "billing", "-o", autonomy); err != nil {
		return err
	}
	p.say("  From now on it runs without a person:")
	if err := p.retry(ctx, "update_invoice", map[string]any{"invoiceId": "2026-4", "note": "paid"}); err != nil {
		return err
	}
	return p.executed("update_invoice", 4)
}

func (p *player) revoke(ctx context.Context) error {
	if _, err := p.run(ctx, "approver", "", 0, "tidewaiter", "revoke", "billing", "update_invoice", "--policy", "billing-autonomy"); err != nil {
		return err
	}
	if _, err := p.until(ctx, "the revocation", "Eligible", "get", "gsrv", "billing", "-o", `jsonpath={.status.records[?(@.tool=="update_invoice")].autonomy}`); err != nil {
		return err
	}
	if _, err := p.expect(ctx, "update_invoice", map[string]any{"invoiceId": "2026-5", "note": "paid"}, "ApprovalPending"); err != nil {
		return err
	}
	return p.executed("update_invoice", 4)
}

func (p *player) ceiling(ctx context.Context) error {
	digest, err := p.digest(ctx, "delete_account")
	if err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", fmt.Sprintf(promotionManifest, "wishful", "delete_account", digest), 0, "apply", "-f", "-"); err != nil {
		return err
	}
	p.say("  Taken, so that a Git repository always applies; its status says why it has no effect:")
	if _, err := p.until(ctx, "the reason", "Irreversible", "get", "tpol", "wishful", "-o", "jsonpath={.status.notInForce[0].reason}"); err != nil {
		return err
	}
	if _, err := p.run(ctx, "approver", "", 0, "get", "tpol", "wishful", "-o", "jsonpath={.status.notInForce[0].message}"); err != nil {
		return err
	}
	p.say("  Another deletion would wait for a person as well. After the denial the agent may not even ask for a while:")
	if _, err := p.expect(ctx, "delete_account", map[string]any{"accountId": "acc_7"}, "BackingOff"); err != nil {
		return err
	}
	return p.executed("delete_account", 0)
}

func (p *player) receiptsTold(ctx context.Context) error {
	// Receipts of calls without an effect are written in batches.
	if err := p.written(ctx); err != nil {
		return err
	}
	file, err := os.Open(p.receipts)
	if err != nil {
		return fmt.Errorf("open receipts: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	report, err := receipt.Verify(file)
	if err != nil {
		return fmt.Errorf("verify receipts: %w", err)
	}
	for _, problem := range report.Problems {
		p.say("  %s", problem)
	}
	if len(report.Problems) > 0 {
		return errors.New("the chain of receipts is not whole")
	}
	return p.summary()
}

// freeAddresses returns two addresses of this machine that nothing listens on.
func freeAddresses(ctx context.Context) (a, b string, err error) {
	var addresses []string
	for range 2 {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() //nolint:errcheck // nothing was served on it
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses[0], addresses[1], nil
}
