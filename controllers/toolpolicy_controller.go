// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
)

// baselineDelay gathers what happens to many servers into one look at a baseline, which looks at all of them.
const baselineDelay = time.Second

// ToolPolicyReconciler keeps a ToolPolicy's status true: whether it can be used as it is written, which of its entries are
// in force, and why others are not.
type ToolPolicyReconciler struct {
	Client client.Client
	// Survey reads what policies meet.
	Survey *survey.Surveyor
	// OperatorNamespace is where baselines count.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=toolpolicies;governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=toolpolicies/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch

// SetupWithManager watches policies, the servers that they cover, and what is kept of their definitions. What another
// policy says of the same server shows in none but that server's own status, so a change of one wakes all policies that
// may cover the same servers.
func (r *ToolPolicyReconciler) SetupWithManager(mgr ctrl.Manager) error {
	kept := &metav1.PartialObjectMetadata{}
	kept.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ToolPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GovernedServer{}, r.waking(r.ofServer)).
		Watches(&v1alpha1.ToolPolicy{}, r.waking(r.besides), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(kept, r.waking(r.ofDefinitions)).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile surveys the policy and saves what was found.
func (r *ToolPolicyReconciler) Reconcile(ctx context.Context, p *v1alpha1.ToolPolicy) (ctrl.Result, error) {
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := p.DeepCopy()
	parsed := r.Survey.Parse(p)
	found, err := r.Survey.Of(ctx, parsed)
	if err != nil {
		return ctrl.Result{}, err
	}
	describePolicy(p, parsed.Problems(), found)
	if equality.Semantic.DeepEqual(before.Status, p.Status) {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, p, patch); err != nil {
		return quiet(fmt.Errorf("save status: %w", err))
	}
	return ctrl.Result{}, nil
}

// describePolicy puts what was found into the status. Accepted, and with it Ready, is False for what the author has to
// mend, and for nothing else: a server that is not there, or a record that is not clean, is no fault of the policy.
func describePolicy(p *v1alpha1.ToolPolicy, problems []policy.Problem, found *survey.Survey) {
	p.Status.ObservedGeneration = p.Generation
	set := func(condition string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
			Type: condition, Status: status, Reason: reason, Message: glyph.Clip(message, maxMessage), ObservedGeneration: p.Generation,
		})
	}
	reason, message := acceptance(problems, found)
	if reason == v1alpha1.ReasonAccepted {
		set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, reason, message)
		set(v1alpha1.ConditionReady, metav1.ConditionTrue, reason, message)
		meta.RemoveStatusCondition(&p.Status.Conditions, v1alpha1.ConditionStalled)
	} else {
		set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, message)
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
		set(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
	}

	lines, count := notInForce(found)
	p.Status.NotInForce = lines
	if count == 0 {
		set(v1alpha1.ConditionEffective, metav1.ConditionTrue, v1alpha1.ReasonInForce, "All of the policy is in force")
		return
	}
	message = lines[0].Field
	if lines[0].Server != "" {
		message += " on " + lines[0].Server
	}
	message += " is not in force: " + lines[0].Message
	if count > 1 {
		message = fmt.Sprintf("%s (and %d more)", glyph.Clip(message, maxMessage-len(" (and 1000000 more)")), count-1)
	}
	set(v1alpha1.ConditionEffective, metav1.ConditionFalse, v1alpha1.ReasonPartlyInForce, message)
}

// acceptance returns the reason and message of Accepted: what the author has to mend first.
func acceptance(problems []policy.Problem, found *survey.Survey) (reason, message string) {
	if found.Misplaced {
		return v1alpha1.ReasonWrongNamespace, "spec.namespaceSelector counts in the operator's namespace only; name the servers of this namespace in spec.targets"
	}
	var all []string
	for _, problem := range problems {
		all = append(all, problem.String())
	}
	for _, f := range found.Findings {
		if f.Severity == policy.SeverityError {
			all = append(all, f.String())
		}
	}
	switch len(all) {
	case 0:
		return v1alpha1.ReasonAccepted, "The policy can be used as it is written"
	case 1:
		return v1alpha1.ReasonInvalid, all[0]
	default:
		return v1alpha1.ReasonInvalid, fmt.Sprintf("%s, and %d more", glyph.Clip(all[0], maxMessage-len(", and 100000 more")), len(all)-1)
	}
}

