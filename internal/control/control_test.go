// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

const manager = "system:serviceaccount:tidewaiter-system:tidewaiter-manager"

var (
	billing = types.NamespacedName{Namespace: "shop", Name: "billing"}
	guard   = netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
)

// rig is a real MCP server behind a control port. A token is "AUDIENCE USERNAME".
type rig struct {
	mcp   *server.MCPServer
	front string
	stop  context.CancelFunc
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{mcp: server.NewMCPServer("billing", "1.2.3", server.WithToolCapabilities(true), server.WithInstructions("Be kind."))}
	r.mcp.AddTool(mcp.NewTool("get_invoice", mcp.WithDescription("Shows an invoice.")), nil)
	r.mcp.AddTool(mcp.NewTool("void_invoice", mcp.WithDescription("Voids an invoice.")), nil)
	behind := httptest.NewServer(server.NewStreamableHTTPServer(r.mcp))
	t.Cleanup(behind.Close)
	t.Cleanup(behind.CloseClientConnections)
	var stopping context.Context
	stopping, r.stop = context.WithCancel(t.Context())
	port := &Port{
		Manager: manager, List: discovery.Tools, Watch: discovery.Watch, Stopping: stopping,
		Upstream: func(key types.NamespacedName) (endpoint.Upstream, bool) {
			return endpoint.Upstream{URL: behind.URL + "/mcp", Guard: guard}, key == billing
		},
		Authenticate: func(_ context.Context, r *http.Request, audiences []string) (identity.Caller, error) {
			audience, username, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), " ")
			switch {
			case audience == "unavailable":
				return identity.Caller{}, identity.ErrUnavailable
			case !ok || audience != audiences[0] || len(audiences) != 1:
				return identity.Caller{}, errors.New("not meant for this server")
			}
			return identity.Caller{Username: username}, nil
		},
	}
	front := httptest.NewServer(port)
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	t.Cleanup(r.stop)
	r.front = front.URL
	return r
}

func (r *rig) target(t *testing.T, path, token string) discovery.Target {
	t.Helper()
	transport := guard.Transport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	return discovery.Target{URL: r.front + path, Headers: http.Header{"Authorization": {"Bearer " + token}}, Transport: transport}
}

func TestTheOperatorSeesWhatItWouldSeeItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, err := discovery.Through(t.Context(), r.target(t, ToolsPath(billing), Audience(billing)+" "+manager))
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(server.NewStreamableHTTPServer(r.mcp))
	t.Cleanup(behind.Close)
	transport := guard.Transport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	want, err := discovery.Tools(t.Context(), discovery.Target{URL: behind.URL + "/mcp", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Server, got.Server); diff != "" || len(got.Tools) != 2 || got.Announces != want.Announces {
		t.Errorf("the server is %+v with %d tools, want %+v with 2", got.Server, len(got.Tools), want.Server)
	}
	for i := range want.Tools {
		if want.Tools[i].Digest() != got.Tools[i].Digest() {
			t.Errorf("%s has another digest through the gateway", want.Tools[i].Name)
		}
	}
}

func TestNobodyButTheOperatorIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := types.NamespacedName{Namespace: "shop", Name: "stock"}
	for name, tc := range map[string]struct {
		path, token string
		want        discovery.Kind // "" for an answer
		says        string
	}{
		"the operator":                            {ToolsPath(billing), Audience(billing) + " " + manager, "", ""},
		"an agent with a token for the server":    {ToolsPath(billing), Audience(billing) + " system:serviceaccount:shop:agent", discovery.Unauthorized, "refuses"},
		"the operator's token for another server": {ToolsPath(billing), Audience(other) + " " + manager, discovery.Unauthorized, "refuses"},
		"no token":                    {ToolsPath(billing), "", discovery.Unauthorized, "refuses"},
		"before it is known who asks": {ToolsPath(billing), "unavailable x", discovery.Unreachable, "not ready"},
		"a server that is not here":   {ToolsPath(other), Audience(other) + " " + manager, discovery.Unreachable, "not ready"},
		"another path":                {"/shop/billing/mcp", Audience(billing) + " " + manager, discovery.Unreachable, "404"},
	} {
		_, err := discovery.Through(t.Context(), r.target(t, tc.path, tc.token))
		fault, _ := errors.AsType[*discovery.Error](err)
		if tc.want == "" && err != nil || tc.want != "" && (fault == nil || fault.Kind != tc.want || !strings.Contains(fault.Cause, tc.says)) {
			t.Errorf("%s: got %v, want %s %q", name, err, tc.want, tc.says)
		}
		if err := discovery.WatchThrough(t.Context(), r.target(t, strings.Replace(tc.path, "/tools", "/changes", 1), tc.token), r.stop); tc.want != "" && err == nil {
			t.Errorf("%s follows the changes", name)
		}
	}
}

func TestAChangeIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	heard := make(chan struct{}, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- discovery.WatchThrough(t.Context(), r.target(t, ChangesPath(billing), Audience(billing)+" "+manager), func() { heard <- struct{}{} })
	}()
	within := func(what string) {
		t.Helper()
		select {
		case <-heard:
		case err := <-ended:
			t.Fatalf("%s: the stream ended: %v", what, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: nothing was heard", what)
		}
	}
	within("the stream stands")
	r.mcp.AddTool(mcp.NewTool("pay_invoice"), nil)
	within("a tool came")
	r.stop()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the stream goes on while the gateway stops")
	}
}
