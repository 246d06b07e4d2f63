// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
)

// roster runs listings on a clock that a test moves.
type roster struct {
	*listings
	clock *clocktesting.FakeClock
	news  chan types.NamespacedName
	lists chan time.Time
}

func newRoster(t *testing.T) *roster {
	t.Helper()
	r := &roster{clock: clocktesting.NewFakeClock(made), news: make(chan types.NamespacedName, 4096), lists: make(chan time.Time, 4096)}
	r.listings = newListings(r.clock, func() float64 { return 0.999 }, func(key types.NamespacedName) { r.news <- key }, serverMetrics(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// orders returns an order whose listings are told to the roster; list may be nil.
func (r *roster) orders(version string, list func() (listing, *fault)) order {
	return order{version: version, interval: 10 * time.Minute, timeout: time.Minute, list: func(context.Context) (listing, *fault) {
		defer func() { r.lists <- r.clock.Now() }()
		if list == nil {
			return listing{tools: []v1alpha1.ToolStatus{getBox()}}, nil
		}
		return list()
	}}
}

const patience = 30 * time.Second

func take[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// elapse moves the clock in steps until a listing begins, and returns how much time that took.
func (r *roster) elapse(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	const step = 250 * time.Millisecond
	before := r.clock.Now()
	for elapsed := time.Duration(0); elapsed < limit; elapsed += step {
		r.settle(t)
		select {
		case at := <-r.lists:
			return at.Sub(before)
		default:
			r.clock.Step(step)
		}
	}
	r.settle(t)
	select {
	case at := <-r.lists:
		return at.Sub(before)
	default:
		return -1
	}
}

// settle waits until no listing is due or under way.
func (r *roster) settle(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for tries := 1; ; tries++ {
		r.mu.Lock()
		waiting, quiet := r.queue.Len() == 0, true
		for _, e := range r.entries {
			listing := e.due.Equal(e.started.Add(whileListing))
			waiting = waiting && !listing
			quiet = quiet && !listing && e.due.After(r.clock.Now())
		}
		quiet = quiet && r.queue.Len() == 0
		r.mu.Unlock()
		if quiet {
			return
		}
		if waiting && tries%50 == 0 {
			// A step that falls between the queue's look at the clock and the start of its timer is lost to the timer; a few of
			// these make up for it, also on a busy machine.
			r.clock.Step(20 * time.Millisecond)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the listings do not settle")
		}
	}
}

// streamDown waits until the end of the only stream is noted.
func (r *roster) streamDown(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		down := r.entries[cranesKey].stop == nil
		r.mu.Unlock()
		if down {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the stream does not end")
		}
	}
}

func TestAServerIsListedAtOnceAndThenByItsInterval(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	if got := r.keep(cranesKey, r.orders("1", nil)); got.last != nil || got.fault != nil {
		t.Errorf("knows %+v beforehand", got)
	}
	take(t, r.lists, "first listing")
	take(t, r.news, "news of it")
	if got := r.keep(cranesKey, r.orders("1", nil)); got.last == nil || got.last.tools[0].Name != "get_box" {
		t.Errorf("knows %+v", got)
	}
	if after := r.elapse(t, time.Hour); after < 10*time.Minute || after > 10*time.Minute+time.Second {
		t.Errorf("listed again after %s", after)
	}
	if len(r.news) != 0 {
		t.Error("the same list is news")
	}
}

func TestAnotherOrderVoidsWhatIsKnown(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	r.keep(cranesKey, r.orders("1", nil))
	take(t, r.news, "news")
	take(t, r.lists, "listing")
	if got := r.keep(cranesKey, r.orders("2", nil)); got.last != nil {
		t.Errorf("still knows %+v", got)
	}
	if after := r.elapse(t, time.Hour); after < 0 || after > 2*time.Second {
		t.Errorf("listed after %s, want soon", after)
	}
	take(t, r.news, "news of the second")
	r.forget(cranesKey)
	if after := r.elapse(t, time.Hour); after >= 0 {
		t.Errorf("listed %s after it was forgotten", after)
	}
}

func TestFailuresBackOffToFiveMinutesAndTheirSameNewsIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	down := fault{reason: v1alpha1.ReasonUnauthorized, message: "no"}
	var up atomic.Bool
	r.keep(cranesKey, r.orders("1", func() (listing, *fault) {
		if up.Load() {
			return listing{}, nil
		}
		same := down
		return listing{}, &same
	}))
	take(t, r.lists, "first listing")
	take(t, r.news, "news of the fault")
	last := time.Duration(0)
	for i := range 12 {
		wait := r.elapse(t, time.Hour)
		if wait <= 0 || wait > maxBackoff+time.Second || wait < last-time.Second || i > 8 && wait < maxBackoff-2*time.Second {
			t.Errorf("attempt %d came %s after the one before, which came after %s", i, wait, last)
		}
		last = wait
	}
	if len(r.news) != 0 {
		t.Errorf("told %d times of the same fault", len(r.news)+1)
	}
	up.Store(true)
	r.elapse(t, time.Hour)
	take(t, r.news, "news of the recovery")
	if got := r.keep(cranesKey, r.orders("1", nil)); got.fault != nil || got.last == nil {
		t.Errorf("knows %+v", got)
	}
}

func TestTheLastListIsKeptWhileLaterOnesFail(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	var failing atomic.Bool
	r.keep(cranesKey, r.orders("1", func() (listing, *fault) {
		if failing.Load() {
			return listing{}, &fault{reason: v1alpha1.ReasonUnreachable, message: "away"}
		}
		return listing{tools: []v1alpha1.ToolStatus{getBox()}}, nil
	}))
	take(t, r.news, "news")
	take(t, r.lists, "listing")
	failing.Store(true)
	r.elapse(t, time.Hour)
	take(t, r.news, "news of the fault")
	if got := r.keep(cranesKey, r.orders("1", nil)); got.fault == nil || got.last == nil || len(got.last.tools) != 1 {
		t.Errorf("knows %+v", got)
	}
}

func TestJitterSpreadsServersThatFailedTogether(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{1, 5, 100} {
		early := (&listings{jitter: func() float64 { return 0 }}).backoff(failures)
		late := (&listings{jitter: func() float64 { return 0.999 }}).backoff(failures)
		if early <= 0 || late > maxBackoff || late < early*19/10 {
			t.Errorf("after %d failures from %s to %s", failures, early, late)
		}
	}
}

// announcing is an order whose stream of changes a test holds in its hand.
func (r *roster) announcing(t *testing.T) (order, chan func(), chan error) {
	t.Helper()
	streams, ends := make(chan func(), 16), make(chan error)
	o := r.orders("1", func() (listing, *fault) { return listing{announces: true}, nil })
	o.watch = func(ctx context.Context, changed func()) error {
		streams <- changed
		select {
		case err := <-ends:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return o, streams, ends
}

func TestAnAnnouncedChangeIsListedWithinASecondAndAChattyServerOnceASecond(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	o, streams, _ := r.announcing(t)
	r.keep(cranesKey, o)
	take(t, r.lists, "first listing")
	changed := take(t, streams, "stream")
	r.clock.Step(time.Minute)
	changed()
	if after := r.elapse(t, time.Hour); after != 0 {
		t.Errorf("listed %s after the announcement", after)
	}
	for range 5 {
		for range 1000 {
			changed()
		}
		if after := r.elapse(t, time.Hour); after < minRelist || after > minRelist+time.Second {
			t.Errorf("listed after %s, want once a second", after)
		}
	}
	take(t, r.news, "news of the first listing")
	if len(r.news) != 0 {
		t.Errorf("%d more news of the same list", len(r.news))
	}
}

func TestAStreamThatEndsAtOnceIsNotReopenedHot(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	o, streams, ends := r.announcing(t)
	r.keep(cranesKey, o)
	take(t, r.lists, "first listing")
	last := time.Duration(0)
	for i := range 10 {
		take(t, streams, "stream")
		ends <- &discovery.Error{Kind: discovery.Unreachable}
		r.streamDown(t)
		wait := r.elapse(t, time.Hour)
		if wait < last-time.Second || wait > maxBackoff+time.Second || i == 9 && wait < maxBackoff-2*time.Second {
			t.Errorf("stream %d was reopened after %s, the one before after %s", i, wait, last)
		}
		last = wait
	}
}

func TestAServerWithoutAStreamIsListedByItsIntervalAlone(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	o, streams, ends := r.announcing(t)
	r.keep(cranesKey, o)
	take(t, r.lists, "first listing")
	take(t, streams, "stream")
	ends <- discovery.ErrNoStream
	r.streamDown(t)
	for range 3 {
		if wait := r.elapse(t, time.Hour); wait < 9*time.Minute {
			t.Errorf("listed after %s", wait)
		}
	}
	if len(streams) != 0 {
		t.Error("the stream was asked for again")
	}
}

func TestAServerThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newRoster(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for i := range listingWorkers - 1 {
		key := types.NamespacedName{Namespace: "harbour", Name: fmt.Sprintf("hung-%d", i)}
		r.keep(key, r.orders("1", func() (listing, *fault) {
			<-release
			return listing{}, nil
		}))
	}
	r.keep(cranesKey, r.orders("1", nil))
	if got := take(t, r.news, "news of the server that works"); got != cranesKey {
		t.Errorf("news of %s", got)
	}
}

// TestFiveHundredServersInSteadyStateWriteNothing runs every part but the network: listings on time, news, reconciles.
func TestFiveHundredServersInSteadyStateWriteNothing(t *testing.T) {
	t.Parallel()
	const servers = 500
	var objects []client.Object
	for i := range servers {
		objects = append(objects, cranes(func(s *v1alpha1.GovernedServer) {
			s.Name, s.UID = fmt.Sprintf("cranes-%03d", i), types.UID(fmt.Sprint(i))
		}))
	}
	d := newDock(t, interceptor.Funcs{}, objects...)
	r := newRoster(t)
	d.listings = r.listings
	var lists atomic.Int64
	d.Discover = func(context.Context, discovery.Target) (discovery.Result, error) {
		lists.Add(1)
		return discovery.Result{Server: discovery.Info{Name: "cranes"}}, nil
	}
	reconcileAll := func() {
		for _, o := range objects {
			if _, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	reconcileAll()
	for range servers {
		take(t, r.news, "news of each server")
	}
	reconcileAll()
	if n := d.patches.Load(); n < servers {
		t.Errorf("%d writes for %d new servers", n, servers)
	}
	d.patches.Store(0)
	for range 10 { // ten minutes and more
		r.settle(t)
		r.clock.Step(66 * time.Second)
	}
	r.settle(t)
	reconcileAll()
	if n := lists.Load(); n < 2*servers {
		t.Errorf("%d listings, want at least %d", n, 2*servers)
	}
	if n := d.patches.Load(); n != 0 || len(r.news) != 0 {
		t.Errorf("%d writes and %d news in steady state", n, len(r.news))
	}
}
