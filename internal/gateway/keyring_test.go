// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const operator = "tidewaiter-system"

// shelf holds the ConfigMap of the keys, and counts how often it is read live.
type shelf struct {
	t     *testing.T
	clock *testclock.FakeClock
	api   client.Client
	ring  *Keyring
	reads atomic.Int64
	down  atomic.Bool
	slow  chan struct{} // what a read waits for; nil for nothing
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{t: t, clock: testclock.NewFakeClock(noon)}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			s.reads.Add(1)
			if s.slow != nil {
				<-s.slow
			}
			if s.down.Load() {
				return errors.New("down")
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	s.ring = &Keyring{Client: s.api, Namespace: operator, Roots: []ed25519.PublicKey{half(root)}, Clock: s.clock, Metrics: newMetrics(t)}
	return s
}

// publish replaces what is published by keys that a root has signed; without keys nothing is published.
func (s *shelf) publish(by ed25519.PrivateKey, keys ...ed25519.PrivateKey) {
	s.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operator, Name: v1alpha1.VotingKeys}, Data: map[string]string{vote.RootEntry: vote.FormatRoot(half(by))}}
	if err := client.IgnoreNotFound(s.api.Delete(s.t.Context(), object)); err != nil {
		s.t.Fatal(err)
	}
	if len(keys) == 0 {
		return
	}
	for _, key := range keys {
		id, value, err := vote.Publish(by, vote.Published{Public: half(key), NotBefore: noon.Add(-time.Hour)})
		if err != nil {
			s.t.Fatal(err)
		}
		object.Data[id] = value
	}
	if err := s.api.Create(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// voted returns a request with a yes that a key has signed.
func voted(t *testing.T, key ed25519.PrivateKey) *v1alpha1.ApprovalRequest {
	t.Helper()
	request := &v1alpha1.ApprovalRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "finance", Name: "billing-1", UID: "uid", CreationTimestamp: metav1.NewTime(noon)}}
	request.Spec.TTLSeconds = 3600
	v, err := vote.Key{ID: vote.KeyID(half(key)), Private: key}.Sign(request, v1alpha1.Vote{Username: "alice", Decision: v1alpha1.DecisionApproved, Time: metav1.NewTime(noon)})
	if err != nil {
		t.Fatal(err)
	}
	request.Status.Votes = []v1alpha1.Vote{v}
	return request
}

func (s *shelf) expect(what string, request *v1alpha1.ApprovalRequest, approved, known bool, reads int64) {
	s.t.Helper()
	before := s.reads.Load()
	tally, err := s.ring.Count(s.t.Context(), request)
	if tally.Approved(1) != approved || (err == nil) != known || s.reads.Load()-before != reads {
		s.t.Errorf("%s: approved %v, error %v, after %d reads; want %v, known %v, %d", what, tally.Approved(1), err, s.reads.Load()-before, approved, known, reads)
	}
}

func TestAKeyring(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	first, second := voted(t, votingKey), voted(t, another)
	s.expect("nothing was read, nothing is published", first, false, false, 1)
	s.clock.Step(keysAgain)
	s.publish(root, votingKey)
	s.expect("the first look", first, true, true, 1)
	s.expect("what is known needs no look", first, true, true, 0)
	s.expect("a key that is not known, a moment after a look", second, false, true, 0)
	s.clock.Step(keysAgain)
	s.expect("a key that is not known", second, false, true, 1)
	s.expect("again at once", second, false, true, 0)
	s.publish(root, votingKey, another)
	s.clock.Step(keysAgain)
	s.expect("a key that is new", second, true, true, 1)
	s.publish(root, another)
	s.expect("a removed key, before the watch shows it", first, true, true, 0)
	if err := s.ring.read(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.expect("a removed key", first, false, true, 0)
	s.publish(root, votingKey)
	s.clock.Step(effectProof + time.Second)
	s.expect("what is known is too old", first, true, true, 1)
	s.down.Store(true)
	s.clock.Step(effectProof)
	s.expect("the API is down, and what is known is not too old", first, true, true, 0)
	s.clock.Step(time.Second)
	s.expect("it is too old", first, false, false, 1)
	s.expect("asked once a moment, also while it is down", first, false, false, 0)
	s.down.Store(false)
	s.publish(root)
	s.clock.Step(keysAgain)
	s.expect("nothing is published any more", first, false, false, 1)
	s.publish(another, votingKey)
	s.clock.Step(keysAgain)
	s.expect("signed by a root that nobody trusts", first, false, false, 1)
	if err := s.ring.Usable(); !errors.Is(err, errNoKeys) {
		t.Errorf("usable: %v", err)
	}
}

func TestAKeyThatIsNotKnownCostsOneReadHoweverManyAsk(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.publish(root, votingKey)
	s.expect("the first look", voted(t, votingKey), true, true, 1)
	s.clock.Step(keysAgain)
	request := voted(t, another)
	s.slow = make(chan struct{})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if tally, err := s.ring.Count(t.Context(), request); err != nil || tally.Approved(1) || !tally.UnknownKey {
				t.Errorf("%+v, %v", tally, err)
			}
		})
	}
	close(s.slow)
	all.Wait()
	if got := s.reads.Load(); got != 2 {
		t.Errorf("%d reads, want one more than the first", got)
	}
}

func TestAKeyringFollowsWhatIsPublished(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	ctx, stop := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.ring.follow(ctx, changed) }()
	reads := func(n int64) {
		t.Helper()
		(&rig{t: t}).until("it looks", func() bool { return s.reads.Load() >= n && s.clock.HasWaiters() })
	}
	reads(1)
	if s.ring.Usable() == nil {
		t.Error("usable without a key")
	}
	s.publish(root, votingKey)
	changed <- struct{}{}
	reads(2)
	(&rig{t: t}).until("it knows the key", func() bool { return s.ring.Usable() == nil })
	s.publish(root, another)
	s.clock.Step(keysEvery) // the watch says nothing
	reads(3)
	(&rig{t: t}).until("it knows the other key", func() bool {
		tally, err := s.ring.Count(t.Context(), voted(t, another))
		return err == nil && tally.Approved(1)
	})
	s.down.Store(true)
	changed <- struct{}{}
	reads(4)
	s.clock.Step(keysAgain)
	reads(5) // it asks again soon
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
