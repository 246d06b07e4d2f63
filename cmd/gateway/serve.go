// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// options are the flags of the gateway.
type options struct {
	servers      []string
	listen       string
	opsListen    string
	requester    string
	name         string
	receipts     string
	allow        []string
	maxStaleness time.Duration
	drain        time.Duration
	verbosity    int

	cluster *rest.Config
	stdout  io.Writer
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "gateway"
	}
	flags.StringArrayVar(&o.servers, "server", nil, "GovernedServer to stand in front of, as NAMESPACE/NAME; may be repeated. Agents reach it at /NAMESPACE/NAME/mcp, a single one also at /mcp")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address that agents reach. Who calls is not proven yet: keep it on loopback")
	flags.StringVar(&o.opsListen, "ops-listen", "127.0.0.1:8081", "address of /healthz, /readyz and /metrics")
	flags.StringVar(&o.requester, "requester", "", "username that every call counts for; default: the gateway's own")
	flags.StringVar(&o.name, "name", hostname, "name of this gateway in requests and receipts")
	flags.StringVar(&o.receipts, "receipts", "", "file that receipts are appended to; they also go to standard output")
	flags.StringSliceVar(&o.allow, "allow-address", nil, "loopback, link-local, private or cluster addresses that may be dialled, as CIDR blocks")
	flags.DurationVar(&o.maxStaleness, "max-staleness", 5*time.Minute, "how long reads go on after the last proof that the watch of the Kubernetes API works")
	flags.DurationVar(&o.drain, "drain", 5*time.Minute, "how long calls in flight may take after a request to stop")
	flags.IntVarP(&o.verbosity, "v", "v", 0, "verbosity of the log; 4 shows details")
	flags.AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
}

// serve wires the gateway and serves until the context ends.
func serve(ctx context.Context, o options) error {
	if o.receipts == "" || len(o.servers) == 0 {
		return errors.New("--server and --receipts are needed")
	}
	allow, err := netguard.ParsePrefixes(o.allow)
	if err != nil {
		return fmt.Errorf("--allow-address: %w", err)
	}
	servers, err := governed(o.servers)
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("build scheme: %w", err)
	}
	live, err := client.New(o.cluster, client.Options{Scheme: scheme, Mapper: gateway.Mapper()})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	watched, err := gateway.NewCache(o.cluster, scheme, servers)
	if err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	receipts, err := receipt.Open(receipt.Options{Path: o.receipts, Gateway: o.name, Mirror: o.stdout, Now: time.Now})
	if err != nil {
		return fmt.Errorf("open receipts: %w", err)
	}
	agents, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("--listen: %w", err), receipts.Close())
	}
	registry := prometheus.NewRegistry()
	metrics, err := gateway.NewMetrics(registry)
	if err := errors.Join(err, registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return errors.Join(err, agents.Close(), receipts.Close())
	}
	g := &gateway.Gateway{
		Servers: servers, Receipts: receipts, Clock: clock.RealClock{}, NewID: uuid.NewString,
		Approvals:    &approval.Store{Client: live, Clock: clock.RealClock{}, Gateway: o.name, NewClaim: uuid.NewString},
		Loopback:     agents.Addr().(*net.TCPAddr).IP.IsLoopback(),
		Metrics:      metrics,
		Stopping:     ctx,
		MaxStaleness: o.maxStaleness,
	}
	watcher := &gateway.Watcher{Cache: watched, Client: live, Servers: servers, Clock: clock.RealClock{}, Allow: allow, Metrics: metrics}
	front := &door{gateway: g}
	follow := func(ctx context.Context) error {
		requester, err := whoCalls(ctx, live, o.requester)
		if err != nil {
			return err
		}
		g.Requester = requester
		front.open.Store(true)
		return watcher.Run(ctx)
	}
	err = runAll(ctx, o, front, follow, agents, opsHandler(front, registry))
	return errors.Join(err, receipts.Close())
}

// governed makes the servers that the flags name.
func governed(names []string) (map[types.NamespacedName]*gateway.Server, error) {
	servers := map[types.NamespacedName]*gateway.Server{}
	for _, value := range names {
		namespace, name, ok := strings.Cut(value, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is not NAMESPACE/NAME", value)
		}
		key := types.NamespacedName{Namespace: namespace, Name: name}
		servers[key] = &gateway.Server{Key: key, Clock: clock.RealClock{}, List: list}
	}
	return servers, nil
}

// list asks a server for its tools, as the manager does.
func list(ctx context.Context, up endpoint.Upstream) ([]tool.Descriptor, error) {
	transport := up.Transport()
	defer transport.CloseIdleConnections()
	result, err := discovery.Tools(ctx, discovery.Target{URL: up.URL, Headers: up.Headers, Transport: transport})
	return result.Tools, err
}

// door keeps agents out until it is known who they count for.
type door struct {
	gateway *gateway.Gateway
	open    atomic.Bool
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.open.Load() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, errNobody.Error(), http.StatusServiceUnavailable)
		return
	}
	d.gateway.ServeHTTP(w, r)
}

var errNobody = errors.New("the gateway does not know yet who it is to the API server")

func (d *door) ready() error {
	if !d.open.Load() {
		return errNobody
	}
	return d.gateway.Ready()
}

// askAgain is the time between two questions to an API server that gave no answer.
const askAgain = 2 * time.Second

// whoCalls returns who every call counts for: by default who the gateway itself is to the API server, which is asked
// until it answers.
func whoCalls(ctx context.Context, live client.Client, username string) (v1alpha1.Requester, error) {
	if username != "" {
		return v1alpha1.Requester{Username: username}, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		err := live.Create(ctx, review)
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return false, err
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "who this gateway is was not answered")
		}
		return err == nil, nil
	})
	if err != nil {
		return v1alpha1.Requester{}, fmt.Errorf("ask the API server who this gateway is (or give --requester): %w", err)
	}
	return v1alpha1.Requester{Username: review.Status.UserInfo.Username, Groups: review.Status.UserInfo.Groups}, nil
}

// opsHandler serves what operators and probes ask.
func opsHandler(front *door, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := front.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// runAll runs the parts until the context ends or one fails. When it ends, calls in flight are finished first, and
// the watch goes on under them.
func runAll(ctx context.Context, o options, front http.Handler, follow func(context.Context) error, agents net.Listener, ops http.Handler) error {
	opsListener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.opsListen)
	if err != nil {
		return errors.Join(fmt.Errorf("--ops-listen: %w", err), agents.Close())
	}
	running, stopRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRunning()
	group, running := errgroup.WithContext(running)
	agentServer := &http.Server{Handler: front, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	opsServer := &http.Server{Handler: ops, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	group.Go(func() error {
		if err := follow(running); running.Err() == nil {
			return err
		}
		return nil // it was told to stop
	})
	group.Go(func() error { return ignoreClosed(agentServer.Serve(agents)) })
	group.Go(func() error { return ignoreClosed(opsServer.Serve(opsListener)) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-running.Done():
		}
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.drain)
		defer cancel()
		err := agentServer.Shutdown(drain)
		stopRunning()
		return errors.Join(err, opsServer.Close())
	})
	return group.Wait()
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
