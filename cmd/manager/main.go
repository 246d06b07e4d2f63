// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager is the operator: it discovers and classifies the tools of GovernedServers, keeps their track records,
// and moves ApprovalRequests along. It is never on the path of a call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

type options struct {
	metricsAddress, healthAddress string
	leaderElect                   bool
	allow                         []string
	verbosity                     int
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
		Short:         "Discover, classify and account for the tools of MCP servers",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)})))
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
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several managers work and the others wait")
	flags.StringSliceVar(&o.allow, "allow-address", nil, "loopback, link-local, private or cluster addresses that may be dialled, as CIDR blocks; may be repeated")
	flags.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log; 4 shows details")
	flags.AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
}

// manage wires the controllers and runs them.
func manage(ctx context.Context, cluster *rest.Config, o options) error {
	allow, err := netguard.ParsePrefixes(o.allow)
	if err != nil {
		return fmt.Errorf("--allow-address: %w", err)
	}
	scheme := runtime.NewScheme()
	labelled, err := labels.NewRequirement(v1alpha1.ServerLabel, selection.Exists, nil)
	if err := errors.Join(err, corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              v1alpha1.ManagerServiceAccount,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       server.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			// Of Secrets and Roles only metadata is cached, and of those alone that are labelled for a server.
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}:      {Label: labels.NewSelector().Add(*labelled)},
				&rbacv1.Role{}:        {Label: labels.NewSelector().Add(*labelled)},
				&rbacv1.RoleBinding{}: {Label: labels.NewSelector().Add(*labelled)},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	serverMetrics, err := controllers.NewGovernedServerMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	events := mgr.GetEventRecorder("tidewaiter")
	servers := &controllers.GovernedServerReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{}, Metrics: serverMetrics,
		Allow: allow, Discover: discovery.Tools, Watch: discovery.Watch,
	}
	requests := &controllers.ApprovalRequestReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{}}
	policies := &controllers.ToolPolicyReconciler{Client: mgr.GetClient()}
	rights := &controllers.GatewayRightsReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{}}
	if err := errors.Join(
		servers.SetupWithManager(ctx, mgr),
		requests.SetupWithManager(mgr),
		policies.SetupWithManager(mgr),
		rights.SetupWithManager(mgr),
		metrics.Registry.Register(&controllers.ApprovalRequestMetrics{Reader: mgr.GetClient(), Clock: clock.RealClock{}}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
	); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return mgr.Start(ctx)
}
