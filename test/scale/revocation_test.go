// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// many is how many gateways are measured.
const many = 100

// revocation is a way to take autonomy away, and back.
type revocation struct {
	want         policy.Effect
	revoke, undo func() error
}

func (f *fleet) revocations() map[string]revocation {
	stop := f.stop()
	return map[string]revocation{
		"promotion_removed": {policy.RequireApproval,
			func() error { return f.admin.Delete(f.t.Context(), f.promotion()) },
			func() error { f.promote(); return nil }},
		"baseline_stopped": {policy.Deny,
			func() error { return f.admin.Create(f.t.Context(), stop) },
			func() error {
				err := f.admin.Delete(f.t.Context(), stop)
				stop.ResourceVersion, stop.UID = "", ""
				return client.IgnoreNotFound(err)
			}},
	}
}

func TestARevocationReachesEveryGateway(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5)
	for name, r := range f.revocations() {
		took, _ := f.revoke(r.want, r.revoke)
		last := slices.Max(took)
		t.Logf("%s: enforced by the last of %d gateways %s after the answer", name, len(took), last)
		if last > time.Second {
			t.Logf("%s: that is more than the second that it should take; the machine may be busy", name)
		}
		must(t, r.undo())
		f.await(policy.Allow)
	}
}

// BenchmarkRevocation measures from the API server's answer to a write until each of 100 gateways enforces it.
func BenchmarkRevocation(b *testing.B) {
	f := newFleet(b, many)
	for name, r := range f.revocations() {
		b.Run(name, func(b *testing.B) {
			f.t = b
			var all, sent []time.Duration
			for b.Loop() {
				answer, send := f.revoke(r.want, r.revoke)
				all, sent = append(all, answer...), append(sent, send...)
				must(b, r.undo())
				f.await(policy.Allow)
			}
			slices.Sort(all)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(all[len(all)/2]), "p50-ms")
			b.ReportMetric(ms(all[len(all)*99/100]), "p99-ms")
			b.ReportMetric(ms(all[len(all)-1]), "max-ms")
			b.ReportMetric(ms(slices.Max(sent)), "max-ms-from-send")
		})
	}
}

// BenchmarkSteady counts what 100 gateways ask of the API while nothing happens and a tool runs unattended, so that the
// watches are proven every half minute. Gateways that started together do so together: it looks at several of their turns.
func BenchmarkSteady(b *testing.B) {
	f := newFleet(b, many)
	f.renewed(time.Now()) // the start is over: every gateway has proven its watch, and written its Lease since
	for b.Loop() {
		began, before := time.Now(), f.asked.Load()
		f.renewed(began.Add(2 * time.Minute))
		asked := float64(f.asked.Load()-before) / time.Since(began).Minutes()
		b.ReportMetric(asked, "requests/min")
		b.ReportMetric(asked/many, "requests/min/gateway")
	}
}

// renewed waits until every gateway has renewed its Lease after an instant.
func (f *fleet) renewed(after time.Time) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), time.Second, time.Until(after)+2*time.Minute, true, func(ctx context.Context) (bool, error) {
		var leases coordinationv1.LeaseList
		if err := f.admin.List(ctx, &leases, client.InNamespace(f.namespace), client.MatchingLabels{v1alpha1.ServerLabel: f.key.Name}); err != nil {
			return false, err
		}
		late := func(l coordinationv1.Lease) bool {
			return l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(after)
		}
		return len(leases.Items) == len(f.gateways) && !slices.ContainsFunc(leases.Items, late), nil
	})
	must(f.t, err)
}
