// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package everything

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const manifest = `apiVersion: tidewaiter.dev/v1alpha1
kind: GovernedServer
metadata: {name: everything}
spec:
  endpoint: {url: URL}
  approvals: {hold: 0s}
  gateway: {serviceAccountName: gateway-everything}
`

// stage is a control plane, the real server, the manager and the gateway, each a program of its own.
type stage struct {
	packages, bin, namespace string
	plane                    *fixture.ControlPlane
	// approver is a person with a certificate.
	approver *rest.Config
	passed   *counter
	// direct is where the server is, gateway where agents are sent.
	direct, gateway, receipts string
	// token is the agent's, for the gateway.
	token string
}

// newStage starts everything and registers the server as the approver.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{packages: needPackages(t), receipts: filepath.Join(t.TempDir(), "receipts.jsonl")}
	// Discarded: what goes wrong is returned, and the programs have logs of their own.
	ctrl.SetLogger(logr.Discard())
	plane, err := fixture.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.plane, s.namespace, s.bin = plane, plane.Namespace(t), build(t)
	s.serve(t)

	allow := []string{"--allow-address", "127.0.0.0/8"}
	webhook := freeAddresses(t, 2)
	if err := plane.InstallWebhooks(t.Context(), "https://"+webhook[0], nil); err != nil {
		t.Fatal(err)
	}
	start(t, syscall.SIGTERM, nil, filepath.Join(s.bin, "manager"), append(allow, "--kubeconfig", plane.Kubeconfig(t, plane.Manager(t)),
		"--metrics-bind-address", "0", "--webhook-bind-address", webhook[0], "--health-probe-bind-address", webhook[1])...).
		awaitHTTP(t, "http://"+webhook[1]+"/readyz", http.StatusOK)
	s.cast(t)
	if out, exit := s.kubectl(t, strings.Replace(manifest, "URL", s.passed.url, 1), "apply", "-f", "-"); exit != 0 {
		t.Fatalf("register the server: %s", out)
	}

	addresses := freeAddresses(t, 2)
	s.gateway = "http://" + addresses[0] + "/mcp"
	account := plane.ServiceAccount(t, s.namespace, "gateway-everything") // the manager gives it its rights
	s.token = plane.ServiceAccount(t, s.namespace, "agent", s.gateway).BearerToken
	start(t, syscall.SIGTERM, nil, filepath.Join(s.bin, "gateway"), append(allow, "--kubeconfig", plane.Kubeconfig(t, account),
		"--server", s.namespace+"/everything", "--name", "gateway-test", "--receipts", s.receipts, "--voting-root-key", s.votingRoot(t),
		"--listen", addresses[0], "--ops-listen", addresses[1])...).
		awaitHTTP(t, "http://"+addresses[1]+"/readyz", http.StatusOK)
	return s
}

// votingRoot reads the public half of the root key, as whoever starts a gateway does.
func (s *stage) votingRoot(t *testing.T) string {
	t.Helper()
	published := &corev1.ConfigMap{}
	eventually(t, "the voting keys are published", func() error {
		return s.plane.Client(t, s.plane.Admin).Get(t.Context(), client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, published)
	})
	return published.Data[vote.RootEntry]
}

// serve starts the real server, and in front of it a counter of the calls that reach it.
func (s *stage) serve(t *testing.T) {
	t.Helper()
	address := freeAddresses(t, 1)[0]
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	s.direct = "http://" + address + "/mcp"
	// SIGINT is the one signal that it handles. Without a session a GET is a bad request to it.
	start(t, syscall.SIGINT, []string{"PORT=" + port}, filepath.Join(s.packages, "node_modules", ".bin", "mcp-server-everything"), "streamableHttp").
		awaitHTTP(t, s.direct, http.StatusBadRequest)
	s.passed = newCounter(t, s.direct)
}

// cast makes the approver, with what registering, raising and deciding needs and no other right.
func (s *stage) cast(t *testing.T) {
	t.Helper()
	s.approver = s.plane.User(t, "approver")
	s.plane.Grant(t, s.namespace, s.approver,
		fixture.Authority("everything", v1alpha1.VerbGovern, v1alpha1.VerbApprove, v1alpha1.VerbApproveIrreversible),
		fixture.Rule("governedservers", "get", "list", "watch", "create", "update", "patch"),
		fixture.Rule("toolpolicies", "get", "list", "watch", "create", "update", "patch"),
		fixture.Rule("approvalrequests", "get", "list", "watch"), fixture.Rule("approvalrequests/status", "patch", "update"))
}

// kubectl runs kubectl with the project's plugins, as the approver, and returns all that it prints.
func (s *stage) kubectl(t *testing.T, stdin string, args ...string) (out string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.plane.KubectlCommand(ctx, s.plane.Kubeconfig(t, s.approver), append(args, "-n", s.namespace)...)
	cmd.Env = append(cmd.Env, "PATH="+strings.Join([]string{s.bin, os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("PATH")}, string(os.PathListSeparator)))
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("run kubectl: %v", err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// counter passes everything on to a server as it is, and counts the calls of each tool that reach it.
type counter struct {
	url string

	mu    sync.Mutex
	calls map[string]int
}

func newCounter(t *testing.T, server string) *counter {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{calls: map[string]int{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.count(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	c.url = front.URL + "/mcp"
	return c
}

func (c *counter) count(body []byte) {
	var message struct {
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal(body, &message) != nil || message.Method != "tools/call" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[message.Params.Name]++
}

// want fails unless this many calls of a tool have reached the server through the gateway.
func (c *counter) want(t *testing.T, tool string, calls int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.calls[tool]; got != calls {
		t.Errorf("calls of %s that reached the server: got %d, want %d", tool, got, calls)
	}
}
