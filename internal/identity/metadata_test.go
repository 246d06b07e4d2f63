// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

var (
	billingServer = types.NamespacedName{Namespace: "shop", Name: "billing"}
	stockServer   = types.NamespacedName{Namespace: "shop", Name: "stock"}
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	one := &Metadata{
		PublicURL: "https://tidewaiter.example.com", Servers: []types.NamespacedName{billingServer},
		AuthorizationServers: []string{"https://login.example.com"},
	}
	two := &Metadata{PublicURL: one.PublicURL, Servers: []types.NamespacedName{billingServer, stockServer}, AuthorizationServers: one.AuthorizationServers}
	none := &Metadata{PublicURL: one.PublicURL, Servers: one.Servers}
	const billingDocument = `{"resource":"https://tidewaiter.example.com/shop/billing/mcp","resource_name":"shop/billing",` +
		`"authorization_servers":["https://login.example.com"],"bearer_methods_supported":["header"]}` + "\n"
	for name, tc := range map[string]struct {
		of     *Metadata
		method string
		path   string
		status int
		want   string
	}{
		"a server":                              {of: two, path: "/shop/billing/mcp", status: 200, want: billingDocument},
		"another":                               {of: two, path: "/shop/stock/mcp", status: 200, want: strings.ReplaceAll(billingDocument, "billing", "stock")},
		"the only one":                          {of: one, path: "", status: 200, want: billingDocument},
		"the only one by its short address":     {of: one, path: "/mcp", status: 200, want: strings.Replace(billingDocument, "/shop/billing/mcp", "/mcp", 1)},
		"a short address of two":                {of: two, path: "/mcp", status: 404},
		"none of two":                           {of: two, path: "", status: 404},
		"one that is not there":                 {of: two, path: "/shop/orders/mcp", status: 404},
		"below one":                             {of: two, path: "/shop/billing/mcp/", status: 404},
		"nobody to log in to":                   {of: none, path: "/shop/billing/mcp", status: 404},
		"what a browser asks first":             {of: two, method: http.MethodOptions, path: "/shop/billing/mcp", status: 204, want: ""},
		"a method that would change what it is": {of: two, method: http.MethodPost, path: "/shop/billing/mcp", status: 405},
	} {
		method := tc.method
		if method == "" {
			method = http.MethodGet
		}
		w := httptest.NewRecorder()
		tc.of.ServeHTTP(w, httptest.NewRequest(method, MetadataPath+tc.path, nil))
		if w.Code != tc.status || w.Code < 300 && w.Body.String() != tc.want || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: got %d %s %v", name, w.Code, w.Body, w.Header())
		}
	}
	if got := none.URL("/shop/billing/mcp"); got != "" {
		t.Errorf("where nobody logs in, the challenge names %s", got)
	}
	if got, want := two.URL("/shop/billing/mcp"), "https://tidewaiter.example.com/.well-known/oauth-protected-resource/shop/billing/mcp"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParsePublicURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://tidewaiter.example.com":      "https://tidewaiter.example.com",
		"https://Tidewaiter.Example.com:443/": "https://tidewaiter.example.com",
		"http://gateway.shop.svc:8080":        "http://gateway.shop.svc:8080",
		"http://[::1]:80":                     "http://[::1]",
		"tidewaiter.example.com":              "",
		"ftp://tidewaiter.example.com":        "",
		"https://tidewaiter.example.com/mcp":  "",
		"https://a@tidewaiter.example.com":    "",
		"https://tidewaiter.example.com?":     "",
		"https://tidewaiter.example.com#a":    "",
		"https://":                            "",
		"":                                    "",
	} {
		if got, err := ParsePublicURL(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", address, got, err, want)
		}
	}
}

func TestChallenge(t *testing.T) {
	t.Parallel()
	const at = "https://tidewaiter.example.com/.well-known/oauth-protected-resource/shop/billing/mcp"
	for name, tc := range map[string]struct {
		url    string
		err    error
		status int
		want   http.Header
	}{
		"no token": {url: at, err: ErrNoToken, status: 401, want: http.Header{"Www-Authenticate": {`Bearer realm="tidewaiter", resource_metadata="` + at + `"`}}},
		"a token that is refused": {url: at, err: invalid("it has expired"), status: 401, want: http.Header{"Www-Authenticate": {
			`Bearer realm="tidewaiter", resource_metadata="` + at + `", error="invalid_token", error_description="the token is not accepted: it has expired"`}}},
		"nobody to log in to":    {err: ErrNoToken, status: 401, want: http.Header{"Www-Authenticate": {`Bearer realm="tidewaiter"`}}},
		"a reason out of bounds": {err: invalid("a \"b\" \\ \r\nX: y é"), status: 401, want: http.Header{"Www-Authenticate": {`Bearer realm="tidewaiter", error="invalid_token", error_description="the token is not accepted: a b  X: y "`}}},
		"no answer":              {url: at, err: fmt.Errorf("%w: get https://10.0.0.1: refused", ErrUnavailable), status: 503, want: http.Header{"Retry-After": {"5"}}},
		"an error of its own":    {url: at, err: errors.New("secret"), status: 503, want: http.Header{"Retry-After": {"5"}}},
	} {
		w := httptest.NewRecorder()
		Challenge(w, tc.url, tc.err)
		got := w.Header()
		got.Del("Content-Type")
		got.Del("X-Content-Type-Options")
		if diff := cmp.Diff(tc.want, got); diff != "" || w.Code != tc.status {
			t.Errorf("%s: %d, want %d (-want +got):\n%s", name, w.Code, tc.status, diff)
		}
		if body := w.Body.String(); strings.Contains(body, "10.0.0.1") || strings.Contains(body, "secret") {
			t.Errorf("%s: the answer says too much: %s", name, body)
		}
	}
}

