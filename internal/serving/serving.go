// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving keeps the TLS identity and the unguessable path of the operator's webhook, in a Secret of its
// namespace, and writes both into the webhook configurations. It never writes a Secret that it did not make, and serves
// by a new authority only when every API server knows it.
//
// Every replica does the same work, without a leader. That is safe because of an order: the configurations are read
// before the Secret, and each is written only at the version that was read. The Secret is therefore never older than
// what a configuration was made from, and no replica takes back what another has written.
//
// Why not github.com/open-policy-agent/cert-controller (looked at: v0.16.0): it writes a new authority and what it
// signs in one step and puts that one alone into the configurations, so that handshakes fail until every API server and
// every replica has seen both; a replica learns of it by a restart or from a mounted Secret, which the kubelet renews
// within a minute or so; it fills whatever Secret has the name; and it knows no path.
package serving

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// every is the time between rounds, and soon that after one that failed.
	every, soon = 15 * time.Second, 3 * time.Second
	// maxSteps bounds the reads and writes of one round; without others in the way it takes five.
	maxSteps = 20
)

// errNotLoaded is the error of handshakes, and of readiness, before the first round.
var errNotLoaded = errors.New("the certificate of the webhook is not loaded yet")

// Serving keeps the certificate and the path of the webhook. The zero value serves nobody.
type Serving struct {
	// Client reads live, never from a cache, and writes. It knows core and admissionregistration.k8s.io.
	Client client.Client
	// Namespace is the operator's.
	Namespace string
	Clock     clock.WithTicker
	// Names are the DNS names and addresses that API servers dial.
	Names []string
	// CertificateSecret names a Secret of the namespace, of the type kubernetes.io/tls, that somebody else keeps, as
	// cert-manager does. Its certificate is served, no authority is made, and the bundles of the configurations are
	// left to whoever keeps it. Empty: the certificates are made here.
	CertificateSecret string

	mu sync.RWMutex
	// certificate and path, the seed of the paths, are those of the last round that could read them.
	certificate *tls.Certificate
	path        string
	// problem is what the last round ended with.
	problem error
}

// +kubebuilder:rbac:groups="",namespace=tidewaiter-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=tidewaiter-system,resources=secrets,resourceNames=tidewaiter-webhook,verbs=get;update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=tidewaiter-webhook,verbs=get;patch

// NeedLeaderElection tells that every replica does this work.
func (s *Serving) NeedLeaderElection() bool { return false }

// Start keeps certificate, path and configurations until the context ends.
func (s *Serving) Start(ctx context.Context) error {
	for {
		wait := every
		if err := s.ensure(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "webhook certificate not kept")
			wait = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(wait):
		}
	}
}

// TLS makes a server serve the newest certificate at every handshake.
func (s *Serving) TLS(config *tls.Config) {
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if s.certificate == nil {
			return nil, errNotLoaded
		}
		return s.certificate, nil
	}
}

// Guard hands on the requests whose path begins with the secret segment, without that segment. Others get 404, as
// everything does before the first round.
func (s *Serving) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.RLock()
		seed := s.path
		s.mu.RUnlock()
		segment, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		current, coming, former := pathsAt(seed, s.Clock.Now())
		good := 0
		for _, path := range []string{current, coming, former} {
			good |= subtle.ConstantTimeCompare([]byte(segment), []byte(path))
		}
		if seed == "" || good != 1 {
			http.NotFound(w, r)
			return
		}
		http.StripPrefix("/"+segment, next).ServeHTTP(w, r)
	})
}

// Ready tells whether votes can reach this replica: a certificate is loaded, and the last round left both
// configurations with the path and the authority.
func (s *Serving) Ready(*http.Request) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.problem == nil && s.certificate == nil {
		return errNotLoaded
	}
	return s.problem
}

