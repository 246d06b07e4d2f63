// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package votingkey keeps the keys that votes are signed with: their private halves in a Secret of the operator's
// namespace, their public halves, signed by the root key, in a ConfigMap of the same name. It never changes what it
// cannot read, and never signs with a key that is not published.
//
// One rule says what counts: the Secret. The ConfigMap follows it within a minute, whatever was done to either. So
// removing a key from the Secret voids the open votes under it, and removing it from the ConfigMap does nothing that
// lasts.
//
// Every replica of the operator does the same work, without a leader. That is safe because of an order:
//
//	the ConfigMap is read before the Secret, and each is written only at the version that was read
//
// The Secret is therefore never older than what the ConfigMap was made from, and no replica takes back what another
// has published. A key is made in the Secret, then published, and its time of use is noted in the Secret only by one
// who has seen it published.
package votingkey

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const (
	// every is the time between rounds, and soon that after one that failed.
	every, soon = time.Minute, 5 * time.Second
	// maxSteps bounds the reads and writes of one round; without others in the way it takes four.
	maxSteps = 20
)

// Store keeps the voting keys on the Kubernetes API.
type Store struct {
	// Client reads live, never from a cache, and writes.
	Client client.Client
	// Namespace is the operator's.
	Namespace string
	Clock     clock.WithTicker
	// Lifetime is how long a key signs before it is replaced.
	Lifetime time.Duration
}

// +kubebuilder:rbac:groups="",namespace=tidewaiter-system,resources=secrets;configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=tidewaiter-system,resources=secrets,resourceNames=tidewaiter-voting-keys,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=tidewaiter-system,resources=configmaps,resourceNames=tidewaiter-voting-keys,verbs=get;update;delete

// NeedLeaderElection tells that every replica does this work.
func (s *Store) NeedLeaderElection() bool { return false }

// Start keeps the keys until the context ends.
func (s *Store) Start(ctx context.Context) error {
	for {
		wait := every
		if err := s.ensure(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "voting keys not kept")
			wait = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(wait):
		}
	}
}

// ensure does one round: afterwards there is a key to sign with, the keys are published, and what was due is done.
func (s *Store) ensure(ctx context.Context) error {
	for range maxSteps {
		done, err := s.step(ctx)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // another replica was first: read what it wrote
		}
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("the voting keys of %s change faster than they can be kept: is somebody else writing the Secret or the ConfigMap %s?", s.Namespace, v1alpha1.VotingKeys)
}

// Current returns the newest key that signs now. If there is none, one is made.
func (s *Store) Current(ctx context.Context) (vote.Key, error) {
	k, inUse, err := s.current(ctx)
	if err == nil && !inUse {
		if err := s.ensure(ctx); err != nil {
			return vote.Key{}, err
		}
		k, inUse, err = s.current(ctx)
	}
	if err != nil {
		return vote.Key{}, err
	}
	if !inUse {
		return vote.Key{}, fmt.Errorf("no voting key of Secret %s can be used yet: try again", s.name())
	}
	return vote.Key{ID: k.id(), Private: k.private}, nil
}

func (s *Store) current(ctx context.Context) (k key, inUse bool, err error) {
	_, keys, err := s.readSecret(ctx)
	if err != nil {
		return key{}, false, err
	}
	k, inUse = keys.current(s.Clock.Now())
	return k, inUse, nil
}

// Published returns the keys under which votes count, as the Secret says now and the ConfigMap within a minute.
func (s *Store) Published(ctx context.Context) (vote.Keys, error) {
	_, keys, err := s.readSecret(ctx)
	if err != nil {
		return nil, err
	}
	published := vote.Keys{}
	for _, k := range keys.keys {
		published[k.id()] = vote.Published{Public: k.public(), NotBefore: k.notBefore}
	}
	return published, nil
}

// step reads both objects and makes the one write that comes next, if any.
func (s *Store) step(ctx context.Context) (done bool, err error) {
	// The ConfigMap first: see the comment of the package.
	configMap, err := s.readConfigMap(ctx)
	if err != nil {
		return false, err
	}
	secret, keys, err := s.readSecret(ctx)
	if err != nil {
		return false, err
	}
	if keys.root == nil && configMap.Data[vote.RootEntry] != "" {
		return false, fmt.Errorf("the Secret %s is gone or empty, and the ConfigMap of that name still publishes its keys: restore the Secret from a backup; "+
			"or, to begin with a new root key, delete the ConfigMap too and give the new root key to every gateway", s.name())
	}
	if keys.root != nil {
		want, err := keys.published()
		if err != nil {
			return false, err
		}
		if !maps.Equal(configMap.Data, want) {
			if ptr.Deref(configMap.Immutable, false) {
				return false, s.remove(ctx, configMap) // and make it anew: it must follow the Secret
			}
			configMap.Data = want
			return false, s.write(ctx, configMap)
		}
	}
	f := facts{published: configMap.Data, now: s.Clock.Now(), lifetime: s.Lifetime}
	_, _ = rand.Read(f.freshRoot[:]) // never fails
	_, _ = rand.Read(f.freshKey[:])
	after, changed := next(keys, f)
	if !changed {
		return true, nil
	}
	if secret.Data, err = format(after); err != nil {
		return false, err
	}
	delete(secret.Annotations, v1alpha1.RotateAnnotation)
	return false, s.write(ctx, secret)
}

func (s *Store) readConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{ObjectMeta: s.meta()}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", s.name(), err)
	} else if err != nil {
		configMap.ObjectMeta = s.meta()
	}
	return configMap, nil
}

func (s *Store) readSecret(ctx context.Context) (*corev1.Secret, state, error) {
	secret := &corev1.Secret{ObjectMeta: s.meta()}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil {
		return nil, state{}, fmt.Errorf("read Secret %s: %w", s.name(), err)
	} else if err != nil {
		secret.ObjectMeta = s.meta()
	}
	keys, err := parse(secret.Data)
	if err != nil {
		return nil, state{}, fmt.Errorf("the voting keys in Secret %s are left as they are: %w", s.name(), err)
	}
	_, keys.rotate = secret.Annotations[v1alpha1.RotateAnnotation]
	return secret, keys, nil
}

// write creates what was not there, and updates what was, at the version that was read.
func (s *Store) write(ctx context.Context, object client.Object) error {
	if object.GetResourceVersion() == "" {
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, s.name(), err)
		}
		return nil
	}
	if err := s.Client.Update(ctx, object); err != nil {
		return fmt.Errorf("update %T %s: %w", object, s.name(), err)
	}
	return nil
}

// remove deletes exactly the object that was read.
func (s *Store) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	if err := s.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return fmt.Errorf("remove %T %s: %w", object, s.name(), err)
	}
	return nil
}

func (s *Store) name() string { return s.Namespace + "/" + v1alpha1.VotingKeys }

func (s *Store) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: v1alpha1.VotingKeys, Labels: map[string]string{
		"app.kubernetes.io/name": "tidewaiter", "app.kubernetes.io/component": "manager",
	}}
}
