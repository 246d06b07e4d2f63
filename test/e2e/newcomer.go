// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
)

const (
	// home is the namespace of the operator, shop that of the README's example.
	home, shop = "tidewaiter-system", "shop"
	// prefix is what the names of all other namespaces begin with.
	prefix = "e2e-"
	// heading is where the README has the path of a newcomer.
	heading = "## Into a cluster"
)

// newcomer goes the README's path.
func newcomer(e *e2e) []step {
	text, err := block("README.md", heading, "")
	commands := strings.Split(strings.TrimSpace(text), "\n")
	if err == nil && len(commands) != 5 {
		err = fmt.Errorf("the README has %d commands under %q, and promises five", len(commands), heading)
	}
	if err != nil {
		return []step{{"the README's commands are read", func(context.Context) (string, error) { return "", err }}}
	}
	var steps []step
	for _, command := range commands {
		steps = append(steps, step{"$ " + command, func(ctx context.Context) (string, error) {
			return e.run(ctx, "", "bash", "-eu", "-o", "pipefail", "-c", command)
		}})
	}
	return append(steps,
		step{"control: a refund that the policy denies is refused, with its reason", func(ctx context.Context) (string, error) {
			return e.refused(ctx, shop, "agent", "refund_invoices", `{"accountId":"acc_17","amount":5000}`, "RuleDenied")
		}},
	)
}

// refused wants the gateway to refuse a call with a code.
func (e *e2e) refused(ctx context.Context, namespace, pod, tool, arguments, code string) (string, error) {
	got, err := e.call(ctx, namespace, pod, tool, arguments)
	if err == nil && got.Code != code {
		err = fmt.Errorf("got %q, want %q", got.Code, code)
	}
	return got.Text, err
}
