// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package votingkey

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

var errCrash = errors.New("crashed")

// fate is what becomes of one call to the API.
type fate int

const (
	answered fate = iota
	// lost: it never arrived; unanswered: it arrived, and nobody heard.
	lost
	unanswered
)

// replica is a Store whose every call to the API waits for its turn.
type replica struct {
	store *Store
	// turn lets the call that waits go on; waits tells that one does.
	turn    chan fate
	waits   chan struct{}
	ended   chan error
	running bool
}

func newReplica(api client.WithWatch, clock *testingclock.FakeClock) *replica {
	r := &replica{turn: make(chan fate), waits: make(chan struct{}), ended: make(chan error)}
	call := func(do func() error) error {
		r.waits <- struct{}{}
		switch <-r.turn {
		case lost:
			return errCrash
		case unanswered:
			_ = do()
			return errCrash
		default:
			return do()
		}
	}
	r.store = &Store{Namespace: namespace, Clock: clock, Lifetime: month, Client: interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return call(func() error { return c.Get(ctx, key, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return call(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return call(func() error { return c.Update(ctx, o, opts...) })
		},
	})}
	return r
}

// advance has the replica make one call, beginning a round if it is in none. It returns how the round ended, if it did.
func (r *replica) advance(ctx context.Context, f fate) (ended bool, err error) {
	if !r.running {
		r.running = true
		go func() { r.ended <- r.store.ensure(ctx) }()
		<-r.waits // a round begins with a call
	}
	r.turn <- f
	select {
	case <-r.waits:
		return false, nil
	case err := <-r.ended:
		r.running = false
		return true, err
	}
}

// finish ends the round that the replica is in.
func (r *replica) finish(ctx context.Context) {
	for r.running {
		_, _ = r.advance(ctx, lost)
	}
}

// world is what all can see, and what was seen.
type world struct {
	api   client.WithWatch
	clock *testingclock.FakeClock
	store *Store // reads without waiting
	root  string
	// seen is since when a key is published, without a break.
	seen map[string]time.Time
	// signed is when a key last signed a vote.
	signed map[string]time.Time
	// void are keys that somebody removed.
	void map[string]bool
	// bare tells that all keys were removed, so that the next one need not wait.
	bare bool
}

func newWorld(t fataler) *world {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{
		api: fake.NewClientBuilder().WithScheme(scheme).Build(), clock: testingclock.NewFakeClock(start),
		seen: map[string]time.Time{}, signed: map[string]time.Time{}, void: map[string]bool{}, bare: true,
	}
	w.store = &Store{Client: w.api, Namespace: namespace, Clock: w.clock, Lifetime: month}
	return w
}

type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Helper()
}

func (w *world) secret(t fataler) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.VotingKeys}, secret); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return secret
}

func (w *world) configMap(t fataler) *corev1.ConfigMap {
	t.Helper()
	configMap := &corev1.ConfigMap{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.VotingKeys}, configMap); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return configMap
}

// look checks the laws on what stands in the API now.
func (w *world) look(t fataler) {
	t.Helper()
	now := w.clock.Now()
	data := w.configMap(t).Data
	if root := data[vote.RootEntry]; root != "" {
		if w.root != "" && root != w.root {
			t.Fatalf("a second root: %s after %s", root, w.root)
		}
		w.root = root
		public, err := vote.ParseRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := vote.ParseKeys(data, public); err != nil {
			t.Fatalf("what is published is not signed by its root: %v", err)
		}
	}
	for id := range w.seen {
		if _, there := data[id]; !there {
			delete(w.seen, id)
		}
	}
	for id := range data {
		if _, before := w.seen[id]; !before {
			w.seen[id] = now
		}
	}
	for id, at := range w.signed {
		if _, there := data[id]; !there && !w.void[id] && now.Before(at.Add(24*time.Hour)) {
			t.Fatalf("the key %s is no longer published %s after a vote", id, now.Sub(at))
		}
	}
	keys, err := parse(w.secret(t).Data)
	if err != nil {
		t.Fatalf("the Secret was spoilt: %v", err)
	}
	if k, inUse := keys.current(now); inUse && !w.void[k.id()] {
		since, published := w.seen[k.id()]
		_, used := w.signed[k.id()]
		if !used && !published {
			t.Fatalf("the key %s is used and not published", k.id())
		}
		if !used && now.Sub(since) < lead && !w.bare {
			t.Fatalf("the key %s is used %s after it was published", k.id(), now.Sub(since))
		}
		w.signed[k.id()], w.bare = now, false
	}
}
