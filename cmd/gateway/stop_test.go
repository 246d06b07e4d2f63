// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// slowCrane is a real MCP server whose move_box waits for a word of the test.
type slowCrane struct {
	url           string
	began, finish chan struct{} // a value for each move
}

func newSlowCrane(t *testing.T) *slowCrane {
	t.Helper()
	c := &slowCrane{began: make(chan struct{}, 8), finish: make(chan struct{}, 8)}
	s := server.NewMCPServer("crane", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("move_box", mcp.WithDescription("Moves a box.")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c.began <- struct{}{}
		<-c.finish
		return mcp.NewToolResultText("done"), nil
	})
	running := httptest.NewServer(server.NewStreamableHTTPServer(s, server.WithStateLess(true)))
	t.Cleanup(running.Close)
	t.Cleanup(func() { c.finish <- struct{}{} }) // also where the test fails
	c.url = running.URL + "/mcp"
	return c
}

// process is the program itself, with the agents' certificate authority.
type process struct {
	*running
	cmd      *exec.Cmd
	said     bytes.Buffer
	ended    chan struct{} // closed when it has ended, with err
	err      error
	receipts string
	agent    *http.Client
	answers  chan string
}

// build makes the program.
func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// newProcess runs the program in front of the crane, with the Kubernetes API at the end of a line.
func newProcess(t *testing.T, program, namespace, protocol string, api *line) *process {
	t.Helper()
	folder := t.TempDir()
	p := &process{running: &running{t: t, agents: freeAddress(t), ops: freeAddress(t)}, ended: make(chan struct{}), answers: make(chan string, 8)}
	p.receipts = filepath.Join(folder, "receipts.jsonl")
	signer := authority.New(t)
	files := &mount{t: t, folder: t.TempDir()}
	files.put(signer.Pair(t, "127.0.0.1"))
	p.agent = agentOf(t, signer.Pool(), func(c *tls.Config) { c.NextProtos = []string{protocol} })
	p.agent.Transport.(*http.Transport).ForceAttemptHTTP2 = protocol == "h2"
	p.cmd = exec.Command(program, "--server="+namespace+"/crane", "--requester=crew", "--name=gw", "--listen="+p.agents, "--ops-listen="+p.ops,
		"--receipts="+p.receipts, "--voting-root-key="+vote.FormatRoot(votes.Root), "--operator-namespace="+fixture.SystemNamespace,
		"--allow-address=127.0.0.0/8", "--tls-cert-file="+files.file("tls.crt"), "--tls-private-key-file="+files.file("tls.key"), "--drain=1m",
		"--kubeconfig="+plane.Kubeconfig(t, api.through(gatewayAccount(t, namespace))))
	p.cmd.Env = append(os.Environ(), "KUBECONFIG=")
	p.cmd.Stderr = &p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.ended })
	p.until("it is ready", func() error { return p.ask("/readyz", http.StatusOK) })
	return p
}

