// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !illumos && !aix

package receipt

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock holds the file until it is closed or the process ends.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another gateway has it open: give every gateway a file of its own")
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
