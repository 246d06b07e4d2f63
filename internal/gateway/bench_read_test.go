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
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// poolSize is how many idle connections agents, the plain proxy and the gateway keep to a host.
const poolSize = 64

// rounds is the least number of rounds that a ratio rests on.
const rounds = 20

// maxAllocs is how many times the allocations of a plain proxy those of the gateway may be, agent and server included.
const maxAllocs = 1.35

// way is one way from an agent to the server.
type way struct {
	name, url     string
	calls         []time.Duration // what each call took
	rounds        []time.Duration // what each round took
	mallocs, size uint64          // objects and bytes that all rounds allocated, those of agent and server included
}

// BenchmarkRead sends a call of a tool that only reads direct, through a plain reverse proxy and through the gateway, in
// turns, so that a noisy machine disturbs all alike. The ratios of the medians are what counts. Receipts are written.
// It fails where the gateway allocates too much, which noise hardly changes, and with TIDEWAITER_BENCH_LIMIT set also where its
// p50 or its throughput is worse than that of the plain proxy by more than that factor.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{64, 16 << 10} {
		for _, concurrency := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("bytes=%d/agents=%d", size, concurrency), func(b *testing.B) { benchmarkRead(b, size, concurrency) })
		}
	}
}

func benchmarkRead(b *testing.B, size, concurrency int) {
	r := newRig(b)
	r.authenticated()
	r.gateway.NewID = uuid.NewString // as in cmd/gateway
	// A server that answers before it has read the whole message makes a plain proxy lose the rest (golang/go#40747).
	quiet := r.serves(func(w http.ResponseWriter, rq *http.Request) {
		io.Copy(io.Discard, rq.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`)
	})
	target, err := url.Parse(quiet.URL)
	if err != nil {
		b.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: &http.Transport{MaxIdleConnsPerHost: poolSize, DisableCompression: true},
	})
	b.Cleanup(proxy.Close)
	agents := &http.Transport{MaxIdleConnsPerHost: poolSize, DisableCompression: true}
	b.Cleanup(agents.CloseIdleConnections)
	message := toolCall("get_invoice", fmt.Sprintf(`{"invoiceId":"%s"}`, strings.Repeat("a", size-len(`{"invoiceId":""}`))))
	ways := []*way{{name: "direct", url: quiet.URL}, {name: "rproxy", url: proxy.URL}, {name: "gateway", url: r.front.URL}}
	for _, way := range ways {
		way.round(b, agents, message, concurrency)
		way.calls, way.rounds, way.mallocs, way.size = nil, nil, 0, 0 // connections are made before anything is measured
	}
	turn := 0
	next := func() {
		for i := range ways {
			ways[(i+turn)%len(ways)].round(b, agents, message, concurrency)
		}
		turn++
	}
	for b.Loop() {
		next()
	}
	for turn < rounds {
		next()
	}
	report(b, ways[0], ways[1], ways[2])
}

// report tells the medians of each way, and the ratios.
func report(b *testing.B, direct, proxy, gateway *way) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // of all ways together, which says nothing
	for _, way := range []*way{direct, proxy, gateway} {
		b.ReportMetric(float64(quantile(way.calls, 50).Microseconds()), way.name+"-p50-µs")
		b.ReportMetric(float64(quantile(way.calls, 99).Microseconds()), way.name+"-p99-µs")
		b.ReportMetric(float64(way.mallocs)/float64(len(way.calls)), way.name+"-allocs")
		b.ReportMetric(float64(way.size)/float64(len(way.calls)), way.name+"-B")
	}
	b.ReportMetric(float64(quantile(gateway.calls, 50))/float64(quantile(direct.calls, 50)), "p50-vs-direct")
	p50 := float64(quantile(gateway.calls, 50)) / float64(quantile(proxy.calls, 50))
	throughput := float64(quantile(proxy.rounds, 50)) / float64(quantile(gateway.rounds, 50))
	allocs := float64(gateway.mallocs) / float64(proxy.mallocs)
	b.ReportMetric(p50, "p50-vs-rproxy")
	b.ReportMetric(throughput, "throughput-vs-rproxy")
	b.ReportMetric(allocs, "allocs-vs-rproxy")
	if allocs > maxAllocs {
		b.Errorf("a call through the gateway allocates %.2f times as often as through a plain proxy; the limit is %.2f", allocs, maxAllocs)
	}
	if limit, err := strconv.ParseFloat(os.Getenv("TIDEWAITER_BENCH_LIMIT"), 64); err == nil && max(p50, 1/throughput) > limit {
		b.Errorf("against a plain proxy p50 is %.2f and throughput %.2f; the limit is a factor of %.2f", p50, throughput, limit)
	}
}

// round has every agent send some calls, one after the other.
func (w *way) round(b *testing.B, agents http.RoundTripper, message string, concurrency int) {
	each := max(4, 128/concurrency)
	times := make([]time.Duration, concurrency*each)
	var all sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	for agent := range concurrency {
		all.Go(func() {
			for i := range each {
				start := time.Now()
				if err := send(agents, w.url, message, `"text":"done"`); err != nil {
					b.Error(err)
				}
				times[agent*each+i] = time.Since(start)
			}
		})
	}
	all.Wait()
	w.rounds = append(w.rounds, time.Since(begin))
	runtime.ReadMemStats(&after)
	w.mallocs, w.size = w.mallocs+after.Mallocs-before.Mallocs, w.size+after.TotalAlloc-before.TotalAlloc
	w.calls = append(w.calls, times...)
}

// quantile returns the p-th hundredth of the times.
func quantile(times []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)-1)*p/100]
}
