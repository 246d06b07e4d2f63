// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const (
	// keysEvery is the time between two live reads of the voting keys, should the watch not show a change.
	keysEvery = 30 * time.Second
	// keysAgain is the least time between two live reads, whoever asks for them.
	keysAgain = time.Second
	// keysWithin bounds one such read.
	keysWithin = 5 * time.Second
)

// Keyring knows the voting keys that the operator publishes, and counts votes by them. What it knows was read live; the
// watch only says when to read again, so that no older view can follow a newer one.
type Keyring struct {
	// Cache watches the ConfigMap of the keys; NewKeyCache makes one.
	Cache cache.Cache
	// Client reads it live.
	Client client.Reader
	// Namespace is that of the operator.
	Namespace string
	// Roots are the public halves of the root keys that vouch for voting keys.
	Roots []ed25519.PublicKey
	// Clock tells the time and makes timers.
	Clock clock.WithTicker
	// Metrics tell how many keys are known.
	Metrics *Metrics

	once    sync.Once
	reading chan struct{} // holds a token while nobody reads
	mu      sync.Mutex    // guards the fields below
	keys    vote.Keys
	readAt  time.Time // when they were last read
	triedAt time.Time // when that was last tried
	err     error     // of the last try
}

// NewKeyCache returns a cache of the one ConfigMap that publishes the voting keys.
func NewKeyCache(config *rest.Config, scheme *runtime.Scheme, namespace string) (cache.Cache, error) {
	return cache.New(config, cache.Options{Scheme: scheme, Mapper: Mapper(), ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", v1alpha1.VotingKeys)},
		}},
	}})
}

// Run keeps the keys until the context ends.
func (k *Keyring) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	informer, err := k.Cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the voting keys: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { wake() },
		UpdateFunc: func(any, any) { wake() },
		DeleteFunc: func(any) { wake() },
	}); err != nil {
		return fmt.Errorf("watch the voting keys: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx) // from here on all ends before Run returns
	group.Go(func() error { return k.Cache.Start(ctx) })
	group.Go(func() error { return k.follow(ctx, changed) })
	return group.Wait()
}

// follow reads the keys when they changed, now and then, and soon again after a read that failed.
func (k *Keyring) follow(ctx context.Context, changed <-chan struct{}) error {
	ticker := k.Clock.NewTicker(keysAgain)
	defer ticker.Stop()
	due, said := true, ""
	for {
		if due || k.age() >= keysEvery {
			err := k.read(ctx, 0)
			if ctx.Err() != nil {
				return nil
			}
			due = err != nil
			said = k.say(ctx, said)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			due = true
		case <-ticker.C():
		}
	}
}

// say logs what is wrong with the keys, once as long as it stays the same.
func (k *Keyring) say(ctx context.Context, said string) string {
	err := k.Usable()
	switch {
	case err != nil && err.Error() != said:
		log.FromContext(ctx).Error(err, "votes cannot be verified")
		return err.Error()
	case err == nil && said != "":
		log.FromContext(ctx).Info("votes can be verified again")
		return ""
	default:
		return said
	}
}

// age tells how old what is known is.
func (k *Keyring) age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Clock.Since(k.readAt)
}

// read reads the keys live, unless a read began less than fresh ago. One reads at a time.
func (k *Keyring) read(ctx context.Context, fresh time.Duration) error {
	k.once.Do(func() { k.reading = make(chan struct{}, 1) })
	select {
	case k.reading <- struct{}{}:
		defer func() { <-k.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	now := k.Clock.Now()
	recent, err := !k.triedAt.IsZero() && now.Sub(k.triedAt) < fresh, k.err
	if !recent {
		k.triedAt = now
	}
	k.mu.Unlock()
	if recent {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, keysWithin)
	defer cancel()
	published := &corev1.ConfigMap{}
	err = k.Client.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: v1alpha1.VotingKeys}, published)
	if err != nil && !apierrors.IsNotFound(err) {
		return k.note(nil, now, fmt.Errorf("read the voting keys: %w", err))
	}
	// What no root has signed is left out; a ConfigMap that is gone publishes none.
	keys, err := vote.ParseKeys(published.Data, k.Roots...)
	if err != nil {
		log.FromContext(ctx).V(1).Info("entries are no voting keys", "reason", err.Error())
	}
	return k.note(keys, now, nil)
}

// note keeps the result of a read that began at some time.
func (k *Keyring) note(keys vote.Keys, began time.Time, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	if err == nil {
		k.keys, k.readAt = keys, began
		k.Metrics.votingKeys(len(keys))
	}
	return err
}

// errNoKeys: the operator publishes no voting key that a root of this gateway has signed.
var errNoKeys = errors.New("no voting key is published that a root key of --voting-root-key has signed; compare it with the entry root of the ConfigMap " + v1alpha1.VotingKeys + " in the namespace of --operator-namespace")

// Usable says why votes cannot be verified now; nil when they can.
func (k *Keyring) Usable() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.readAt.IsZero() || k.Clock.Since(k.readAt) > effectProof:
		return errors.Join(errors.New("the voting keys were not read from the Kubernetes API for too long; mend the connection to it, or the right to read the ConfigMap "+v1alpha1.VotingKeys), k.err)
	case len(k.keys) == 0:
		return errNoKeys
	default:
		return nil
	}
}

// Count counts the votes of a request. Where the keys that are known are too old, or a vote names one that is not among
// them, it reads them live first. It returns an error when it does not know the keys well enough to say that a vote is
// void.
func (k *Keyring) Count(ctx context.Context, request *v1alpha1.ApprovalRequest) (vote.Tally, error) {
	if k.Usable() == nil {
		if tally := k.published().Count(request); !tally.UnknownKey {
			return tally, nil
		}
	}
	if err := k.read(ctx, keysAgain); err != nil {
		return vote.Tally{}, err
	}
	if err := k.Usable(); err != nil {
		return vote.Tally{}, err
	}
	return k.published().Count(request), nil
}

func (k *Keyring) published() vote.Keys {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys
}
