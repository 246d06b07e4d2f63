// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Metrics count votes. Their labels are bounded by the servers there are and by the words of this project. A vote is
// counted when admission lets it through; one that then loses a race is given, and counted, again.
type Metrics struct {
	votes *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// refusedOutcome is the outcome of what was not taken; the reason says why.
const refusedOutcome = "Refused"

// NewMetrics registers the metrics of votes.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		votes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidewaiter", Name: "votes_total",
			Help: "Votes by outcome: Approved, Denied, Dismissed, or Refused with the reason; and resolutions: Committed, NotExecuted.",
		}, []string{"namespace", "server", "outcome", "reason"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tidewaiter", Name: "decision_duration_seconds",
			Help: "Time from the creation of a request to the vote that decided it.",
			// Nobody reads a request in less than 3 seconds: the first two buckets are rubber stamps.
			Buckets: []float64{1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		}, []string{"namespace", "server"}),
	}
	for _, c := range []prometheus.Collector{m.votes, m.took} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) refused(r *v1alpha1.ApprovalRequest, word string) { m.count(r, refusedOutcome, word) }

// given counts a vote, and the time to the decision if it is the vote that decides.
func (m *Metrics) given(r *v1alpha1.ApprovalRequest, v v1alpha1.Vote, decides bool) {
	m.count(r, string(v.Decision), "")
	if decides {
		m.took.WithLabelValues(r.Namespace, r.Spec.ServerRef.Name).Observe(v.Time.Sub(r.CreationTimestamp.Time).Seconds())
	}
}

func (m *Metrics) resolved(r *v1alpha1.ApprovalRequest, outcome v1alpha1.ResolutionOutcome) {
	m.count(r, string(outcome), "")
}

func (m *Metrics) count(r *v1alpha1.ApprovalRequest, outcome, reason string) {
	m.votes.WithLabelValues(r.Namespace, r.Spec.ServerRef.Name, outcome, reason).Inc()
}
