// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cniFolders are where CNI plugins are: Debian's, and that of most others.
var cniFolders = []string{"/usr/lib/cni", "/opt/cni/bin"}

// cniPlugins are those that the node's network is made of.
var cniPlugins = []string{"host-local", "loopback", "portmap", "ptp"}

// needed are programs that are not built here, and the Debian package of each.
var needed = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"ipset", "ipset"},
	{"ip", "iproute2"},
	{"mount", "mount"},
	{"nsenter", "util-linux"},
}

// packages wants all programs, and installs those that are missing where it is told to.
func (n *node) packages(ctx context.Context, install bool) error {
	missing := missing(found)
	if len(missing) == 0 {
		return nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		return fmt.Errorf("missing: what Debian has in %s", strings.Join(missing, ", "))
	}
	if !install {
		return fmt.Errorf("missing: run apt-get install --no-install-recommends %s, or give --install", strings.Join(missing, " "))
	}
	n.say("installing the Debian packages %s", strings.Join(missing, ", "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// missing returns the packages of programs that were not found.
func missing(found func(program string) bool) []string {
	var packages []string
	for _, n := range needed {
		if !found(n.program) && !slices.Contains(packages, n.pkg) {
			packages = append(packages, n.pkg)
		}
	}
	if !slices.ContainsFunc(cniFolders, func(folder string) bool { return holdsPlugins(folder, found) }) {
		packages = append(packages, "containernetworking-plugins")
	}
	return packages
}

func holdsPlugins(folder string, found func(string) bool) bool {
	return !slices.ContainsFunc(cniPlugins, func(plugin string) bool { return !found(filepath.Join(folder, plugin)) })
}

func found(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// cniFolder is the first that holds all plugins.
func cniFolder() (string, error) {
	for _, folder := range cniFolders {
		if holdsPlugins(folder, found) {
			return folder, nil
		}
	}
	return "", errors.New("no folder holds the CNI plugins")
}
