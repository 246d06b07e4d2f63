// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// serve wires the gateway and serves until the context ends.
func serve(ctx context.Context, o options) error {
	flags, err := o.check()
	if err != nil {
		return err
	}
	agents, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if flags.metadata, err = o.metadata(agents.Addr(), flags.servers); err != nil { // before a line of it stands on record
		return errors.Join(err, agents.Close())
	}
	lines := &copies{to: o.stdout}
	defer lines.flush()
	receipts, err := receipt.Open(receipt.Options{Path: o.receipts, Gateway: o.name, Mirror: lines, Now: time.Now})
	if err != nil {
		return errors.Join(fmt.Errorf("--receipts: %w", err), agents.Close())
	}
	p, err := o.wire(ctx, flags, agents.Addr(), receipts)
	if err != nil {
		return errors.Join(err, agents.Close(), receipts.Close())
	}
	tracer, flush, err := o.tracer(ctx)
	if err != nil {
		return errors.Join(err, agents.Close(), receipts.Close())
	}
	p.door.gateway.Tracer = tracer
	follow := func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return p.door.letIn(ctx, o, p.live, flags.oidc) })
		group.Go(func() error { return p.watcher.Run(ctx) })
		group.Go(func() error { return p.acknowledger.Run(ctx) })
		group.Go(func() error { return o.serveControl(ctx, p.door, flags.servers) })
		if look := p.acknowledger.Bypass; look != nil {
			group.Go(func() error { return look.Run(ctx) })
		}
		group.Go(func() error { return p.door.votes.Run(ctx) })
		group.Go(func() error { return p.door.gateway.Follow(ctx) })
		if flags.shown != nil {
			group.Go(func() error { return flags.shown.Start(ctx) })
		}
		return group.Wait()
	}
	err = runAll(ctx, o, p.door, follow, flags.shown.listen(agents), opsHandler(p.door, p.registry))
	flush()
	return errors.Join(err, receipts.Close())
}

// parts are what a gateway is made of.
type parts struct {
	door         *door
	watcher      *gateway.Watcher
	acknowledger *gateway.Acknowledger
	live         client.Client
	registry     *prometheus.Registry
}

// wire makes the parts; none of them runs yet.
func (o *options) wire(ctx context.Context, flags parsed, listener net.Addr, receipts *receipt.Writer) (p parts, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return p, fmt.Errorf("build scheme: %w", err)
	}
	if p.live, err = client.New(o.cluster, client.Options{Scheme: scheme, Mapper: gateway.Mapper()}); err != nil {
		return p, fmt.Errorf("make client: %w", err)
	}
	watched, err := gateway.NewCache(o.cluster, scheme, flags.servers, o.operatorNamespace)
	if err != nil {
		return p, fmt.Errorf("make cache: %w", err)
	}
	keys, err := gateway.NewKeyCache(o.cluster, scheme, o.operatorNamespace)
	if err != nil {
		return p, fmt.Errorf("make cache of the voting keys: %w", err)
	}
	p.registry = prometheus.NewRegistry()
	metrics, err := gateway.NewMetrics(p.registry)
	if err := errors.Join(err, p.registry.Register(collectors.NewGoCollector()),
		p.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})), flags.shown.measure(p.registry)); err != nil {
		return p, err
	}
	votes := &gateway.Keyring{Cache: keys, Client: p.live, Namespace: o.operatorNamespace, Roots: flags.roots, Clock: clock.RealClock{}, Metrics: metrics}
	p.watcher = &gateway.Watcher{Cache: watched, Client: p.live, Servers: flags.servers, Clock: clock.RealClock{}, Allow: flags.allow, Metrics: metrics, Library: policy.NewLibrary(), OperatorNamespace: o.operatorNamespace}
	p.acknowledger = &gateway.Acknowledger{Client: p.live, Servers: flags.servers, Clock: clock.RealClock{}, Gateway: o.name, Jitter: rand.Float64, Metrics: metrics, Bypass: bypass(flags.podIPs, flags.servers)}
	p.door = &door{votes: votes, gateway: &gateway.Gateway{
		Servers: flags.servers, Receipts: receipts, Clock: clock.RealClock{}, NewID: uuid.NewString,
		Everybody: o.requester, Loopback: listener.(*net.TCPAddr).IP.IsLoopback(),
		Metadata: flags.metadata, Audiences: o.audiences, Origins: o.origins,
		Approvals: &approval.Store{Client: p.live, Clock: clock.RealClock{}, Gateway: o.name, NewClaim: uuid.NewString},
		Votes:     votes.Count, Metrics: metrics, Stopping: ctx, Limits: flags.limits,
	}}
	return p, nil
}

// list asks a server for its tools, as the manager does.
func list(ctx context.Context, up endpoint.Upstream) ([]tool.Descriptor, error) {
	target, leave := targetOf(up)
	defer leave()
	result, err := discovery.Tools(ctx, target)
	return result.Tools, err
}

// call calls a tool of a server that reads.
func call(ctx context.Context, up endpoint.Upstream, definition tool.Descriptor, arguments []byte) ([]byte, error) {
	target, leave := targetOf(up)
	defer leave()
	return discovery.Call(ctx, target, discovery.ToolCall{Tool: definition.Name, Arguments: arguments, InputSchema: definition.InputSchema})
}

// targetOf is a server as discovery reaches it, over connections that leave gives up.
func targetOf(up endpoint.Upstream) (target discovery.Target, leave func()) {
	transport := up.Transport()
	return discovery.Target{URL: up.URL, SSE: up.SSE, Headers: up.Headers, Transport: transport}, transport.CloseIdleConnections
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
		if err := front.votes.Usable(); err != nil { // reads go on, so it is ready all the same
			fmt.Fprintln(w, "no approval can be used now:", err)
		}
	})
	mux.HandleFunc("GET /idle", func(w http.ResponseWriter, r *http.Request) {
		if front.gateway.AwaitIdle(r.Context()) == nil {
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// runAll runs the parts until the context ends or one fails. When it ends, calls in flight are finished first, and
// the watch goes on under them.
func runAll(ctx context.Context, o options, front *door, follow func(context.Context) error, agents net.Listener, ops http.Handler) error {
	opsListener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.opsListen)
	if err != nil {
		return errors.Join(fmt.Errorf("--ops-listen: %w", err), agents.Close())
	}
	running, stopRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRunning()
	group, running := errgroup.WithContext(running)
	errorLog := slog.NewLogLogger(logr.ToSlogHandler(log.FromContext(ctx)), slog.LevelError)
	agentServer := o.agentServer(front, errorLog)
	opsServer := &http.Server{Handler: ops, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: errorLog}
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
		if err == nil {
			err = front.gateway.Finish(drain)
		}
		stopRunning()
		return errors.Join(err, opsServer.Close())
	})
	return group.Wait()
}

// agentServer is what agents reach.
func (o *options) agentServer(front http.Handler, errorLog *stdlog.Logger) *http.Server {
	return &http.Server{
		Handler: front, ReadHeaderTimeout: min(10*time.Second, o.limits.receive), ReadTimeout: o.limits.receive, IdleTimeout: o.limits.idle,
		MaxHeaderBytes: int(o.limits.header.Value()), ErrorLog: errorLog, ConnContext: gateway.OfConnection,
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
