// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command policy enforces NetworkPolicies on the node of make node: the part of kube-router that does so, alone, with
// iptables and ipset.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that says how to reach the API server")
	node := flag.String("node", "", "name of the node this runs on")
	services := flag.String("services", "", "range of the Services' addresses")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *kubeconfig, *node, *services)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node, services string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	o := options.NewKubeRouterConfig()
	o.EnableIPv4, o.HostnameOverride, o.ClusterIPCIDRs = true, node, []string{services}
	iptables, ipsets, err := netpol.NewIPTablesHandlers(o)
	if err != nil {
		return fmt.Errorf("find iptables and ipset: %w", err)
	}

	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	enforcer, err := netpol.NewNetworkPolicyController(client, o, pods, policies, namespaces, &sync.Mutex{}, iptables, ipsets)
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: enforcer.PodEventHandler, namespaces: enforcer.NamespaceEventHandler, policies: enforcer.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return errors.Join(fmt.Errorf("read all %v", kind), ctx.Err())
		}
	}

	// The controller sends a heartbeat on every round, and blocks until somebody takes it.
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats { //nolint:revive // nobody asks how it is
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	enforcer.Run(heartbeats, ctx.Done(), &running)
	running.Wait()
	return nil
}
