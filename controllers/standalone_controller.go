// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// rootDelay is the time until the next look for the root key, which the manager publishes when it starts.
const rootDelay = 5 * time.Second

// StandaloneReconciler keeps the gateway of every server that has one in pods of its own: a ServiceAccount, a Deployment,
// a Service and a PodDisruptionBudget that belong to the server. It touches no object that is not its own.
type StandaloneReconciler struct {
	Client client.Client
	// Live reads past the cache, which holds but metadata of most of these objects, and of those that are ours alone.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Settings are those that flags have; the root key and the namespace are added for each server.
	Settings standalone.Settings
	// OperatorNamespace is where the root key is published.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager has the servers watched, and what belongs to them.
func (r *StandaloneReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("standalone").
		For(&v1alpha1.GovernedServer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}). // whose status says how many gateways are ready
		Owns(&corev1.Service{}, builder.OnlyMetadata).
		Owns(&corev1.ServiceAccount{}, builder.OnlyMetadata).
		Owns(&policyv1.PodDisruptionBudget{}, builder.OnlyMetadata).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile makes the gateway of a server what it should be, or removes it, and says how that went.
func (r *StandaloneReconciler) Reconcile(ctx context.Context, server *v1alpha1.GovernedServer) (ctrl.Result, error) {
	if !server.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the collector takes what belongs to it
	}
	if !standalone.Wanted(server) {
		if err := r.remove(ctx, server); err != nil {
			return quiet(err)
		}
		return quiet(r.describe(ctx, server, nil))
	}
	f, err := r.gather(ctx, server)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f.blocked() {
		if err := r.describe(ctx, server, new(f.condition())); err != nil {
			return quiet(err)
		}
		return ctrl.Result{RequeueAfter: f.delay()}, nil
	}
	for i := range f.pairs {
		if err := r.put(ctx, &f.pairs[i]); err != nil {
			return quiet(err)
		}
	}
	return quiet(r.describe(ctx, server, new(f.condition())))
}

// gather reads everything that the gateway of a server depends on.
func (r *StandaloneReconciler) gather(ctx context.Context, server *v1alpha1.GovernedServer) (fleet, error) {
	f := fleet{server: server, settings: r.Settings}
	f.settings.Gateway.OperatorNamespace = r.OperatorNamespace
	published := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.OperatorNamespace, Name: v1alpha1.VotingKeys}, published)
	if client.IgnoreNotFound(err) != nil {
		return fleet{}, fmt.Errorf("read the root key: %w", err)
	}
	f.settings.Gateway.VotingRoot = published.Data[vote.RootEntry]
	for _, wanted := range standalone.Build(server, f.settings) {
		is, _ := wanted.DeepCopyObject().(client.Object) // to be read into
		switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), is); {
		case apierrors.IsNotFound(err):
			is = nil
		case err != nil:
			return fleet{}, fmt.Errorf("read %s: %w", nounOf(wanted), err)
		}
		f.pairs = append(f.pairs, pair{wanted: wanted, is: is})
	}
	return f, nil
}

// put makes an object what it should be, and takes down what is there then.
func (r *StandaloneReconciler) put(ctx context.Context, p *pair) error {
	if p.is == nil {
		if err := r.Client.Create(ctx, p.wanted); err != nil {
			return fmt.Errorf("create %s: %w", nounOf(p.wanted), err)
		}
		p.is = p.wanted
		return nil
	}
	mended := standalone.Mend(p.is, p.wanted)
	if equality.Semantic.DeepEqual(mended, p.is) {
		return nil
	}
	if err := r.Client.Patch(ctx, mended, client.MergeFromWithOptions(p.is, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("mend %s: %w", nounOf(p.wanted), err)
	}
	p.is = mended
	return nil
}

// remove deletes what belongs to a server that has no such gateway any more. It looks into the cache alone, since most
// servers never had one.
func (r *StandaloneReconciler) remove(ctx context.Context, server *v1alpha1.GovernedServer) error {
	for _, kind := range []client.Object{&policyv1.PodDisruptionBudget{}, &corev1.Service{}, &appsv1.Deployment{}, &corev1.ServiceAccount{}} {
		object, err := r.known(ctx, kind, client.ObjectKey{Namespace: server.Namespace, Name: standalone.Name(server.Name)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look for %s: %w", nounOf(kind), err)
		}
		if err != nil || !metav1.IsControlledBy(object, server) || !object.GetDeletionTimestamp().IsZero() {
			continue
		}
		uid := object.GetUID()
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, object, client.Preconditions{UID: &uid})); err != nil {
			return fmt.Errorf("remove %s: %w", nounOf(kind), err)
		}
	}
	return nil
}

// known returns an object as it is cached: whole for a Deployment, and of all others the metadata.
func (r *StandaloneReconciler) known(ctx context.Context, kind client.Object, key client.ObjectKey) (client.Object, error) {
	if _, whole := kind.(*appsv1.Deployment); !whole {
		gvk, err := r.Client.GroupVersionKindFor(kind)
		if err != nil {
			return nil, err
		}
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(gvk)
		kind = metadata
	}
	return kind, r.Client.Get(ctx, key, kind)
}

// describe saves the condition, nil for none, and the address of agents, then tells if the reason turned.
func (r *StandaloneReconciler) describe(ctx context.Context, server *v1alpha1.GovernedServer, is *metav1.Condition) error {
	before := server.DeepCopy()
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionGatewayAvailable)
	if is == nil {
		server.Status.AgentURL = ""
		meta.RemoveStatusCondition(&server.Status.Conditions, v1alpha1.ConditionGatewayAvailable)
	} else {
		server.Status.AgentURL = standalone.AgentURL(server)
		is.ObservedGeneration, is.LastTransitionTime = server.Generation, metav1.NewTime(r.Clock.Now().Truncate(time.Second))
		meta.SetStatusCondition(&server.Status.Conditions, *is)
	}
	if equality.Semantic.DeepEqual(before.Status, server.Status) {
		return nil
	}
	setReady(server, r.Clock.Now())
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, server, patch); err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	if is == nil || was != nil && was.Reason == is.Reason {
		return nil
	}
	kind := corev1.EventTypeNormal
	if slices.Contains([]string{v1alpha1.ReasonObjectConflict, v1alpha1.ReasonUnavailable}, is.Reason) && (was != nil || is.Reason == v1alpha1.ReasonObjectConflict) {
		kind = corev1.EventTypeWarning // but for the first seconds, in which none is ready yet
	}
	r.Events.Eventf(server, nil, kind, is.Reason, "Deploy", "%s", is.Message)
	return nil
}
