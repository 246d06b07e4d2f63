// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// baselinesReader is the Role of the operator's namespace that lets one read the baselines; config/rbac has it.
	baselinesReader = "tidewaiter-baselines-reader"
	// baselinesReaders is the RoleBinding that gives it to gateways.
	baselinesReaders = "tidewaiter-baselines-readers"
	// ManagedByLabel marks every Role and RoleBinding that the manager makes.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "tidewaiter"
)

// BaselineReadersReconciler lets the ServiceAccounts that GovernedServers name for their gateways read the baselines, by
// one RoleBinding in the operator's namespace. It is one for all, made anew out of all servers: an owner reference cannot
// lead from there to a team's namespace, so a RoleBinding for each server would be left behind with the server.
type BaselineReadersReconciler struct {
	Client client.Client
	// Live reads the RoleBinding past the cache, which holds but metadata.
	Live client.Reader
	// OperatorNamespace is where the baselines are.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=toolpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;update

// SetupWithManager has the servers watched, and the RoleBinding itself.
func (r *BaselineReadersReconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{reconcileServer(r.OperatorNamespace, baselinesReaders)}
	})
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.OperatorNamespace && o.GetName() == baselinesReaders
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("baselinereaders").
		Watches(&v1alpha1.GovernedServer{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&rbacv1.RoleBinding{}, one, builder.OnlyMetadata, builder.WithPredicates(ours)).
		Complete(r)
}

// Reconcile makes the RoleBinding name exactly the gateways that there are.
func (r *BaselineReadersReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var servers v1alpha1.GovernedServerList
	if err := r.Client.List(ctx, &servers, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list servers: %w", err)
	}
	wanted := readersBinding(r.OperatorNamespace, servers.Items)
	stored := &rbacv1.RoleBinding{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), stored)
	switch {
	case apierrors.IsNotFound(err) && len(wanted.Subjects) == 0:
		return ctrl.Result{}, nil
	case apierrors.IsNotFound(err):
		if err := r.Client.Create(ctx, wanted); err != nil {
			return quiet(fmt.Errorf("create RoleBinding %s: %w", baselinesReaders, err))
		}
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read RoleBinding %s: %w", baselinesReaders, err)
	case stored.RoleRef != wanted.RoleRef:
		return ctrl.Result{}, fmt.Errorf("the RoleBinding %s leads to the %s %s: delete it, and it is made anew", baselinesReaders, stored.RoleRef.Kind, stored.RoleRef.Name)
	}
	mended := stored.DeepCopy()
	mended.Subjects, mended.Labels = wanted.Subjects, merged(mended.Labels, wanted.Labels)
	if equality.Semantic.DeepEqual(mended, stored) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Update(ctx, mended); err != nil {
		return quiet(fmt.Errorf("update RoleBinding %s: %w", baselinesReaders, err))
	}
	return ctrl.Result{}, nil
}

// readersBinding is the RoleBinding as it should be for these servers.
func readersBinding(namespace string, servers []v1alpha1.GovernedServer) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: baselinesReaders, Labels: map[string]string{ManagedByLabel: ManagedBy}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: baselinesReader},
	}
	for i := range servers {
		account := accountOf(&servers[i])
		if account == "" || !servers[i].DeletionTimestamp.IsZero() {
			continue
		}
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: servers[i].Namespace, Name: account})
	}
	slices.SortFunc(binding.Subjects, func(a, b rbacv1.Subject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	binding.Subjects = slices.Compact(binding.Subjects)
	return binding
}
