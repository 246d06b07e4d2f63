// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Command node runs a real Kubernetes node, on Linux only.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "node: unsupported: Linux: this is %s, and the node is made of namespaces and cgroups of Linux\n", runtime.GOOS)
	os.Exit(3)
}
