// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// ApprovalRequestMetrics counts the requests in the cache whenever it is asked. Its labels are phases, and the servers
// whose requests wait for a person: few, and named by whoever governs them, never by an agent.
type ApprovalRequestMetrics struct {
	// Reader reads from memory.
	Reader client.Reader
	Clock  clock.PassiveClock
}

// phases are the label values, so that a phase without requests reads 0.
func phases() []v1alpha1.Phase {
	return []v1alpha1.Phase{
		v1alpha1.PhasePending, v1alpha1.PhaseApproved, v1alpha1.PhaseDenied, v1alpha1.PhaseDismissed, v1alpha1.PhaseExpired,
		v1alpha1.PhaseCancelled, v1alpha1.PhaseExecuting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseAmbiguous,
	}
}

func requestsDesc() *prometheus.Desc {
	return prometheus.NewDesc("tidewaiter_approval_requests", "ApprovalRequests by phase.", []string{"phase"}, nil)
}

func pendingDesc() *prometheus.Desc {
	return prometheus.NewDesc("tidewaiter_approval_requests_pending",
		"ApprovalRequests of a server that wait for a person; no series without one.", []string{"namespace", "server"}, nil)
}

func oldestPendingDesc() *prometheus.Desc {
	return prometheus.NewDesc("tidewaiter_approval_requests_oldest_pending_seconds",
		"Age of the request of a server that has waited longest for a person; no series without one.", []string{"namespace", "server"}, nil)
}

func ambiguousDesc() *prometheus.Desc {
	return prometheus.NewDesc("tidewaiter_approval_requests_ambiguous",
		"ApprovalRequests of a server whose outcome a person has to find out; no series without one.", []string{"namespace", "server"}, nil)
}

// Describe implements prometheus.Collector.
func (m *ApprovalRequestMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{requestsDesc(), pendingDesc(), oldestPendingDesc(), ambiguousDesc()} {
		out <- desc
	}
}

// waiting is what of a server waits for people.
type waiting struct {
	pending, ambiguous int
	oldest             time.Duration
}

// Collect implements prometheus.Collector. An unsynced cache shows as an error of the scrape, never as zero requests.
func (m *ApprovalRequestMetrics) Collect(out chan<- prometheus.Metric) {
	var all v1alpha1.ApprovalRequestList
	//nolint:forbidigo // a Collector is given no context
	if err := m.Reader.List(context.Background(), &all, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(requestsDesc(), err)
		return
	}
	counts := map[v1alpha1.Phase]int{}
	servers := map[types.NamespacedName]waiting{}
	for i := range all.Items {
		request := &all.Items[i]
		phase := request.CurrentPhase()
		counts[phase]++
		key := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.ServerRef.Name}
		w := servers[key]
		switch phase {
		case v1alpha1.PhasePending:
			w.pending++
			w.oldest = max(w.oldest, m.Clock.Since(request.CreationTimestamp.Time))
		case v1alpha1.PhaseAmbiguous:
			w.ambiguous++
		default:
			continue
		}
		servers[key] = w
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, phase := range phases() {
		gauge(requestsDesc(), float64(counts[phase]), string(phase))
	}
	for key, w := range servers {
		if w.pending > 0 {
			gauge(pendingDesc(), float64(w.pending), key.Namespace, key.Name)
			gauge(oldestPendingDesc(), w.oldest.Seconds(), key.Namespace, key.Name)
		}
		if w.ambiguous > 0 {
			gauge(ambiguousDesc(), float64(w.ambiguous), key.Namespace, key.Name)
		}
	}
}
