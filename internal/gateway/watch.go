// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

const (
	// secretsEvery is the time between two looks at a server's Secrets.
	secretsEvery = time.Minute
	// dialAgain is the time until the next try to work out an endpoint that cannot be used.
	dialAgain = 5 * time.Second
)

// Watcher keeps the snapshots of the servers true to the Kubernetes API.
type Watcher struct {
	Cache cache.Cache
	// Client reads live.
	Client  client.Client
	Servers map[types.NamespacedName]*Server
	Clock   clock.WithTicker
	// Allow lists addresses that may be dialled whatever their class.
	Allow []netip.Prefix
	// Library compiles policies.
	Library *policy.Library
	// OperatorNamespace is where baselines count. Its policies are watched beside those of the servers' namespaces, so
	// that a baseline needs no manager to act.
	OperatorNamespace string
	// Metrics tell when the watch was last proven, and how long changes took to be in force.
	Metrics *Metrics

	// arrived is when the first change came that no snapshot shows yet, in nanoseconds since 1970; 0 for none.
	arrived atomic.Int64

	mu    sync.Mutex // held while a snapshot is put into force: no older view may follow a newer one
	dirty chan struct{}
	known map[types.NamespacedName]resolved
	// doubted are the servers whose last proof failed.
	doubted map[types.NamespacedName]bool
}

// resolved is which spec an upstream was worked out from, and when that is done again.
type resolved struct {
	uid        types.UID
	generation int64
	next       time.Time
}

// NewCache returns a cache of exactly what a gateway of these servers needs. It is not in sync before the policies of the
// operator's namespace were listed once: a gateway that may not read the baselines decides nothing.
func NewCache(config *rest.Config, scheme *runtime.Scheme, servers map[types.NamespacedName]*Server, operatorNamespace string) (cache.Cache, error) {
	byNamespace := map[string][]string{}
	for key := range servers {
		byNamespace[key.Namespace] = append(byNamespace[key.Namespace], key.Name)
	}
	server, requests := map[string]cache.Config{}, map[string]cache.Config{}
	policies := map[string]cache.Config{operatorNamespace: {}}
	for namespace, names := range byNamespace {
		server[namespace], policies[namespace], requests[namespace] = cache.Config{}, cache.Config{}, cache.Config{}
		if len(names) == 1 {
			server[namespace] = cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", names[0])}
			requests[namespace] = cache.Config{FieldSelector: fields.OneTermEqualSelector("spec.serverRef.name", names[0])}
		}
	}
	return cache.New(config, cache.Options{Scheme: scheme, Mapper: Mapper(), ByObject: map[client.Object]cache.ByObject{
		&v1alpha1.GovernedServer{}:  {Namespaces: server},
		&v1alpha1.ToolPolicy{}:      {Namespaces: policies},
		&v1alpha1.ApprovalRequest{}: {Namespaces: requests},
	}})
}

// Run keeps the snapshots until the context ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.dirty = make(chan struct{}, 1)
	w.known, w.doubted = map[types.NamespacedName]resolved{}, map[types.NamespacedName]bool{}
	for _, object := range []client.Object{&v1alpha1.GovernedServer{}, &v1alpha1.ToolPolicy{}, &v1alpha1.ApprovalRequest{}} {
		informer, err := w.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, first bool) {
				if !first { // the first list is put into force once it is whole
					w.wake()
				}
			},
			UpdateFunc: func(before, after any) {
				if versionOf(before) != versionOf(after) {
					w.wake()
				}
			},
			DeleteFunc: func(any) { w.wake() },
		}); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	group, ctx := errgroup.WithContext(ctx) // from here on all ends before Run returns
	group.Go(func() error { return w.Cache.Start(ctx) })
	group.Go(func() error { return w.follow(ctx) })
	return group.Wait()
}

// wake has the snapshots rebuilt for a change that came now.
func (w *Watcher) wake() {
	w.arrived.CompareAndSwap(0, w.Clock.Now().UnixNano())
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// versionOf returns the version of a watched object, "" of what is none.
func versionOf(watched any) string {
	object, ok := watched.(metav1.Object)
	if !ok {
		return ""
	}
	return object.GetResourceVersion()
}

// follow rebuilds the snapshots whenever something changed, keeps what they dial, and proves now and then that it would
// see a change.
func (w *Watcher) follow(ctx context.Context) error {
	if !w.Cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	w.rebuild(ctx) // before the first proof, so that what is called ready also has an endpoint
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { // apart from the proofs, which wait for the API
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-w.dirty:
				w.rebuild(ctx)
			}
		}
	})
	group.Go(func() error {
		ticker := w.Clock.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			w.dial(ctx)
			w.prove(ctx)
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
			}
		}
	})
	return group.Wait()
}

