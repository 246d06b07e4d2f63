// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// calls shows how an agent's calls are governed, and who approves them.
func calls(e *e2e) []step {
	t := e.team("calls")
	const first, second = `{"invoiceId":"2026-9","note":"first"}`, `{"invoiceId":"2026-9","note":"second"}`
	account := "system:serviceaccount:" + t.Namespace + ":agent"
	agent := []string{"--as=" + account, "--as-group=system:serviceaccounts", "--as-group=system:serviceaccounts:" + t.Namespace, "--as-group=system:authenticated"}
	var held, name string
	return []step{
		{"a team with a server and an agent is there", t.start},
		{"a read runs at once", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "get_invoice", `{"invoiceId":"2026-9"}`, "")
			return got.Text, err
		}},
		{"a call with effects waits, and its request is by the ServiceAccount of the agent's pod", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "update_invoice", first, "ApprovalPending")
			if err != nil {
				return got.Text, err
			}
			name, held = got.Request, got.Text
			request, err := t.request(ctx, name)
			if err == nil && request.Spec.Requester.Username != account {
				err = fmt.Errorf("the requester is %s, want %s", request.Spec.Requester.Username, account)
			}
			return held + "\nrequester: " + request.Spec.Requester.Username, err
		}},
		{"nothing has run", func(ctx context.Context) (string, error) {
			return t.executed(ctx, "update_invoice", "note", "first", 0)
		}},
		{"the agent's ServiceAccount cannot approve, nor write a request or its status", func(ctx context.Context) (string, error) {
			return t.powerless(ctx, name, agent)
		}},
		{"control: nor can alice, whom no Role lets", func(ctx context.Context) (string, error) {
			out, err := e.kubectl(ctx, t.approval(name, alice)...)
			return refusal(out, err, "forbidden")
		}},
		{"the README's Role for approvers is applied", t.letApprove},
		{"the agent cannot approve its own call even where a Role lets it, by mistake", func(ctx context.Context) (string, error) {
			if out, err := e.kubectlWith(ctx, strings.ReplaceAll(mistaken, "name: agent}", "name: agent, namespace: "+t.Namespace+"}"), "apply", "--namespace="+t.Namespace, "-f", "-"); err != nil {
				return out, err
			}
			out, err := e.kubectl(ctx, t.approval(name, agent)...)
			return refusal(out, err, "somebody else decides it")
		}},
		{"alice approves with kubectl", func(ctx context.Context) (string, error) { return e.kubectl(ctx, t.approval(name, alice)...) }},
		{"the agent sends the same call again, and it runs once", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "update_invoice", first, "")
			if err != nil {
				return got.Text, err
			}
			seen, err := t.executed(ctx, "update_invoice", "note", "first", 1)
			return got.Text + "\n" + seen, err
		}},
		{"sent once more it needs another approval, and another action does too", func(ctx context.Context) (string, error) {
			for _, arguments := range []string{first, second} {
				if got, err := t.expects(ctx, "update_invoice", arguments, "ApprovalPending"); err != nil {
					return got.Text, err
				}
			}
			return t.executed(ctx, "update_invoice", "note", "first", 1)
		}},
		{"the receipts of the gateway say who called, and who approved", func(ctx context.Context) (string, error) { return t.receipts(ctx, account, name) }},
	}
}

// forged is a request that says that it is approved.
const forged = `{"apiVersion":"tidewaiter.dev/v1alpha1","kind":"ApprovalRequest","metadata":{"name":"forged"},"spec":{},"status":{"decision":"Approved"}}`

// mistaken lets the agent approve, as a team could by mistake.
const mistaken = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent-may-approve}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: approve-billing}
subjects: [{kind: ServiceAccount, name: agent}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent-may-see}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tidewaiter-approver}
subjects: [{kind: ServiceAccount, name: agent}]
`

// powerless tries as somebody what would make a request count as approved.
func (t team) powerless(ctx context.Context, name string, who []string) (string, error) {
	var seen []string
	for what, args := range map[string][]string{
		"vote":     {"approve", name},
		"patch":    {"patch", "approvalrequest", name, "--subresource=status", "--type=merge", `--patch={"status":{"decision":"Approved"}}`},
		"create":   {"create", "--validate=false", "-f", "-"},
		"label":    {"label", "approvalrequest", name, "a=b"},
		"delete":   {"delete", "approvalrequest", name},
		"a pod":    {"run", "way-around", "--image=" + t.Image()},
		"an exec":  {"exec", "agent", "--", "/demo", "end"},
		"a token":  {"create", "token", "billing"},
		"a Secret": {"get", "secrets"},
	} {
		out, err := t.kubectlWith(ctx, forged, slices.Concat(args[:1], []string{"--namespace=" + t.Namespace}, who, args[1:])...)
		if out, err = refusal(out, err, "forbidden"); err != nil {
			return what + ": " + out, err
		}
		line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
		seen = append(seen, what+": "+line)
	}
	request, err := t.request(ctx, name)
	if err == nil && request.Status.Decision != "" {
		err = errors.New("the request has a decision")
	}
	slices.Sort(seen)
	return strings.Join(seen, "\n"), err
}

// receipts looks for the call and its approval in what the gateway prints.
func (t team) receipts(ctx context.Context, account, name string) (string, error) {
	pod, err := t.pod(ctx)
	if err != nil {
		return "", err
	}
	out, err := t.kubectl(ctx, "logs", "--namespace="+t.Namespace, pod.Name, "--container="+gatewayContainer)
	if err != nil {
		return "", err
	}
	var seen, kinds []string
	for line := range strings.Lines(out) {
		var r receipt.Receipt
		if json.Unmarshal([]byte(line), &r) != nil || r.Schema != receipt.Schema || r.Request != name || r.Verdict != receipt.VerdictAllow {
			continue
		}
		if r.Requester != account || !slices.Equal(r.ApprovedBy, []string{"alice"}) {
			return line, errors.New("it names another caller, or another person")
		}
		kinds = append(kinds, string(r.Kind))
		seen = append(seen, fmt.Sprintf("%d %s of %s: %s %s, requester %s, approved by %s, outcome %q", r.Seq, r.Kind, r.Tool, r.Verdict, r.Code, r.Requester, r.ApprovedBy, r.Outcome))
	}
	if want := []string{string(receipt.KindDecision), string(receipt.KindOutcome)}; !slices.Equal(kinds, want) {
		err = fmt.Errorf("the call that was let through has the receipts %v, want %v", kinds, want)
	}
	return strings.Join(seen, "\n"), err
}
