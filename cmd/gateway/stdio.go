// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tidewaiter/tidewaiter/internal/stdio"
)

// stdioOptions are the flags of gateway stdio.
type stdioOptions struct {
	listen   string
	sessions int
	worker   bool
}

// newStdioCommand wraps a server that speaks by its standard input and output: what the injection has a container of such
// a server run.
func newStdioCommand(stderr io.Writer) *cobra.Command {
	var o stdioOptions
	cmd := &cobra.Command{
		Use:   "stdio [flags] -- COMMAND [ARGUMENT]...",
		Short: "Put streamable HTTP in front of an MCP server that speaks by its standard input and output",
		Args: func(_ *cobra.Command, command []string) error {
			if len(command) == 0 {
				return errors.New("the command of the server is needed: gateway stdio -- COMMAND [ARGUMENT]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, command []string) error {
			ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(stderr, nil)))
			if !o.worker {
				return o.supervise(cmd.Context(), command)
			}
			return o.serve(ctrl.LoggerInto(cmd.Context(), ctrl.Log), command, stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "127.0.0.1:9443", "address of the server, on loopback; its path is "+stdio.Path)
	flags.IntVar(&o.sessions, "max-sessions", 64, "processes that may run, one for each MCP session; one more ends the session that was used longest ago")
	flags.BoolVar(&o.worker, "worker", false, "serve in this process")
	if err := flags.MarkHidden("worker"); err != nil {
		panic(err) // the flag stands one line above
	}
	return cmd
}

// supervise runs this program once more, as a worker, and is the parent of what that leaves behind.
func (o *stdioOptions) supervise(ctx context.Context, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return fmt.Errorf("find the server: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	worker := slices.Concat([]string{self, "stdio", "--worker", "--listen=" + o.listen, fmt.Sprintf("--max-sessions=%d", o.sessions), "--"}, command)
	if err := stdio.Supervise(ctx, worker, []*os.File{os.Stdin, os.Stdout, os.Stderr}); err != nil {
		return fmt.Errorf("serve the server: %w", err)
	}
	return nil
}

// serve serves until the context ends, and then lets the requests under way end.
func (o *stdioOptions) serve(ctx context.Context, command []string, stderr io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return errors.Join(fmt.Errorf("--listen: %s is not on loopback: whoever reaches it walks around the gateway", o.listen), listener.Close())
	}
	if o.sessions < 1 {
		return errors.Join(outOfRange("max-sessions", o.sessions, 1, 10_000), listener.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	front := &stdio.Server{Command: command, Stderr: stderr, Clock: clock.RealClock{}, NewID: uuid.NewString, MaxSessions: o.sessions, Stopping: ctx}
	server := &http.Server{Handler: front, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, BaseContext: func(net.Listener) context.Context { return running }}
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error { return ignoreClosed(server.Serve(listener)) })
	group.Go(func() error {
		<-serving.Done()
		err := server.Shutdown(context.WithoutCancel(ctx)) // the pod's grace bounds it
		front.Close()
		return err
	})
	return group.Wait()
}

// newCopyCommand brings this program to where another container finds it. The gateway's image has no cp.
func newCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "copy FILE",
		Short:  "Copy this program",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return copySelf(args[0]) },
	}
}

// copySelf makes the copy whole or not at all.
func copySelf(target string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := os.CreateTemp(filepath.Dir(target), ".gateway-*")
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err == nil {
		err = os.Rename(to.Name(), target)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy this program: %w", err), os.Remove(to.Name()))
	}
	return nil
}