// move calls move_box, and says what was answered.
func (p *process) move() (text string, err error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"move_box","arguments":{}}}`
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "https://"+p.agents+"/mcp", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := p.agent.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.Proto, " ", string(answer)), err
}

// moves has a person approve a move, and calls for it until the server runs it.
func (p *process) moves(namespace string, crane *slowCrane) {
	p.t.Helper()
	if text, err := p.move(); err != nil || !strings.Contains(text, "ApprovalPending") {
		p.t.Fatalf("%s, %v", text, err)
	}
	p.approve(namespace)
	p.until("the server runs the move", func() error {
		go func() {
			text, err := p.move()
			p.answers <- fmt.Sprint(text, " ", err)
		}()
		select {
		case <-crane.began:
			return nil
		case text := <-p.answers: // the watch is behind
			return errors.New(text)
		}
	})
}

// stops tells the program to stop, and waits until it takes no more calls.
func (p *process) stops() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	p.until("it takes no more calls", func() error {
		conn, err := net.Dial("tcp", p.agents)
		if err != nil {
			return nil //nolint:nilerr // that is what is waited for
		}
		return errors.Join(errors.New("it does"), conn.Close())
	})
	select {
	case <-p.ended:
		p.t.Errorf("it has ended with a call under way: %v: %s", p.err, p.said.String())
	default:
	}
}

// failed matches how often an outcome could not be recorded.
var failed = regexp.MustCompile(`(?m)^tidewaiter_gateway_failures_total\{[^}]*write="outcome"[^}]*\} (\d+)$`)

// triesAgain waits until it has tried several times more to record the outcome, with nothing else left to wait for.
func (p *process) triesAgain() {
	p.t.Helper()
	p.agent.CloseIdleConnections()
	tries := -1
	p.until("it tries to record the outcome", func() error {
		select {
		case <-p.ended:
			p.t.Fatalf("it has ended before the outcome was on record: %v: %s", p.err, p.said.String())
		default:
		}
		resp, err := http.Get("http://" + p.ops + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		found := failed.FindSubmatch(text)
		if found == nil {
			return errors.New("it did not try yet")
		}
		now, err := strconv.Atoi(string(found[1]))
		if tries < 0 {
			tries = now
		}
		if err == nil && now < tries+4 {
			return fmt.Errorf("it tried %d times", now)
		}
		return err
	})
}

// outcomes are those on record in the file of receipts.
func (p *process) outcomes() (all []receipt.Receipt) {
	p.t.Helper()
	text, err := os.ReadFile(p.receipts)
	if err != nil {
		p.t.Fatal(err)
	}
	for raw := range bytes.Lines(text) {
		var r receipt.Receipt
		if err := json.Unmarshal(raw, &r); err != nil {
			p.t.Fatal(err)
		}
		if r.Kind == receipt.KindOutcome {
			all = append(all, r)
		}
	}
	return all
}

// A gateway that is told to stop ends once the outcome of what left is on record: in its receipts, on the request, and with
// the agent. It waits for the server, and for the Kubernetes API.
func TestAGatewayThatIsToldToStopHasTheOutcomeOfACallOnRecordFirst(t *testing.T) {
	t.Parallel()
	program := build(t)
	for name, tc := range map[string]struct {
		protocol, proto string
		cut             bool // the API takes nothing when the server answers
	}{
		"it waits for the server":                {"http/1.1", "HTTP/1.1", false},
		"it waits for the API":                   {"http/1.1", "HTTP/1.1", true},
		"over HTTP/2, it waits for the server":   {"h2", "HTTP/2.0", false},
		"over HTTP/2, it waits for the API only": {"h2", "HTTP/2.0", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, crane, api := plane.Namespace(t), newSlowCrane(t), newLine(t)
			govern(t, namespace, crane.url)
			p := newProcess(t, program, namespace, tc.protocol, api)
			p.moves(namespace, crane)
			answered := func() {
				t.Helper()
				crane.finish <- struct{}{}
				if text := <-p.answers; !strings.HasPrefix(text, tc.proto+" ") || !strings.Contains(text, `"text":"done"`) || !strings.HasSuffix(text, " <nil>") {
					t.Errorf("the agent is answered %s", text)
				}
			}
			if tc.cut {
				api.cut()
				answered()
				p.stops()
				p.triesAgain()
				api.mend()
			} else {
				p.stops()
				answered()
			}
			select {
			case <-p.ended:
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
			if p.err != nil {
				t.Errorf("it ended with %v: %s", p.err, p.said.String())
			}
			var all v1alpha1.ApprovalRequestList
			if err := plane.Client(t, plane.Admin).List(t.Context(), &all, client.InNamespace(namespace)); err != nil || len(all.Items) != 1 {
				t.Fatalf("%d requests, %v", len(all.Items), err)
			}
			request := &all.Items[0]
			if phase := request.CurrentPhase(); phase != v1alpha1.PhaseSucceeded {
				t.Errorf("the request is %s", phase)
			}
			if on := p.outcomes(); len(on) != 1 || on[0].Outcome != string(v1alpha1.OutcomeSucceeded) || on[0].RequestUID != string(request.UID) {
				t.Errorf("on record are %+v", on)
			}
		})
	}
}
