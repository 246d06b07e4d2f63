// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func serverOfRequest(obj client.Object) []string {
	request, ok := obj.(*v1alpha1.ApprovalRequest)
	if !ok {
		return nil
	}
	return []string{request.Spec.ServerRef.Name}
}

func reconcileServer(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// serverAsked maps a request to its server.
func serverAsked(_ context.Context, obj client.Object) []reconcile.Request {
	var found []reconcile.Request
	for _, name := range serverOfRequest(obj) {
		found = append(found, reconcileServer(obj.GetNamespace(), name))
	}
	return found
}

// targetsOf maps a policy to the servers that it targets; of a change, the old targets come with the old object.
func targetsOf(_ context.Context, obj client.Object) []reconcile.Request {
	policy, ok := obj.(*v1alpha1.ToolPolicy)
	if !ok {
		return nil
	}
	var found []reconcile.Request
	for _, name := range policy.Spec.Targets {
		found = append(found, reconcileServer(policy.Namespace, name))
	}
	return found
}

// serverLabelled maps a Secret to the server that it is labelled for.
func serverLabelled(_ context.Context, obj client.Object) []reconcile.Request {
	if name := obj.GetLabels()[v1alpha1.ServerLabel]; name != "" {
		return []reconcile.Request{reconcileServer(obj.GetNamespace(), name)}
	}
	return nil
}

// fateChanged lets through what records depend on: the phase of a request and whether it is marked.
func fateChanged() predicate.Predicate {
	matters := func(obj client.Object) bool {
		request, ok := obj.(*v1alpha1.ApprovalRequest)
		return ok && (isCounted(request.CurrentPhase()) || request.CurrentPhase() == v1alpha1.PhaseAmbiguous)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return matters(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return matters(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, okBefore := e.ObjectOld.(*v1alpha1.ApprovalRequest)
			after, okAfter := e.ObjectNew.(*v1alpha1.ApprovalRequest)
			return okBefore && okAfter && (matters(before) || matters(after)) &&
				(before.CurrentPhase() != after.CurrentPhase() || isAccounted(before) != isAccounted(after))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
