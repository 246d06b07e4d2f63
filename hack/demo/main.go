// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo runs the whole governance cycle on a control plane of its own and tells it step by step: a real API
// server, the operator, a gateway, a small MCP server and an agent. It checks every step, and exits with 1 if one is
// not as it should be.
package main

import (
	"bytes"
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

// playground says what to do with a demo that is kept.
const playground = `It is left running. Play with it:

  export KUBECONFIG=%s   # the approver; %s is the editor
  export PATH=%s:%s:$PATH
  kubectl get tidewaiter

Call the gateway as the agent, for the hour that its token is good (it takes curl); then decide, and call again:

  %s send_invoice '{"invoiceId":"2026-9"}'
  kubectl tidewaiter pending

The team's policy, its test, its pins and the server's tools are in %s. Change them there, then

  kubectl tidewaiter lint --tools tools.json . && kubectl tidewaiter test .

The gateway is at %s. Receipts and logs are in %s. make demo-stop ends it.`

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
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run sets the stage, tells the story and clears up; with stay it clears up only when it is told to end.
func run(ctx context.Context, stay bool) (err error) {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
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
		t.say(playground, s.kubeconfig("approver"), s.kubeconfig("editor"), s.path(), filepath.Dir(s.kubectl), s.caller, filepath.Join(s.dir, "policy"), s.gatewayURL, s.dir)
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
	unlock, err := lock()
	if err != nil {
		return err
	}
	// The process that stays takes the lock for itself.
	unlock()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", folder, err)
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
	cmd.Wait() //nolint:errcheck // what it said tells more
	said, err := os.ReadFile(log.Name())
	if err != nil {
		return fmt.Errorf("read what the demo said: %w", err)
	}
	return fmt.Errorf("the demo that was to stay has ended:\n%s", bytes.TrimSpace(said))
}

// end ends a demo that was kept, waits until it is gone, and removes what it left.
func end() error {
	unlock, err := lock()
	if err == nil {
		defer unlock()
		fmt.Println("no demo is running")
		return forgetKilled()
	}
	if !errors.Is(err, errRunning) {
		return err
	}
	state, err := recall()
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("a demo is still at its steps: wait until it has told them, or end it with Ctrl-C where it runs")
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(state.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process %d: %w", state.PID, err)
	}
	for range 600 {
		unlock, err := lock()
		if err == nil {
			defer unlock()
			fmt.Println("the demo has ended")
			return os.RemoveAll(folder)
		}
		if !errors.Is(err, errRunning) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not end", state.PID)
}

// forgetKilled removes what a demo left that was kept, and ended without being asked to.
func forgetKilled() error {
	_, err := os.Stat(filepath.Join(folder, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// errRunning says that another demo has this copy of the repository, and with it the folder.
var errRunning = errors.New("a demo is running here already; end it with make demo-stop, or with Ctrl-C where it runs")

// lock keeps other demos out of the folder. The kernel gives the lock back when its holder ends, however that happens,
// so a demo that was killed leaves nothing in the way of the next.
func lock() (unlock func(), err error) {
	repository, err := os.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open the repository: %w", err)
	}
	// The descriptor is closed in programs that the demo starts.
	if err := syscall.Flock(int(repository.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		repository.Close() //nolint:errcheck // it was only read
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errRunning
		}
		return nil, fmt.Errorf("lock the repository: %w", err)
	}
	return func() { repository.Close() }, nil //nolint:errcheck // it was only read
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
