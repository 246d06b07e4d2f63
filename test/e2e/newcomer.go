// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
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
	five, err := commands("README.md", heading)
	if err == nil && len(five) != 5 {
		err = fmt.Errorf("the README has %d commands under %q, and promises five", len(five), heading)
	}
	if err != nil {
		return []step{{"the README's commands are read", func(context.Context) (string, error) { return "", err }}}
	}
	var steps []step
	for _, command := range five {
		steps = append(steps, step{"$ " + command, func(ctx context.Context) (string, error) {
			return e.run(ctx, "", "bash", "-eu", "-o", "pipefail", "-c", command)
		}})
	}
	return append(steps,
		step{"control: a refund that the policy denies is refused, with its reason", func(ctx context.Context) (string, error) {
			got, err := team{e2e: e, Namespace: shop}.expects(ctx, "refund_invoices", `{"accountId":"acc_17","amount":5000}`, "RuleDenied")
			return got.Text, err
		}},
	)
}
