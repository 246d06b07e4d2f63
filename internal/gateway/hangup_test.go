// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
)

// waitsOn serves agents so that calls know their connections. It returns one, and what tells whether its other end knows that
// it was closed.
func (r *rig) waitsOn(secure bool) (conn net.Conn, closed func() bool) {
	r.t.Helper()
	var there atomic.Value
	front := httptest.NewUnstartedServer(r.gateway)
	front.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		ctx = OfConnection(ctx, conn)
		there.Store(ctx)
		return ctx
	}
	r.t.Cleanup(front.Close)
	if !secure {
		front.Start()
		conn = r.dial(front)
	} else {
		ca := authority.New(r.t)
		front.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(r.t, time.Now().Add(time.Hour), "127.0.0.1")}}
		front.StartTLS()
		conn = tls.Client(r.dial(front), &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
	}
	return conn, func() bool { return hasHungUp(there.Load().(context.Context)) }
}

// Some clients send an empty line behind a message, and others the next message before they have an answer. After that
// net/http does not look any more whether the client is there; the gateway does, before anything leaves for it.
func TestNothingRunsForAClientThatSentMoreAndHasGone(t *testing.T) {
	t.Parallel()
	body := toolCall("delete_account", `{"n":1}`)
	for name, more := range map[string]string{"an empty line": "\r\n", "the next message": "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"} {
		for way, secure := range map[string]bool{"plain": false, "by TLS": true} {
			for what, goes := range map[string]bool{"and goes": true, "and stays": false} {
				t.Run(name+", "+way+", "+what, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					r.hold(45e9)
					conn, closed := r.waitsOn(secure)
					fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					r.held()
					if _, err := io.WriteString(conn, more); err != nil || closed() {
						t.Fatalf("%v, or it is taken for closed", err)
					}
					if goes {
						conn.Close()
						r.until("the gateway can know", closed)
					}
					r.decide(v1alpha1.DecisionApproved)
					if !goes {
						r.until("it ran", func() bool { return len(r.upstream.requests()) == 1 })
						return
					}
					r.underWay(awaiting, 0)
					r.nothingSent()
				})
			}
		}
	}
}
