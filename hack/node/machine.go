// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// machine is what a node could leave behind on the machine.
type machine struct {
	// Boot tells one start of the machine from another, which leaves nothing of a node.
	Boot string `json:"boot"`
	// Settings of the kernel that the kubelet or the runtime changes, by path; they are put back.
	Settings map[string]string `json:"settings"`
	// Controllers of cgroups of version 2 that were enabled, which are put back too.
	Controllers []string `json:"controllers"`
	// Lines about everything else, by subject. They are only compared.
	Lines map[string][]string `json:"lines"`
}

// kernelSettings of the whole machine: those that the kubelet sets, and one that must stay out of the node's network.
var kernelSettings = []string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
	"net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom",
}

// look takes stock of the machine.
func (n *node) look(ctx context.Context) (machine, error) {
	m := machine{Settings: map[string]string{}, Lines: map[string][]string{}}
	for _, name := range kernelSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return m, fmt.Errorf("read a kernel setting: %w", err)
		}
		m.Settings[name] = strings.TrimSpace(string(value))
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return m, fmt.Errorf("read which start of the machine this is: %w", err)
	}
	m.Boot = strings.TrimSpace(string(boot))
	list, err := os.ReadFile(enabled)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("read the controllers: %w", err)
	}
	m.Controllers = strings.Fields(string(list))
	for subject, read := range map[string]func(context.Context) ([]string, error){
		"interface": interfaces, "route": routes, "mount": mounts, "rule": rules, "cgroup": topCgroups, "process": n.ours,
	} {
		if m.Lines[subject], err = read(ctx); err != nil {
			return m, fmt.Errorf("look for each %s: %w", subject, err)
		}
		slices.Sort(m.Lines[subject])
	}
	return m, nil
}

func interfaces(context.Context) ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprint(i.Name, addresses))
	}
	return lines, nil
}

func routes(ctx context.Context) ([]string, error) {
	return output(ctx, "ip", "route", "show", "table", "all")
}

func mounts(context.Context) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	return textLines(string(data)), err
}

// counted are packets and bytes, which change while nothing else does.
var counted = regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+`)

// rules are those of iptables and nftables, and the names of sets.
func rules(ctx context.Context) ([]string, error) {
	commands := [][]string{{"iptables-save"}, {"ip6tables-save"}, {"ipset", "list", "-name"}}
	if found("nft") { // the node itself does without
		commands = append(commands, []string{"nft", "list", "ruleset"})
	}
	var all []string
	for _, command := range commands {
		lines, err := output(ctx, command[0], command[1:]...)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "#") { // the time
				all = append(all, counted.ReplaceAllString(line, ""))
			}
		}
	}
	return all, nil
}

// topCgroups are the cgroups right below the roots, where a node would have its own.
func topCgroups(context.Context) ([]string, error) {
	h, err := machineCgroups()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, mount := range h.mounts {
		entries, err := os.ReadDir(mount)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() {
				all = append(all, filepath.Join(mount, entry.Name()))
			}
		}
	}
	return all, nil
}

// ours are processes that were told of the node's folder, as its components are.
func (n *node) ours(context.Context) ([]string, error) {
	var all []string
	for _, pid := range processes() {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && bytes.Contains(line, []byte(n.dir+"/")) {
			all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return all, nil
}

func output(ctx context.Context, name string, args ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return textLines(string(out)), nil
}

func textLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
}

// restore puts back what a machine that is looked at now has otherwise.
func (m machine) restore(now machine) error {
	var errs []error
	for name, value := range m.Settings {
		if now.Settings[name] != value {
			errs = append(errs, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0))
		}
	}
	for _, controller := range now.Controllers {
		if !slices.Contains(m.Controllers, controller) {
			errs = append(errs, os.WriteFile(enabled, []byte("-"+controller), 0))
		}
	}
	return errors.Join(errs...)
}

// differences say, a line each, what the machine has now and had not, and the other way round.
func (m machine) differences(now machine) []string {
	var all []string
	for name, value := range m.Settings {
		if now.Settings[name] != value {
			all = append(all, fmt.Sprintf("kernel setting %s: was %s, is %s", name, value, now.Settings[name]))
		}
	}
	before, after := maps.Clone(m.Lines), maps.Clone(now.Lines)
	before["controller of cgroups"], after["controller of cgroups"] = m.Controllers, now.Controllers
	for subject := range before {
		for _, line := range without(after[subject], before[subject]) {
			all = append(all, fmt.Sprintf("%s: came: %s", subject, line))
		}
		for _, line := range without(before[subject], after[subject]) {
			all = append(all, fmt.Sprintf("%s: gone: %s", subject, line))
		}
	}
	slices.Sort(all)
	return all
}

// without returns the lines of a that b has not, or has less often.
func without(a, b []string) []string {
	times := map[string]int{}
	for _, line := range b {
		times[line]++
	}
	var rest []string
	for _, line := range a {
		if times[line]--; times[line] < 0 {
			rest = append(rest, line)
		}
	}
	return rest
}

// remember keeps what the machine was like, whole or not at all.
func (m machine) remember(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	if err := os.WriteFile(unfinished, data, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// recall returns what the machine was like before the first up.
func recall(path string) (machine, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return machine{}, err
	}
	var m machine
	if err := json.Unmarshal(data, &m); err != nil {
		return machine{}, fmt.Errorf("read %s: %w", path, err)
	}
	return m, nil
}
