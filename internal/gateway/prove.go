// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// proveEvery is the time between two proofs of the watch while a tool runs unattended, proveIdle while none does;
	// shorter than effectProof, so that a fresh promotion finds a proof that counts.
	proveEvery = 30 * time.Second
	proveIdle  = time.Minute
	// proveWithin is how long the watch may take to show what a list showed.
	proveWithin = 10 * time.Second
)

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

// watched is a list of one kind that a snapshot of a server rests on. Versions of two lists cannot be compared, so each
// namespace is a list of its own.
type watched struct {
	kind, namespace string
	fields          client.MatchingFields
}

func (w *Watcher) watchedFor(key types.NamespacedName) []watched {
	all := []watched{
		{"GovernedServer", key.Namespace, client.MatchingFields{"metadata.name": key.Name}},
		{"ApprovalRequest", key.Namespace, client.MatchingFields{"spec.serverRef.name": key.Name}},
	}
	for _, namespace := range w.policyNamespaces(key) {
		all = append(all, watched{"ToolPolicy", namespace, nil})
	}
	return all
}

// compare lists what is watched for a server, and waits until the cache has caught up with it.
func (w *Watcher) compare(ctx context.Context, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	for _, one := range w.watchedFor(key) {
		live := &metav1.PartialObjectMetadataList{}
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(one.kind + "List"))
		options := []client.ListOption{client.InNamespace(one.namespace)}
		if one.fields != nil {
			options = append(options, one.fields)
		}
		if err := w.Client.List(ctx, live, options...); err != nil {
			return fmt.Errorf("list %s of %s: %w", one.kind, one.namespace, err)
		}
		if err := w.catchUp(ctx, one, key, live); err != nil {
			return err
		}
		if one.kind == "GovernedServer" && len(live.Items) == 0 {
			return nil // the cache knows that it is gone; there is nothing else to be stale about
		}
	}
	return nil
}

func (w *Watcher) catchUp(ctx context.Context, one watched, key types.NamespacedName, live *metav1.PartialObjectMetadataList) error {
	ticker := w.Clock.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		cached, err := w.versions(ctx, one, key)
		if err != nil {
			return err
		}
		if holds(cached, live) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s of %s: %w", one.kind, one.namespace, errBehind)
		case <-ticker.C():
		}
	}
}

// versions returns the versions of the cached objects of a list, by UID.
func (w *Watcher) versions(ctx context.Context, one watched, key types.NamespacedName) (map[types.UID]uint64, error) {
	versions := map[types.UID]uint64{}
	add := func(object metav1.Object) {
		version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err == nil {
			versions[object.GetUID()] = version
		}
	}
	switch one.kind {
	case "GovernedServer":
		server := &v1alpha1.GovernedServer{}
		if err := w.Cache.Get(ctx, key, server); err == nil {
			add(server)
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read server: %w", err)
		}
	case "ToolPolicy":
		policies, err := w.policiesIn(ctx, one.namespace)
		if err != nil {
			return nil, err
		}
		for i := range policies {
			add(&policies[i])
		}
	case "ApprovalRequest":
		requests, err := w.requests(ctx, key)
		if err != nil {
			return nil, err
		}
		for _, r := range requests {
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
