// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// EnforcingReconciler says of every GovernedServer whether its gateways run the current policy, and whether they have found a
// way around them, by the Leases that they keep beside it. Nothing rests on what it says.
type EnforcingReconciler struct {
	Client client.Client
	Clock  clock.PassiveClock
	// Library compiles policies.
	Library *policy.Library
	// OperatorNamespace is where baselines count.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers;toolpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers/status,verbs=patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list;watch;delete

// SetupWithManager has everything watched that a policy revision is made of, and what gateways say. That a gateway is
// still alive wakes nobody.
func (r *EnforcingReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("enforcing").
		For(&v1alpha1.GovernedServer{}).
		Watches(&v1alpha1.ToolPolicy{}, handler.EnqueueRequestsFromMapFunc(governedBy(mgr.GetClient(), r.OperatorNamespace)),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(serverLabelled), builder.WithPredicates(predicate.Or(predicate.AnnotationChangedPredicate{}, cameBack()))).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// cameBack lets through a Lease that is renewed after it had expired: its gateway was given up, and is there again with
// the revision that it had. Other renewals wake nobody.
func cameBack() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*coordinationv1.Lease)
			after, same := e.ObjectNew.(*coordinationv1.Lease)
			return ok && same && after.Spec.RenewTime != nil && !after.Spec.RenewTime.Time.Before(expiryOf(before))
		},
	}
}

// Reconcile compares what the gateways run with what they should, and saves what it found.
func (r *EnforcingReconciler) Reconcile(ctx context.Context, server *v1alpha1.GovernedServer) (ctrl.Result, error) {
	if !server.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	revision, err := r.revision(ctx, server)
	if err != nil {
		return ctrl.Result{}, err
	}
	var leases coordinationv1.LeaseList
	if err := r.Client.List(ctx, &leases, client.InNamespace(server.Namespace), client.MatchingLabels{v1alpha1.ServerLabel: server.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Leases: %w", err)
	}
	now := r.Clock.Now()
	muster := count(server, revision, leases.Items, now)
	if err := r.describe(ctx, server, muster, now); err != nil {
		return quiet(err)
	}
	for _, lease := range muster.left {
		uid, version := lease.UID, lease.ResourceVersion
		if err := r.Client.Delete(ctx, lease, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
			return quiet(fmt.Errorf("remove Lease %s: %w", lease.Name, err))
		}
	}
	return ctrl.Result{RequeueAfter: muster.next}, nil
}

// revision is what a gateway that sees the same objects runs.
func (r *EnforcingReconciler) revision(ctx context.Context, server *v1alpha1.GovernedServer) (string, error) {
	policies, err := policiesFor(ctx, r.Client, server.Namespace, r.OperatorNamespace)
	if err != nil {
		return "", err
	}
	endpoint, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		return "", reconcile.TerminalError(fmt.Errorf("digest the endpoint: %w", err))
	}
	return policy.Compile(policy.Inputs{
		Server: server, Policies: r.Library.Parse(policies), OperatorNamespace: r.OperatorNamespace, EndpointDigest: endpoint,
	}).Revision, nil
}

// describe saves the condition where it is another one now.
func (r *EnforcingReconciler) describe(ctx context.Context, server *v1alpha1.GovernedServer, m muster, now time.Time) error {
	before := server.DeepCopy()
	is := m.condition()
	is.ObservedGeneration, is.LastTransitionTime = server.Generation, metav1.NewTime(now.Truncate(time.Second))
	meta.SetStatusCondition(&server.Status.Conditions, is)
	bypass := m.bypass()
	if standalone.Wanted(server) {
		bypass = unseen()
	}
	if bypass != nil {
		bypass.ObservedGeneration, bypass.LastTransitionTime = is.ObservedGeneration, is.LastTransitionTime
		meta.SetStatusCondition(&server.Status.Conditions, *bypass)
	} else {
		meta.RemoveStatusCondition(&server.Status.Conditions, v1alpha1.ConditionBypassClosed)
	}
	if equality.Semantic.DeepEqual(before.Status, server.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, server, patch); err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	return nil
}
