// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	certmetrics "sigs.k8s.io/controller-runtime/pkg/certwatcher/metrics"
)

// tlsOptions name the files of what agents are shown, as a Secret of the type kubernetes.io/tls is mounted.
type tlsOptions struct{ certFile, keyFile string }

func (o *tlsOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.certFile, "tls-cert-file", "", "file of the certificate that agents are shown, with those that signed it; read again when it changes. Without one the gateway serves plain HTTP")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "file of the private key of --tls-cert-file")
}

// certificate is what agents are shown: the pair in the files, or the last one there that was good. A nil one serves
// plain HTTP.
type certificate struct{ *certwatcher.CertWatcher }

// load reads the pair for the first time; nil without one.
func (o tlsOptions) load() (*certificate, error) {
	switch {
	case o.certFile == "" && o.keyFile == "":
		return nil, nil
	case o.certFile == "" || o.keyFile == "":
		return nil, errors.New("--tls-cert-file and --tls-private-key-file are needed together")
	}
	watcher, err := certwatcher.New(o.certFile, o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file and --tls-private-key-file: %w", err)
	}
	return &certificate{watcher}, nil
}

// listen has agents speak TLS, and HTTP/2 if they can. Connections that are there keep what they were shown.
func (c *certificate) listen(agents net.Listener) net.Listener {
	if c == nil {
		return agents
	}
	return tls.NewListener(agents, &tls.Config{
		GetCertificate: c.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		// A session that is resumed shows no certificate: the agent would go on with the one of before, for days.
		SessionTicketsDisabled: true,
	})
}

// measure tells when the pair ends, and that a new one could not be read.
func (c *certificate) measure(registry *prometheus.Registry) error {
	if c == nil {
		return nil
	}
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "tidewaiter", Subsystem: "gateway", Name: "certificate_expiry_timestamp_seconds",
		Help: "When the certificate that agents are shown expires.",
	}, func() float64 {
		shown, err := c.GetCertificate(nil)
		if err != nil || shown == nil || shown.Leaf == nil {
			return 0
		}
		return float64(shown.Leaf.NotAfter.Unix())
	})
	return errors.Join(registry.Register(expiry), registry.Register(certmetrics.ReadCertificateTotal), registry.Register(certmetrics.ReadCertificateErrors))
}
