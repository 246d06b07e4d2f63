// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// maxNotInForce is how many lines status.notInForce holds.
const maxNotInForce = 256

// ToolPolicyReconciler keeps a ToolPolicy's status true: which of its entries are in force, and why others are not.
type ToolPolicyReconciler struct {
	Client client.Client
	// Library compiles policies.
	Library *policy.Library
	// OperatorNamespace is where baselines count.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=toolpolicies;governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=toolpolicies/status,verbs=patch

// SetupWithManager watches policies, and the servers that they target. What another policy says of the same server
// shows in none but that server's own status, so a change of one wakes all policies of the server.
func (r *ToolPolicyReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolPolicy{}).
		Watches(&v1alpha1.GovernedServer{}, handler.EnqueueRequestsFromMapFunc(r.ofServer)).
		Watches(&v1alpha1.ToolPolicy{}, handler.EnqueueRequestsFromMapFunc(r.besides)).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile judges the policy against its targets and saves what it found.
func (r *ToolPolicyReconciler) Reconcile(ctx context.Context, p *v1alpha1.ToolPolicy) (ctrl.Result, error) {
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := p.DeepCopy()
	lines, err := r.judge(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	describePolicy(p, lines)
	if equality.Semantic.DeepEqual(before.Status, p.Status) {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, p, patch); err != nil {
		return quiet(fmt.Errorf("save status: %w", err))
	}
	return ctrl.Result{}, nil
}

// judge returns a line for every entry that is not in force on one of the policy's targets.
func (r *ToolPolicyReconciler) judge(ctx context.Context, p *v1alpha1.ToolPolicy) ([]v1alpha1.NotInForce, error) {
	var all v1alpha1.ToolPolicyList
	if err := r.Client.List(ctx, &all, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	var lines []v1alpha1.NotInForce
	for _, target := range slices.Sorted(slices.Values(p.Spec.Targets)) {
		server := &v1alpha1.GovernedServer{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: target}, server)
		if apierrors.IsNotFound(err) {
			lines = append(lines, v1alpha1.NotInForce{Server: target, Field: "spec.targets", Reason: v1alpha1.NotInForceServerMissing,
				Message: fmt.Sprintf("there is no GovernedServer %s in this namespace", target)})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read server %s: %w", target, err)
		}
		endpoint, err := tool.EndpointDigest(server.Spec.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("digest endpoint of %s: %w", target, err)
		}
		lines = append(lines, policy.Compile(policy.Inputs{Server: server, Policies: r.Library.Parse(all.Items), EndpointDigest: endpoint}).NotInForce(p)...)
	}
	return lines, nil
}

// describePolicy puts what was found into the status.
func describePolicy(p *v1alpha1.ToolPolicy, lines []v1alpha1.NotInForce) {
	p.Status.ObservedGeneration = p.Generation
	p.Status.NotInForce = lines[:min(len(lines), maxNotInForce)]
	set := func(condition, reason, message string, status metav1.ConditionStatus) {
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
			Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: p.Generation,
		})
	}
	// What the schema lets through can be used as it is; rules that need compiling do not exist yet.
	set(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "The policy can be used as it is written", metav1.ConditionTrue)
	if len(lines) == 0 {
		set(v1alpha1.ConditionEffective, v1alpha1.ReasonInForce, "All of the policy is in force", metav1.ConditionTrue)
		return
	}
	message := fmt.Sprintf("%s on %s is not in force: %s", lines[0].Field, lines[0].Server, lines[0].Message)
	if more := len(lines) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	set(v1alpha1.ConditionEffective, v1alpha1.ReasonPartlyInForce, message, metav1.ConditionFalse)
}

// ofServer wakes the policies that target a server.
func (r *ToolPolicyReconciler) ofServer(ctx context.Context, server client.Object) []reconcile.Request {
	return r.requests(ctx, server.GetNamespace(), func(p *v1alpha1.ToolPolicy) bool {
		return slices.Contains(p.Spec.Targets, server.GetName())
	})
}

// besides wakes the other policies that share a target with a policy.
func (r *ToolPolicyReconciler) besides(ctx context.Context, changed client.Object) []reconcile.Request {
	one, ok := changed.(*v1alpha1.ToolPolicy)
	if !ok {
		return nil
	}
	return r.requests(ctx, one.Namespace, func(p *v1alpha1.ToolPolicy) bool {
		return p.Name != one.Name && slices.ContainsFunc(p.Spec.Targets, func(t string) bool { return slices.Contains(one.Spec.Targets, t) })
	})
}

func (r *ToolPolicyReconciler) requests(ctx context.Context, namespace string, wanted func(*v1alpha1.ToolPolicy) bool) []reconcile.Request {
	var all v1alpha1.ToolPolicyList
	if err := r.Client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list policies to wake")
		return nil
	}
	var woken []reconcile.Request
	for i := range all.Items {
		if wanted(&all.Items[i]) {
			woken = append(woken, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return woken
}
