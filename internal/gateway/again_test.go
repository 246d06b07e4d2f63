// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// dials has the gateway reach its server at an address.
func (r *rig) dials(address string) {
	old := r.server.upstream.Load()
	up := old.own()
	up.URL = "http://" + address + "/mcp"
	r.server.Dial(&up, old.digest)
}

func (r *rig) sentAgain() float64 {
	return testutil.ToFloat64(r.gateway.Metrics.retries.WithLabelValues(billing.Namespace, billing.Name))
}

// A read that is sent again takes no connection that was kept: those break together, when a server was started anew say.
func TestAReadIsSentAgainOverAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	const kept = 2
	var together sync.WaitGroup
	together.Add(kept)
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				requests := bufio.NewReader(conn)
				take := func() bool {
					rq, err := http.ReadRequest(requests)
					if err != nil {
						return false
					}
					_, err = io.Copy(io.Discard, rq.Body)
					return err == nil
				}
				if !take() {
					return
				}
				if n < kept { // each call has a connection of its own
					together.Done()
					together.Wait()
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n"+`{"jsonrpc":"2.0","id":1,"result":{}}`)
				take() // and breaks
			}()
		}
	}()
	r.dials(listener.Addr().String())
	body := toolCall("get_invoice", `{}`)
	first, second := r.later(t.Context(), body), r.later(t.Context(), body)
	for _, got := range []got{<-first, <-second, r.post(body)} {
		if got.status != http.StatusOK || got.err != nil {
			t.Errorf("HTTP %d %s %v", got.status, got.body, got.err)
		}
	}
	if n := r.sentAgain(); n != 1 {
		t.Errorf("%v retries counted", n)
	}
}

func TestAReadThatNeverLeftOrThatNobodyWaitsForIsNotSentAgain(t *testing.T) {
	t.Parallel()
	body := toolCall("get_invoice", `{}`)
	t.Run("it never left", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
		r.dials(listener.Addr().String())
		if got := r.post(body); got.status != http.StatusBadGateway || r.sentAgain() != 0 {
			t.Errorf("HTTP %d %s, and %v retries", got.status, got.body, r.sentAgain())
		}
	})
	t.Run("its agent has gone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		reached := make(chan struct{}, 8)
		r.upstream.answers(func(_ http.ResponseWriter, rq *http.Request) {
			reached <- struct{}{}
			<-rq.Context().Done()
		})
		ctx, leave := context.WithCancel(t.Context())
		answer := r.later(ctx, body)
		<-reached
		leave()
		<-answer
		r.underWay(awaiting, 0)
		if n := r.sentAgain(); n != 0 {
			t.Errorf("%v retries counted", n)
		}
	})
}
