// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// child is a process that is started again whenever it ends, until it is told to stop.
type child struct {
	name, program string
	args          []string
	// arm returns the environment of the next life: which point it dies at, or nothing.
	arm func(*rand.Rand) (variable, point string)
	// lose takes away what a loss of power would have, before the next life; nil for nothing.
	lose   func(*rand.Rand) error
	chance *rand.Rand
	dir    string
	tell   func(format string, args ...any)

	mu       sync.Mutex
	cmd      *exec.Cmd
	shot     bool // it was killed from outside
	stopping bool
	armed    bool // points may be given
	ended    chan struct{}
	// kills counts by cause: random, or the point.
	kills map[string]int
	// exits are ends that nobody wanted.
	exits []string
}

// start starts the child and whoever watches over it.
func (c *child) start() error {
	c.kills, c.ended = map[string]int{}, make(chan struct{})
	point, err := c.launch()
	if err != nil {
		return err
	}
	go c.watch(point)
	return nil
}

// errStopping says that no more lives are wanted.
var errStopping = errors.New("the child is to stop")

// launch begins a life.
func (c *child) launch() (point string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return "", errStopping
	}
	log, err := os.OpenFile(filepath.Join(c.dir, c.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.Command(c.program, c.args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = nil, log, os.Environ()
	if c.armed {
		var variable string
		if variable, point = c.arm(c.chance); variable != "" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, countVariable+"="+filepath.Join(c.dir, "executions.jsonl"))
	// An interrupt from the terminal is for the soak alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s: %w", c.name, err)
	}
	c.cmd, c.shot = cmd, false
	return point, nil
}

// watch waits for the end of each life, notes why it ended and begins the next.
func (c *child) watch(point string) {
	defer close(c.ended)
	for {
		err := c.cmd.Wait()
		pause, again := c.note(err, point)
		if !again {
			return
		}
		time.Sleep(pause)
		if point, err = c.relaunch(); errors.Is(err, errStopping) {
			return
		} else if err != nil {
			c.mu.Lock()
			c.exits = append(c.exits, err.Error())
			c.mu.Unlock()
			return
		}
	}
}

// relaunch begins a life after another.
func (c *child) relaunch() (point string, err error) {
	if c.lose != nil {
		if err := c.lose(c.chance); err != nil {
			return "", err
		}
	}
	return c.launch()
}

func (c *child) note(err error, point string) (pause time.Duration, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	exit, _ := errors.AsType[*exec.ExitError](err)
	killed := exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	switch {
	case c.shot && killed:
		c.kills["random"]++
	case killed && point != "":
		c.kills[point]++
		c.tell("%s died at %s", c.name, point)
	case c.stopping:
		if err != nil {
			c.exits = append(c.exits, fmt.Sprintf("did not stop in order: %v", err))
		}
		return 0, false
	default:
		c.exits = append(c.exits, fmt.Sprintf("ended by itself: %v", err))
		return time.Second, true
	}
	return time.Duration(c.chance.IntN(1500)) * time.Millisecond, !c.stopping
}

// kill kills the child as it is.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shot = c.cmd.Process.Kill() == nil || c.shot
}

// renew ends a life, so that the next one dies at a point, or does not.
func (c *child) renew(armed bool) {
	c.mu.Lock()
	c.armed = armed
	c.mu.Unlock()
	c.kill()
}

// stop ends the child in order, or by force if it does not end.
func (c *child) stop() {
	c.mu.Lock()
	c.stopping = true
	c.cmd.Process.Signal(syscall.SIGTERM)
	c.mu.Unlock()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.cmd.Process.Kill()
		<-c.ended
	}
}

// panics tells how often the child has panicked.
func (c *child) panics() int {
	log, err := os.ReadFile(filepath.Join(c.dir, c.name+".log"))
	if err != nil {
		return 0
	}
	return bytes.Count(log, []byte("\npanic: ")) + bytes.Count(log, []byte("\nfatal error: "))
}
