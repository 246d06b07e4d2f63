// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/control"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/identity"
)

// podOptions are what a gateway in the server's pod is told.
type podOptions struct {
	controlListen string
	ips           []string
}

// check refuses what would tell everybody what only the operator is told.
func (p podOptions) check(requester string) ([]netip.Addr, error) {
	if p.controlListen != "" && requester != "" {
		return nil, errors.New("--control-listen: with --requester nobody is authenticated, so the operator cannot be told apart")
	}
	var ips []netip.Addr
	for _, text := range p.ips {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--pod-ip: %q is no address", text)
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// bypass looks for a way around the gateway where it knows the addresses of its pod; nil elsewhere.
func bypass(ips []netip.Addr, servers map[types.NamespacedName]*gateway.Server) *gateway.Bypass {
	if len(ips) == 0 {
		return nil
	}
	return &gateway.Bypass{Servers: servers, PodIPs: ips, Clock: clock.RealClock{}, Dial: (&net.Dialer{}).DialContext}
}

// serveControl serves the operator until the context ends, where there is a port for that.
func (o *options) serveControl(ctx context.Context, d *door, servers map[types.NamespacedName]*gateway.Server) error {
	if o.pod.controlListen == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.pod.controlListen)
	if err != nil {
		return fmt.Errorf("--control-listen: %w", err)
	}
	port := &control.Port{
		Manager: "system:serviceaccount:" + o.operatorNamespace + ":" + v1alpha1.ManagerServiceAccount,
		Authenticate: func(ctx context.Context, r *http.Request, audiences []string) (identity.Caller, error) {
			if !d.open.Load() {
				return identity.Caller{}, identity.ErrUnavailable
			}
			return d.gateway.Authenticate(ctx, r, audiences)
		},
		Upstream: func(key types.NamespacedName) (endpoint.Upstream, bool) {
			server := servers[key]
			if server == nil {
				return endpoint.Upstream{}, false
			}
			return server.Upstream()
		},
		List: discovery.Tools, Watch: discovery.Watch, Stopping: ctx,
	}
	server := &http.Server{Handler: port, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // the operator asks another
	return ignoreClosed(server.Serve(listener))
}
