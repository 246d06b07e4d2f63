// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/breaker"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// Metrics count what a gateway decides. Their labels are bounded by the servers that it serves and by the words of
// this project.
type Metrics struct {
	calls       *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	executions  *prometheus.CounterVec
	failures    *prometheus.CounterVec
	void        *prometheus.CounterVec
	keys        prometheus.Gauge
	held        *prometheus.GaugeVec
	proven      *prometheus.GaugeVec
	inForce     prometheus.Histogram
	unevaluated *prometheus.CounterVec
	cut         *prometheus.CounterVec
	retries     *prometheus.CounterVec
	breaker     *prometheus.GaugeVec
	forgotten   *prometheus.CounterVec
	underWay    [places]prometheus.Gauge
}

// NewMetrics registers the gateway's metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidewaiter", Subsystem: "gateway", Name: name, Help: help}, append([]string{"namespace", "server"}, labels...))
	}
	underWay := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tidewaiter", Subsystem: "gateway", Name: "under_way",
		Help: "What is under way now: messages that arrive, requests that wait for their answer, streams that agents listen on, what has no answer until the server has it."}, []string{"what"})
	m := &Metrics{
		calls:      counter("calls_total", "Calls of tools by verdict and reason; one that waited counts once, when it was answered.", "verdict", "reason"),
		refusals:   counter("refused_messages_total", "Messages refused that are no calls, or before anything was decided.", "reason"),
		executions: counter("executions_total", "Calls with effects that were let through, by outcome.", "outcome"),
		failures:   counter("failures_total", "Writes that failed, by what was written.", "write"),
		cut:        counter("cut_answers_total", "Answers and streams that were ended for a limit, by the limit.", "reason"),
		retries:    counter("retries_total", "Calls that read and were sent a second time, since the connection broke before a byte of the answer."),
		forgotten:  counter("forgotten_sessions_total", "MCP sessions whose owner was forgotten for newer ones."),
		breaker: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tidewaiter", Subsystem: "gateway", Name: "breaker_state",
			Help: "What the circuit breaker of a server does: 0 lets calls pass, 1 refuses them, 2 lets one through to find out."}, []string{"namespace", "server"}),
		void: counter("void_votes_total", "Votes of approved requests that count for nothing: not signed for the request by a published key."),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tidewaiter", Subsystem: "gateway", Name: "voting_keys",
			Help: "Voting keys that votes are verified with; with none, no approval is used."}),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tidewaiter", Subsystem: "gateway", Name: "held_calls",
			Help: "Calls that wait for a person now."}, []string{"namespace", "server"}),
		proven: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tidewaiter", Subsystem: "gateway", Name: "watch_proven_timestamp_seconds",
			Help: "When the watch of the Kubernetes API last proved that it would show a change."}, []string{"namespace", "server"}),
		unevaluated: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidewaiter", Name: "policy_evaluation_errors_total",
			Help: "Calls for which a part of the policy could not be evaluated, so that the stricter of what it could mean held."}, []string{"namespace", "server"}),
		inForce: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "tidewaiter", Name: "policy_propagation_seconds",
			Help:    "Time from the arrival of a change of a server, policy or request to its being in force.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}}),
	}
	for p, what := range [places]string{reading: "messages", awaiting: "requests", listening: "streams", telling: "notifications"} {
		m.underWay[p] = underWay.WithLabelValues(what)
	}
	for _, c := range []prometheus.Collector{m.calls, m.refusals, m.executions, m.failures, m.void, m.keys, m.held, m.proven, m.inForce, m.unevaluated, m.cut, m.retries, m.breaker, m.forgotten, underWay} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) decided(server types.NamespacedName, effect policy.Effect, reason string) {
	m.calls.WithLabelValues(server.Namespace, server.Name, effect.String(), reason).Inc()
}

func (m *Metrics) refused(server types.NamespacedName, reason string) {
	m.refusals.WithLabelValues(server.Namespace, server.Name, reason).Inc()
}

func (m *Metrics) executed(server types.NamespacedName, outcome v1alpha1.ExecutionOutcome) {
	m.executions.WithLabelValues(server.Namespace, server.Name, string(outcome)).Inc()
}

func (m *Metrics) writeFailed(server types.NamespacedName, write string) {
	m.failures.WithLabelValues(server.Namespace, server.Name, write).Inc()
}

func (m *Metrics) votesVoid(server types.NamespacedName, votes int) {
	m.void.WithLabelValues(server.Namespace, server.Name).Add(float64(votes))
}

func (m *Metrics) votingKeys(known int) { m.keys.Set(float64(known)) }

func (m *Metrics) holding(server types.NamespacedName, by float64) {
	m.held.WithLabelValues(server.Namespace, server.Name).Add(by)
}

func (m *Metrics) provenAt(server types.NamespacedName, at time.Time) {
	m.proven.WithLabelValues(server.Namespace, server.Name).Set(float64(at.Unix()))
}

func (m *Metrics) propagated(took time.Duration) { m.inForce.Observe(took.Seconds()) }

func (m *Metrics) notEvaluated(server types.NamespacedName) {
	m.unevaluated.WithLabelValues(server.Namespace, server.Name).Inc()
}

func (m *Metrics) cutShort(server types.NamespacedName, reason string) {
	m.cut.WithLabelValues(server.Namespace, server.Name, reason).Inc()
}

func (m *Metrics) retried(server types.NamespacedName) {
	m.retries.WithLabelValues(server.Namespace, server.Name).Inc()
}

func (m *Metrics) breaks(server types.NamespacedName, state breaker.State) {
	m.breaker.WithLabelValues(server.Namespace, server.Name).Set(float64(state))
}

func (m *Metrics) sessionForgotten(server types.NamespacedName) {
	m.forgotten.WithLabelValues(server.Namespace, server.Name).Inc()
}
