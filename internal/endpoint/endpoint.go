// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpoint turns a GovernedServer's spec.endpoint into an address, headers and TLS settings, with Secrets read
// only where they are labelled for the server; it never connects to the server.
package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

// Upstream is how a server is reached.
type Upstream struct {
	// URL of the MCP endpoint: of the event stream where SSE is set.
	URL string
	// SSE tells that the server speaks HTTP+SSE, the transport of revision 2024-11-05.
	SSE bool
	// Headers that the server gets with every request, by canonical name.
	Headers http.Header
	// TLS is nil for the defaults.
	TLS *tls.Config
	// Guard is what the address must pass.
	Guard netguard.Policy
}

// Transport returns a new transport, with a pool of its own, that reaches the server and respects the guard.
func (u Upstream) Transport() *http.Transport { return u.Guard.Transport(u.TLS) }

// SecretError says which Secret is missing or of no use. Its text never depends on what a Secret holds.
type SecretError struct {
	// Message is one sentence for people.
	Message string
	cause   error
}

// Error returns the message.
func (e *SecretError) Error() string { return e.Message }

// Unwrap returns what the API server said, if it said anything.
func (e *SecretError) Unwrap() error { return e.cause }

// ServiceError says why a Service cannot be used; it is a netguard.ErrForbidden where the Service leads elsewhere.
type ServiceError struct {
	// Message is one sentence for people.
	Message string
	cause   error
}

// Error returns the message.
func (e *ServiceError) Error() string { return e.Message }

// Unwrap returns what the API server said, if it said anything.
func (e *ServiceError) Unwrap() error { return e.cause }

// Resolve reads what the endpoint of a server refers to. The reader must not be a cache: one would read and keep
// Secrets that are none of ours. Its errors are of type *SecretError or *ServiceError.
func Resolve(ctx context.Context, reader client.Reader, server *v1alpha1.GovernedServer, allow []netip.Prefix) (Upstream, error) {
	spec := server.Spec.Endpoint
	up := Upstream{URL: spec.URL, SSE: spec.Transport == v1alpha1.TransportSSE, Headers: http.Header{}, Guard: netguard.Policy{Allow: allow}}
	if s := spec.Service; s != nil {
		if err := checkService(ctx, reader, types.NamespacedName{Namespace: server.Namespace, Name: s.Name}); err != nil {
			return Upstream{}, err
		}
		up.URL = fmt.Sprintf("%s://%s.%s.svc:%d%s", s.Scheme, s.Name, server.Namespace, s.Port, s.Path)
		up.Guard.Cluster = true
	}
	if spec.Stdio != nil {
		up.URL = stdioURL
	}
	for _, h := range spec.Headers {
		value := h.Value
		if h.SecretKeyRef != nil {
			data, err := readKey(ctx, reader, server, *h.SecretKeyRef)
			if err != nil {
				return Upstream{}, err
			}
			// Files and editors end a line where none is wanted.
			value = strings.TrimRight(string(data), "\r\n")
			if !isHeaderValue(value) {
				return Upstream{}, secretError(nil, "key %q of Secret %q holds no value for a header", h.SecretKeyRef.Key, h.SecretKeyRef.Name)
			}
		}
		up.Headers.Set(h.Name, value)
	}
	config, err := tlsConfig(ctx, reader, server)
	if err != nil {
		return Upstream{}, err
	}
	up.TLS = config
	return up, nil
}

// checkService refuses a Service that is only another name for something outside the namespace.
func checkService(ctx context.Context, reader client.Reader, key types.NamespacedName) error {
	var service corev1.Service
	if err := reader.Get(ctx, key, &service); err != nil {
		return &ServiceError{Message: fmt.Sprintf("Service %q does not exist or cannot be read", key.Name), cause: err}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return &ServiceError{
			Message: fmt.Sprintf("Service %q is of type ExternalName; name the host as a url instead", key.Name),
			cause:   netguard.ErrForbidden,
		}
	}
	return nil
}

func tlsConfig(ctx context.Context, reader client.Reader, server *v1alpha1.GovernedServer) (*tls.Config, error) {
	spec := server.Spec.Endpoint.TLS
	if spec == nil {
		return nil, nil //nolint:nilnil // nil is net/http's own word for the defaults
	}
	config := &tls.Config{ServerName: spec.ServerName, MinVersion: tls.VersionTLS12}
	if ref := spec.CASecretRef; ref != nil {
		data, err := readKey(ctx, reader, server, *ref)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, secretError(nil, "key %q of Secret %q holds no PEM certificate", ref.Key, ref.Name)
		}
	}
	return config, nil
}

// readKey reads one key of a Secret that is labelled for the server. The label is looked at first, on the metadata
// alone, so that what a Secret of somebody else holds never gets here.
func readKey(ctx context.Context, reader client.Reader, server *v1alpha1.GovernedServer, ref v1alpha1.SecretKeyRef) ([]byte, error) {
	key := types.NamespacedName{Namespace: server.Namespace, Name: ref.Name}
	labelled := metav1.PartialObjectMetadata{}
	labelled.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	// Absent and not labelled read the same: who may write a GovernedServer need not know which Secrets there are.
	const noSecret = "Secret %q does not exist, or does not carry the label %s: %s"
	if err := reader.Get(ctx, key, &labelled); err != nil {
		return nil, unreadable(err, noSecret, ref.Name, v1alpha1.ServerLabel, server.Name)
	}
	if labelled.Labels[v1alpha1.ServerLabel] != server.Name {
		return nil, secretError(nil, noSecret, ref.Name, v1alpha1.ServerLabel, server.Name)
	}
	var secret corev1.Secret
	if err := reader.Get(ctx, key, &secret); err != nil {
		return nil, unreadable(err, noSecret, ref.Name, v1alpha1.ServerLabel, server.Name)
	}
	if secret.Labels[v1alpha1.ServerLabel] != server.Name {
		return nil, secretError(nil, noSecret, ref.Name, v1alpha1.ServerLabel, server.Name)
	}
	data, found := secret.Data[ref.Key]
	if !found || len(data) == 0 {
		return nil, secretError(nil, "Secret %q has no key %q", ref.Name, ref.Key)
	}
	return data, nil
}

func secretError(cause error, format string, args ...any) *SecretError {
	return &SecretError{Message: fmt.Sprintf(format, args...), cause: cause}
}

// unreadable tells an absent Secret from an API server that cannot answer. A gateway is given the right to read those that
// exist and are labelled, so to it any other is forbidden.
func unreadable(err error, noSecret, name, label, server string) *SecretError {
	switch {
	case apierrors.IsNotFound(err):
		return secretError(err, noSecret, name, label, server)
	case apierrors.IsForbidden(err):
		return secretError(err, noSecret+", or the right to read it is missing", name, label, server)
	default:
		return secretError(err, "Secret %q cannot be read now", name)
	}
}

// isHeaderValue tells whether HTTP lets a text stand in a header.
func isHeaderValue(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return text != ""
}
