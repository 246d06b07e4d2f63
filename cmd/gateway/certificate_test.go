// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
)

// mount is a folder as the kubelet keeps one for a Secret: the names lead to a folder that is exchanged as a whole.
type mount struct {
	t      *testing.T
	folder string
	n      int
}

func (m *mount) file(name string) string { return filepath.Join(m.folder, name) }

func (m *mount) put(certificate, key []byte) {
	m.t.Helper()
	m.n++
	version := fmt.Sprint("..", m.n)
	if err := os.Mkdir(m.file(version), 0o700); err != nil {
		m.t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(m.file(filepath.Join(version, name)), data, 0o600); err != nil {
			m.t.Fatal(err)
		}
		if m.n == 1 {
			if err := os.Symlink(filepath.Join("..data", name), m.file(name)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Symlink(version, m.file("..new")), os.Rename(m.file("..new"), m.file("..data"))); err != nil {
		m.t.Fatal(err)
	}
	if m.n > 1 {
		if err := os.RemoveAll(m.file(fmt.Sprint("..", m.n-1))); err != nil {
			m.t.Fatal(err)
		}
	}
}

// agentOf makes a client with connections of its own.
func agentOf(t *testing.T, pool *x509.CertPool, edit func(*tls.Config)) *http.Client {
	config := &tls.Config{RootCAs: pool}
	if edit != nil {
		edit(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// read calls a tool that reads, and says by which protocol and certificate.
func read(ctx context.Context, agent *http.Client, address string) (protocol string, shown *x509.Certificate, err error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_box","arguments":{}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/mcp", strings.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := agent.Do(req)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("done")) {
		return "", nil, fmt.Errorf("HTTP %d %s, %w", resp.StatusCode, text, err)
	}
	return resp.Proto, resp.TLS.PeerCertificates[0], nil
}

func TestTheCertificateIsRenewedUnderCallsAndABrokenOneChangesNothing(t *testing.T) {
	t.Parallel()
	first, second := authority.New(t), authority.New(t)
	files := &mount{t: t, folder: t.TempDir()}
	files.put(first.Pair(t, "127.0.0.1"))
	namespace := plane.Namespace(t)
	url, _, _ := newCrane(t)
	govern(t, namespace, url)
	g := startGateway(t, options{
		servers: []string{namespace + "/crane"}, requester: "crew", votingRoots: []string{rootKey}, operatorNamespace: fixture.SystemNamespace,
		tls:  tlsOptions{certFile: files.file("tls.crt"), keyFile: files.file("tls.key")},
		name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second,
		cluster: gatewayAccount(t, namespace), stdout: io.Discard,
	})
	address := "https://" + g.agents
	both := first.Pool()
	both.AppendCertsFromPEM(second.PEM)
	shows := func(want *authority.Authority) func() error {
		return func() error {
			_, _, err := read(t.Context(), agentOf(t, want.Pool(), nil), address)
			return err
		}
	}
	g.until("it serves by the first authority", shows(first))
	kept := agentOf(t, both, nil)
	protocol, before, err := read(t.Context(), kept, address)
	if err != nil || protocol != "HTTP/2.0" {
		t.Fatalf("by %s: %v", protocol, err)
	}

	// Agents that make a connection for each call never meet a gateway without a certificate.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calls, failed atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				fresh := agentOf(t, both, nil)
				if _, _, err := read(t.Context(), fresh, address); err != nil {
					failed.Add(1)
					t.Errorf("a call meanwhile: %v", err)
				}
				calls.Add(1)
				fresh.CloseIdleConnections()
			}
		})
	}
	files.put(second.Pair(t, "127.0.0.1"))
	g.until("it serves by the second authority", shows(second))
	if _, now, err := read(t.Context(), kept, address); err != nil || !now.Equal(before) {
		t.Errorf("a connection that was there: %v, and it is shown another certificate: %v", err, now != nil && !now.Equal(before))
	}

	certificate, _ := second.Pair(t, "127.0.0.1")
	_, foreign := second.Pair(t, "127.0.0.1")
	errorsBefore := g.metric("certwatcher_read_certificate_errors_total")
	files.put(certificate, foreign)
	g.until("it tells of a key that does not belong", func() error {
		if now := g.metric("certwatcher_read_certificate_errors_total"); now <= errorsBefore {
			return fmt.Errorf("%v errors", now)
		}
		return nil
	})
	if err := shows(second)(); err != nil {
		t.Errorf("after a broken pair: %v", err)
	}
	files.put(first.Pair(t, "127.0.0.1"))
	g.until("it serves by the first authority again", shows(first))
	stop()
	all.Wait()
	if calls.Load() == 0 || failed.Load() != 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	if left := time.Until(time.Unix(int64(g.metric("tidewaiter_gateway_certificate_expiry_timestamp_seconds")), 0)); left < 50*time.Minute || left > time.Hour {
		t.Errorf("the metric says that the certificate expires in %v, want an hour", left)
	}

	for name, tc := range map[string]struct {
		config func(*tls.Config)
		want   bool
	}{
		"TLS 1.3":           {func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }, true},
		"TLS 1.2":           {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, true},
		"TLS 1.1":           {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }, false},
		"for another name":  {func(c *tls.Config) { c.ServerName = "gateway.example.com" }, false},
		"another authority": {func(c *tls.Config) { c.RootCAs = second.Pool() }, false},
	} {
		config := &tls.Config{RootCAs: first.Pool()}
		tc.config(config)
		conn, err := tls.Dial("tcp", g.agents, config) // HTTP/2 has demands of its own
		if (err == nil) != tc.want {
			t.Errorf("%s: %v, want it served: %v", name, err, tc.want)
		}
		if err == nil {
			conn.Close()
		}
	}
	if _, _, err := read(t.Context(), http.DefaultClient, "http://"+g.agents); err == nil {
		t.Error("a call in the clear was served")
	}
}

