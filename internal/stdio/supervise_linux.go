// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supervise runs a program, and buries what the processes below it leave behind: in a container nobody else does. It
// returns when the program has ended. When the context ends the program is told to.
func Supervise(ctx context.Context, command []string, files []*os.File) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	worker, err := os.StartProcess(command[0], command, &os.ProcAttr{Files: files})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = worker.Signal(syscall.SIGTERM) })() // gone is as good
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait for processes: %w", err)
		case pid == worker.Pid && status.Exited() && status.ExitStatus() == 0:
			return nil
		case pid == worker.Pid && status.Exited():
			return fmt.Errorf("it ended with code %d", status.ExitStatus())
		case pid == worker.Pid:
			return fmt.Errorf("it ended by signal %d", status.Signal())
		}
	}
}
