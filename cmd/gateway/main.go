// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gateway stands between AI agents and MCP servers and enforces what their GovernedServers and ToolPolicies
// say.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // an image from scratch holds no roots of the system
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until the context ends, and then finishes the calls in flight.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{stdout: stdout}
	cmd := &cobra.Command{
		Use:           "gateway --server NAMESPACE/NAME --receipts FILE --voting-root-key KEY",
		Short:         "Enforce risk tiers and approvals on the calls that agents make to MCP servers",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			handler := slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)})
			ctrl.SetLogger(logr.FromSlogHandler(handler))
			cluster, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("find the Kubernetes API: %w", err)
			}
			o.cluster = cluster
			return serve(ctrl.LoggerInto(cmd.Context(), ctrl.Log), o)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.AddCommand(newStdioCommand(stderr), newCopyCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}
