// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package stdio

import "os/exec"

func ownGroup(*exec.Cmd) {}

func termGroup(cmd *exec.Cmd) { killGroup(cmd) }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // gone is as good
