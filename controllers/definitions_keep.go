// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update

// leftOutAnnotation of a ConfigMap with definitions says how many of those that it should keep it does not.
const leftOutAnnotation = "tidewaiter.dev/left-out"

// shelved remembers which versions of ConfigMaps hold what they should, so that a steady state reads none.
type shelved struct {
	mu    sync.Mutex
	found map[types.NamespacedName]shelf
	// told holds why nothing is kept of a server, as people were told it.
	told map[types.NamespacedName]string
}

// shelf is a version of a ConfigMap, what was wanted of it, and what there was to fill it.
type shelf struct {
	version, wanted string
	last            *listing
}

func (s *shelved) holds(key types.NamespacedName, as shelf) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found[key] == as
}

// put notes a version, and why nothing is kept, if so; it tells whether that is news.
func (s *shelved) put(key types.NamespacedName, as shelf, trouble string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		s.found, s.told = map[types.NamespacedName]shelf{}, map[types.NamespacedName]string{}
	}
	s.found[key] = as
	news = s.told[key] != trouble
	s.told[key] = trouble
	return news && trouble != ""
}

func (s *shelved) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found, key)
	delete(s.told, key)
}

// wantedDigests are those of all that should be kept of a server; what comes last is left out first.
func wantedDigests(status *v1alpha1.GovernedServerStatus) []string {
	var wanted []string
	want := func(digest string) {
		if digest != "" && digest != noInstructions {
			wanted = append(wanted, digest)
		}
	}
	if status.Server != nil {
		want(status.Server.AcceptedInstructionsDigest)
	}
	for _, a := range status.Accepted {
		want(a.Digest)
	}
	if status.Server != nil {
		want(status.Server.InstructionsDigest)
	}
	for _, t := range status.Tools {
		want(t.Digest)
	}
	return wanted
}

// shelve has the ConfigMap of a server hold what it should, as far as that is at hand. It comes after the status, which
// says what that is: whatever goes wrong here, no verdict rests on it.
func (r *GovernedServerReconciler) shelve(ctx context.Context, server *v1alpha1.GovernedServer, f facts) error {
	wanted := wantedDigests(&server.Status)
	if len(wanted) == 0 {
		return nil // what was kept of a server at another endpoint stays until this one is listed
	}
	object := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: server.Namespace, Name: definitions.ConfigMapName(server.Name)}
	cached := &metav1.PartialObjectMetadata{}
	cached.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := r.Client.Get(ctx, key, cached); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for ConfigMap %s: %w", key.Name, err)
	}
	state := shelf{version: cached.ResourceVersion, wanted: strings.Join(wanted, " "), last: f.seen.last}
	if r.shelved.holds(key, state) {
		return nil
	}
	trouble := ""
	err := r.Live.Get(ctx, key, object)
	switch owner := metav1.GetControllerOf(object); {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read ConfigMap %s: %w", key.Name, err)
	case err != nil || metav1.IsControlledBy(object, server):
		err = r.write(ctx, server, object, err == nil, wanted, f)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
			// A quota, a namespace that ends, or somebody who made it immutable: retrying mends none of it.
			trouble = fmt.Sprintf("ConfigMap %s cannot be written, so that changes of tools cannot be shown: %s", key.Name, apierrors.ReasonForError(err))
			err = nil
		}
		if err != nil {
			return fmt.Errorf("keep definitions in ConfigMap %s: %w", key.Name, err)
		}
	case owner == nil || owner.Name != server.Name: // else it is an earlier server's, on its way out
		trouble = fmt.Sprintf("ConfigMap %s is not this server's and is left alone: delete or rename it, so that changes of tools can be shown", key.Name)
	}
	state.version = object.ResourceVersion
	if r.shelved.put(key, state, trouble) {
		r.Events.Eventf(server, nil, corev1.EventTypeWarning, v1alpha1.ReasonDefinitionsNotKept, "Keep", "%s", trouble)
	}
	return nil
}

// write creates or updates the ConfigMap if it does not hold what it should.
func (r *GovernedServerReconciler) write(ctx context.Context, server *v1alpha1.GovernedServer, object *corev1.ConfigMap, exists bool, wanted []string, f facts) error {
	old, listed := definitions.Of(object), definitions.Kept(nil)
	if f.seen.last != nil {
		listed = f.seen.last.definitions
	}
	var s definitions.Shelf
	for _, digest := range wanted {
		s.Take(digest, old, listed)
	}
	labels, annotations := maps.Clone(object.Labels), maps.Clone(object.Annotations)
	setEntry(&labels, v1alpha1.ServerLabel, server.Name)
	setEntry(&labels, ManagedByLabel, ManagedBy)
	delete(annotations, leftOutAnnotation)
	if left := len(slices.Compact(slices.Sorted(slices.Values(wanted)))) - len(s.Kept); left > 0 {
		setEntry(&annotations, leftOutAnnotation, strconv.Itoa(left))
	}
	data := s.Kept.BinaryData()
	if exists && len(object.Data) == 0 && maps.EqualFunc(data, object.BinaryData, slices.Equal) &&
		maps.Equal(labels, object.Labels) && maps.Equal(annotations, object.Annotations) {
		return nil
	}
	object.Namespace, object.Name = server.Namespace, definitions.ConfigMapName(server.Name)
	object.Labels, object.Annotations, object.Data, object.BinaryData = labels, annotations, nil, data
	if !exists {
		owner := metav1.NewControllerRef(server, v1alpha1.GroupVersion.WithKind("GovernedServer"))
		owner.BlockOwnerDeletion = nil // a server never waits for its ConfigMap to go
		object.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if exists {
		return r.Client.Update(ctx, object)
	}
	return r.Client.Create(ctx, object)
}

func setEntry(entries *map[string]string, key, value string) {
	if *entries == nil {
		*entries = map[string]string{}
	}
	(*entries)[key] = value
}

// bodies finds definitions and instructions by their digests, in several places.
type bodies []definitions.Kept

func (b bodies) tool(digest string) (found tool.Descriptor, ok bool) {
	for _, kept := range b {
		if found, ok = kept.Tool(digest); ok {
			return found, true
		}
	}
	return found, false
}

func (b bodies) instructions(digest string) (string, bool) {
	if digest == "" || digest == noInstructions {
		return "", true
	}
	for _, kept := range b {
		if text, ok := kept.Instructions(digest); ok {
			return text, true
		}
	}
	return "", false
}

// bodiesOf returns where the definitions are that a change of status speaks of, and nothing where it speaks of none.
// Without them people are told which tools have changed, and not how.
func (r *GovernedServerReconciler) bodiesOf(ctx context.Context, before, after *v1alpha1.GovernedServer, f facts) bodies {
	if f.seen.last == nil || before.Status.LastChanged == nil || reflect.DeepEqual(wantedDigests(&before.Status), wantedDigests(&after.Status)) {
		return nil
	}
	kept, err := definitions.Read(ctx, r.Live, after)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "read the definitions that are kept", "server", after.Namespace+"/"+after.Name)
	}
	return bodies{kept, f.seen.last.definitions}
}
