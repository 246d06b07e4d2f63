// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// foreignDelay is the time until the next look at a RoleBinding that is not ours: the watch need not show it.
const foreignDelay = time.Minute

// GatewayRightsReconciler gives the ServiceAccount that a GovernedServer names for its gateway what a gateway needs, by
// a Role and a RoleBinding that belong to the server. It can give only what the manager's own role holds, since the API
// server lets nobody give more, and it touches no Role that is not its own.
type GatewayRightsReconciler struct {
	Client client.Client
	// Live reads past the cache: Roles and RoleBindings, of which the cache holds but metadata.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers/status,verbs=patch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers/authority,verbs=serve
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=toolpolicies;approvalrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=approvalrequests,verbs=create
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=approvalrequests/status,verbs=update;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager has the servers watched, what belongs to them, and the labels of Secrets.
func (r *GatewayRightsReconciler) SetupWithManager(mgr ctrl.Manager) error {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("gatewayrights").
		For(&v1alpha1.GovernedServer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&rbacv1.Role{}, builder.OnlyMetadata).
		Owns(&rbacv1.RoleBinding{}, builder.OnlyMetadata).
		Watches(&v1alpha1.GovernedServer{}, handler.EnqueueRequestsFromMapFunc(r.besides), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(secret, handler.EnqueueRequestsFromMapFunc(serverLabelled)).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile makes the rights of a server's gateway what its spec says, and says how that went.
func (r *GatewayRightsReconciler) Reconcile(ctx context.Context, server *v1alpha1.GovernedServer) (ctrl.Result, error) {
	if !server.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the collector takes what belongs to it
	}
	g, err := r.gather(ctx, server)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.put(ctx, g); err != nil {
		return quiet(err)
	}
	if err := r.describe(ctx, server, g); err != nil {
		return quiet(err)
	}
	if g.foreign() {
		return ctrl.Result{RequeueAfter: foreignDelay}, nil
	}
	return ctrl.Result{}, nil
}

func (r *GatewayRightsReconciler) gather(ctx context.Context, server *v1alpha1.GovernedServer) (grant, error) {
	g := grant{server: server, account: accountOf(server)}
	var roles rbacv1.RoleList
	if err := r.Live.List(ctx, &roles, client.InNamespace(server.Namespace)); err != nil {
		return grant{}, fmt.Errorf("list Roles: %w", err)
	}
	for i := range roles.Items {
		if g.made(&roles.Items[i]) {
			g.roles = append(g.roles, &roles.Items[i])
		}
	}
	key, binding := client.ObjectKey{Namespace: server.Namespace, Name: rightsName(server.Name)}, &rbacv1.RoleBinding{}
	switch err := r.Live.Get(ctx, key, binding); {
	case err == nil:
		g.binding = binding
	case !apierrors.IsNotFound(err):
		return grant{}, fmt.Errorf("read RoleBinding %s: %w", key.Name, err)
	}
	if g.account == "" {
		return g, nil
	}
	siblings, err := r.sharing(ctx, server)
	if err != nil {
		return grant{}, err
	}
	g.shared = len(siblings) > 0
	for _, name := range secretsOf(server) {
		labelled, err := r.labelled(ctx, server, name)
		switch {
		case err != nil:
			return grant{}, err
		case labelled:
			g.secrets = append(g.secrets, name)
		default:
			g.withheld = append(g.withheld, name)
		}
	}
	return g, nil
}

// sharing returns the other servers of the namespace whose gateway runs as the same ServiceAccount.
func (r *GatewayRightsReconciler) sharing(ctx context.Context, server *v1alpha1.GovernedServer) ([]string, error) {
	var all v1alpha1.GovernedServerList
	if err := r.Client.List(ctx, &all, client.InNamespace(server.Namespace)); err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	var names []string
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name != server.Name && other.DeletionTimestamp.IsZero() && accountOf(other) == accountOf(server) {
			names = append(names, other.Name)
		}
	}
	return names, nil
}

// labelled tells, by its metadata, whether a Secret is labelled for the server.
func (r *GatewayRightsReconciler) labelled(ctx context.Context, server *v1alpha1.GovernedServer, name string) (bool, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: server.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the labels of Secret %s: %w", name, err)
	}
	return err == nil && secret.Labels[v1alpha1.ServerLabel] == server.Name, nil
}

