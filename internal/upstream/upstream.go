// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream turns the endpoint of a GovernedServer into what is dialled and presented there; it reads Secrets
// only through the function that it is given, and dials nothing.
package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// ErrSecret is the identity of every error about a Secret: it is missing, lacks the key, holds what cannot be used, or
// is not labelled for the server.
var ErrSecret = errors.New("secret not readable")

// Upstream is what a GovernedServer's endpoint comes to.
type Upstream struct {
	// URL of the MCP endpoint.
	URL *url.URL
	// Header is sent with every request, credentials included.
	Header http.Header
	// TLS is nil when the system's defaults hold.
	TLS *tls.Config
	// Cluster tells that the address is that of a Service and may be a private one.
	Cluster bool
}

// Resolve works out the upstream of a server. secret reads a Secret of the server's namespace; Resolve uses it only if
// it is labelled for this very server. The errors are stable text: same fault, same words.
func Resolve(ctx context.Context, server *v1alpha1.GovernedServer, secret func(context.Context, types.NamespacedName) (*corev1.Secret, error)) (Upstream, error) {
	read := func(ref v1alpha1.SecretKeyRef) ([]byte, error) {
		s, err := secret(ctx, types.NamespacedName{Namespace: server.Namespace, Name: ref.Name})
		if err != nil {
			return nil, fmt.Errorf("%w: Secret %s is missing or may not be read", ErrSecret, ref.Name)
		}
		if s.Labels[v1alpha1.ServerLabel] != server.Name {
			return nil, fmt.Errorf("%w: Secret %s lacks the label %s=%s", ErrSecret, ref.Name, v1alpha1.ServerLabel, server.Name)
		}
		value, found := s.Data[ref.Key]
		if !found || len(value) == 0 {
			return nil, fmt.Errorf("%w: Secret %s has nothing under the key %s", ErrSecret, ref.Name, ref.Key)
		}
		return value, nil
	}
	address, err := locate(server)
	if err != nil {
		return Upstream{}, err
	}
	result := Upstream{URL: address, Header: http.Header{}, Cluster: server.Spec.Endpoint.Service != nil}
	for _, h := range server.Spec.Endpoint.Headers {
		value := h.Value
		if h.SecretKeyRef != nil {
			raw, err := read(*h.SecretKeyRef)
			if err != nil {
				return Upstream{}, err
			}
			// The last line end of a file is rarely meant; any other control character is no header value.
			value = strings.TrimRight(string(raw), "\r\n")
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return Upstream{}, fmt.Errorf("%w: Secret %s key %s holds a control character, which no header can", ErrSecret, h.SecretKeyRef.Name, h.SecretKeyRef.Key)
			}
		}
		result.Header.Add(h.Name, value)
	}
	if result.TLS, err = tlsConfig(server.Spec.Endpoint.TLS, read); err != nil {
		return Upstream{}, err
	}
	return result, nil
}

// locate returns the address of the endpoint.
func locate(server *v1alpha1.GovernedServer) (*url.URL, error) {
	if s := server.Spec.Endpoint.Service; s != nil {
		host := s.Name + "." + server.Namespace + ".svc"
		return &url.URL{Scheme: s.Scheme, Host: net.JoinHostPort(host, strconv.Itoa(int(s.Port))), Path: s.Path}, nil
	}
	address, err := url.Parse(server.Spec.Endpoint.URL)
	if err != nil || address.Host == "" || (address.Scheme != "http" && address.Scheme != "https") {
		return nil, errors.New("the endpoint's url is not one of http or https")
	}
	return address, nil
}

func tlsConfig(spec *v1alpha1.EndpointTLS, read func(v1alpha1.SecretKeyRef) ([]byte, error)) (*tls.Config, error) {
	if spec == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: spec.ServerName}
	if spec.CASecretRef != nil {
		pem, err := read(*spec.CASecretRef)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: Secret %s key %s holds no PEM certificate", ErrSecret, spec.CASecretRef.Name, spec.CASecretRef.Key)
		}
	}
	return config, nil
}
