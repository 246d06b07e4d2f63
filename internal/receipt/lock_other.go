// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix || solaris || illumos || aix

package receipt

import (
	"errors"
	"os"
)

// lock refuses: here a gateway cannot keep a second one from its file.
func lock(*os.File) error { return errors.New("files cannot be locked on this platform") }
