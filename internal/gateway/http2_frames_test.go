// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
)

// frames is a server that speaks HTTP/2 frame by frame, and does as told with every whole request.
type frames struct {
	listener net.Listener
	requests atomic.Int64
	// then is what it does with one; false ends the connection.
	then func(f *http2.Framer, stream uint32) bool
}

func newFrames(t *testing.T, ca *authority.Authority, then func(*http2.Framer, uint32) bool) *frames {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &frames{listener: listener, then: then}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *frames) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if !frame.StreamEnded() {
				continue
			}
			s.requests.Add(1)
			if !s.then(f, frame.StreamID) {
				return
			}
		}
	}
}

// respond answers a request of HTTP/2.
func respond(f *http2.Framer, stream uint32) bool {
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	e.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/json"})
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(block.String()), EndHeaders: true})
	f.WriteData(stream, true, []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`))
	return true
}

// What net/http would send again, because the server says that it did not touch it, is not sent again.
func TestOverHTTP2ACallWithEffectsIsSentOnceWhateverTheServerSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then func(*http2.Framer, uint32) bool
		want v1alpha1.Phase
	}{
		"an answer":               {respond, v1alpha1.PhaseSucceeded},
		"the stream is refused":   {func(f *http2.Framer, s uint32) bool { return f.WriteRSTStream(s, http2.ErrCodeRefusedStream) == nil }, v1alpha1.PhaseAmbiguous},
		"the stream is cancelled": {func(f *http2.Framer, s uint32) bool { return f.WriteRSTStream(s, http2.ErrCodeCancel) == nil }, v1alpha1.PhaseAmbiguous},
		"a protocol error":        {func(f *http2.Framer, s uint32) bool { return f.WriteRSTStream(s, http2.ErrCodeProtocol) == nil }, v1alpha1.PhaseAmbiguous},
		"go away, nothing was seen": {func(f *http2.Framer, _ uint32) bool {
			f.WriteGoAway(0, http2.ErrCodeNo, nil)
			return false
		}, v1alpha1.PhaseAmbiguous},
		"go away, and it stays": {func(f *http2.Framer, _ uint32) bool {
			return f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
		}, v1alpha1.PhaseAmbiguous},
		"go away for calm": {func(f *http2.Framer, _ uint32) bool {
			f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil)
			return false
		}, v1alpha1.PhaseAmbiguous},
		"the connection ends": {func(*http2.Framer, uint32) bool { return false }, v1alpha1.PhaseAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("delete_account")
			ca := authority.New(t)
			server := newFrames(t, ca, tc.then)
			r.overTLS(ca, "https://"+server.listener.Addr().String())
			for range 2 { // the second time the agent sends it again
				got := r.post(body)
				if succeeded := got.code() == ""; got.status != http.StatusOK || succeeded != (tc.want == v1alpha1.PhaseSucceeded) {
					t.Errorf("HTTP %d %v: %s", got.status, got.err, got.body)
				}
				if tc.want == v1alpha1.PhaseSucceeded {
					break // sent again, it would be asked for anew
				}
			}
			if n := server.requests.Load(); n != 1 {
				t.Errorf("the server got the call %d times", n)
			}
			if phase := r.request().CurrentPhase(); phase != tc.want {
				t.Errorf("the request is %s, want %s", phase, tc.want)
			}
		})
	}
}
