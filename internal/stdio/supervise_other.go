// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stdio

import (
	"context"
	"errors"
	"os"
)

// Supervise is what a container needs, and containers run on Linux.
func Supervise(context.Context, []string, []*os.File) error {
	return errors.New("this runs on Linux only")
}
