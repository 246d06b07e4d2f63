// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
)

const (
	// listingWorkers is how many servers are listed at a time. A server that hangs costs one of them its timeout, and
	// no reconcile waits for it.
	listingWorkers = 16
	// minBackoff and maxBackoff bound the wait before a server that failed is asked again.
	minBackoff, maxBackoff = 2 * time.Second, 5 * time.Minute
	// minRelist is the least time between the starts of two listings of one server, whatever it announces.
	minRelist = time.Second
	// whileListing stands for the due time until a listing has ended, or an announcement says sooner.
	whileListing = 24 * time.Hour
	// steadyStream is how long a stream of changes must have stood for its end to count as no failure.
	steadyStream = time.Minute
)

// listing is what is kept of one whole list of a server's tools.
type listing struct {
	server    v1alpha1.ServerInfo
	announces bool
	// tools are sorted by name; tier, source and reason are the classifier's.
	tools []v1alpha1.ToolStatus
	gaps  []string
	// definitions are those of the tools, and the instructions, as far as there was room.
	definitions definitions.Kept
}

// fault is why a listing failed: a reason of api/v1alpha1 and one stable sentence.
type fault struct{ reason, message string }

// seen is what is known of a server since the manager started; the zero value is nothing yet.
type seen struct {
	// last is the newest list, also while later attempts fail.
	last *listing
	// fault of the newest attempt, nil if it succeeded.
	fault *fault
}

// order says how a server is listed. Another version makes everything known so far void.
type order struct {
	version           string
	interval, timeout time.Duration
	list              func(context.Context) (listing, *fault)
	watch             func(ctx context.Context, changed func()) error
}

// listings lists servers on time, a bounded number at once, and remembers what they said. It belongs to the manager.
type listings struct {
	clock clock.WithTicker
	// jitter returns a random number from 0 to less than 1.
	jitter func() float64
	// news is called, with no lock held, when what is known of a server has changed.
	news    func(types.NamespacedName)
	metrics *GovernedServerMetrics

	queue   workqueue.TypedDelayingInterface[types.NamespacedName]
	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
}

// entry is one server's place on the list. The queue is but an alarm clock: due is the truth.
type entry struct {
	order order
	seen  seen
	// due is when the server is listed next, started when it was listed last.
	due, started time.Time
	failures     int
	// stop ends the stream of changes, nil while none stands.
	stop        context.CancelFunc
	noStream    bool
	streamFails int
}

func newListings(c clock.WithTicker, jitter func() float64, news func(types.NamespacedName), metrics *GovernedServerMetrics) *listings {
	return &listings{
		clock: c, jitter: jitter, news: news, metrics: metrics,
		queue:   workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Clock: c}),
		entries: map[types.NamespacedName]*entry{},
	}
}

// keep has a server listed by an order from now on, and returns what is known of it under that order.
func (l *listings) keep(key types.NamespacedName, want order) seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.entries[key]
	if known != nil && known.order.version == want.version {
		return known.seen
	}
	fresh := &entry{order: want, due: l.clock.Now()}
	if known != nil {
		known.hangUp()
		fresh.started = known.started
		fresh.due = later(fresh.due, known.started.Add(minRelist))
	}
	l.entries[key] = fresh
	l.wake(key, fresh)
	return seen{}
}

// forget stops listing a server.
func (l *listings) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.entries[key]; known != nil {
		known.hangUp()
		delete(l.entries, key)
	}
	l.metrics.forget(key)
}

