// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// initName is what pid 1 of a node is called; a process of this name and with the node's folder is the node.
const initName = "tidewaiter-node"

// pidOne is the command of a process that is pid 1 in namespaces of its own. It outlives this program.
func pidOne(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{initName}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	return cmd
}

// inside is what pid 1 does: of the node, for as long as it can, or of the attempt whether there can be one.
func inside(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "attempt":
		return attemptInside()
	case len(args) == 3 && args[0] == "run":
		return newNode(args[1], os.Stderr).runInside(args[2])
	}
	return errors.New("this is for the node itself")
}

// runInside runs the node; it returns only when it cannot go on.
func (n *node) runInside(programs string) error {
	// The one that started this process closes its end when the network is there, and gives a word if all is well.
	if word, err := io.ReadAll(os.Stdin); err != nil || string(word) != "go" {
		return errors.New("the program that starts the node ended before the node could start")
	}
	if err := n.mounts(); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	s := &supervisor{node: n, running: map[int]component{}}
	for _, c := range n.plane(programs) {
		s.start(c)
	}
	go func() {
		for n.ready() != nil {
			time.Sleep(100 * time.Millisecond)
		}
		for _, c := range n.rest(programs) {
			s.start(c)
		}
	}()
	return s.reap()
}

// mount is one call of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.source, m.target, err)
		}
	}
	return nil
}

// mounts gives the node its own /proc, /sys, /run and /var over the machine's files. The order matters: everything is
// private until the end, since an unmount of what is shared would take the machine's cgroups away here too.
func (n *node) mounts() error {
	aside, own := n.path("cgroups"), n.path("var")
	for _, dir := range []string{aside, filepath.Join(own, "lib"), filepath.Join(own, "log"), filepath.Join(own, "tmp"), filepath.Join(own, "cache")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a folder to mount: %w", err)
		}
	}
	if err := os.Symlink("/run", filepath.Join(own, "run")); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("link /var/run: %w", err)
	}
	err := mountAll([]mount{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", 0, ""},
		// A new /sys shows the node's network; the cgroups have to be carried over.
		{"/sys/fs/cgroup", aside, "", syscall.MS_BIND | syscall.MS_REC, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{aside, "/sys/fs/cgroup", "", syscall.MS_BIND | syscall.MS_REC, ""},
	})
	if err != nil {
		return err
	}
	if err := syscall.Unmount(aside, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", aside, err)
	}
	return mountAll([]mount{
		{own, "/var", "", syscall.MS_BIND, ""},
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		{"", "/", "", syscall.MS_REC | syscall.MS_SHARED, ""}, // as the kubelet needs it for volumes
	})
}

// network brings up the node's end of the link, and lets packets through.
func network() error {
	if err := syscall.Sethostname([]byte(nodeName)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for _, command := range []string{
		"ip link set lo up",
		"ip address add " + nodeIP + "/30 dev " + nodeEnd,
		"ip link set " + nodeEnd + " up",
		"ip route add default via " + machineIP,
	} {
		if err := execute(command); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("forward packets: %w", err)
	}
	return nil
}

// execute runs a command whose words hold no spaces.
func execute(command string) error {
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// attemptInside tries what the node will need of the kernel, and leaves nothing: it is gone with the namespaces.
func attemptInside() error {
	err := mountAll([]mount{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
	})
	if err != nil {
		return err
	}
	for _, dir := range []string{"/run/lower", "/run/upper", "/run/work", "/run/merged"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	err = mountAll([]mount{
		{"overlay", "/run/merged", "overlay", 0, "lowerdir=/run/lower,upperdir=/run/upper,workdir=/run/work"},
		{"sysfs", "/sys", "sysfs", 0, ""},
	})
	if err != nil {
		return err
	}
	for _, command := range []string{
		"ip link set lo up",
		"ipset create attempt hash:ip",
		"iptables -A FORWARD -m set --match-set attempt src -m comment --comment attempt -j REJECT",
		"iptables -t nat -A POSTROUTING -m addrtype --src-type LOCAL -j MASQUERADE",
	} {
		if err := execute(command); err != nil {
			return fmt.Errorf("needed for Services and NetworkPolicies: %w", err)
		}
	}
	return nil
}

// ready asks the API server whether it is ready; everybody may.
func (n *node) ready() error {
	authority, err := os.ReadFile(n.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Get(server + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only its status is of interest
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server says %s", response.Status)
	}
	return nil
}
