// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// ApprovalRequestMetrics counts the requests in the cache whenever it is asked; its only label is the phase.
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

func oldestPendingDesc() *prometheus.Desc {
	return prometheus.NewDesc("tidewaiter_approval_requests_oldest_pending_seconds",
		"Age of the request that has waited longest for a person; 0 without one.", nil, nil)
}

// Describe implements prometheus.Collector.
func (m *ApprovalRequestMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- requestsDesc()
	out <- oldestPendingDesc()
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
	var oldest time.Duration
	for i := range all.Items {
		request := &all.Items[i]
		counts[request.CurrentPhase()]++
		if request.CurrentPhase() == v1alpha1.PhasePending {
			oldest = max(oldest, m.Clock.Since(request.CreationTimestamp.Time))
		}
	}
	for _, phase := range phases() {
		out <- prometheus.MustNewConstMetric(requestsDesc(), prometheus.GaugeValue, float64(counts[phase]), string(phase))
	}
	out <- prometheus.MustNewConstMetric(oldestPendingDesc(), prometheus.GaugeValue, oldest.Seconds())
}
