// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// has fails unless err says all of the words, or is absent where there are none.
func has(t *testing.T, err error, words ...string) {
	t.Helper()
	if (err == nil) != (len(words) == 0) {
		t.Fatalf("error %v, want one that says %q", err, words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestOnlyRootMayRunANode(t *testing.T) {
	t.Parallel()
	has(t, rootOnly(0))
	has(t, rootOnly(1000), "user 1000", "run it as root")
}

func TestTheFolderIsOneThatTheNodeSees(t *testing.T) {
	t.Parallel()
	has(t, outside("/root/.cache/tidewaiter/node"))
	has(t, outside("/variable/node"))
	has(t, outside("/var/cache/node"), "/var/cache/node", "XDG_CACHE_HOME")
	has(t, outside("/run/node"), "below /run")
}

func TestTheDiskHasRoom(t *testing.T) {
	t.Parallel()
	has(t, enough("/x", 2<<30))
	has(t, enough("/x", 2<<30-1), "/x", "2047 MiB free", "needs 2048")
}

func TestNoOtherNetworkHasTheAddresses(t *testing.T) {
	t.Parallel()
	const table = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
`
	networks := routed(table)
	if got := []string{networks[0].String(), networks[1].String()}; len(networks) != 2 || !slices.Equal(got, []string{"0.0.0.0/0", "192.0.2.0/24"}) {
		t.Fatalf("read %v", got)
	}
	for name, tc := range map[string]struct {
		network string
		want    []string
	}{
		"the default route is no clash":  {"0.0.0.0/0", nil},
		"nor are the neighbours":         {"10.212.0.0/16", nil},
		"a part of a range is":           {"10.214.7.0/24", []string{podRange, "10.214.7.0/24"}},
		"so is a network with the range": {"10.0.0.0/8", []string{linkRange, "10.0.0.0/8"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, network, err := net.ParseCIDR(tc.network)
			if err != nil {
				t.Fatal(err)
			}
			has(t, clash(append(networks, network)), tc.want...)
		})
	}
}

func TestMissingPackages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lack func(program string) bool
		want []string
	}{
		"nothing is missing where all programs are": {func(string) bool { return false }, nil},
		"each package is named once": {func(string) bool { return true },
			[]string{"containerd", "runc", "iptables", "ipset", "iproute2", "mount", "util-linux", "containernetworking-plugins"}},
		"plugins in the other folder will do": {func(program string) bool { return strings.HasPrefix(program, "/usr/lib/cni/") }, nil},
		"plugins spread over both will not": {func(program string) bool {
			return program == "/usr/lib/cni/ptp" || program == "/opt/cni/bin/portmap"
		}, []string{"containernetworking-plugins"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := missing(func(program string) bool { return !tc.lack(program) })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCgroups(t *testing.T) {
	t.Parallel()
	const one = `tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
`
	const pids = "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
	const two = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
	for name, tc := range map[string]struct {
		mounts string
		list   []string
		want   []string
	}{
		"version 1 with every controller":           {one + pids, nil, nil},
		"version 1 without one":                     {one, nil, []string{"pids", "not mounted"}},
		"version 2 with every controller":           {two, []string{"cpuset", "cpu", "io", "memory", "pids"}, nil},
		"version 2 without one":                     {two, []string{"cpu", "memory", "pids"}, []string{"cpuset"}},
		"none at all":                               {"proc /proc proc rw 0 0\n", nil, []string{"no cgroups are mounted"}},
		"those that are mounted elsewhere are none": {"cgroup2 /mnt cgroup2 rw 0 0\n", nil, []string{"no cgroups are mounted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			has(t, cgroups(tc.mounts).usable(tc.list), tc.want...)
		})
	}
	// runc makes cgroups there too.
	if got := cgroups(one).mounts; !slices.Contains(got, "/sys/fs/cgroup/unified") {
		t.Errorf("the hierarchy beside those of version 1 is not among %v", got)
	}
}

func TestAProbeIsNamed(t *testing.T) {
	t.Parallel()
	has(t, &unsupportedError{"root", rootOnly(7)}, "unsupported: root: user 7")
}
