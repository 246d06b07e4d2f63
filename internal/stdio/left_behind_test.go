// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A daemon of the server outlives it, and holds its standard output.
func TestASessionEndsWithItsProcessWhateverThatLeavesBehind(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]string{"a daemon": `setsid sh -c 'echo $$ >"$0"; exec sleep 600' "$0" & while [ ! -s "$0" ]; do :; done;`, "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon := filepath.Join(t.TempDir(), "pid")
			r := newRig(t, []string{"/bin/sh", "-c", leave + ` read l; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; read l; echo '{"jsonrpc":"2.0","id":2,"result":{}}'; read l`, daemon})
			t.Cleanup(func() {
				if pid, err := os.ReadFile(daemon); err == nil {
					_ = exec.Command("kill", strings.TrimSpace(string(pid))).Run()
				}
			})
			id := r.session(t)
			if status, _, body := r.send(t, id, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); status != http.StatusOK {
				t.Fatalf("while it runs: %d %s", status, body)
			}
			if status, _, body := r.send(t, id, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); status != http.StatusBadGateway {
				t.Errorf("the call in flight: %d %s, want 502", status, body)
			}
			until(t, "the session is gone", func() bool { return r.count() == 0 })
			if status, _, _ := r.send(t, id, `{"jsonrpc":"2.0","id":4,"method":"ping"}`); status != http.StatusNotFound {
				t.Errorf("after its end: %d, want 404", status)
			}
		})
	}
}