// Start implements manager.Runnable; only the leader lists.
func (l *listings) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for range listingWorkers {
		running.Go(func() {
			for l.next(ctx, &running) {
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	running.Wait()
	return nil
}

// next waits for the next alarm and lists that server if it is due. It returns false when all is over.
func (l *listings) next(ctx context.Context, running *sync.WaitGroup) bool {
	key, over := l.queue.Get()
	if over {
		return false
	}
	defer l.queue.Done(key)
	e, want := l.begin(key)
	if e == nil {
		return true
	}
	listCtx, cancel := context.WithTimeout(ctx, want.timeout)
	got, failed := want.list(listCtx)
	cancel()
	if ctx.Err() != nil {
		return true
	}
	if l.finish(key, e, got, failed) {
		l.news(key)
	}
	l.follow(ctx, key, e, running)
	return true
}

// begin returns the entry to list now, nil if there is none, or not yet.
func (l *listings) begin(key types.NamespacedName) (*entry, order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return nil, order{}
	}
	now := l.clock.Now()
	if now.Before(e.due) {
		l.wake(key, e)
		return nil, order{}
	}
	e.started = now
	e.due = now.Add(whileListing)
	return e, e.order
}

// finish takes down how a listing ended and tells whether that is news.
func (l *listings) finish(key types.NamespacedName, e *entry, got listing, failed *fault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if l.entries[key] != e {
		return false // another order has come meanwhile
	}
	l.metrics.observe(key, failed, now, now.Sub(e.started))
	before, after := e.seen, e.seen
	if failed != nil {
		e.failures++
		after.fault = failed
		e.due = sooner(e.due, now.Add(l.backoff(e.failures)))
	} else {
		e.failures = 0
		after = seen{last: &got}
		e.due = sooner(e.due, now.Add(e.order.interval))
	}
	l.wake(key, e)
	if reflect.DeepEqual(before, after) {
		return false
	}
	e.seen = after
	return true
}

// backoff doubles with every failure in a row; half of it is random, so that servers that failed together do not come
// back together.
func (l *listings) backoff(failures int) time.Duration {
	wait := maxBackoff
	if shift := failures - 1; shift < 16 {
		wait = min(maxBackoff, minBackoff<<shift)
	}
	return wait/2 + time.Duration(l.jitter()*float64(wait/2))
}

// announced has a server listed soon, since it says that its tools have changed.
func (l *listings) announced(key types.NamespacedName, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.soon(key, e, 0)
}

// soon has a server listed after the wait, if its order still stands and it would not be listed earlier anyway.
func (l *listings) soon(key types.NamespacedName, e *entry, wait time.Duration) {
	if l.entries[key] != e {
		return
	}
	e.due = sooner(e.due, later(l.clock.Now().Add(wait), e.started.Add(minRelist)))
	l.wake(key, e)
}

// follow keeps a stream of changes to a server that was just listed and announces them. When the stream ends, the
// server is listed anew, which opens the next one: so a server that is down is asked by one backoff only.
func (l *listings) follow(ctx context.Context, key types.NamespacedName, e *entry, running *sync.WaitGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[key] != e || e.stop != nil || e.noStream || e.seen.fault != nil || !e.seen.last.announces {
		return
	}
	streamCtx, stop := context.WithCancel(ctx)
	e.stop = stop
	running.Go(func() {
		defer stop()
		stood := l.clock.Now()
		err := e.order.watch(streamCtx, func() { l.announced(key, e) })
		if streamCtx.Err() != nil {
			return
		}
		l.streamEnded(key, e, err, l.clock.Since(stood))
	})
}

// streamEnded notes the end of a stream and when the server is listed for it.
func (l *listings) streamEnded(key types.NamespacedName, e *entry, err error, stood time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.stop = nil
	e.streamFails++
	switch {
	case errors.Is(err, discovery.ErrNoStream):
		e.noStream = true
	case stood >= steadyStream:
		e.streamFails = 0
		l.soon(key, e, 0)
	default:
		l.soon(key, e, l.backoff(e.streamFails))
	}
}

func (e *entry) hangUp() {
	if e.stop != nil {
		e.stop()
	}
}

// wake sets the alarm for an entry.
func (l *listings) wake(key types.NamespacedName, e *entry) {
	l.queue.AddAfter(key, e.due.Sub(l.clock.Now()))
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