// metric returns the value of a metric without labels.
func (g *running) metric(name string) float64 {
	g.t.Helper()
	resp, err := http.Get("http://" + g.ops + "/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		g.t.Fatalf("no metric %s", name)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		g.t.Fatal(err)
	}
	return value
}

// Who resumes a session is shown no certificate, and would go on with the one of before.
func TestASessionOfBeforeIsNotResumed(t *testing.T) {
	t.Parallel()
	first, second := authority.New(t), authority.New(t)
	files := &mount{t: t, folder: t.TempDir()}
	files.put(first.Pair(t, "127.0.0.1"))
	shown, err := tlsOptions{certFile: files.file("tls.crt"), keyFile: files.file("tls.key")}.load()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := shown.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }), ReadHeaderTimeout: time.Minute}
	watching.Go(func() { server.Serve(shown.listen(listener)) })
	t.Cleanup(func() { server.Close(); cancel(); watching.Wait() })
	both := first.Pool()
	both.AppendCertsFromPEM(second.PEM)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		files.put(first.Pair(t, "127.0.0.1"))
		remembered := tls.NewLRUClientSessionCache(0)
		by := func(cache tls.ClientSessionCache) *authority.Authority {
			agent := agentOf(t, both, func(c *tls.Config) { c.ClientSessionCache, c.MaxVersion = cache, version })
			defer agent.CloseIdleConnections()
			_, certificate, err := read(ctx, agent, "https://"+listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if certificate.CheckSignatureFrom(certificateOf(t, second)) == nil {
				return second
			}
			return first
		}
		until := func(want *authority.Authority) {
			t.Helper()
			deadline := time.Now().Add(time.Minute)
			for {
				if by(nil) == want {
					return
				}
				if time.Now().After(deadline) {
					t.Fatal("the certificate is not exchanged")
				}
			}
		}
		until(first)
		by(remembered)
		files.put(second.Pair(t, "127.0.0.1"))
		until(second)
		if by(remembered) != second {
			t.Errorf("TLS %x: an agent that was there before goes on with the certificate of before", version)
		}
	}
}

func certificateOf(t *testing.T, a *authority.Authority) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(a.PEM)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
