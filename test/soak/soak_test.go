// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAShortSoakIsAccountedFor is a few seconds of what make soak does for ten minutes.
func TestAShortSoakIsAccountedFor(t *testing.T) {
	t.Parallel()
	root, programs := filepath.Join("..", ".."), t.TempDir()
	// The test cache sees which files a test looks at, not what a compiler that it starts reads.
	for _, folder := range []string{"api", "cmd", "config", "controllers", "internal", "go.mod"} {
		if err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "failpoints", "-o", programs, "./cmd/manager", "./cmd/gateway", "./test/soak")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	left := t.TempDir()
	soak := exec.CommandContext(t.Context(), filepath.Join(programs, "soak"), "-duration", "15s", "-agents", "8", "-programs", programs, "-dir", left)
	out, err := soak.CombinedOutput()
	t.Logf("%s", out)
	if err == nil {
		return
	}
	t.Error(err)
	for _, name := range []string{"gw-a.log", "gw-b.log", "manager.log", "server.log"} {
		if text, err := os.ReadFile(filepath.Join(left, name)); err == nil {
			t.Logf("%s ends with\n%s", name, text[max(0, len(text)-4000):])
		}
	}
}
