// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// authorityLife and servingLife are how long a new certificate is valid; at two thirds of it the next one is made.
	authorityLife = 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// skew is how far the clock of an API server may be behind.
	skew = time.Hour
)

// newAuthority makes a certificate authority that signs serving certificates only.
func newAuthority(now time.Time) (tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "tidewaiter-webhook-ca"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return issue(template, tls.Certificate{})
}

// newServing makes a serving certificate for names. It never outlives its authority.
func newServing(authority tls.Certificate, names []string, now time.Time) (tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "tidewaiter-webhook"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(servingLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if template.NotAfter.After(authority.Leaf.NotAfter) {
		template.NotAfter = authority.Leaf.NotAfter
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return issue(template, authority)
}

// issue makes a key and its certificate, signed by a parent or, without one, by itself.
func issue(template *x509.Certificate, parent tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	if parent.Leaf == nil {
		parent = tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Leaf, key.Public(), parent.PrivateKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read a new certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// aged tells whether two thirds of a certificate's life are over.
func aged(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return !c.NotBefore.Add(life * 2 / 3).After(now)
}

// covers tells whether a certificate is good for all names.
func covers(c *x509.Certificate, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return c.VerifyHostname(name) != nil })
}

// encode returns a certificate and its key as PEM.
func encode(c tls.Certificate) (certificate, key []byte, err error) {
	if key, err = keyutil.MarshalPrivateKeyToPEM(c.PrivateKey); err != nil {
		return nil, nil, fmt.Errorf("write a key: %w", err)
	}
	if certificate, err = cert.EncodeCertificates(c.Leaf); err != nil {
		return nil, nil, fmt.Errorf("write a certificate: %w", err)
	}
	return certificate, key, nil
}
