// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-tidewaiter is the kubectl plugin: kubectl tidewaiter, and under the names kubectl-approve and
// kubectl-deny also kubectl approve and kubectl deny.
package main

import (
	"context"
	"os"
	"os/signal"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tidewaiter/tidewaiter/internal/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return cli.Run(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}
