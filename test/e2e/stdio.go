// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// stdio shows that a server which speaks by standard input and output is governed like any other.
func stdio(e *e2e) []step {
	t := e.team("stdio")
	t.Listen = ""
	const arguments = `{"invoiceId":"2026-9","note":"by stdio"}`
	return []step{
		{"a server of standard input and output starts behind its gateway", t.startWithPeople},
		{"its container runs its own command, by the gateway's binary", func(ctx context.Context) (string, error) {
			pod, err := t.pod(ctx)
			if err != nil {
				return "", err
			}
			server := pod.Spec.Containers[0]
			line := strings.Join(slices.Concat(server.Command, server.Args), " ")
			if !strings.HasPrefix(line, "/tidewaiter/gateway stdio ") || !strings.HasSuffix(line, " -- /demo stdio") {
				err = fmt.Errorf("it runs %q", line)
			}
			return line, err
		}},
		{"control: a pod is refused whose container names no command", func(ctx context.Context) (string, error) {
			out, err := t.applyFile(ctx, "wordless.yaml")
			return refusal(out, err, "command")
		}},
		{"a read runs at once", func(ctx context.Context) (string, error) {
			got, err := t.expects(ctx, "get_invoice", `{"invoiceId":"2026-9"}`, "")
			return got.Text, err
		}},
		{"a call with effects waits, and nothing has run", func(ctx context.Context) (string, error) {
			if got, err := t.expects(ctx, "update_invoice", arguments, "ApprovalPending"); err != nil {
				return got.Text, err
			}
			return t.executed(ctx, "update_invoice", "note", "by stdio", 0)
		}},
		{"alice approves, and it runs once", func(ctx context.Context) (string, error) {
			if out, err := t.approve(ctx, "by stdio"); err != nil {
				return out, err
			}
			if got, err := t.expects(ctx, "update_invoice", arguments, ""); err != nil {
				return got.Text, err
			}
			return t.executed(ctx, "update_invoice", "note", "by stdio", 1)
		}},
		{"from the agent's pod, the port in front of the server is closed", func(ctx context.Context) (string, error) {
			pod, err := t.pod(ctx)
			if err != nil {
				return "", err
			}
			return t.closed(ctx, pod.Status.PodIP, 9443)
		}},
		{"control: the gateway's port at the same address answers", func(ctx context.Context) (string, error) {
			pod, err := t.pod(ctx)
			if err != nil {
				return "", err
			}
			return t.answers(ctx, pod.Status.PodIP, 9440)
		}},
	}
}