// protected is an MCP server behind the authenticator, as a gateway is, and the names of those who called its tool.
func protected(t *testing.T, p *login.Provider) (address string, calls <-chan string) {
	t.Helper()
	called := make(chan string, 1)
	type callerKey struct{}
	tools := server.NewMCPServer("billing", "1")
	tools.AddTool(mcp.NewTool("get_invoice"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		called <- ctx.Value(callerKey{}).(string)
		return mcp.NewToolResultText("17"), nil
	})
	inner := server.NewStreamableHTTPServer(tools)
	a := &Authenticator{Clock: clockAt(time.Now()), Issuers: []*Issuer{must(OIDC{URL: p.URL, CA: login.CA(p.Server)}.Issuer())}}
	metadata := &Metadata{Servers: []types.NamespacedName{billingServer, stockServer}, AuthorizationServers: []string{p.URL}}
	mux := http.NewServeMux()
	mux.Handle(MetadataPath+"/", metadata)
	mux.HandleFunc("/shop/billing/mcp", func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.Authenticate(r.Context(), r, []string{metadata.Resource(billingServer)})
		if err != nil {
			Challenge(w, metadata.URL(resourcePath(billingServer)), err)
			return
		}
		inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller.Username)))
	})
	gateway := httptest.NewServer(mux)
	t.Cleanup(gateway.Close)
	metadata.PublicURL = must(ParsePublicURL(gateway.URL))
	return metadata.Resource(billingServer), called
}

// TestAStandardClientLogsIn goes from a refused call to a good one, with no more than the address of the server.
func TestAStandardClientLogsIn(t *testing.T) {
	t.Parallel()
	p := login.Start(clock.RealClock{})
	t.Cleanup(p.Close)
	for name, first := range map[string]*client.Token{
		"without a token":           nil,
		"with a token for another":  {AccessToken: p.Signer.Sign(t, person(p.URL, map[string]any{"aud": "x"})), TokenType: "Bearer"},
		"with a token that is over": {AccessToken: p.Signer.Sign(t, person(p.URL, map[string]any{"exp": 1})), TokenType: "Bearer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, calls := protected(t, p)
			store := client.NewMemoryTokenStore()
			if first != nil {
				if err := store.SaveToken(t.Context(), first); err != nil {
					t.Fatal(err)
				}
			}
			agent, err := client.NewOAuthStreamableHttpClient(address, client.OAuthConfig{
				ClientID: "desk", RedirectURI: "http://127.0.0.1/callback", PKCEEnabled: true, TokenStore: store, HTTPClient: p.Client(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer agent.Close()
			if err := agent.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err = agent.Initialize(t.Context(), mcp.InitializeRequest{})
			handler := client.GetOAuthHandler(err)
			if handler == nil {
				t.Fatalf("a call without a good token: %v", err)
			}
			if want := first != nil; want != (client.GetResourceMetadataURL(err) != "") {
				t.Errorf("the challenge names %q", client.GetResourceMetadataURL(err))
			}
			verifier, state := must(client.GenerateCodeVerifier()), must(client.GenerateState())
			page, err := handler.GetAuthorizationURL(t.Context(), state, client.GenerateCodeChallenge(verifier))
			if err != nil {
				t.Fatal(err)
			}
			back := p.Visit(t, page)
			if err := handler.ProcessAuthorizationResponse(t.Context(), back.Get("code"), back.Get("state"), verifier); err != nil {
				t.Fatal(err)
			}
			if _, err = agent.Initialize(t.Context(), mcp.InitializeRequest{}); err != nil {
				t.Fatal(err)
			}
			call := mcp.CallToolRequest{}
			call.Params.Name = "get_invoice"
			if _, err := agent.CallTool(t.Context(), call); err != nil {
				t.Fatal(err)
			}
			if got, want := <-calls, p.URL+"#alice"; got != want {
				t.Errorf("the server was called by %q, want %q", got, want)
			}
		})
	}
}
