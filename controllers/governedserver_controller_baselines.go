// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// maxNamespaceLabels is how many labels of a namespace a status holds; with more it holds none, and every baseline covers
// the server.
const maxNamespaceLabels = 256

// namespaceMeta is what is looked at of a namespace.
func namespaceMeta() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// labelsOf returns the labels of a namespace; none when there is no such namespace, or when they are too many to be told.
func labelsOf(ctx context.Context, reader client.Reader, name string) (map[string]string, error) {
	namespace := namespaceMeta()
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the labels of namespace %s: %w", name, err)
	}
	if len(namespace.Labels) > maxNamespaceLabels {
		return nil, nil
	}
	return namespace.Labels, nil
}

// policiesFor lists the policies that may cover the servers of a namespace: its own, and the baselines.
func policiesFor(ctx context.Context, reader client.Reader, namespace, operatorNamespace string) ([]v1alpha1.ToolPolicy, error) {
	var own v1alpha1.ToolPolicyList
	if err := reader.List(ctx, &own, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	if namespace == operatorNamespace {
		return own.Items, nil
	}
	var baselines v1alpha1.ToolPolicyList
	if err := reader.List(ctx, &baselines, client.InNamespace(operatorNamespace)); err != nil {
		return nil, fmt.Errorf("list baselines: %w", err)
	}
	return append(own.Items, baselines.Items...), nil
}

// governedBy maps a policy to the servers that it may cover: its targets, and for a baseline all there are, since which
// ones it selected before is not told. Of a change, what was there before comes with the old object.
func governedBy(reader client.Reader, operatorNamespace string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		policy, ok := obj.(*v1alpha1.ToolPolicy)
		if !ok || policy.Spec.NamespaceSelector == nil || policy.Namespace != operatorNamespace {
			return targetsOf(ctx, obj)
		}
		return serversIn(ctx, reader)
	}
}

// inNamespace maps a namespace to its servers.
func inNamespace(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, namespace client.Object) []reconcile.Request {
		return serversIn(ctx, reader, client.InNamespace(namespace.GetName()))
	}
}

func serversIn(ctx context.Context, reader client.Reader, where ...client.ListOption) []reconcile.Request {
	var all v1alpha1.GovernedServerList
	if err := reader.List(ctx, &all, append(where, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list servers to wake")
		return nil
	}
	var woken []reconcile.Request
	for i := range all.Items {
		woken = append(woken, reconcileServer(all.Items[i].Namespace, all.Items[i].Name))
	}
	return woken
}
