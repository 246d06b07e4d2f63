// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

func TestASnapshotIsBuiltFromTheBaselinesToo(t *testing.T) {
	t.Parallel()
	in := func(namespace, name string) client.Object {
		p := named(&v1alpha1.ToolPolicy{}, types.UID(namespace+"/"+name), "7")
		p.Namespace, p.Name = namespace, name
		return p
	}
	server := named(&v1alpha1.GovernedServer{}, "s", "5")
	server.Spec.Endpoint.URL = "https://billing.example.com/mcp"
	stored := objects(t, server, in(billing.Namespace, "team"), in("operator", "stop"), in("elsewhere", "theirs"))
	for name, tc := range map[string]struct {
		operator string
		want     []string
	}{
		"of a team and of the operator":                    {"operator", []string{billing.Namespace + "/team", "operator/stop"}},
		"a server in the operator's namespace has it once": {billing.Namespace, []string{billing.Namespace + "/team"}},
	} {
		w := &Watcher{Cache: stuck{reader: stored}, Clock: testclock.NewFakeClock(noon), Library: policy.NewLibrary(), OperatorNamespace: tc.operator}
		inputs, err := w.gather(t.Context(), billing)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range inputs.Policies {
			got = append(got, p.Object().Namespace+"/"+p.Object().Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" || inputs.OperatorNamespace != tc.operator {
			t.Errorf("%s: policies (-want +got):\n%s", name, diff)
		}
	}
}

// TestPropagationIsMeasuredFromTheFirstChange: of what came together, the longest wait counts.
func TestPropagationIsMeasuredFromTheFirstChange(t *testing.T) {
	t.Parallel()
	server := named(&v1alpha1.GovernedServer{}, "s", "5")
	server.Spec.Endpoint.URL = "https://billing.example.com/mcp"
	metrics, clock := newMetrics(t), testclock.NewFakeClock(noon)
	w := &Watcher{Cache: stuck{reader: objects(t, server)}, Clock: clock, Library: policy.NewLibrary(), OperatorNamespace: "operator", Metrics: metrics,
		Servers: map[types.NamespacedName]*Server{billing: {Key: billing, Clock: clock}}, dirty: make(chan struct{}, 1)}
	w.rebuild(t.Context())
	w.wake()
	clock.Step(300 * time.Millisecond)
	w.wake()
	clock.Step(100 * time.Millisecond)
	w.rebuild(t.Context())
	w.rebuild(t.Context())
	measured := prometheus.NewRegistry()
	if err := measured.Register(metrics.inForce); err != nil {
		t.Fatal(err)
	}
	families, err := measured.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	if families[0].GetName() != "tidewaiter_policy_propagation_seconds" || h.GetSampleCount() != 1 || h.GetSampleSum() != 0.4 {
		t.Errorf("%s has %d samples, %v seconds together", families[0].GetName(), h.GetSampleCount(), h.GetSampleSum())
	}
}
