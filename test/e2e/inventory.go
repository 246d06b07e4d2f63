// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// removal is how long an uninstallation may take to end, in whatever order.
const removal = time.Minute

// inventory is everything in the cluster by kind, namespace and name, with whether it is on its way out. Events tell of
// what is gone, and are left out, as is what the API server says of itself.
func (e *e2e) inventory(ctx context.Context) (map[string]bool, error) {
	finder, err := discovery.NewDiscoveryClientForConfig(e.config)
	if err != nil {
		return nil, err
	}
	lists, err := finder.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // of a group that is on its way out
		return nil, err
	}
	found := map[string]bool{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" || resource.Kind == "ComponentStatus" {
				continue
			}
			objects := &metav1.PartialObjectMetadataList{}
			objects.SetGroupVersionKind(group.WithKind(resource.Kind + "List"))
			if err := e.admin.List(ctx, objects); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("list %s of %s: %w", resource.Name, list.GroupVersion, err)
			}
			for _, object := range objects.Items {
				if object.Namespace == corev1.NamespaceNodeLease {
					continue // nodes write theirs when they come to it
				}
				found[fmt.Sprintf("%s %s/%s", resource.Kind, object.Namespace, object.Name)] = object.DeletionTimestamp != nil
			}
		}
	}
	return found, nil
}

// leaves waits until, of what is looked at, nothing has come since the start of the run but what is wanted, and nothing of
// all is Terminating.
func (e *e2e) leaves(ctx context.Context, look func(what string) bool, want ...string) (seen string, err error) {
	ctx, cancel := context.WithTimeout(ctx, removal)
	defer cancel()
	slices.Sort(want)
	err = e.until(ctx, func(ctx context.Context) error {
		now, err := e.inventory(ctx)
		if err != nil {
			return err
		}
		var left, wrong []string
		for what, terminating := range now {
			_, before := e.before[what]
			switch {
			case terminating:
				wrong = append(wrong, what+" is Terminating")
			case !look(what):
			case !before && !slices.Contains(want, what):
				wrong = append(wrong, what+" is there")
			case !before:
				left = append(left, what)
			}
		}
		for _, what := range want {
			if !slices.Contains(left, what) {
				wrong = append(wrong, what+" is not there")
			}
		}
		slices.Sort(left)
		slices.Sort(wrong)
		seen = fmt.Sprintf("nothing of %d objects is Terminating, and new are: %s", len(now), cmp.Or(strings.Join(left, ", "), "none"))
		if len(wrong) > 0 {
			return fmt.Errorf("%d things are not as they should be:\n%s", len(wrong), strings.Join(wrong, "\n"))
		}
		return nil
	})
	return seen, err
}