// rebuild puts what the cache holds into force, and measures how long what came had to wait for that.
func (w *Watcher) rebuild(ctx context.Context) {
	arrived := w.arrived.Swap(0) // before the cache is read: what comes later wakes again
	whole := true
	for key, server := range w.Servers {
		if err := w.refresh(ctx, key, server); err != nil {
			// What could not be read leaves the old snapshot in force until it is stale.
			log.FromContext(ctx).Error(err, "snapshot not built", "server", key)
			whole = false
		}
	}
	if arrived != 0 && whole {
		w.Metrics.propagated(w.Clock.Since(time.Unix(0, arrived)))
	}
}

// refresh puts what the cache holds of one server into force.
func (w *Watcher) refresh(ctx context.Context, key types.NamespacedName, server *Server) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	in, err := w.gather(ctx, key)
	if err != nil {
		return err
	}
	return server.Update(in)
}

// gather reads what a snapshot is built from; nil says that the server is gone.
func (w *Watcher) gather(ctx context.Context, key types.NamespacedName) (*snapshot.Inputs, error) {
	server := &v1alpha1.GovernedServer{}
	if err := w.Cache.Get(ctx, key, server); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read server: %w", err)
	}
	policies, err := w.policies(ctx, key)
	if err != nil {
		return nil, err
	}
	requests, err := w.requests(ctx, key)
	if err != nil {
		return nil, err
	}
	return &snapshot.Inputs{
		Server: server, Policies: w.Library.Parse(policies), OperatorNamespace: w.OperatorNamespace, Requests: requests,
	}, nil
}

// policies lists those that may cover a server: its own namespace's, and the baselines.
func (w *Watcher) policies(ctx context.Context, key types.NamespacedName) ([]v1alpha1.ToolPolicy, error) {
	var all []v1alpha1.ToolPolicy
	for _, namespace := range w.policyNamespaces(key) {
		listed, err := w.policiesIn(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, listed...)
	}
	return all, nil
}

// policyNamespaces are where policies of a server may stand, each once.
func (w *Watcher) policyNamespaces(key types.NamespacedName) []string {
	if key.Namespace == w.OperatorNamespace {
		return []string{key.Namespace}
	}
	return []string{key.Namespace, w.OperatorNamespace}
}

// policiesIn lists the policies of a namespace, as they are in the cache: they are not to be changed.
func (w *Watcher) policiesIn(ctx context.Context, namespace string) ([]v1alpha1.ToolPolicy, error) {
	var found v1alpha1.ToolPolicyList
	if err := w.Cache.List(ctx, &found, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list policies of %s: %w", namespace, err)
	}
	return found.Items, nil
}

// requests lists those of a server, as they are in the cache.
func (w *Watcher) requests(ctx context.Context, key types.NamespacedName) ([]*v1alpha1.ApprovalRequest, error) {
	var found v1alpha1.ApprovalRequestList
	if err := w.Cache.List(ctx, &found, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list requests: %w", err)
	}
	var all []*v1alpha1.ApprovalRequest
	for i := range found.Items {
		if found.Items[i].Spec.ServerRef.Name == key.Name {
			all = append(all, &found.Items[i])
		}
	}
	return all, nil
}

// dial works out what is dialled for every server whose spec is new, or whose Secrets may have changed.
func (w *Watcher) dial(ctx context.Context) {
	for key, server := range w.Servers {
		snap := server.Snapshot()
		if snap == nil {
			if _, dialled := w.known[key]; dialled {
				server.Dial(nil, "")
				delete(w.known, key)
			}
			continue
		}
		now, was := w.Clock.Now(), w.known[key]
		is := resolved{uid: snap.Server.UID, generation: snap.Server.Generation, next: now.Add(secretsEvery)}
		same := was.uid == is.uid && was.generation == is.generation
		if same && now.Before(was.next) {
			continue
		}
		up, err := w.resolve(ctx, snap.Server)
		switch {
		case err == nil:
			server.Dial(&up, snap.EndpointDigest)
		case same && unanswered(err):
			is.next = now.Add(dialAgain) // what was read before still holds
		default:
			is.next = now.Add(dialAgain)
			log.FromContext(ctx).Error(err, "endpoint cannot be used", "server", key)
			server.Dial(nil, "")
		}
		w.known[key] = is
	}
}

func (w *Watcher) resolve(ctx context.Context, server *v1alpha1.GovernedServer) (endpoint.Upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return endpoint.Resolve(ctx, w.Client, server, w.Allow)
}

// unanswered tells an API server that could not say from one that said no.
func unanswered(err error) bool {
	cause := errors.Unwrap(err)
	return cause != nil && !apierrors.IsNotFound(cause) && !apierrors.IsForbidden(cause) && !errors.Is(cause, netguard.ErrForbidden)
}
