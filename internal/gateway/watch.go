// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
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
	// proveEvery is the time between two proofs of the watch while a tool runs unattended, proveIdle while none does;
	// shorter than effectProof, so that a fresh promotion finds a proof that counts.
	proveEvery = 30 * time.Second
	proveIdle  = time.Minute
	// proveWithin is how long the watch may take to show what a list showed.
	proveWithin = 10 * time.Second
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
	// OperatorNamespace is where baselines count.
	OperatorNamespace string
	// Metrics tell when the watch was last proven.
	Metrics *Metrics

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

// NewCache returns a cache of exactly what a gateway of these servers needs.
func NewCache(config *rest.Config, scheme *runtime.Scheme, servers map[types.NamespacedName]*Server) (cache.Cache, error) {
	byNamespace := map[string][]string{}
	for key := range servers {
		byNamespace[key.Namespace] = append(byNamespace[key.Namespace], key.Name)
	}
	server, policies, requests := map[string]cache.Config{}, map[string]cache.Config{}, map[string]cache.Config{}
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
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.wake() },
			UpdateFunc: func(any, any) { w.wake() },
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

func (w *Watcher) wake() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
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

// rebuild puts what the cache holds into force.
func (w *Watcher) rebuild(ctx context.Context) {
	for key, server := range w.Servers {
		if err := w.refresh(ctx, key, server); err != nil {
			// What could not be read leaves the old snapshot in force until it is stale.
			log.FromContext(ctx).Error(err, "snapshot not built", "server", key)
		}
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
	var requests v1alpha1.ApprovalRequestList
	if err := w.Cache.List(ctx, &requests, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list requests: %w", err)
	}
	in := &snapshot.Inputs{Server: server, Policies: w.Library.Parse(policies), OperatorNamespace: w.OperatorNamespace}
	for i := range requests.Items {
		if requests.Items[i].Spec.ServerRef.Name == key.Name {
			in.Requests = append(in.Requests, &requests.Items[i])
		}
	}
	return in, nil
}

// policies lists those that may cover a server.
func (w *Watcher) policies(ctx context.Context, key types.NamespacedName) ([]v1alpha1.ToolPolicy, error) {
	var own v1alpha1.ToolPolicyList
	if err := w.Cache.List(ctx, &own, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	return own.Items, nil
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

// prove shows that the watch is not stuck, for every server whose last proof is due: a list of metadata holds nothing
// that the cache does not hold.
func (w *Watcher) prove(ctx context.Context) {
	for key, server := range w.Servers {
		now := w.Clock.Now()
		due := proveIdle
		if snap := server.Snapshot(); snap != nil && snap.Policy.AnyUnattended() {
			due = proveEvery
		}
		if now.Sub(time.Unix(0, server.proven.Load())) < due {
			continue
		}
		err := w.compare(ctx, key)
		if err == nil {
			// The snapshot has to hold what the cache holds before it counts.
			err = w.refresh(ctx, key, server)
		}
		if w.doubted[key] != (err != nil) { // said once, not every second of an outage
			w.doubted[key] = err != nil
			if err != nil {
				log.FromContext(ctx).Error(err, "watch not proven", "server", key)
			} else {
				log.FromContext(ctx).Info("watch proven again", "server", key)
			}
		}
		if err == nil {
			server.Prove(now)
			w.Metrics.provenAt(key, now)
		}
	}
}

// errBehind: the cache lacks a change that a list shows.
var errBehind = errors.New("the watch is behind")

// compare lists what is watched for a server, and waits until the cache has caught up with it.
func (w *Watcher) compare(ctx context.Context, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	for _, watched := range []struct {
		kind   string
		fields client.MatchingFields
	}{
		{"GovernedServer", client.MatchingFields{"metadata.name": key.Name}},
		{"ToolPolicy", nil},
		{"ApprovalRequest", client.MatchingFields{"spec.serverRef.name": key.Name}},
	} {
		live := &metav1.PartialObjectMetadataList{}
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(watched.kind + "List"))
		options := []client.ListOption{client.InNamespace(key.Namespace)}
		if watched.fields != nil {
			options = append(options, watched.fields)
		}
		if err := w.Client.List(ctx, live, options...); err != nil {
			return fmt.Errorf("list %s: %w", watched.kind, err)
		}
		if err := w.catchUp(ctx, watched.kind, key, live); err != nil {
			return err
		}
		if watched.kind == "GovernedServer" && len(live.Items) == 0 {
			return nil // the cache knows that it is gone; there is nothing else to be stale about
		}
	}
	return nil
}

func (w *Watcher) catchUp(ctx context.Context, kind string, key types.NamespacedName, live *metav1.PartialObjectMetadataList) error {
	ticker := w.Clock.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		cached, err := w.versions(ctx, kind, key)
		if err != nil {
			return err
		}
		if holds(cached, live) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", kind, errBehind)
		case <-ticker.C():
		}
	}
}

// versions returns the versions of the cached objects of a kind, by UID.
func (w *Watcher) versions(ctx context.Context, kind string, key types.NamespacedName) (map[types.UID]uint64, error) {
	versions := map[types.UID]uint64{}
	add := func(object metav1.Object) {
		version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err == nil {
			versions[object.GetUID()] = version
		}
	}
	in, err := w.gather(ctx, key)
	if err != nil || in == nil {
		return versions, err
	}
	switch kind {
	case "GovernedServer":
		add(in.Server)
	case "ToolPolicy":
		policies, err := w.policies(ctx, key)
		if err != nil {
			return nil, err
		}
		for i := range policies {
			add(&policies[i])
		}
	case "ApprovalRequest":
		for _, r := range in.Requests {
			add(r)
		}
	}
	return versions, nil
}

// holds tells whether the cached versions hold all that a live list shows: every object at least as new, and none that
// was deleted before the list was made.
func holds(cached map[types.UID]uint64, live *metav1.PartialObjectMetadataList) bool {
	listed := map[types.UID]bool{}
	for i := range live.Items {
		item := &live.Items[i]
		listed[item.UID] = true
		version, err := strconv.ParseUint(item.ResourceVersion, 10, 64)
		if have, found := cached[item.UID]; err != nil || !found || have < version {
			return false
		}
	}
	at, err := strconv.ParseUint(live.ResourceVersion, 10, 64)
	for uid, version := range cached {
		if !listed[uid] && (err != nil || version <= at) {
			return false
		}
	}
	return true
}
