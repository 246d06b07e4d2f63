// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package netguard

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// target is a server on loopback that counts its visitors.
func target(t *testing.T) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var visits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(server.Close)
	return server, &visits
}

func get(t *testing.T, client *http.Client, address string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return resp, err
}

func client(t *testing.T, policy Policy) *http.Client {
	t.Helper()
	transport := policy.Transport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: NoRedirect}
}

func TestEveryNotationAndNameThatLeadsToLoopbackIsRefused(t *testing.T) {
	t.Parallel()
	server, visits := target(t)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "localhost", "127.1", "0x7f.1", "2130706433", "0"} {
		resp, err := get(t, client(t, Policy{}), "http://"+host+":"+port+"/")
		if err == nil {
			t.Errorf("%s was dialled and answered %d", host, resp.StatusCode)
		}
		isName := host == "127.1" || host == "0x7f.1" || host == "2130706433" || host == "0" // some resolvers know none of these
		if !errors.Is(err, ErrForbidden) && !isName {
			t.Errorf("%s: %v, want ErrForbidden", host, err)
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("the server had %d visits, want none", n)
	}

	allowed := Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if _, err := get(t, client(t, allowed), "http://"+host+":"+port+"/"); err != nil {
			t.Errorf("%s, though its address is listed: %v", host, err)
		}
	}
	if n := visits.Load(); n != 2 {
		t.Errorf("the server had %d visits, want 2", n)
	}
}

func TestARedirectIsAnAnswerAndIsNotFollowed(t *testing.T) {
	t.Parallel()
	server, visits := target(t)
	allowed := Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	resp, err := get(t, client(t, allowed), server.URL+"/away")
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect || visits.Load() != 1 {
		t.Errorf("got %v, %v after %d visits, want the redirect itself", resp, err, visits.Load())
	}

	following := client(t, allowed)
	following.CheckRedirect = nil
	if _, err := get(t, following, server.URL+"/away"); !errors.Is(err, ErrForbidden) {
		t.Errorf("a client that follows redirects got %v, want ErrForbidden", err)
	}
}

func TestNoProxyIsAskedToDialInstead(t *testing.T) {
	proxy, visits := target(t)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	if transport := (Policy{}).Transport(nil); transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
	if _, err := get(t, client(t, Policy{}), "http://169.254.169.254/"); !errors.Is(err, ErrForbidden) {
		t.Errorf("got %v, want ErrForbidden", err)
	}
	if visits.Load() != 0 {
		t.Error("the proxy was asked")
	}
}

func TestOnlyTCPIsDialled(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"unix", "udp", "ip"} {
		if _, err := (Policy{}).dialContext(t.Context(), network, "/tmp/socket"); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v, want ErrForbidden", network, err)
		}
	}
}

func TestTheErrorNamesNoAddress(t *testing.T) {
	t.Parallel()
	_, err := get(t, client(t, Policy{}), "http://10.11.12.13/")
	var forbidden *ForbiddenError
	if !errors.As(err, &forbidden) {
		t.Fatalf("got %v, want a ForbiddenError", err)
	}
	var wrapped *url.Error
	if !errors.As(err, &wrapped) || strings.Contains(forbidden.Error(), "10.11.12.13") {
		t.Errorf("got %q", forbidden.Error())
	}
}
