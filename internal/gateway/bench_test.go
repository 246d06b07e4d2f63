// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// poolSize is what the gateway's own connections are pooled by; a plain proxy gets the same.
const poolSize = 64

// BenchmarkRead sends a call of a tool that only reads through the gateway, through a plain reverse proxy and direct, in
// turns, so that a noisy machine disturbs all alike. The ratios of the medians are what counts.
func BenchmarkRead(b *testing.B) {
	for _, concurrency := range []int{1, 16} {
		b.Run(fmt.Sprintf("concurrency-%d", concurrency), func(b *testing.B) {
			r := newRig(b)
			r.authenticated()
			quiet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
				io.Copy(io.Discard, rq.Body)
				answerWith("application/json", `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`)(w, rq)
			}))
			b.Cleanup(quiet.Close)
			target, err := url.Parse(quiet.URL)
			if err != nil {
				b.Fatal(err)
			}
			up := *r.server.upstream.Load()
			up.URL = quiet.URL + "/mcp"
			r.server.upstream.Store(&up)
			proxy := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
				Transport: &http.Transport{MaxIdleConnsPerHost: poolSize, DisableCompression: true},
			})
			b.Cleanup(proxy.Close)
			ways := []struct{ name, url string }{{"direct", quiet.URL}, {"rproxy", proxy.URL}, {"gateway", r.front.URL}}
			took := make([][]time.Duration, len(ways))
			agents := &http.Transport{MaxIdleConnsPerHost: poolSize, DisableCompression: true}
			b.Cleanup(agents.CloseIdleConnections)
			for _, way := range ways {
				round(b, agents, way.url, concurrency, nil) // connections are made before anything is measured
			}
			b.ResetTimer()
			for n := 0; b.Loop(); n++ {
				for i := range ways {
					at := (i + n) % len(ways)
					round(b, agents, ways[at].url, concurrency, &took[at])
				}
			}
			b.StopTimer()
			for i, way := range ways {
				b.ReportMetric(float64(median(took[i]).Microseconds()), way.name+"-µs")
			}
			b.ReportMetric(float64(median(took[2]))/float64(median(took[0])), "vs-direct")
			b.ReportMetric(float64(median(took[2]))/float64(median(took[1])), "vs-rproxy")
		})
	}
}

// round has every agent send some calls, one after the other.
func round(b *testing.B, agents http.RoundTripper, to string, concurrency int, took *[]time.Duration) {
	const each = 8
	times := make([]time.Duration, concurrency*each)
	var all sync.WaitGroup
	for agent := range concurrency {
		all.Go(func() {
			for i := range each {
				start := time.Now()
				if err := send(agents, to, toolCall("get_invoice", `{"invoiceId":"a-1","currency":"EUR"}`)); err != nil {
					b.Error(err)
				}
				times[agent*each+i] = time.Since(start)
			}
		})
	}
	all.Wait()
	if took != nil {
		*took = append(*took, times...)
	}
}

func send(agents http.RoundTripper, to, body string) error {
	req, err := http.NewRequest(http.MethodPost, to+"/mcp", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer crane")
	req.Header.Set(sessionHeader, "s-1")
	resp, err := agents.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d: %w", resp.StatusCode, err)
	}
	return nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkUnattended is a call with effects that needs no person: its receipt is on disk before it leaves, and it has a
// connection of its own.
func BenchmarkUnattended(b *testing.B) {
	r := newRig(b)
	r.promote()
	for b.Loop() {
		if err := send(http.DefaultTransport, r.front.URL, toolCall("update_invoice", `{"n":1}`)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGated is what the gateway does for a call that waits for a person: it answers that one is asked already.
func BenchmarkGated(b *testing.B) {
	r := newRig(b)
	body := toolCall("delete_account", `{"n":1}`)
	if got := r.post(body); got.code() != codePending || len(r.requests()) != 1 {
		b.Fatalf("got %s", got.body)
	}
	for b.Loop() {
		if err := send(http.DefaultTransport, r.front.URL, body); err != nil {
			b.Fatal(err)
		}
	}
	if r.request().CurrentPhase() != v1alpha1.PhasePending {
		b.Error("the request moved on")
	}
}