// put makes the rights what they should be. A Role that is there is never changed: somebody may have taken rights out of
// it, bound the rest, which they may, and wait for the rights to come back. So what is not as it should be is replaced by
// a new Role under a name that nobody can have bound, and the RoleBinding by one to that.
func (r *GatewayRightsReconciler) put(ctx context.Context, g grant) error {
	if g.account == "" || g.foreign() {
		return r.withdraw(ctx, g)
	}
	current := g.current()
	if current == nil {
		made := g.wantedRole()
		if err := r.Client.Create(ctx, made); err != nil {
			return fmt.Errorf("create Role %s: %w", made.GenerateName, err)
		}
		if g.binding != nil { // what it leads to cannot be changed
			if err := r.remove(ctx, g.binding); err != nil {
				return err
			}
			g.binding = nil
		}
		current = made
	}
	if err := r.putBinding(ctx, g, current.Name); err != nil {
		return err
	}
	for _, role := range g.roles {
		if role.Name == current.Name {
			continue
		}
		if err := r.remove(ctx, role); err != nil {
			return err
		}
	}
	return nil
}

// withdraw removes what belongs to the server, the RoleBinding first.
func (r *GatewayRightsReconciler) withdraw(ctx context.Context, g grant) error {
	if g.binding != nil && g.owns(g.binding) {
		if err := r.remove(ctx, g.binding); err != nil {
			return err
		}
	}
	for _, role := range g.roles {
		if err := r.remove(ctx, role); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes exactly the object that was read.
func (r *GatewayRightsReconciler) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	if err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return fmt.Errorf("remove %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// putBinding makes the RoleBinding to a Role what it should be.
func (r *GatewayRightsReconciler) putBinding(ctx context.Context, g grant, role string) error {
	wanted := g.wantedBinding(role)
	if g.binding == nil {
		if err := r.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("create RoleBinding %s: %w", wanted.Name, err)
		}
		return nil
	}
	mended := g.binding.DeepCopy()
	mended.Subjects, mended.Labels = wanted.Subjects, merged(mended.Labels, wanted.Labels)
	if equality.Semantic.DeepEqual(mended, g.binding) {
		return nil
	}
	if err := r.Client.Update(ctx, mended); err != nil {
		return fmt.Errorf("update RoleBinding %s: %w", mended.Name, err)
	}
	return nil
}

// describe saves the condition, then tells if its reason turned.
func (r *GatewayRightsReconciler) describe(ctx context.Context, server *v1alpha1.GovernedServer, g grant) error {
	before := server.DeepCopy()
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionGatewayAuthorized)
	if g.account == "" {
		meta.RemoveStatusCondition(&server.Status.Conditions, v1alpha1.ConditionGatewayAuthorized)
	} else {
		is := g.condition()
		is.LastTransitionTime = metav1.NewTime(r.Clock.Now().Truncate(time.Second))
		meta.SetStatusCondition(&server.Status.Conditions, is)
	}
	if equality.Semantic.DeepEqual(before.Status, server.Status) {
		return nil
	}
	setReady(server, r.Clock.Now())
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, server, patch); err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	is := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionGatewayAuthorized)
	if is == nil || was != nil && was.Reason == is.Reason {
		return nil
	}
	kind := corev1.EventTypeNormal
	if is.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(server, nil, kind, is.Reason, "Authorize", "%s", is.Message)
	return nil
}

// besides wakes the other servers whose gateway runs as the ServiceAccount of a server that came, changed or went.
func (r *GatewayRightsReconciler) besides(ctx context.Context, changed client.Object) []reconcile.Request {
	server, ok := changed.(*v1alpha1.GovernedServer)
	if !ok || accountOf(server) == "" {
		return nil
	}
	names, err := r.sharing(ctx, server)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list servers to wake")
		return nil
	}
	var woken []reconcile.Request
	for _, name := range names {
		woken = append(woken, reconcileServer(server.Namespace, name))
	}
	return woken
}
