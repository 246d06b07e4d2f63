// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// requestRetention is how long a request is kept after its end.
	requestRetention = 24 * time.Hour
	// maxCallTimeout is the longest callTimeout that the schema takes.
	maxCallTimeout = time.Hour
	// conflictDelay keeps a lost race quiet: the newer version is on its way through the watch anyway.
	conflictDelay = time.Second
	// requestWorkers lets many requests that expire at once expire on time.
	requestWorkers = 4
)

// ApprovalRequestReconciler moves ApprovalRequests along their life: by the clock, and by the end of their server or of
// the definition that they are about. It decides nothing: what people say is counted by the webhook, in the very write that says it.
type ApprovalRequestReconciler struct {
	Client client.Client
	// Live reads past the cache. A request is not cancelled because the cache has not seen its server yet.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=approvalrequests,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=approvalrequests/status,verbs=patch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager has the requests watched, and the servers for their end.
func (r *ApprovalRequestReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ApprovalRequest{}).
		Watches(&v1alpha1.GovernedServer{}, handler.EnqueueRequestsFromMapFunc(r.requestsOf), builder.WithPredicates(serverTurned())).
		Watches(&v1alpha1.ApprovalRequest{}, handler.Funcs{UpdateFunc: r.announce}).
		WithOptions(controller.Options{MaxConcurrentReconciles: requestWorkers}).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile takes the next step in the life of a request and says when to look again.
func (r *ApprovalRequestReconciler) Reconcile(ctx context.Context, request *v1alpha1.ApprovalRequest) (ctrl.Result, error) {
	if !request.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	void, err := r.void(ctx, request)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read server %s: %w", request.Spec.ServerRef.Name, err)
	}
	step := nextStep(request, void, r.Clock.Now())
	if err := r.take(ctx, request, step); err != nil {
		return quiet(err)
	}
	return ctrl.Result{RequeueAfter: step.wait}, nil
}

// void says why a request can no longer be used, if so. What the cache says against it is asked of the API server: the
// cache may have seen the request before it saw what the request is about.
func (r *ApprovalRequestReconciler) void(ctx context.Context, request *v1alpha1.ApprovalRequest) (reason v1alpha1.CancellationReason, err error) {
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.ServerRef.Name}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		var server v1alpha1.GovernedServer
		if err := reader.Get(ctx, key, &server); client.IgnoreNotFound(err) != nil {
			return "", err
		}
		reason, err = voidBy(request, &server)
		if open := request.CurrentPhase() == v1alpha1.PhasePending || request.CurrentPhase() == v1alpha1.PhaseApproved; err != nil ||
			reason == "" || !open && reason == v1alpha1.CancelToolChanged {
			return "", err
		}
	}
	return reason, nil
}

// voidBy says why a request cannot be used on a server as it is, if so: it is another one or none, it moved, or its last
// listing shows another definition of the tool. A listing from before the request says nothing of it, since a gateway may
// see a new definition first; nor does one that is not whole.
func voidBy(request *v1alpha1.ApprovalRequest, server *v1alpha1.GovernedServer) (v1alpha1.CancellationReason, error) {
	if string(server.UID) != request.Spec.ServerRef.UID {
		return v1alpha1.CancelServerGone, nil
	}
	endpoint, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		return "", fmt.Errorf("digest the endpoint: %w", err)
	}
	if endpoint != request.Spec.EndpointDigest {
		return v1alpha1.CancelToolChanged, nil
	}
	listed := server.Status.Tool(request.Spec.Tool)
	if listed == nil || listed.Digest == request.Spec.ToolDigest || server.Status.EndpointDigest != endpoint {
		return "", nil
	}
	changed := server.Status.LastChanged
	if changed == nil || changed.Time.Before(request.CreationTimestamp.Time) ||
		meta.IsStatusConditionFalse(server.Status.Conditions, v1alpha1.ConditionClassified) {
		return "", nil
	}
	return v1alpha1.CancelToolChanged, nil
}

// step is one move of a request. The zero value leaves it as it is and never looks again by the clock.
type step struct {
	// phase to enter; empty to stay.
	phase v1alpha1.Phase
	// cancellation goes with PhaseCancelled.
	cancellation v1alpha1.CancellationReason
	// remove ends the retention.
	remove bool
	// wait until the clock alone can change the answer; zero for never.
	wait time.Duration
}

