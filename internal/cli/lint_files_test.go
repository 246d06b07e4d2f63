// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAPipeInADirectoryIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte("a: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, err := readFiles(nil, []string{folder}, isManifest); err != nil || len(files) != 1 {
		t.Fatalf("a regular file: %d files and %v", len(files), err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "b.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFiles(nil, []string{folder}, isManifest); err == nil || !strings.Contains(err.Error(), "b.yaml is no regular file") {
		t.Errorf("a pipe: %v", err)
	}
}
