// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// hasty is the time in which nobody has read a request.
const hasty = 3 * time.Second

// Metrics count votes. Their labels are bounded by the servers there are and by the words of this project. A vote is
// counted when admission lets it through; one that then loses a race is given, and counted, again.
type Metrics struct {
	votes     *prometheus.CounterVec
	decisions *prometheus.CounterVec
	hasty     *prometheus.CounterVec
	took      *prometheus.HistogramVec
}

// NewMetrics registers the metrics of votes.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidewaiter", Name: name, Help: help}, append([]string{"namespace", "server"}, labels...))
	}
	m := &Metrics{
		votes:     counter("votes_total", "Votes and resolutions of persons by outcome: approved, denied, dismissed, or refused with the reason.", "outcome", "reason"),
		decisions: counter("decisions_total", "Requests that a vote has decided."),
		hasty:     counter("hasty_decisions_total", "Requests that were decided within 3 seconds of their creation, too soon to have been read."),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tidewaiter", Name: "decision_seconds",
			Help:    "Time from the creation of a request to the vote that decided it.",
			Buckets: []float64{1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		}, []string{"namespace", "server"}),
	}
	for _, c := range []prometheus.Collector{m.votes, m.decisions, m.hasty, m.took} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) refused(r *v1alpha1.ApprovalRequest, word string) {
	m.votes.WithLabelValues(r.Namespace, r.Spec.ServerRef.Name, "refused", word).Inc()
}

// given counts a vote, and the decision if it is the vote that decides.
func (m *Metrics) given(r *v1alpha1.ApprovalRequest, v v1alpha1.Vote, decides bool) {
	labels := []string{r.Namespace, r.Spec.ServerRef.Name}
	m.votes.WithLabelValues(append(labels, strings.ToLower(string(v.Decision)), "")...).Inc()
	if !decides {
		return
	}
	took := v.Time.Sub(r.CreationTimestamp.Time)
	m.decisions.WithLabelValues(labels...).Inc()
	m.took.WithLabelValues(labels...).Observe(took.Seconds())
	if took < hasty {
		m.hasty.WithLabelValues(labels...).Inc()
	}
}