// nextStep is the state machine of a request, but for the steps of the gateway; void says why it can no longer be used.
func nextStep(request *v1alpha1.ApprovalRequest, void v1alpha1.CancellationReason, now time.Time) step {
	switch request.CurrentPhase() {
	case v1alpha1.PhasePending, v1alpha1.PhaseApproved:
		return nextOpen(request, void, now)
	case v1alpha1.PhaseExecuting:
		if deadline := deadlineOf(request); now.Before(deadline) {
			return step{wait: deadline.Sub(now)}
		}
		return step{phase: v1alpha1.PhaseAmbiguous}
	case v1alpha1.PhaseAmbiguous:
		return step{} // however old it is, a person settles it
	case v1alpha1.PhaseDenied, v1alpha1.PhaseDismissed, v1alpha1.PhaseExpired, v1alpha1.PhaseCancelled,
		v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed:
		return nextEnded(request, void != v1alpha1.CancelServerGone, now)
	default:
		return step{}
	}
}

// nextOpen ends a request that is open: by its expiry, or with what it is about.
func nextOpen(request *v1alpha1.ApprovalRequest, void v1alpha1.CancellationReason, now time.Time) step {
	switch expiry := request.ExpiresAt(); {
	case !now.Before(expiry):
		return step{phase: v1alpha1.PhaseExpired, wait: requestRetention}
	case void != "":
		return step{phase: v1alpha1.PhaseCancelled, cancellation: void}
	default:
		return step{wait: expiry.Sub(now)}
	}
}

// deadlineOf returns when a claimed call counts as lost. Without a deadline, which no gateway of ours leaves out, it
// is the expiry, and no deadline is later than one that a gateway may set: nothing executes for ever.
func deadlineOf(request *v1alpha1.ApprovalRequest) time.Time {
	if e := request.Status.Execution; e != nil && e.Deadline != nil {
		return sooner(e.Deadline.Time, lastDeadline(request))
	}
	return request.ExpiresAt()
}

// lastDeadline is the latest deadline that is possible: of a call that was claimed as its request expired, with the
// longest callTimeout. What a gateway writes is not trusted beyond it.
func lastDeadline(request *v1alpha1.ApprovalRequest) time.Time {
	return request.ExpiresAt().Add(maxCallTimeout)
}

// nextEnded decides when an ended request is removed: after its retention, and not before it is in the records of its
// server, if that is still there.
func nextEnded(request *v1alpha1.ApprovalRequest, serverExists bool, now time.Time) step {
	end := endOf(request)
	accounted := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAccounted)
	switch {
	case accounted != nil && accounted.Status == metav1.ConditionTrue:
		// The counting follows the end, and unlike a resolution its time is the manager's own.
		end = later(end, accounted.LastTransitionTime.Time)
	case isCounted(request.CurrentPhase()) && serverExists:
		return step{} // the condition wakes us, or the end of the server
	}
	if removal := end.Add(requestRetention); now.Before(removal) {
		return step{wait: removal.Sub(now)}
	}
	return step{remove: true}
}

// endOf returns when a request ended as far as its execution tells, else its expiry: a denial answers until then.
func endOf(request *v1alpha1.ApprovalRequest) time.Time {
	ran := request.CurrentPhase() == v1alpha1.PhaseSucceeded || request.CurrentPhase() == v1alpha1.PhaseFailed
	e := request.Status.Execution
	switch {
	case ran && e != nil && e.FinishedAt != nil:
		return sooner(e.FinishedAt.Time, lastDeadline(request))
	case ran && e != nil && e.Deadline != nil:
		return sooner(e.Deadline.Time, lastDeadline(request))
	default:
		return request.ExpiresAt()
	}
}

// isCounted tells whether a phase goes into the records of the server.
func isCounted(phase v1alpha1.Phase) bool {
	return phase == v1alpha1.PhaseSucceeded || phase == v1alpha1.PhaseFailed || phase == v1alpha1.PhaseDenied
}

// take does what was decided, on exactly the version that was judged.
func (r *ApprovalRequestReconciler) take(ctx context.Context, request *v1alpha1.ApprovalRequest, s step) error {
	if s.remove {
		judged := client.Preconditions{UID: &request.UID, ResourceVersion: &request.ResourceVersion}
		if err := r.Client.Delete(ctx, request, judged); err != nil {
			return fmt.Errorf("remove request: %w", err)
		}
		return nil
	}
	if s.phase == "" {
		return nil
	}
	before := request.DeepCopy()
	request.Status.Phase = s.phase
	if s.cancellation != "" {
		request.Status.Cancellation = &v1alpha1.Cancellation{Reason: s.cancellation}
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, request, patch); err != nil {
		return fmt.Errorf("save phase %s: %w", s.phase, err)
	}
	r.tell(request, "Advance")
	return nil
}

