// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/policy"
)

const (
	// estate is how many other servers there are, each with toolsOfEach tools.
	estate      = 1000
	toolsOfEach = 50
)

// BenchmarkEstate starts 100 gateways of one server, first alone and then beside 1,000 servers of 50 tools in the same
// namespace. It measures from the start to a verdict, what a gateway keeps in memory, and what all ask of the API in
// steady state: all of it is the same for a gateway that caches only what it serves.
func BenchmarkEstate(b *testing.B) {
	for _, servers := range []int{0, estate} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			f := newServer(b)
			for i := range servers {
				f.govern(fmt.Sprint("other-", i), toolsOfEach)
			}
			accounts := f.accounts(many)
			for b.Loop() {
				before, began := inUse(), time.Now()
				f.launch(accounts)
				var took []time.Duration
				for _, at := range f.await(policy.Allow) {
					took = append(took, at.Sub(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "start-p50-ms")
				b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "start-max-ms")
				b.ReportMetric((inUse()-before)/many/1024, "KiB/gateway")
				f.renewed(time.Now())
				since, asked := time.Now(), f.asked.Load()
				f.renewed(since.Add(2 * time.Minute))
				b.ReportMetric(float64(f.asked.Load()-asked)/time.Since(since).Minutes(), "requests/min")
			}
		})
	}
}

// inUse is what the process uses of memory for objects and stacks, in bytes.
func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
