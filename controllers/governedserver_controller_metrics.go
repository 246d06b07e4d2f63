// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// GovernedServerMetrics say when and how servers were listed. Labels are the GovernedServers that exist and the
// reasons of api/v1alpha1, nothing that a server or an agent chooses.
type GovernedServerMetrics struct {
	lastSuccess *prometheus.GaugeVec
	listings    *prometheus.CounterVec
	duration    prometheus.Histogram
}

// NewGovernedServerMetrics registers the metrics.
func NewGovernedServerMetrics(registry prometheus.Registerer) (*GovernedServerMetrics, error) {
	m := &GovernedServerMetrics{
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidewaiter_discovery_last_success_timestamp_seconds",
			Help: "When the tools of a GovernedServer were last listed, in seconds since 1970.",
		}, []string{"namespace", "server"}),
		listings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidewaiter_discovery_listings_total",
			Help: "Attempts to list the tools of a server, by outcome.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidewaiter_discovery_duration_seconds",
			Help:    "How long attempts to list the tools of a server took.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300},
		}),
	}
	for _, c := range []prometheus.Collector{m.lastSuccess, m.listings, m.duration} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *GovernedServerMetrics) observe(key types.NamespacedName, failed *fault, at time.Time, took time.Duration) {
	m.duration.Observe(took.Seconds())
	if failed != nil {
		m.listings.WithLabelValues(failed.reason).Inc()
		return
	}
	m.listings.WithLabelValues(v1alpha1.ReasonListed).Inc()
	m.lastSuccess.WithLabelValues(key.Namespace, key.Name).Set(float64(at.Unix()))
}

func (m *GovernedServerMetrics) forget(key types.NamespacedName) {
	m.lastSuccess.DeleteLabelValues(key.Namespace, key.Name)
}
