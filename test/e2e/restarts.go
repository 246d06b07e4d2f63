// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
)

// restarts ends everything once while agents call and a person approves, and accounts for every approval.
func restarts(e *e2e) []step {
	t := e.team("restarts")
	t.Hold, t.Replicas, t.Book = "5s", 2, "http://book."+t.Namespace+".svc/"
	const enough = 4
	var l *load
	under := func(disturb func(ctx context.Context) (string, error)) func(ctx context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			out, err := disturb(ctx)
			if err != nil {
				return out, err
			}
			seen, err := l.goesOn(ctx, enough)
			return out + seen, err
		}
	}
	steps := []step{
		{"a team is there whose server has two pods, and a book of executions that outlives them", func(ctx context.Context) (string, error) {
			out, err := t.startWithPeople(ctx)
			if err != nil {
				return out, err
			}
			if out, err := t.applyFile(ctx, "book.yaml"); err != nil {
				return out, err
			}
			return t.kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=60s", "pod/book", "--namespace="+t.Namespace)
		}},
		{"control: a call that nobody approves waits", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "update_invoice", fmt.Sprintf(`{"invoiceId":"2026-9","note":%q}`, unwanted), "ApprovalPending")
			return got.Text, err
		}},
		{"three agents call without a pause, and alice approves", func(ctx context.Context) (string, error) {
			l = t.begin(ctx)
			return l.goesOn(ctx, enough)
		}},
		{"the managers are restarted, one after the other", under(func(ctx context.Context) (string, error) {
			return t.roll(ctx, home, "deployment/tidewaiter-manager")
		})},
		{"the pods of the server are restarted, each with its gateway", under(func(ctx context.Context) (string, error) {
			return t.roll(ctx, t.Namespace, "deployment/billing")
		})},
		{"the server's process in one of them is ended", under(func(ctx context.Context) (string, error) {
			pod, err := t.pod(ctx)
			if err != nil {
				return "", err
			}
			return t.kubectl(ctx, "exec", "--namespace="+t.Namespace, pod.Name, "--container=server", "--", "/demo", "end")
		})},
	}
	if e.nodeProgram != "" {
		steps = append(steps, step{"the node is killed, with everything on it, and started again", under(func(ctx context.Context) (string, error) {
			for _, verb := range []string{"stop", "up"} {
				if out, err := e.run(ctx, "", e.nodeProgram, verb); err != nil {
					return out, err
				}
			}
			return "", nil
		})})
	}
	return append(steps,
		step{"every call that has begun comes to its end", func(ctx context.Context) (string, error) { return "", l.end(ctx) }},
		step{"every approval is accounted for by the book: none is lost, none has run twice", t.account},
	)
}

// roll restarts a Deployment, and waits until its new pods are ready.
func (t team) roll(ctx context.Context, namespace, what string) (string, error) {
	if out, err := t.kubectl(ctx, "rollout", "restart", what, "--namespace="+namespace); err != nil {
		return out, err
	}
	return t.kubectl(ctx, "rollout", "status", what, "--namespace="+namespace, "--timeout=120s")
}

// account compares what the servers wrote down with what people approved.
func (t team) account(ctx context.Context) (string, error) {
	out, err := t.kubectl(ctx, "exec", "--namespace="+t.Namespace, "book", "--", "/demo", "executions", book)
	if err != nil {
		return out, err
	}
	lines, err := readBook(out)
	if err != nil {
		return "", err
	}
	requests, err := t.requests(ctx)
	if err != nil {
		return "", err
	}
	return audit(lines, requests)
}