// notInForce returns what is not in force for all servers, then what is not on some, and how many lines there are.
func notInForce(found *survey.Survey) (lines []v1alpha1.NotInForce, count int) {
	if found.Misplaced {
		return []v1alpha1.NotInForce{{Field: "spec.namespaceSelector", Reason: v1alpha1.NotInForceInvalid,
			Message: "a baseline counts in the operator's namespace only"}}, 1
	}
	for _, f := range found.Findings {
		if f.Severity == policy.SeverityError || f.Reason == v1alpha1.NotInForceUnreachable {
			lines = append(lines, v1alpha1.NotInForce{Field: f.Field, Tool: f.Tool, Reason: f.Reason, Message: glyph.Clip(f.Place()+f.Message, maxMessage)})
		}
	}
	count = len(lines) + found.Count
	lines = append(lines, found.Lines...)
	return lines[:min(len(lines), survey.MaxLines)], count
}

// waking enqueues the policies that a change may matter to; baselines a little later, so that they look once at much.
func (r *ToolPolicyReconciler) waking(concerned func(context.Context, client.Object) []v1alpha1.ToolPolicy) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	wake := func(ctx context.Context, object client.Object, q queue) {
		for _, p := range concerned(ctx, object) {
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&p)}
			if p.Spec.NamespaceSelector != nil {
				q.AddAfter(request, baselineDelay)
			} else {
				q.Add(request)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			wake(ctx, e.ObjectOld, q)
			wake(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

// ofServer returns the policies that may cover a server.
func (r *ToolPolicyReconciler) ofServer(ctx context.Context, server client.Object) []v1alpha1.ToolPolicy {
	return r.coverers(ctx, server.GetNamespace(), []string{server.GetName()})
}

// ofDefinitions returns the policies that may cover the server whose definitions a ConfigMap keeps.
func (r *ToolPolicyReconciler) ofDefinitions(ctx context.Context, kept client.Object) []v1alpha1.ToolPolicy {
	if name := kept.GetLabels()[v1alpha1.ServerLabel]; name != "" {
		return r.coverers(ctx, kept.GetNamespace(), []string{name})
	}
	return nil
}

// besides returns the other policies that may cover a server that a policy covers; for a baseline all there are.
func (r *ToolPolicyReconciler) besides(ctx context.Context, changed client.Object) []v1alpha1.ToolPolicy {
	one, ok := changed.(*v1alpha1.ToolPolicy)
	switch {
	case !ok:
		return nil
	case one.Spec.NamespaceSelector == nil:
		return r.coverers(ctx, one.Namespace, one.Spec.Targets)
	case one.Namespace != r.OperatorNamespace:
		return nil
	}
	var all v1alpha1.ToolPolicyList
	if err := r.Client.List(ctx, &all); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list policies to wake")
	}
	return all.Items
}

// coverers returns the policies that target one of some servers, and the baselines.
func (r *ToolPolicyReconciler) coverers(ctx context.Context, namespace string, servers []string) []v1alpha1.ToolPolicy {
	all, err := policiesFor(ctx, r.Client, namespace, r.OperatorNamespace)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list policies to wake")
		return nil
	}
	return slices.DeleteFunc(all, func(p v1alpha1.ToolPolicy) bool {
		if p.Spec.NamespaceSelector != nil {
			return p.Namespace != r.OperatorNamespace
		}
		return p.Namespace != namespace || !slices.ContainsFunc(p.Spec.Targets, func(t string) bool { return slices.Contains(servers, t) })
	})
}
