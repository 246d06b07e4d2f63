// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Names and addresses of the node. The addresses are of no use outside this machine.
const (
	nodeName     = "tidewaiter"
	machineEnd   = "tidewaiter0" // the machine's end of the veth pair
	nodeEnd      = "tidewaiter1"
	machineIP    = "10.213.0.1"
	nodeIP       = "10.213.0.2"
	linkRange    = "10.213.0.0/30"
	podRange     = "10.214.0.0/16"
	serviceRange = "10.215.0.0/16"
	apiIP        = "10.215.0.1" // of the Service kubernetes, the first of the range
	dnsIP        = "10.215.0.10"
	server       = "https://" + nodeIP + ":6443"
	podImage     = "localhost/tidewaiter/pod:node"   // what sandboxes and test pods run
	containerd   = "/run/containerd/containerd.sock" // as the node sees it
)

// patience bounds each wait for something that takes seconds on a machine at rest.
const patience = 3 * time.Minute

// node is the one node of this machine's user.
type node struct {
	dir   string // of everything that it keeps
	out   io.Writer
	start time.Time
}

func newNode(dir string, out io.Writer) *node { return &node{dir: dir, out: out, start: time.Now()} }

func (n *node) path(elements ...string) string {
	return filepath.Join(append([]string{n.dir}, elements...)...)
}

// kubeconfig of somebody who may do everything.
func (n *node) kubeconfig() string { return n.path("pki", "admin.kubeconfig") }

// say tells people how far it is, with the seconds since the start of this program.
func (n *node) say(format string, args ...any) {
	fmt.Fprintf(n.out, "node: %6.1f s  %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}

// alone runs a step that no other may run beside.
func (n *node) alone(step func() error) error {
	if err := os.MkdirAll(filepath.Dir(n.dir), 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	lock, err := os.OpenFile(n.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock: %w", err)
	}
	defer lock.Close() //nolint:errcheck // nothing is written to it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another run is at work on %s: wait until it has ended (%w)", n.dir, err)
	}
	return step()
}

// until tries again until it works; what says what is then the case.
func (n *node) until(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	for {
		now := try(ctx)
		if now == nil {
			return nil
		}
		if err == nil || ctx.Err() == nil { // one that was cut short has nothing to say
			err = now
		}
		if fatal, ok := errors.AsType[*fatalError](err); ok {
			return fatal
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fatalError says that there is nothing to wait for any more.
type fatalError struct{ error }
