// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
)

// connectionKey is where the context of a request has its connection.
type connectionKey struct{}

// OfConnection is the ConnContext of an http.Server. By it a call knows the connection that its client waits on: over
// HTTP/1.1 net/http looks no more whether a client has gone once more came from it than its message, be it an empty line.
func OfConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// hasHungUp tells whether the client of a request has closed its connection, as far as the system says.
func hasHungUp(ctx context.Context) bool {
	conn, _ := ctx.Value(connectionKey{}).(net.Conn)
	if overTLS, ok := conn.(*tls.Conn); ok {
		conn = overTLS.NetConn()
	}
	plain, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := plain.SyscallConn()
	return err == nil && hungUp(raw)
}
