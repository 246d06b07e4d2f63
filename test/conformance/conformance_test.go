// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// maxReruns bounds how often scenarios of a revision that went worse are run again, on both sides. mcp-go's server
	// passes some but once in four or five times, directly as well.
	maxReruns = 24
	// reportFile is the variable that names a file for the tables, for who does not see the log of a test that passes.
	reportFile = "TIDEWAITER_CONFORMANCE"
)

// subject is a server that the suite is run against.
type subject struct {
	name, title string
	// least are how many checks of a revision the server itself must pass: nothing is proved with one that can nothing.
	least     map[string]int
	transport v1alpha1.Transport
	// start starts one more, and returns where it is.
	start func(t *testing.T) string
	// scripts are what a client of the TypeScript SDK goes through besides.
	scripts []string
}

// revisions are the last of each era: the one with sessions, and the one without.
var revisions = []string{"2025-11-25", "2026-07-28"}

// TestTheSuiteFindsNothingWorse runs the conformance suite directly and through the gateway.
func TestTheSuiteFindsNothingWorse(t *testing.T) {
	w := newWorld(t)
	mcpGo := w.buildMCPGo(t)
	for _, s := range []subject{
		{"mcp-go", "mcp-go's conformance example", map[string]int{"2025-11-25": 60, "2026-07-28": 100}, v1alpha1.TransportStreamableHTTP,
			func(t *testing.T) string { return startMCPGo(t, mcpGo) }, nil},
		{"fixture", "the fixture on the TypeScript SDK", map[string]int{"2025-11-25": 80, "2026-07-28": 150}, v1alpha1.TransportStreamableHTTP,
			w.startFixture, []string{"sessions", "single"}},
		{"everything", "the reference server of the protocol", nil, v1alpha1.TransportStreamableHTTP, w.everything, []string{"everything"}},
		{"everything-sse", "the reference server of the protocol over HTTP+SSE", nil, v1alpha1.TransportSSE, w.everythingSSE, []string{"stream"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			// What one client does reaches the sessions of others in mcp-go's and the reference server: each side has a
			// server of its own.
			direct := s.start(t)
			w.register(t, s.name, s.start(t), s.transport)
			governed := w.ready(t, s.name)
			w.allowAll(t, governed)
			through, _ := w.front(t, s.name, "--requester", "conformance")
			for _, revision := range revisions {
				if s.least != nil {
					t.Run(revision, func(t *testing.T) { w.compareSides(t, s, revision, direct, through) })
				}
			}
			for _, script := range s.scripts {
				t.Run(script, func(t *testing.T) { w.compareAnswers(t, s, script, governed, direct, through) })
			}
		})
	}
}

// compareSides runs the scenarios of a revision on both sides at once, and again where the gateway seems to have made
// something worse: mcp-go's server loses notifications of a call.
func (w *world) compareSides(t *testing.T, s subject, revision, direct, through string) {
	sides, reruns := w.bothSides(t, direct, through, revision, ""), map[string]int{}
	lines := compare(sides[0], sides[1])
	for left := maxReruns; left > 0 && len(worse(lines)) > 0; {
		for _, scenario := range worse(lines)[:min(left, len(worse(lines)))] {
			again := w.bothSides(t, direct, through, revision, scenario)
			sides[0].better(again[0])
			sides[1].better(again[1])
			reruns[scenario]++
			left--
		}
		lines = compare(sides[0], sides[1])
	}
	report(t, table(s.title+", revision "+revision, lines, reruns))
	for _, l := range lines {
		if l.isWorse() {
			t.Errorf("%s, %s: %s directly and %s through the gateway: %s", l.scenario, l.check, l.direct, l.through, l.message)
		}
	}
	if passed, _, _ := totals(lines); passed[statusPassed] < s.least[revision] {
		t.Errorf("the server itself passes %d checks, want at least %d", passed[statusPassed], s.least[revision])
	}
}

// bothSides runs the suite directly and through the gateway at once.
func (w *world) bothSides(t *testing.T, direct, through, revision, scenario string) [2]found {
	t.Helper()
	var sides [2]found
	var errs [2]error
	var both sync.WaitGroup
	for i, url := range []string{direct, through} {
		both.Go(func() { sides[i], errs[i] = w.suite(t.Context(), t, url, revision, scenario) })
	}
	both.Wait()
	for i, side := range []string{"directly", "through the gateway"} {
		if errs[i] != nil {
			t.Fatalf("%s: %v", side, errs[i])
		}
	}
	return sides
}

// buildMCPGo builds the conformance example of the mcp-go that go.mod names.
func (w *world) buildMCPGo(t *testing.T) string {
	t.Helper()
	program := filepath.Join(w.bin, "mcp-go-conformance")
	cmd := command(t.Context(), "go", "build", "-o", program, "github.com/mark3labs/mcp-go/examples/conformance")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

func startMCPGo(t *testing.T, program string) string {
	t.Helper()
	address := freeAddresses(t, 1)[0]
	start(t, syscall.SIGTERM, []string{"CONFORMANCE_ADDR=" + address}, program).awaitHTTP(t, "http://"+address+"/health", http.StatusOK)
	return "http://" + address + "/mcp"
}

// scriptFolder lays the fixture server and the client beside the packages that they import.
func (w *world) scriptFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := errors.Join(os.CopyFS(filepath.Join(folder, "server"), os.DirFS("server")), os.CopyFS(filepath.Join(folder, "client"), os.DirFS("client")),
		os.Symlink(filepath.Join(w.packages, "node_modules"), filepath.Join(folder, "node_modules"))); err != nil {
		t.Fatal(err)
	}
	return folder
}

func (w *world) startFixture(t *testing.T) string {
	t.Helper()
	url, port := freeEndpoint(t)
	start(t, syscall.SIGTERM, nil, w.node, filepath.Join(w.scripts, "server", "main.mjs"), port).awaitHTTP(t, url, http.StatusBadRequest)
	return url
}

// allowAll lets every tool of a server run at once, as one that only reads: what the suite calls touches nothing but its
// own server.
func (w *world) allowAll(t *testing.T, server v1alpha1.GovernedServer) {
	t.Helper()
	var tiers []string
	for _, tool := range server.Status.Tools {
		tiers = append(tiers, fmt.Sprintf(`{tool: %q, digest: %q, tier: Read, reason: It touches nothing but its own server}`, tool.Name, tool.Digest))
	}
	w.apply(t, fmt.Sprintf("{apiVersion: tidewaiter.dev/v1alpha1, kind: ToolPolicy, metadata: {name: %[1]s-all}, spec: {targets: [%[1]s], tiers: [%[2]s]}}\n",
		server.Name, strings.Join(tiers, ", ")))
}

// report prints a table, and adds it to the file that the environment names.
func report(t *testing.T, table string) {
	t.Helper()
	t.Log("\n" + table)
	name := os.Getenv(reportFile)
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(file, table)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Error(err)
	}
}
