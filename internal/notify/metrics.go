// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// outcome is how the delivery of a notification ended. The zero value is none.
type outcome string

const (
	// delivered: the receiver answered with 2xx.
	delivered outcome = "Delivered"
	// refused: the receiver answered with what sending again does not change.
	refused outcome = "Refused"
	// failed: the receiver could not be reached, or had an error of its own, at every attempt.
	failed outcome = "Failed"
	// dropped: too many notifications waited for the receiver already.
	dropped outcome = "Dropped"
)

// Metrics count notifications. Their labels are bounded by the configuration and by the words of this project.
type Metrics struct {
	notifications *prometheus.CounterVec
}

// NewMetrics registers the metrics of notifications.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{notifications: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tidewaiter", Name: "notifications_total",
		Help: "Notifications by receiver, event and outcome; each counts once, however often it was tried.",
	}, []string{"receiver", "event", "outcome"})}
	if err := registry.Register(m.notifications); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) ended(receiver string, event Event, how outcome) {
	m.notifications.WithLabelValues(receiver, string(event), string(how)).Inc()
}
