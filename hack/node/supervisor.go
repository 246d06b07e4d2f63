// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// supervisor starts components, and starts them again when they end, as systemd does elsewhere. It reaps every process of
// the node that has lost its parent, so no component is waited for in any other way.
type supervisor struct {
	node    *node
	mu      sync.Mutex
	running map[int]component
}

// start starts a component. One that cannot be started is tried again, like one that has ended.
func (s *supervisor) start(c component) {
	// reap takes the lock to find whose end it has seen, so it does not look before the component is entered.
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := s.node.spawn(c)
	if err != nil {
		s.node.say("%s: %v", c.name, err)
		s.again(c)
		return
	}
	s.running[pid] = c
}

func (s *supervisor) again(c component) { time.AfterFunc(time.Second, func() { s.start(c) }) }

// reap waits for the end of any process, for ever.
func (s *supervisor) reap() error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.ECHILD) { // every component waits to be started again
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the end of a process: %w", err)
		}
		s.mu.Lock()
		c, ok := s.running[pid]
		delete(s.running, pid)
		s.mu.Unlock()
		if ok {
			how := fmt.Sprint("exit code ", status.ExitStatus())
			if status.Signaled() {
				how = status.Signal().String()
			}
			s.node.say("%s ended (%s), starting it again", c.name, how)
			s.again(c)
		}
	}
}

// spawn starts a component whose output goes to its log.
func (n *node) spawn(c component) (int, error) {
	program, err := exec.LookPath(c.args[0])
	if err != nil {
		return 0, err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer nothing.Close() //nolint:errcheck // it was only read
	log, err := os.OpenFile(n.path("log", c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close() //nolint:errcheck // the component has its own
	process, err := os.StartProcess(program, c.args, &os.ProcAttr{Dir: "/", Env: environment(), Files: []*os.File{nothing, log, log}})
	if err != nil {
		return 0, err
	}
	pid := process.Pid
	return pid, process.Release()
}

// environment of components, whatever the caller's is.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
}
