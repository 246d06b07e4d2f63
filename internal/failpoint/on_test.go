// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("FAILPOINT_TEST") == "" {
		os.Exit(m.Run())
	}
	Hit(AfterClaim)
	Hit(BeforeClaim)
	Hit(AfterClaim)
	io.Copy(io.Discard, os.Stdin) // to its end, or to a kill that comes later
}

func TestAProgramDiesAtThePointThatItWasTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		order string
		dies  bool
	}{
		"at the first time":           {"after-claim=1", true},
		"at the second time":          {"after-claim=2", true},
		"a moment later":              {"before-claim=1+5ms", true},
		"not at the third, of two":    {"after-claim=3", false},
		"not at a point never passed": {"sending=1", false},
		"not without an order":        {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "FAILPOINT_TEST=1", Variable+"="+tc.order)
			if tc.dies { // what it reads never ends
				in, held, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				defer held.Close()
				cmd.Stdin = in
			}
			out, err := cmd.CombinedOutput()
			exit, _ := errors.AsType[*exec.ExitError](err)
			killed := exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
			if killed != tc.dies || tc.dies != strings.HasPrefix(string(out), "failpoint ") {
				t.Errorf("killed %v, want %v: %v %s", killed, tc.dies, err, out)
			}
		})
	}
}
