// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo runs the whole governance cycle on a control plane of its own and tells it step by step: a real API
// server, the operator, a gateway, a small MCP server and an agent. It checks every step, and exits with 1 if one is
// not as it should be.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// folder holds what a demo that is kept leaves for people: kubeconfigs, logs, receipts.
const folder = ".demo"

// kept is what a demo that goes on leaves for demo-stop.
type kept struct {
	PID int  `json:"pid"`
	OK  bool `json:"ok"`
}

func main() {
	keep := flag.Bool("keep", false, "leave everything running after the last step")
	stop := flag.Bool("stop", false, "end a demo that was left running")
	stay := flag.Bool("stay", false, "for the process that --keep starts: tell the story, then wait for the end")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case *stop:
		err = end()
	case *keep:
		err = detach(ctx)
	default:
		err = run(ctx, *stay)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run sets the stage, tells the story and clears up; with stay it clears up only when it is told to end.
func run(ctx context.Context, stay bool) (err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", folder, err)
	}
	t := &teller{out: os.Stdout}
	s, err := setStage(ctx, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	err = story(ctx, t, s)
	if !stay {
		return err
	}
	if err == nil {
		t.say("It is left running. Play with it:\n\n  export KUBECONFIG=%s   # the approver; %s is the editor\n  export PATH=%s:%s:$PATH\n  kubectl -n %s get tidewaiter\n\nThe gateway is at %s, receipts and logs are in %s. `make demo-stop` ends it.",
			s.kubeconfig("approver"), s.kubeconfig("editor"), s.path(), filepath.Dir(s.kubectl), namespace, s.gatewayURL, s.dir)
	}
	if writeErr := remember(kept{PID: os.Getpid(), OK: err == nil}); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	// The parent waits for the end of standard output.
	os.Stdout.Close() //nolint:errcheck // there is nobody left to tell
	if err == nil {
		<-ctx.Done()
	}
	return errors.Join(err, os.Remove(filepath.Join(folder, "state.json")))
}

// detach runs the demo in a process of its own, and returns when the story is told.
func detach(ctx context.Context) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", folder, err)
	}
	if _, err := recall(); err == nil {
		return errors.New("a demo is running already; end it with make demo-stop")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// go run removes its program when it ends, so the process that stays gets a copy.
	program := filepath.Join(folder, "demo")
	if err := copyFile(program, self); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "demo.log"))
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(program, "--stay")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	story, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	interrupted := context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) }) //nolint:errcheck // it has ended by itself
	defer interrupted()
	if _, err := io.Copy(os.Stdout, story); err != nil {
		return fmt.Errorf("read the story: %w", err)
	}
	if state, err := recall(); err == nil && state.OK {
		return nil
	}
	return errors.Join(fmt.Errorf("the demo did not end well; see %s", log.Name()), cmd.Wait())
}

// end ends a demo that was kept, and waits until it is gone.
func end() error {
	state, err := recall()
	if errors.Is(err, os.ErrNotExist) {
		fmt.Println("no demo is running")
		return nil
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(state.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process %d: %w", state.PID, err)
	}
	for range 600 {
		if syscall.Kill(state.PID, 0) != nil {
			fmt.Println("the demo has ended")
			return os.RemoveAll(folder)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not end", state.PID)
}

func remember(state kept) error {
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "state.json"), data, 0o600); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	return nil
}

func recall() (kept, error) {
	data, err := os.ReadFile(filepath.Join(folder, "state.json"))
	if err != nil {
		return kept{}, fmt.Errorf("read the state: %w", err)
	}
	var state kept
	if err := json.Unmarshal(data, &state); err != nil {
		return kept{}, fmt.Errorf("read the state: %w", err)
	}
	return state, nil
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if err := os.WriteFile(to, data, 0o700); err != nil {
		return fmt.Errorf("copy to %s: %w", to, err)
	}
	return nil
}
