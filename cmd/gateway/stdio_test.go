// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

// shellServer is an MCP server in a few lines of shell: what it lists is enough to be discovered.
const shellServer = `while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}';;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"get_box","inputSchema":{"type":"object"}}]}}';;
  esac
done`

// The program as it runs in a container of a governed pod: copied there, in front of the container's command, found by the
// operator's own client, and ended by SIGTERM.
func TestTheProgramServesAServerOfStandardInputAndOutput(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	built, copied := filepath.Join(folder, "built"), filepath.Join(folder, "gateway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", built, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), built, "copy", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 2 {
		t.Errorf("the copy leaves %v, %v", left, err)
	}
	address := freeAddress(t)
	var said bytes.Buffer
	cmd := exec.Command(copied, "stdio", "--listen="+address, "--", "/bin/sh", "-c", shellServer)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	transport := netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}.Transport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	var result discovery.Result
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		result, err = discovery.Tools(ctx, discovery.Target{URL: "http://" + address + "/mcp", Transport: transport, Headers: http.Header{}})
		return err == nil, nil
	})
	if err != nil || len(result.Tools) != 1 || result.Server.Name != "shell" {
		t.Fatalf("%v: %+v", err, result)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v: %s", err, said.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestTheWrapperRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no command":            {[]string{"stdio"}, "the command of the server is needed"},
		"no such program":       {[]string{"stdio", "--", "/no/such/server"}, "find the server"},
		"an address for others": {[]string{"stdio", "--worker", "--listen=0.0.0.0:0", "--", "true"}, "not on loopback"},
		"no session":            {[]string{"stdio", "--worker", "--listen=127.0.0.1:0", "--max-sessions=0", "--", "true"}, "--max-sessions"},
		"a copy to nowhere":     {[]string{"copy", "/no/such/folder/gateway"}, "copy this program"},
	} {
		if err := run(t.Context(), tc.args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
