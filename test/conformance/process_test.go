// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait; a loaded machine with two cores needs seconds.
const patience = 60 * time.Second

// command is exec.CommandContext for a program that may have children of its own: they end with it.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// process is a program that runs beside the test.
type process struct {
	log string
	// ended is closed when the program is gone.
	ended chan struct{}
}

// start runs a program until the test ends, asks it to stop with a signal, and kills what is left of it and its
// children. Its log is shown when the test fails.
func start(t *testing.T, stop syscall.Signal, env []string, program string, args ...string) *process {
	t.Helper()
	name := filepath.Base(program)
	p := &process{log: filepath.Join(t.TempDir(), name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		cmd.Wait()
		log.Close()
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(stop)
		select {
		case <-p.ended:
		case <-time.After(20 * time.Second):
			t.Errorf("%s does not stop when it is asked to", name)
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			text, err := os.ReadFile(p.log)
			t.Logf("log of %s (%v):\n%s", name, err, text)
		}
	})
	return p
}

// awaitHTTP waits until a URL answers with a status; it fails at once when the process ends.
func (p *process) awaitHTTP(t *testing.T, url string, status int) {
	t.Helper()
	eventually(t, url, func() error {
		select {
		case <-p.ended:
			t.Fatalf("%s: the program has ended", url)
		default:
		}
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			return fmt.Errorf("status %d, want %d", resp.StatusCode, status)
		}
		return nil
	})
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// freeAddresses returns addresses of this machine that nothing listens on.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

// freeEndpoint returns where an MCP server that is started on the port will be.
func freeEndpoint(t *testing.T) (url, port string) {
	t.Helper()
	address := freeAddresses(t, 1)[0]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + address + "/mcp", port
}

// build builds the project's programs, as they are released, and returns their folder.
func build(t *testing.T) string {
	t.Helper()
	root, bin := filepath.Join("..", ".."), t.TempDir()
	// The test cache sees which files a test looks at, not what a compiler that it starts reads.
	for _, folder := range []string{"api", "cmd", "controllers", "internal", "go.mod"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := command(t.Context(), "go", "build", "-o", bin+string(filepath.Separator), "./cmd/...")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/...: %v\n%s", err, out)
	}
	if err := os.Symlink("kubectl-tidewaiter", filepath.Join(bin, "kubectl-approve")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kubectl-tidewaiter", filepath.Join(bin, "kubectl-deny")); err != nil {
		t.Fatal(err)
	}
	return bin
}
