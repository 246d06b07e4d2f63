// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

var (
	plane *fixture.ControlPlane
	votes *booth.Booth
)

func TestMain(m *testing.M) { os.Exit(booth.Main(m, &plane, &votes, clock.RealClock{})) }

// line is the way to the Kubernetes API; a test cuts it and mends it.
type line struct {
	t       *testing.T
	address string
	to      string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{t: t, address: "127.0.0.1:0", to: strings.TrimSuffix(strings.TrimPrefix(plane.Admin.Host, "https://"), "/")}
	l.mend()
	l.address = l.listener.Addr().String()
	t.Cleanup(l.cut)
	return l
}

// mend lets connections through from now on.
func (l *line) mend() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener = listener
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.to)
			if err != nil {
				near.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, near, far)
			l.mu.Unlock()
			go func() { io.Copy(near, far) }()
			go func() { io.Copy(far, near) }()
		}
	}()
}

// cut ends all connections and refuses new ones.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener.Close()
	for _, conn := range l.conns {
		conn.Close()
	}
	l.conns = nil
}

// through returns a configuration that reaches the API by the line.
func (l *line) through(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host = "https://" + l.address
	return cfg
}

// crane is a real MCP server that counts what it does.
func newCrane(t *testing.T) (url string, reads, moves *atomic.Int64) {
	t.Helper()
	reads, moves = &atomic.Int64{}, &atomic.Int64{}
	s := server.NewMCPServer("crane", "1", server.WithToolCapabilities(true))
	for name, count := range map[string]*atomic.Int64{"get_box": reads, "move_box": moves} {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription("About a box.")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			count.Add(1)
			return mcp.NewToolResultText("done"), nil
		})
	}
	running := httptest.NewServer(server.NewStreamableHTTPServer(s, server.WithStateLess(true)))
	t.Cleanup(running.Close)
	t.Cleanup(running.CloseClientConnections)
	return running.URL + "/mcp", reads, moves
}

// govern puts the server under governance, as a person and the manager do.
func govern(t *testing.T, namespace, url string) {
	t.Helper()
	found, err := discovery.Tools(t.Context(), discovery.Target{URL: url, Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	s := fixture.GovernedServer(namespace, "crane")
	s.Spec.Endpoint.URL = url
	s.Spec.Approvals.Hold = &metav1.Duration{} // tell at once
	if err := plane.Client(t, plane.Admin).Create(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	before := s.DeepCopy()
	if s.Status.EndpointDigest, err = tool.EndpointDigest(s.Spec.Endpoint); err != nil {
		t.Fatal(err)
	}
	for _, d := range found.Tools {
		tier := v1alpha1.TierReversible
		if d.Name == "get_box" {
			tier = v1alpha1.TierRead
		}
		s.Status.Tools = append(s.Status.Tools, v1alpha1.ToolStatus{Name: d.Name, ClassifiedTier: tier, Tier: tier, Source: v1alpha1.TierSourceName, Reason: "r", Digest: d.Digest()})
	}
	if err := plane.Client(t, plane.Manager(t)).Status().Patch(t.Context(), &s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// running is a gateway of this program.
type running struct {
	t           *testing.T
	agents, ops string
	stop        func()
}

// startGateway runs the program until stop is called.
func startGateway(t *testing.T, o options) *running {
	t.Helper()
	g := &running{t: t, agents: freeAddress(t), ops: freeAddress(t)}
	o.listen, o.opsListen = g.agents, g.ops
	o.limits.addFlags(pflag.NewFlagSet("gateway", pflag.ContinueOnError)) // the limits that every gateway has
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, o) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("gateway: %v", err)
		}
	})
	t.Cleanup(g.stop)
	g.until("it is alive", func() error { return g.ask("/healthz", http.StatusOK) })
	return g
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (g *running) until(what string, check func() error) {
	g.t.Helper()
	deadline, tick := time.NewTimer(time.Minute), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			g.t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// ask expects a status at the address for operators.
func (g *running) ask(path string, want int) error {
	resp, err := http.Get("http://" + g.ops + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		return fmt.Errorf("%s answers %s, want %d: %s", path, resp.Status, want, text)
	}
	return nil
}

// call sends a tools/call and returns the status and the body of the answer.
func (g *running) call(name, token string) (*http.Response, string) {
	g.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "http://"+g.agents+"/mcp", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp, string(text)
}

func TestAGatewayThatStartsWithoutTheAPIRefusesUntilItIsThere(t *testing.T) {
	t.Parallel()
	for name, requester := range map[string]string{"callers with tokens": "", "one requester": "crew"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startsWithoutTheAPI(t, requester)
		})
	}
}

// audience is what the tokens of agents are for.
const audience = "crane-gateway"

func startsWithoutTheAPI(t *testing.T, requester string) {
	namespace := plane.Namespace(t)
	token := plane.ServiceAccount(t, namespace, "agent", audience).BearerToken
	url, reads, moves := newCrane(t)
	govern(t, namespace, url)
	account := gatewayAccount(t, namespace)
	api := newLine(t)
	o := options{
		servers: []string{namespace + "/crane"}, requester: requester, audiences: []string{audience}, name: "gw",
		operatorNamespace: fixture.SystemNamespace, votingRoots: []string{vote.FormatRoot(votes.Root)}, receipts: filepath.Join(t.TempDir(), "receipts.jsonl"),
		allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second, cluster: api.through(account), stdout: io.Discard,
	}

	first := startGateway(t, o)
	first.until("it is ready", func() error { return first.ask("/readyz", http.StatusOK) })
	first.until("a read passes", func() error {
		if resp, text := first.call("get_box", token); resp.StatusCode != http.StatusOK || !strings.Contains(text, "done") {
			return fmt.Errorf("%s %s", resp.Status, text)
		}
		return nil
	})
	first.stop()
	before := reads.Load()

	api.cut()
	second := startGateway(t, o)
	for range 3 {
		for _, name := range []string{"get_box", "move_box", "other"} {
			resp, text := second.call(name, token)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %s %s, want it refused with the advice to come again", name, resp.Status, text)
			}
		}
		if err := second.ask("/readyz", http.StatusServiceUnavailable); err != nil {
			t.Error(err)
		}
	}
	if err := second.ask("/healthz", http.StatusOK); err != nil {
		t.Errorf("a gateway that waits is not to be restarted: %v", err)
	}
	if reads.Load() != before || moves.Load() != 0 {
		t.Errorf("the server ran %d reads and %d moves meanwhile", reads.Load()-before, moves.Load())
	}
	api.mend()
	second.until("it is ready", func() error { return second.ask("/readyz", http.StatusOK) })
	second.until("a read passes", func() error {
		if resp, text := second.call("get_box", token); resp.StatusCode != http.StatusOK || !strings.Contains(text, "done") {
			return fmt.Errorf("%s %s", resp.Status, text)
		}
		return nil
	})
	if moves.Load() != 0 {
		t.Errorf("the server ran %d moves", moves.Load())
	}
}
