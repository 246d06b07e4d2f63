// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1apply "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

// PodNetworkReconciler keeps a NetworkPolicy for the governed pods of a server that runs in them, and for those of a
// standalone gateway: it admits the gateway's port, and the manager to the port by which the gateway tells of the server's
// tools. It is a second wall behind loopback, and holds where the network plugin enforces NetworkPolicies.
type PodNetworkReconciler struct {
	Client client.Client
	// Live reads past the cache, which holds but metadata of what is ours.
	Live   client.Reader
	Events events.EventRecorder
	// OperatorNamespace is where the manager's pods are.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager has the servers watched, and their NetworkPolicies.
func (r *PodNetworkReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("podnetwork").
		For(&v1alpha1.GovernedServer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&networkingv1.NetworkPolicy{}, builder.OnlyMetadata).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile makes the NetworkPolicy of a server what it should be, or removes it.
func (r *PodNetworkReconciler) Reconcile(ctx context.Context, server *v1alpha1.GovernedServer) (ctrl.Result, error) {
	if !server.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the collector takes what belongs to it
	}
	is := &networkingv1.NetworkPolicy{}
	key := client.ObjectKey{Namespace: server.Namespace, Name: networkName(server.Name)}
	err := r.Live.Get(ctx, key, is)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read NetworkPolicy %s: %w", key.Name, err)
	}
	_, inPod := endpoint.InPod(server.Spec.Endpoint)
	ofPods := inPod || standalone.Wanted(server)
	exists, ours := err == nil, metav1.IsControlledBy(is, server)
	switch {
	case !ofPods && (!exists || !ours):
		return ctrl.Result{}, nil
	case !ofPods:
		return quiet(client.IgnoreNotFound(r.Client.Delete(ctx, is, client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})))
	case exists && !ours: // of somebody else, or of an earlier server of this name, whose is collected
		if !slices.ContainsFunc(is.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "GovernedServer" }) {
			r.Events.Eventf(server, nil, corev1.EventTypeWarning, v1alpha1.ReasonNetworkPolicyConflict, "Isolate",
				"NetworkPolicy %s is not the operator's: delete or rename it", key.Name)
		}
		return ctrl.Result{RequeueAfter: foreignDelay}, nil
	}
	if err := r.Client.Apply(ctx, r.wanted(server), client.FieldOwner("tidewaiter-manager"), client.ForceOwnership); err != nil {
		return quiet(fmt.Errorf("apply NetworkPolicy %s: %w", key.Name, err))
	}
	return ctrl.Result{}, nil
}

// wanted admits agents to the gateway, and the manager to its control port; nothing else reaches the pods.
func (r *PodNetworkReconciler) wanted(server *v1alpha1.GovernedServer) *networkingv1apply.NetworkPolicyApplyConfiguration {
	port := func(number int32) *networkingv1apply.NetworkPolicyPortApplyConfiguration {
		return networkingv1apply.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(number))
	}
	manager := networkingv1apply.NetworkPolicyPeer().
		WithNamespaceSelector(metav1apply.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: r.OperatorNamespace})).
		WithPodSelector(metav1apply.LabelSelector().WithMatchLabels(map[string]string{"app.kubernetes.io/name": "tidewaiter", "app.kubernetes.io/component": "manager"}))
	return networkingv1apply.NetworkPolicy(networkName(server.Name), server.Namespace).
		WithLabels(map[string]string{v1alpha1.ServerLabel: server.Name, ManagedByLabel: ManagedBy}).
		WithOwnerReferences(metav1apply.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("GovernedServer").
			WithName(server.Name).WithUID(server.UID).WithController(true).WithBlockOwnerDeletion(false)).
		WithSpec(networkingv1apply.NetworkPolicySpec().
			WithPodSelector(metav1apply.LabelSelector().WithMatchLabels(map[string]string{v1alpha1.GovernLabel: server.Name})).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(
				networkingv1apply.NetworkPolicyIngressRule().WithPorts(port(sidecar.AgentPort)),
				networkingv1apply.NetworkPolicyIngressRule().WithPorts(port(sidecar.ControlPort)).WithFrom(manager),
			))
}

func networkName(server string) string { return "tidewaiter-" + server }
