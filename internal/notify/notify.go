// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify tells receivers by signed webhooks when an ApprovalRequest opens, is about to expire, and ends; it never
// writes to the Kubernetes API, and nothing waits for it.
package notify

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"golang.org/x/sync/errgroup"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// lookBack is how long before its start a Notifier still tells what happened: it covers a change of the leader.
	// Whatever was told before is told again under the same id.
	lookBack = 2 * time.Minute
	// lookAgain is when a request is looked at again whose namespace the cache has not seen yet.
	lookAgain = time.Second
)

// Notifier watches ApprovalRequests and sends what happens to them to the receivers that select their namespace. It
// remembers what it has sent in memory alone.
type Notifier struct {
	// Cache has the ApprovalRequests and the metadata of Namespaces.
	Cache cache.Cache
	Clock clock.WithTicker
	// Receivers are who is told.
	Receivers []Receiver
	// Allow lists addresses that may be dialled though they are not public.
	Allow   []netip.Prefix
	Metrics *Metrics
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=approvalrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// NeedLeaderElection lets only the leader notify.
func (n *Notifier) NeedLeaderElection() bool { return true }

// Start notifies until the context ends.
func (n *Notifier) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("notify"))
	w := &watch{
		cache: n.Cache, clock: n.Clock, since: n.Clock.Now().Add(-lookBack), told: map[types.NamespacedName]*record{},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Clock: n.Clock}),
	}
	defer w.queue.ShutDown()
	informer, err := n.Cache.GetInformer(ctx, &v1alpha1.ApprovalRequest{})
	if err != nil {
		return fmt.Errorf("watch ApprovalRequests: %w", err)
	}
	if _, err := n.Cache.GetInformer(ctx, namespaceLabels()); err != nil {
		return fmt.Errorf("watch the labels of Namespaces: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, receiver := range n.Receivers {
		s := newSender(receiver, n.Allow, n.Clock, n.Metrics)
		w.senders = append(w.senders, s)
		for _, lane := range s.lanes {
			group.Go(func() error { s.work(ctx, lane); return nil })
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    w.enqueue,
		UpdateFunc: func(_, after any) { w.enqueue(after) },
		DeleteFunc: w.enqueue,
	})
	if err != nil {
		return fmt.Errorf("watch ApprovalRequests: %w", err)
	}
	context.AfterFunc(ctx, w.queue.ShutDown)
	group.Go(func() error { w.work(ctx); return nil })
	err = group.Wait()
	if removed := informer.RemoveEventHandler(registration); err == nil {
		err = removed
	}
	return err
}

// watch finds out what is new about the requests. Its one worker has the records to itself.
type watch struct {
	cache   cache.Cache
	clock   clock.Clock
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]
	senders []*sender
	// since: what happened before, and is seen for the first time, was told by another.
	since time.Time
	told  map[types.NamespacedName]*record
}

// record is what was told of one request.
type record struct {
	uid    types.UID
	events []Event
}

func (w *watch) enqueue(object any) {
	if key, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
		w.queue.Add(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	}
}

func (w *watch) work(ctx context.Context) {
	for {
		key, stopped := w.queue.Get()
		if stopped {
			return
		}
		if err := w.look(ctx, key); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("look again later", "approval", key.String(), "error", err.Error())
			w.queue.AddAfter(key, lookAgain)
		}
		w.queue.Done(key)
	}
}

// look tells what is new about one request, and sees to it that its half-life is not missed.
func (w *watch) look(ctx context.Context, key types.NamespacedName) error {
	var request v1alpha1.ApprovalRequest
	if err := w.cache.Get(ctx, key, &request); apierrors.IsNotFound(err) {
		delete(w.told, key)
		return nil
	} else if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	namespace := namespaceLabels()
	if err := w.cache.Get(ctx, types.NamespacedName{Name: key.Namespace}, namespace); err != nil {
		return fmt.Errorf("read the labels of the namespace: %w", err)
	}
	now := w.clock.Now()
	if half := halfLife(&request); request.CurrentPhase() == v1alpha1.PhasePending && now.Before(half) {
		w.queue.AddAfter(key, half.Sub(now))
	}
	for _, o := range w.news(&request, now) {
		n, err := compose(&request, o)
		if err != nil {
			return err
		}
		w.send(ctx, n, labels.Set(namespace.Labels))
	}
	return nil
}

// namespaceLabels returns the object by which the cache keeps no more of a Namespace than its metadata.
func namespaceLabels() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// news returns what has happened to a request since it was last looked at, and notes it as told. A request that is
// seen for the first time may have a past that another leader has told.
func (w *watch) news(request *v1alpha1.ApprovalRequest, now time.Time) []occurrence {
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Name}
	known := w.told[key]
	first := known == nil || known.uid != request.UID
	if first {
		known = &record{uid: request.UID}
		w.told[key] = known
	}
	var list []occurrence
	for _, o := range happened(request, now) {
		if slices.Contains(known.events, o.event) {
			continue
		}
		known.events = append(known.events, o.event)
		if !first || !o.notBefore(request).Before(w.since) {
			list = append(list, o)
		}
	}
	return list
}

// send hands a notification to every receiver that selects the namespace.
func (w *watch) send(ctx context.Context, n notification, namespace labels.Set) {
	for _, s := range w.senders {
		if s.receiver.Namespaces.Matches(namespace) {
			s.enqueue(ctx, n)
		}
	}
}
