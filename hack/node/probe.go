// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// unsupportedError says what this machine lacks.
type unsupportedError struct {
	probe string
	why   error
}

func (e *unsupportedError) Error() string {
	return fmt.Sprintf("unsupported: %s: %v", e.probe, e.why)
}

func (e *unsupportedError) Unwrap() error { return e.why }

// requirement is something that the node cannot run without.
type requirement struct {
	name string
	met  func(ctx context.Context) error
}

// requirements in the order in which it makes sense to mend them.
func (n *node) requirements(install bool) []requirement {
	return []requirement{
		{"root", func(context.Context) error { return rootOnly(os.Geteuid()) }},
		{"folder", func(context.Context) error { return outside(n.dir) }},
		{"packages", func(ctx context.Context) error { return n.packages(ctx, install) }},
		{"disk", func(context.Context) error { return n.room() }},
		{"cgroups", func(context.Context) error { return cgroupsUsable() }},
		{"addresses", func(context.Context) error { return n.addressesFree() }},
		{"namespaces", func(context.Context) error { return attempt() }},
	}
}

// probe says that all requirements are met, or which is the first that is not: those after it build on it.
func (n *node) probe(ctx context.Context, install bool) error {
	var met []string
	for _, r := range n.requirements(install) {
		if err := r.met(ctx); err != nil {
			return &unsupportedError{r.name, err}
		}
		met = append(met, r.name)
	}
	n.say("this machine can run a node: looked at %s", strings.Join(met, ", "))
	return nil
}

func rootOnly(uid int) error {
	if uid == 0 {
		return nil
	}
	return fmt.Errorf("user %d may not make namespaces, mounts and interfaces: run it as root", uid)
}

// outside refuses a folder that the node could not see: it has a /run and a /var of its own.
func outside(dir string) error {
	for _, hidden := range []string{"/run", "/var"} {
		if dir == hidden || strings.HasPrefix(dir, hidden+"/") {
			return fmt.Errorf("%s is below %s, of which the node has its own: set XDG_CACHE_HOME to a folder elsewhere", dir, hidden)
		}
	}
	return nil
}

// room asks for free space: the kubelet refuses pods on a disk that is nearly full.
func (n *node) room() error {
	if err := os.MkdirAll(filepath.Dir(n.dir), 0o700); err != nil {
		return err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(n.dir), &fs); err != nil {
		return fmt.Errorf("ask how full the disk of %s is: %w", n.dir, err)
	}
	return enough(n.dir, fs.Bavail*uint64(fs.Bsize))
}

func enough(dir string, free uint64) error {
	const least = 2 << 30
	if free < least {
		return fmt.Errorf("the disk of %s has %d MiB free, and the node needs %d", dir, free>>20, least>>20)
	}
	return nil
}

// addressesFree refuses where another network has the node's addresses; a node in another folder has the same.
func (n *node) addressesFree() error {
	if n.pid() != 0 {
		return nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read the machine's addresses: %w", err)
	}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return fmt.Errorf("read the machine's routes: %w", err)
	}
	networks := routed(string(routes))
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok {
			networks = append(networks, network)
		}
	}
	return clash(networks)
}

// clash finds one of the node's networks among those of the machine.
func clash(networks []*net.IPNet) error {
	for _, ours := range []string{linkRange, podRange, serviceRange} {
		_, own, err := net.ParseCIDR(ours)
		if err != nil {
			return err
		}
		for _, other := range networks {
			if ones, _ := other.Mask.Size(); ones > 0 && (own.Contains(other.IP) || other.Contains(own.IP)) {
				return fmt.Errorf("%s is in use on this machine (%s), and the node needs it", ours, other)
			}
		}
	}
	return nil
}

// routed reads the destinations in /proc/net/route: addresses and masks in hexadecimal, lowest byte first.
func routed(table string) []*net.IPNet {
	var networks []*net.IPNet
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		var destination, mask uint32
		if _, err := fmt.Sscanf(fields[1]+" "+fields[7], "%x %x", &destination, &mask); err != nil {
			continue // the heading
		}
		four := func(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }
		networks = append(networks, &net.IPNet{IP: four(destination), Mask: four(mask)})
	}
	return networks
}

// attempt makes what the node is made of, for a moment: namespaces, mounts, an overlay, and a rule with a set.
func attempt() error {
	out, err := pidOne("attempt").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
