// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// cgroupRoot is the node's own cgroup, in every hierarchy; all pods are below it.
const cgroupRoot = "tidewaiter-node"

// controllers that the kubelet wants.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// hierarchies are the mounts of cgroups: one, of version 2, or one for each controller, and perhaps one of version 2 beside
// them, which has no controllers, and in which runc makes cgroups all the same.
type hierarchies struct {
	v2     bool
	mounts []string
}

// cgroups reads the hierarchies from a table of mounts.
func cgroups(mounts string) hierarchies {
	var h hierarchies
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 3 || !strings.HasPrefix(fields[1], "/sys/fs/cgroup"):
		case fields[2] == "cgroup", fields[2] == "cgroup2":
			h.mounts = append(h.mounts, fields[1])
			h.v2 = h.v2 || fields[1] == "/sys/fs/cgroup"
		}
	}
	slices.Sort(h.mounts)
	return h
}

func machineCgroups() (hierarchies, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return hierarchies{}, fmt.Errorf("read the mounts: %w", err)
	}
	return cgroups(string(mounts)), nil
}

func cgroupsUsable() error {
	h, err := machineCgroups()
	if err != nil {
		return err
	}
	if !h.v2 {
		return h.usable(nil)
	}
	list, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return fmt.Errorf("read the controllers: %w", err)
	}
	return h.usable(strings.Fields(string(list)))
}

// usable wants every controller: in the list of version 2, or mounted by version 1.
func (h hierarchies) usable(list []string) error {
	if len(h.mounts) == 0 {
		return errors.New("no cgroups are mounted at /sys/fs/cgroup")
	}
	for _, mount := range h.mounts {
		list = append(list, strings.Split(filepath.Base(mount), ",")...)
	}
	for _, controller := range controllers {
		if !slices.Contains(list, controller) {
			return fmt.Errorf("the controller %s is not mounted at /sys/fs/cgroup", controller)
		}
	}
	return nil
}

// enabled is where version 2 says which controllers the cgroups below the root have.
const enabled = "/sys/fs/cgroup/cgroup.subtree_control"

// create makes the node's cgroup; below it the kubelet makes its own.
func (h hierarchies) create() error {
	if h.v2 {
		if err := os.WriteFile(enabled, []byte("+"+strings.Join(controllers, " +")), 0); err != nil {
			return fmt.Errorf("give the node's cgroup its controllers: %w", err)
		}
	}
	for _, mount := range h.mounts {
		if err := os.MkdirAll(filepath.Join(mount, cgroupRoot), 0o755); err != nil {
			return fmt.Errorf("make the node's cgroup: %w", err)
		}
	}
	return nil
}

// remove removes the node's cgroup and those below. One whose last process is just ending is still busy.
func (h hierarchies) remove() error {
	for _, mount := range h.mounts {
		var found []string
		err := filepath.WalkDir(filepath.Join(mount, cgroupRoot), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("find cgroups: %w", err)
		}
		for _, path := range slices.Backward(found) { // what is below comes before
			if err := syscall.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove the cgroup %s: %w", path, err)
			}
		}
	}
	return nil
}
