// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command node runs a real Kubernetes node with its control plane on this machine, for end-to-end tests: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kube-proxy, with containerd, runc and CNI plugins
// of Debian, cluster DNS, and NetworkPolicies that are enforced. It needs root, and no daemon, registry or network.
//
//	node probe             says whether it can run here, and what is missing
//	node up                starts it, or starts it again with the state it had; prints the path of the kubeconfig
//	node import FILE...    imports images from OCI archives or docker archives
//	node stop              kills it as a power cut would, and keeps its state for the next up
//	node down              kills it, removes its state, and checks that the machine is as it was before the first up
//
// All of it runs in namespaces of its own (mounts, network, processes, host name), below one process that is their
// pid 1: to kill that process is to end the node, and the kernel takes the mounts, interfaces and rules with it.
//
//	machine                                         | node
//	  tidewaiter0 10.213.0.1 --------- veth ----------- tidewaiter1 10.213.0.2, kube-apiserver on port 6443
//	  routes: 10.214.0.0/16 (pods) and              |   pods 10.214.0.0/16, Services 10.215.0.0/16
//	          10.215.0.0/16 (Services) over it      |   /var is a folder of its state, /run is empty at each start
//
// What does not go with the namespaces, stop and down put back: the machine's cgroups, and a few kernel settings that the
// kubelet insists on. Exit codes: 0 done, 1 failed, 3 not supported here. `go run` hides the 3: build it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Exit codes.
const (
	failed      = 1
	unsupported = 3
)

const usage = `usage: node [--install] probe | up | import FILE... | stop | down`

func main() {
	if os.Args[0] == initName {
		if err := inside(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(failed)
		}
		return
	}
	install := flag.Bool("install", false, "install the Debian packages that are missing")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, usage); flag.PrintDefaults() }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *install, flag.Args())
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "node:", err)
	if _, ok := errors.AsType[*unsupportedError](err); ok {
		os.Exit(unsupported)
	}
	os.Exit(failed)
}

func run(ctx context.Context, install bool, args []string) error {
	n, err := here()
	if err != nil {
		return err
	}
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "probe" && len(args) == 1:
		return n.probe(ctx, install)
	case verb == "up" && len(args) == 1:
		return n.alone(func() error { return n.up(ctx, install) })
	case verb == "import" && len(args) > 1:
		return n.importAll(ctx, args[1:])
	case verb == "stop" && len(args) == 1:
		return n.alone(func() error { return n.stop(ctx) })
	case verb == "down" && len(args) == 1:
		return n.alone(func() error { return n.down(ctx) })
	}
	return errors.New(usage)
}

// here is the node of this user; it keeps everything in one folder.
func here() (*node, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the node's state: %w", err)
	}
	return newNode(filepath.Join(cache, "tidewaiter", "node"), os.Stderr), nil
}
