// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/admission"
	"github.com/tidewaiter/tidewaiter/internal/serving"
	"github.com/tidewaiter/tidewaiter/internal/survey"
	"github.com/tidewaiter/tidewaiter/internal/votingkey"
)

// shortestLifetime of a voting key: a new one is published a minute before it is used.
const shortestLifetime = time.Hour

// votes is the webhook of votes and what keeps its certificate. Every replica serves it: leadership has no part in it.
type votes struct {
	Server  webhook.Server
	serving *serving.Serving
}

// webhookServer makes the server of the webhook. Its certificate and path come later, by what setUp adds.
func (o *options) webhookServer() (*votes, error) {
	host, portText, err := net.SplitHostPort(o.webhookAddress)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("--webhook-bind-address: %q is no port", portText)
	}
	if o.votingKeyLifetime < shortestLifetime {
		return nil, fmt.Errorf("--voting-key-lifetime: %s is shorter than %s", o.votingKeyLifetime, shortestLifetime)
	}
	s := &serving.Serving{
		Namespace: o.namespace, Clock: clock.RealClock{}, CertificateSecret: o.webhookSecret,
		Names: []string{v1alpha1.WebhookConfiguration + "." + o.namespace + ".svc"},
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		s.Names = append(s.Names, host) // an API server outside of the cluster's network dials the address itself
	}
	return &votes{serving: s, Server: webhook.NewServer(webhook.Options{Host: host, Port: int(port), TLSOpts: []func(*tls.Config){s.TLS}})}, nil
}

// setUp adds everything that votes need to a manager, and the hints for who writes policies.
func (v *votes) setUp(mgr ctrl.Manager, o options, surveyor *survey.Surveyor) error {
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	v.serving.Client = live
	keys := &votingkey.Store{Client: live, Namespace: o.namespace, Clock: clock.RealClock{}, Lifetime: o.votingKeyLifetime}
	counted, err := admission.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	handler := &admission.Votes{Client: live, Clock: clock.RealClock{}, Key: keys.Current, Keys: keys.Published, Metrics: counted}
	server := mgr.GetWebhookServer() // asking for it has it run
	server.Register("/", v.serving.Guard(admission.Handler(handler, &admission.Policies{Survey: surveyor.Of},
		&admission.Pods{Client: live, Settings: o.sidecar, OperatorNamespace: o.namespace})))
	return errors.Join(
		mgr.Add(v.serving),
		mgr.Add(keys),
		mgr.AddReadyzCheck("webhook", server.StartedChecker()),
		mgr.AddReadyzCheck("certificate", v.serving.Ready),
	)
}
