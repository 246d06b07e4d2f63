// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

import "os"

// Hit does nothing in a program that was not built for it.
func Hit(Point) {}

// Sync is File.Sync.
func Sync(f *os.File) error { return f.Sync() }
