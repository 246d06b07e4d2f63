// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
	"github.com/tidewaiter/tidewaiter/internal/identity"
)

// write puts a text into a file of the test's own.
func write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A client that was given no more than the address of a server gets from a refused call to a good one.
func TestAStandardClientLogsInAtARunningGateway(t *testing.T) {
	t.Parallel()
	people := login.Start(clock.RealClock{})
	t.Cleanup(people.Close)
	namespace := plane.Namespace(t)
	url, reads, moves := newCrane(t)
	govern(t, namespace, url)
	g := startGateway(t, options{
		servers: []string{namespace + "/crane"}, votingRoots: []string{rootKey}, operatorNamespace: fixture.SystemNamespace,
		oidc: oidcOptions{issuerURL: people.URL, caFile: write(t, "ca.pem", login.CA(people.Server)), checkTokenFile: noCheck},
		name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second, cluster: gatewayAccount(t, namespace), stdout: io.Discard,
	})
	g.until("it is ready", func() error { return g.ask("/readyz", http.StatusOK) })
	address := "http://" + g.agents + "/" + namespace + "/crane/mcp"

	agent := logIn(t, people, address)
	call := mcp.CallToolRequest{}
	call.Params.Name = "get_box"
	result, err := agent.CallTool(t.Context(), call)
	if err != nil || result.IsError || reads.Load() != 1 {
		t.Errorf("a read by who logged in: %+v, %v, and %d reads at the server", result, err, reads.Load())
	}
	call.Params.Name = "move_box"
	result, err = agent.CallTool(t.Context(), call)
	if err != nil || !result.IsError || moves.Load() != 0 {
		t.Errorf("a call with effects: %+v, %v, and %d moves at the server", result, err, moves.Load())
	}
	var all v1alpha1.ApprovalRequestList
	if err := plane.Client(t, plane.Admin).List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, request := range all.Items {
		if request.Namespace == namespace {
			asked = append(asked, request.Spec.Requester.Username)
		}
	}
	if want := people.URL + "#" + login.User; len(asked) != 1 || asked[0] != want {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	for name, tc := range map[string]struct {
		audience string
		want     int
	}{
		"control: for this server": {address, http.StatusOK},
		"for another":              {strings.Replace(address, "crane", "winch", 1), http.StatusUnauthorized},
	} {
		if resp, text := g.call("get_box", people.Signer.Sign(t, people.Claims(tc.audience))); resp.StatusCode != tc.want {
			t.Errorf("%s: %s %s", name, resp.Status, text)
		}
	}
	if reads.Load() != 2 {
		t.Errorf("the server ran %d reads, want the two with tokens for it", reads.Load())
	}
}

// logIn connects to an address as its user does in a browser, after a first try without a token.
func logIn(t *testing.T, people *login.Provider, address string) *mcpclient.Client {
	t.Helper()
	agent, err := mcpclient.NewOAuthStreamableHttpClient(address, mcpclient.OAuthConfig{
		ClientID: "desk", RedirectURI: "http://127.0.0.1/callback", PKCEEnabled: true, TokenStore: mcpclient.NewMemoryTokenStore(), HTTPClient: people.Client(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close() })
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = agent.Initialize(t.Context(), mcp.InitializeRequest{})
	handler := mcpclient.GetOAuthHandler(err)
	if handler == nil {
		t.Fatalf("a call without a token: %v", err)
	}
	verifier, err := mcpclient.GenerateCodeVerifier()
	if err != nil {
		t.Fatal(err)
	}
	page, err := handler.GetAuthorizationURL(t.Context(), "state", mcpclient.GenerateCodeChallenge(verifier))
	if err != nil {
		t.Fatal(err)
	}
	back := people.Visit(t, page)
	if err := handler.ProcessAuthorizationResponse(t.Context(), back.Get("code"), back.Get("state"), verifier); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Initialize(t.Context(), mcp.InitializeRequest{}); err != nil {
		t.Fatal(err)
	}
	return agent
}

// reviewer is an API server that takes every token, as that of one user.
func reviewer(t *testing.T, username string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		review := authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: username}}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestAnExpiredTokenToCheckUsernamesWithIsWaitedOutAndAWrongNameIsNot(t *testing.T) {
	t.Parallel()
	people := login.Start(clock.RealClock{})
	t.Cleanup(people.Close)
	ca := login.CA(people.Server)
	fresh := people.Claims("kubernetes")
	expired := people.Claims("kubernetes")
	expired["exp"] = time.Now().Add(-time.Hour).Unix()
	for name, tc := range map[string]struct {
		theirs, want string
		claims       map[string]any
		waits        bool
	}{
		"control: fresh":          {theirs: people.URL + "#alice", claims: fresh},
		"expired, then fresh":     {theirs: people.URL + "#alice", claims: expired, waits: true},
		"another name":            {theirs: "alice", claims: fresh, want: "give both the same username claim"},
		"expired, then different": {theirs: "alice", claims: expired, waits: true, want: "give both the same username claim"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer, err := identity.OIDC{URL: people.URL, CA: ca}.Issuer()
			if err != nil {
				t.Fatal(err)
			}
			file := write(t, "token", []byte(people.Signer.Sign(t, tc.claims)))
			var waited atomic.Bool
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { // the token is renewed once the log says why it waits
				waited.Store(true)
				if !strings.Contains(line, "put a fresh token into the file of --oidc-check-token-file") {
					t.Errorf("the log says %s", line)
				}
				if err := os.WriteFile(file, []byte(people.Signer.Sign(t, fresh)), 0o600); err != nil {
					t.Error(err)
				}
			}, funcr.Options{}))
			o := options{cluster: reviewer(t, tc.theirs), oidc: oidcOptions{issuerURL: people.URL, checkTokenFile: file}}
			err = checkOIDC(ctx, o, &identity.Authenticator{Clock: clock.RealClock{}, Issuers: []*identity.Issuer{issuer}})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if waited.Load() != tc.waits {
				t.Errorf("waited: %v, want %v", waited.Load(), tc.waits)
			}
		})
	}
}

func TestASilentAPIServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		err := untilAnswered(log.IntoContext(t.Context(), logr.Discard()), func(ctx context.Context) error {
			if asked++; asked == 1 {
				<-ctx.Done()
				return fmt.Errorf("%w: %w", identity.ErrUnavailable, ctx.Err())
			}
			return nil
		})
		if err != nil || asked != 2 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}
