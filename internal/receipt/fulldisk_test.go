// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package receipt

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const fullDiskChild = "TIDEWAITER_TEST_FULL_DISK"

// A limit on file size makes real writes stop in the middle of a line, as a full disk does. It holds for the whole
// process, so the test runs in one of its own.
func TestFullDisk(t *testing.T) {
	if os.Getenv(fullDiskChild) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		child.Env = append(os.Environ(), fullDiskChild+"=1")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := func(bytes uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: 1 << 40}); err != nil {
			t.Fatal(err)
		}
	}
	o := options(t)
	w := open(t, o)
	appendAll(t, w, Sync, decision("before"))
	whole := readFile(t, o.Path)
	limit(uint64(len(whole) + 100))
	if _, err := w.Append(decision("lost"), Sync); !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("append: %v, want EFBIG", err)
	}
	if got := readFile(t, o.Path); len(got) != len(whole)+100 {
		t.Fatalf("%d bytes, want half a line: the test shows nothing", len(got))
	}
	limit(1 << 30)
	w.flush() // what the timer does
	appendAll(t, w, Sync, decision("after"))
	want := []string{"Opened", "Decision before", "Recovered", "Decision after"}
	if diff := cmp.Diff(want, kinds(read(t, o.Path))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