// announce tells of a decision or a resolution of a person, which others wrote, as the watch shows it. A manager that
// starts is shown the requests that are there as new ones, so it tells nothing twice; what was decided while none led
// is in the votes.
func (r *ApprovalRequestReconciler) announce(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	before, okBefore := e.ObjectOld.(*v1alpha1.ApprovalRequest)
	after, okAfter := e.ObjectNew.(*v1alpha1.ApprovalRequest)
	if okBefore && okAfter && saidByAPerson(before, after) {
		r.tell(after, "Decide")
	}
}

// saidByAPerson tells whether the phase of a request was changed by a decision or a resolution.
func saidByAPerson(before, after *v1alpha1.ApprovalRequest) bool {
	switch after.CurrentPhase() {
	case v1alpha1.PhaseApproved, v1alpha1.PhaseDenied, v1alpha1.PhaseDismissed:
		return before.CurrentPhase() != after.CurrentPhase()
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed:
		return before.Status.Resolution == nil && after.Status.Resolution != nil
	default:
		return false
	}
}

// tell sends the event of the phase that a request has entered.
func (r *ApprovalRequestReconciler) tell(request *v1alpha1.ApprovalRequest, action string) {
	kind, text := words(request)
	r.Events.Eventf(request, nil, kind, string(request.CurrentPhase()), action, "%s", text)
}

// words are what the event says of the phase that a request has entered. They name no argument and no person.
func words(request *v1alpha1.ApprovalRequest) (kind, text string) {
	switch request.CurrentPhase() {
	case v1alpha1.PhaseApproved:
		return corev1.EventTypeNormal, "The action may run once, until the request expires"
	case v1alpha1.PhaseDenied:
		return corev1.EventTypeNormal, "The action is refused, and the tool loses its autonomy"
	case v1alpha1.PhaseDismissed:
		return corev1.EventTypeNormal, "The action is refused for now, without prejudice"
	case v1alpha1.PhaseExpired:
		if request.Status.Decision == v1alpha1.DecisionApproved {
			return corev1.EventTypeNormal, "The approval was not used in time"
		}
		return corev1.EventTypeNormal, "Nobody decided in time"
	case v1alpha1.PhaseCancelled:
		if c := request.Status.Cancellation; c != nil && c.Reason == v1alpha1.CancelToolChanged {
			return corev1.EventTypeNormal, "The tool, or the endpoint of its server, is not the one that was asked about; the agent has to ask anew"
		}
		return corev1.EventTypeNormal, "The server that the action was for is gone"
	case v1alpha1.PhaseAmbiguous:
		return corev1.EventTypeWarning, "The call did not end in time; find out whether it took effect, then run kubectl tidewaiter resolve"
	case v1alpha1.PhaseSucceeded:
		return corev1.EventTypeNormal, "A person found that the call took effect"
	case v1alpha1.PhaseFailed:
		return corev1.EventTypeNormal, "A person found that the call did not take effect"
	default:
		return corev1.EventTypeNormal, "The request moved on"
	}
}

// serverTurned lets through the end of a server, also where another of the same name took its place, and what can make
// another thing of a tool that was asked about: another endpoint or listing.
func serverTurned() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, okBefore := e.ObjectOld.(*v1alpha1.GovernedServer)
			after, okAfter := e.ObjectNew.(*v1alpha1.GovernedServer)
			return okBefore && okAfter && (before.UID != after.UID || before.Generation != after.Generation ||
				!slices.EqualFunc(before.Status.Tools, after.Status.Tools, sameTool) ||
				meta.IsStatusConditionFalse(before.Status.Conditions, v1alpha1.ConditionClassified) !=
					meta.IsStatusConditionFalse(after.Status.Conditions, v1alpha1.ConditionClassified))
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// requestsOf returns the requests of a server that has turned. What it misses by an error ends when it expires.
func (r *ApprovalRequestReconciler) requestsOf(ctx context.Context, server client.Object) []reconcile.Request {
	var all v1alpha1.ApprovalRequestList
	if err := r.Client.List(ctx, &all, client.InNamespace(server.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list requests of a server", "server", server.GetName())
		return nil
	}
	var found []reconcile.Request
	for i := range all.Items {
		if all.Items[i].Spec.ServerRef.Name == server.GetName() {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}
