// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package netguard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	// idlePerHost is well above net/http's two, which opens a new connection for most calls of a busy server.
	idlePerHost = 64
	// writeBuffer takes the headers and the body of an ordinary message, so that they leave in one write.
	writeBuffer = 32 << 10
	// pingAfter is how long nothing may come on a connection of HTTP/2 before the server is asked whether it is there, and
	// pingTimeout how long that may take: many messages share such a connection, and all would wait with it.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
	// maxResponseHeader bounds the headers of an answer, in bytes.
	maxResponseHeader = 64 << 10
)

// dialContext connects by TCP to an address that the policy allows. The check is made on the very address that is
// dialled, after names were resolved, so that no notation, no name and no answer that changes between check and use
// leads elsewhere.
func (p Policy) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, fmt.Errorf("dial by %s: %w", network, ErrForbidden)
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		if addr, err := netip.ParseAddr(host); err == nil {
			if err := p.Check(addr); err != nil {
				return nil, err
			}
		}
	}
	dialer := net.Dialer{Timeout: dialTimeout, ControlContext: p.control}
	return dialer.DialContext(ctx, network, address)
}

// control runs on every single address that is about to be connected to; what it cannot read it refuses.
func (p Policy) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	resolved, err := netip.ParseAddrPort(address)
	if err != nil {
		return &ForbiddenError{Class: Unspecified}
	}
	return p.Check(resolved.Addr())
}

// Transport returns a transport of its own pool that dials through the policy. It uses no proxy, since a proxy would
// dial in its place, and asks for no compression, since what passes must stay as it is. tlsConfig may be nil.
func (p Policy) Transport(tlsConfig *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:            p.dialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		WriteBufferSize:        writeBuffer,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// NoRedirect is for http.Client.CheckRedirect: the redirect itself is the answer.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

var (
	// ErrSwitches: the server took the connection for a protocol that nobody asked for.
	ErrSwitches = errors.New("the server switches to another protocol, which nobody asked for")
	// ErrStatus: the status of the answer is none that an answer can have.
	ErrStatus = errors.New("the server's answer has a status that HTTP does not know")
)

// maxStatus is the largest that net/http writes; where it is to write one that is none of an answer, it panics.
const maxStatus = 999

// Plain returns the answer to a request that asked for no other protocol. An answer that switches to one all the same is
// given up: net/http leaves its connection to whoever has the answer, and no context ends a read of it any more.
func Plain(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil:
		return resp, err
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return nil, errors.Join(ErrSwitches, resp.Body.Close())
	case resp.StatusCode < http.StatusOK || resp.StatusCode > maxStatus:
		return nil, errors.Join(ErrStatus, resp.Body.Close())
	}
	return resp, nil
}

// ParsePrefixes reads a list of CIDR blocks or single addresses, as the flag --allow-address takes them.
func ParsePrefixes(values []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, value := range values {
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			addr, addrErr := netip.ParseAddr(value)
			if addrErr != nil {
				return nil, fmt.Errorf("%q is neither a CIDR block nor an address", value)
			}
			prefix = netip.PrefixFrom(addr.Unmap().WithZone(""), addr.Unmap().BitLen())
		}
		if prefix != prefix.Masked() {
			return nil, fmt.Errorf("%q has bits set after its prefix; write %s", value, prefix.Masked())
		}
		if prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is an IPv4 block in IPv6 notation; write it as IPv4", value)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
