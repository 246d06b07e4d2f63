// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/server"
)

func fault(err error) *Error {
	got, _ := errors.AsType[*Error](err)
	return got
}

func TestTheSameFaultHasTheSameWords(t *testing.T) {
	t.Parallel()
	status := func(code int) func(*testing.T) Target {
		return func(t *testing.T) Target {
			return targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Error(w, "at "+time.Now().String(), code)
			})))
		}
	}
	body := func(contentType, text string) func(*testing.T) Target {
		return func(t *testing.T) Target {
			return targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", contentType)
				_, _ = io.WriteString(w, text)
			})))
		}
	}
	for name, tc := range map[string]struct {
		target func(*testing.T) Target
		kind   Kind
		cause  string
	}{
		"refused":            {closedPort, Unreachable, "the connection is refused"},
		"no such name":       {func(t *testing.T) Target { return targetOf(t, "http://nobody.invalid/mcp") }, Unreachable, "the server's name does not resolve"},
		"hangs":              {hangs, Unreachable, "the server does not answer in time"},
		"breaks off":         {breaksOff, Unreachable, "the server breaks the connection off"},
		"401":                {status(401), Unauthorized, "the server refuses the credentials with HTTP status 401"},
		"403":                {status(403), Unauthorized, "the server refuses the credentials with HTTP status 403"},
		"404":                {status(404), Unreachable, "the server answers with HTTP status 404: is the path of the endpoint right?"},
		"429":                {status(429), Unreachable, "the server answers with HTTP status 429"},
		"503":                {status(503), Unreachable, "the server answers with HTTP status 503"},
		"metadata":           {func(t *testing.T) Target { return targetOf(t, "http://169.254.169.254/mcp") }, AddressForbidden, "the server's address is refused: metadata service address may not be dialled unless --allow-address lists it"},
		"mapped metadata":    {func(t *testing.T) Target { return targetOf(t, "http://[::ffff:169.254.169.254]/mcp") }, AddressForbidden, "the server's address is refused: metadata service address may not be dialled unless --allow-address lists it"},
		"private":            {func(t *testing.T) Target { return targetOf(t, "http://10.1.2.3/mcp") }, AddressForbidden, "the server's address is refused: private address may not be dialled unless --allow-address lists it"},
		"redirect":           {redirects, Unreachable, "the server answers with HTTP status 307, a redirect, which is not followed"},
		"another protocol":   {says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\nContent-Type: application/json\r\n\r\n"), ProtocolError, "the server switches to another protocol, which nobody asked for"},
		"no status of HTTP":  {says("HTTP/1.1 042 Fine\r\nContent-Type: application/json\r\n\r\n"), ProtocolError, "the server's answer has a status that HTTP does not know"},
		"unknown authority":  {selfSigned, Unreachable, "TLS: the server's certificate is of an unknown authority"},
		"another name":       {otherName, Unreachable, "TLS: the server's certificate is for another name"},
		"no TLS":             {plain, Unreachable, "TLS: the server does not speak TLS"},
		"a page of HTML":     {body("text/html", "<html>"), ProtocolError, "the server's answer is no MCP message"},
		"no JSON":            {body("application/json", "hello"), ProtocolError, "the server's answer is no MCP message"},
		"null":               {body("application/json", "null"), ProtocolError, "the server's answer is no MCP message"},
		"an empty stream":    {body("text/event-stream", ""), ProtocolError, "the server's answer is no MCP message"},
		"an endless answer":  {body("application/json", "{\"x\":\""+strings.Repeat("y", maxAnswer)), ProtocolError, "the server's answer is too large"},
		"an endless stream":  {body("text/event-stream", "data: "+strings.Repeat("y", maxAnswer+1)), ProtocolError, "the server's answer is too large"},
		"an odd list answer": {func(t *testing.T) Target { return targetOf(t, serve(t, noMethod())) }, ProtocolError, "the server answers tools/list with JSON-RPC error -32601"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := tc.target(t)
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), limit(name))
				_, err := Tools(ctx, target)
				cancel()
				got := fault(err)
				if got == nil || got.Kind != tc.kind || got.Cause != tc.cause {
					t.Fatalf("got %#v (%v), want %s %q", got, err, tc.kind, tc.cause)
				}
			}
		})
	}
}

func limit(name string) time.Duration {
	if name == "hangs" {
		return 300 * time.Millisecond
	}
	return 30 * time.Second
}

func closedPort(t *testing.T) Target {
	running := httptest.NewServer(http.NotFoundHandler())
	running.Close()
	return targetOf(t, running.URL)
}

func hangs(t *testing.T) Target {
	done := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(done) })
	return targetOf(t, url)
}

func breaksOff(t *testing.T) Target {
	return targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})))
}

// says answers with these bytes and then says nothing.
func says(answer string) func(*testing.T) Target {
	return func(t *testing.T) Target {
		done := make(chan struct{})
		t.Cleanup(func() { close(done) })
		return targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, answer)
			<-done
		})))
	}
}

func redirects(t *testing.T) Target {
	return targetOf(t, serve(t, http.RedirectHandler("http://169.254.169.254/latest", http.StatusTemporaryRedirect)))
}

func tlsServer(t *testing.T) *httptest.Server {
	running := httptest.NewUnstartedServer(server.NewStreamableHTTPServer(withTools(billing(), "get_invoice")))
	running.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are the point
	running.StartTLS()
	t.Cleanup(running.Close)
	return running
}

func selfSigned(t *testing.T) Target { return targetOf(t, tlsServer(t).URL) }

func trusting(t *testing.T, running *httptest.Server, serverName string) Target {
	pool := x509.NewCertPool()
	pool.AddCert(running.Certificate())
	transport := guard().Transport(&tls.Config{RootCAs: pool, ServerName: serverName})
	t.Cleanup(transport.CloseIdleConnections)
	return Target{URL: running.URL, Transport: transport}
}

func otherName(t *testing.T) Target { return trusting(t, tlsServer(t), "other.test") }

func plain(t *testing.T) Target {
	return targetOf(t, strings.Replace(serve(t, http.NotFoundHandler()), "http:", "https:", 1))
}

func noMethod() http.Handler {
	s := &script{}
	s.before = func(w http.ResponseWriter, _ *http.Request, method string) bool {
		if method != "tools/list" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1001,"error":{"code":-32601,"message":"at noon"}}`)
		return true
	}
	return s
}

func TestATrustedAuthorityIsEnoughForTLS(t *testing.T) {
	t.Parallel()
	got, err := Tools(t.Context(), trusting(t, tlsServer(t), "example.com"))
	if err != nil || len(got.Tools) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWhatIsGivenUpHereIsNoFaultOfTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&net.Dialer{}).DialContext(ctx, "tcp", "localhost:1")
	if got := dialError(err); err == nil || got != nil {
		t.Errorf("given up: %v is %v", err, got)
	}
	if got := dialError(io.EOF); got == nil {
		t.Error("a connection that breaks off is no fault")
	}
}
