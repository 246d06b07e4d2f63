// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager is the operator: it discovers and classifies the tools of GovernedServers, keeps their track records,
// moves ApprovalRequests along, signs the votes of people and puts gateways into pods. It is never on the path of a call.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // an image from scratch holds no roots of the system
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/tidewaiter/tidewaiter/internal/sidecar"
)

type options struct {
	metricsAddress, healthAddress, webhookAddress string
	namespace                                     string
	webhookSecret, notifyConfig                   string
	votingKeyLifetime                             time.Duration
	leaderElect                                   bool
	allow                                         []string
	verbosity                                     int
	sidecar                                       sidecar.Settings
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// run manages until the context ends.
func run(ctx context.Context, args []string, logs io.Writer) error {
	var o options
	cmd := &cobra.Command{
		Use:           "manager",
		Short:         "Discover, classify and account for the tools of MCP servers, and sign votes",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			handler := slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)})
			ctrl.SetLogger(logr.FromSlogHandler(handler))
			slog.SetDefault(slog.New(handler)) // the webhook's server of net/http has no logger of its own to set
			cluster, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("find the Kubernetes API: %w", err)
			}
			return manage(cmd.Context(), cluster, o)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 for none")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&o.webhookAddress, "webhook-bind-address", ":9443", "address that the API server reaches the webhook of votes at")
	flags.StringVar(&o.namespace, "operator-namespace", "tidewaiter-system", "namespace of the operator, with its Secrets and the published voting keys")
	flags.StringVar(&o.webhookSecret, "webhook-certificate-secret", "", "Secret of the operator's namespace, of the type kubernetes.io/tls, with the certificate of the webhook; somebody else, such as cert-manager, then keeps it and the CA bundles. Default: the operator makes its own")
	flags.DurationVar(&o.votingKeyLifetime, "voting-key-lifetime", 30*24*time.Hour, "how long a voting key signs before it is replaced; at least an hour")
	flags.StringVar(&o.notifyConfig, "notify-config", "", "file that says who is told, by a signed webhook, when a request opens, is about to expire and ends. Default: nobody")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several managers do the work of the controllers; all of them serve votes")
	flags.StringSliceVar(&o.allow, "allow-address", nil, "loopback, link-local, private or cluster addresses that may be dialled, as CIDR blocks; may be repeated")
	flags.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log; 4 shows details")
	o.sidecar.AddFlags(flags)
	flags.AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
}
