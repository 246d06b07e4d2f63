// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// stock is where the machine's state before the node is noted, for as long as something of the node may be there.
func (n *node) stock() string { return n.path("machine.json") }

// pid finds pid 1 of the node by its command line, which no file has to keep; it is 0 where there is none.
func (n *node) pid() int {
	want := strings.Join([]string{initName, "run", n.dir, ""}, "\x00")
	for _, pid := range processes() {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && bytes.HasPrefix(line, []byte(want)) && firstOfItsOwn(pid) {
			return pid
		}
	}
	return 0
}

// firstOfItsOwn tells pid 1 of a namespace from a process that it has just forked.
func firstOfItsOwn(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.HasSuffix(strings.TrimSpace(pids), "\t1")
		}
	}
	return false
}

// processes are all of the machine.
func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// stop kills the node, as a power cut would, and keeps its state.
func (n *node) stop(ctx context.Context) error {
	if err := n.clear(ctx); err != nil {
		return err
	}
	n.say("the node has ended, and the machine is as it was; node up starts it again")
	return nil
}

// down kills the node and removes its state.
func (n *node) down(ctx context.Context) error {
	if err := errors.Join(n.clear(ctx), os.RemoveAll(n.dir)); err != nil {
		return err
	}
	n.say("the node is gone, and the machine is as it was")
	return nil
}

// clear ends the node if it runs, removes what outlives its namespaces, and compares the machine with what it was.
func (n *node) clear(ctx context.Context) error {
	if err := n.kill(ctx); err != nil {
		return err
	}
	before, err := recall(n.stock())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no start came far enough to leave anything
	}
	if err != nil {
		return err
	}
	if err := unplug(ctx); err != nil {
		return err
	}
	groups, err := machineCgroups()
	if err != nil {
		return err
	}
	err = n.until(ctx, "the machine is as it was", func(ctx context.Context) error {
		return errors.Join(groups.remove(), n.settle(ctx, before)) // one must not keep the other from being done
	})
	// What is reported now is not reported again: the next start takes stock anew.
	return errors.Join(err, os.Remove(n.stock()))
}

// unplug removes the machine's end of the veth pair, and with it the node's. It would go with the node's namespace, but a
// connection that nobody answers any more keeps that for minutes.
func unplug(ctx context.Context) error {
	plugged := func() bool {
		_, err := net.InterfaceByName(machineEnd)
		return err == nil
	}
	if !plugged() {
		return nil
	}
	if _, err := output(ctx, "ip", "link", "delete", machineEnd); err != nil && plugged() { // it may just be going
		return fmt.Errorf("remove the interface %s: %w", machineEnd, err)
	}
	return nil
}

// settle puts kernel settings back and says what else is not as it was.
func (n *node) settle(ctx context.Context, before machine) error {
	now, err := n.look(ctx)
	if err != nil {
		return err
	}
	if now.Boot != before.Boot {
		return nil // the machine has been started anew since
	}
	if err := before.restore(now); err != nil {
		return fmt.Errorf("put kernel settings back: %w", err)
	}
	if now, err = n.look(ctx); err != nil {
		return err
	}
	if differences := before.differences(now); len(differences) > 0 {
		return fmt.Errorf("the machine is not as it was before the node:\n  %s", strings.Join(differences, "\n  "))
	}
	return nil
}

// kill kills pid 1, with which the kernel kills every process of the node, and waits until the last is gone.
func (n *node) kill(ctx context.Context) error {
	pid := n.pid()
	if pid == 0 {
		return nil
	}
	space, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", "pid"))
	if err != nil {
		return fmt.Errorf("find the node's namespace: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the node: %w", err)
	}
	return n.until(ctx, "the node's processes have ended", func(context.Context) error {
		for _, pid := range processes() {
			proc := filepath.Join("/proc", strconv.Itoa(pid))
			if its, err := os.Readlink(filepath.Join(proc, "ns", "pid")); err != nil || its != space {
				continue
			}
			if program, err := os.Readlink(filepath.Join(proc, "exe")); err == nil { // a zombie, which somebody has to reap, has none
				return fmt.Errorf("process %d is still there, %s", pid, program)
			}
		}
		return nil
	})
}

// lastWords are the last lines of what pid 1 of the node has said.
func (n *node) lastWords() string {
	said, err := os.ReadFile(n.path("log", "init.log"))
	if err != nil {
		return err.Error()
	}
	lines := textLines(string(said))
	return strings.Join(lines[max(0, len(lines)-5):], "\n  ")
}