// ensure does one round: afterwards what was due is done, and this replica serves what the Secret says.
func (s *Serving) ensure(ctx context.Context) error {
	err := s.round(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = err
	return err
}

func (s *Serving) round(ctx context.Context) error {
	for range maxSteps {
		done, err := s.step(ctx)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // another replica was first: read what it wrote
		}
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("the certificates of the webhook change faster than they can be kept: is somebody else writing the Secret %s, "+
		"or the webhook configurations %s?", s.name(), v1alpha1.WebhookConfiguration)
}

// step reads everything, serves what it read, and makes the one write that comes next, if any.
func (s *Serving) step(ctx context.Context) (done bool, err error) {
	// The configurations first: see the comment of the package.
	c, err := s.readConfigurations(ctx)
	if err != nil {
		return false, err
	}
	secret, now, err := s.readSecret(ctx)
	if err != nil {
		return false, err
	}
	if err := s.load(ctx, now); err != nil {
		return false, err
	}
	var bundle []byte
	if s.CertificateSecret == "" {
		if bundle, err = now.bundle(); err != nil {
			return false, fmt.Errorf("write the bundle: %w", err)
		}
	}
	f := facts{provided: s.CertificateSecret != "", carried: c.carry(bundle), now: s.Clock.Now(), names: s.Names}
	if what := now.due(f); what != rest {
		after, err := now.take(what, f)
		if err != nil {
			return false, err
		}
		return false, s.write(ctx, secret, after, what)
	}
	current, coming, _ := pathsAt(now.path, s.Clock.Now())
	if changed, err := s.correct(ctx, c, paths{current, coming}, bundle); err != nil || changed {
		return false, err
	}
	if len(c.missing) > 0 {
		slices.Sort(c.missing)
		return false, fmt.Errorf("no vote can be given: %s %s is not installed: apply the operator's manifests again",
			strings.Join(c.missing, " and "), v1alpha1.WebhookConfiguration)
	}
	return true, nil
}

// load makes this replica serve what the state says, or the certificate that somebody else brings.
func (s *Serving) load(ctx context.Context, now state) error {
	certificate := now.serving
	if s.CertificateSecret != "" {
		secret := &corev1.Secret{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.CertificateSecret}, secret); err != nil {
			return fmt.Errorf("read the Secret %s/%s with the certificate of the webhook: %w", s.Namespace, s.CertificateSecret, err)
		}
		var err error
		if certificate, err = provided(secret); err != nil {
			return fmt.Errorf("the Secret %s/%s with the certificate of the webhook: %w", s.Namespace, s.CertificateSecret, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path = now.path
	if certificate.Leaf != nil {
		s.certificate = &certificate
	}
	return nil
}

func (s *Serving) readSecret(ctx context.Context) (*corev1.Secret, state, error) {
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.WebhookConfiguration}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: v1alpha1.WebhookConfiguration,
			Labels: map[string]string{"app.kubernetes.io/name": "tidewaiter", "app.kubernetes.io/component": "manager", ownerLabel: owner},
		}}, state{}, nil
	}
	if err != nil {
		return nil, state{}, fmt.Errorf("read Secret %s: %w", s.name(), err)
	}
	if secret.Labels[ownerLabel] != owner {
		return nil, state{}, fmt.Errorf("the Secret %s was not made by this operator (it has no label %s: %s) and is left as it is: "+
			"to bring a certificate of your own, put it into a Secret of another name and name that one to the manager", s.name(), ownerLabel, owner)
	}
	now, err := parse(secret.Data)
	if err != nil {
		return nil, state{}, fmt.Errorf("the Secret %s is left as it is: %w: delete the Secret to have it made anew", s.name(), err)
	}
	_, now.rotate = secret.Annotations[v1alpha1.RotateAnnotation]
	return secret, now, nil
}

// write saves the state after a step, at the version that was read.
func (s *Serving) write(ctx context.Context, secret *corev1.Secret, after state, what step) (err error) {
	if secret.Data, err = format(after); err != nil {
		return err
	}
	if !after.rotate {
		delete(secret.Annotations, v1alpha1.RotateAnnotation)
	}
	if secret.ResourceVersion == "" {
		err = s.Client.Create(ctx, secret)
	} else {
		err = s.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", s.name(), err)
	}
	log.FromContext(ctx).Info("webhook certificates changed", "reason", string(what))
	return nil
}

func (s *Serving) name() string { return s.Namespace + "/" + v1alpha1.WebhookConfiguration }
