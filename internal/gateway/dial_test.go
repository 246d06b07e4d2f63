// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

func TestConnectionsAreKeptWhileNothingOfAnUpstreamChanges(t *testing.T) {
	t.Parallel()
	upstream := func() *endpoint.Upstream {
		return &endpoint.Upstream{
			URL: "https://billing.example.com/mcp", Headers: http.Header{"X-Configured": {"yes"}},
			TLS: &tls.Config{ServerName: "billing", RootCAs: x509.NewCertPool()}, Guard: netguard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		}
	}
	for name, tc := range map[string]struct {
		edit func(*endpoint.Upstream)
		kept bool
	}{
		"nothing":                      {func(*endpoint.Upstream) {}, true},
		"the URL":                      {func(up *endpoint.Upstream) { up.URL += "/v2" }, false},
		"the transport":                {func(up *endpoint.Upstream) { up.SSE = true }, false},
		"a header":                     {func(up *endpoint.Upstream) { up.Headers.Set("X-Configured", "no") }, false},
		"the addresses that it may be": {func(up *endpoint.Upstream) { up.Guard.Allow = nil }, false},
		"the name that it must show":   {func(up *endpoint.Upstream) { up.TLS.ServerName = "ledger" }, false},
		"the authority":                {func(up *endpoint.Upstream) { up.TLS.RootCAs = authority.New(t).Pool() }, false},
		"that of the system":           {func(up *endpoint.Upstream) { up.TLS = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Server{Clock: clock.RealClock{}}
			s.Dial(upstream(), "d")
			before := s.upstream.Load()
			now := upstream()
			tc.edit(now)
			s.Dial(now, "d")
			if kept := s.upstream.Load() == before; kept != tc.kept {
				t.Errorf("kept: %v, want %v", kept, tc.kept)
			}
			if tc.kept {
				s.Dial(now, "e")
				if s.upstream.Load() == before {
					t.Error("kept for another endpoint")
				}
			}
		})
	}
}

func TestIdleConnectionsToAnEarlierUpstreamAreGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var closed atomic.Bool
	server := httptest.NewUnstartedServer(answerJSON(`{"content":[]}`))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed.Store(true)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	up := *r.server.upstream.Load()
	later := up.Upstream
	up.URL = server.URL
	r.server.Dial(&up.Upstream, up.digest)
	if got := r.post(toolCall("get_invoice", `{}`)); got.status != http.StatusOK || closed.Load() {
		t.Fatalf("HTTP %d, and the connection is closed: %v", got.status, closed.Load())
	}
	r.server.Dial(&later, up.digest)
	r.until("the connection is closed", closed.Load)
}
