// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package netguard

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

// A connection of HTTP/2 carries many messages: one to a server that says nothing any more must not hold them all.
func TestASilentConnectionOfHTTP2IsGivenUp(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{NextProtos: []string{"h2"}}
	// It takes connections of HTTP/2, and never says a word.
	silent := make(chan struct{})
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(*http.Server, *tls.Conn, http.Handler) { <-silent },
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(silent) })
	transport := Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}.Transport(&tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	if got := *transport.HTTP2; got.SendPingTimeout != 30*time.Second || got.PingTimeout != 15*time.Second {
		t.Errorf("a server is asked after %v and given up after another %v", got.SendPingTimeout, got.PingTimeout)
	}
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: transport.HTTP2.SendPingTimeout / 300, PingTimeout: transport.HTTP2.PingTimeout / 150}
	resp, err := get(t, &http.Client{Transport: transport, Timeout: time.Minute}, server.URL)
	if err == nil {
		t.Fatalf("a server that says nothing answered: %+v", resp)
	}
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		t.Errorf("nobody asked the server whether it is there: %v", err)
	}
}
