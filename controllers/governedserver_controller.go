// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers keeps the status of GovernedServers, ToolPolicies and ApprovalRequests true; it is never on the path
// of a call, and approves nothing.
package controllers

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/failpoint"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// serverWorkers is how many servers are reconciled at a time; none of it waits for an MCP server.
	serverWorkers = 8
	// maxFresh is how many requests of one server are read past the cache at a time.
	maxFresh = 100
	// serverRefIndex finds the requests of a server, in the cache and, as a field selector, in the API server.
	serverRefIndex = "spec.serverRef.name"
)

// GovernedServerReconciler keeps a GovernedServer's status true to the server it names, and its records true to the
// requests of its tools.
type GovernedServerReconciler struct {
	Client client.Client
	// Live reads past the cache: Secrets, and what must be certain before a request is counted.
	Live    client.Reader
	Events  events.EventRecorder
	Clock   clock.WithTicker
	Metrics *GovernedServerMetrics
	// Allow lists the addresses that may be dialled beside public ones.
	Allow []netip.Prefix
	// Discover lists a server's tools. Its errors are of type *discovery.Error: same fault, same words.
	Discover func(context.Context, discovery.Target) (discovery.Result, error)
	// Watch calls back when a server says that its tools have changed, and returns when it no longer can.
	Watch func(ctx context.Context, target discovery.Target, changed func()) error
	// Through asks the servers that run on the loopback of their pods.
	Through Through

	// Library compiles policies.
	Library *policy.Library
	// OperatorNamespace is where baselines count.
	OperatorNamespace string

	listings *listings
	shelved  shelved
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers;toolpolicies;approvalrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers/status;approvalrequests/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager has the servers watched, and what their status depends on.
func (r *GovernedServerReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.ApprovalRequest{}, serverRefIndex, serverOfRequest); err != nil {
		return fmt.Errorf("index requests by server: %w", err)
	}
	news := make(chan event.TypedGenericEvent[types.NamespacedName], 1024)
	r.listings = newListings(r.Clock, rand.Float64, func(key types.NamespacedName) {
		select {
		case news <- event.TypedGenericEvent[types.NamespacedName]{Object: key}:
		case <-ctx.Done():
		}
	}, r.Metrics)
	if err := mgr.Add(r.listings); err != nil {
		return fmt.Errorf("add the listings: %w", err)
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	kept := &metav1.PartialObjectMetadata{}
	kept.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.GovernedServer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ToolPolicy{}, handler.EnqueueRequestsFromMapFunc(governedBy(mgr.GetClient(), r.OperatorNamespace))).
		WatchesMetadata(namespaceMeta(), handler.EnqueueRequestsFromMapFunc(inNamespace(mgr.GetClient())), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.ApprovalRequest{}, handler.EnqueueRequestsFromMapFunc(serverAsked), builder.WithPredicates(fateChanged())).
		WatchesMetadata(secret, handler.EnqueueRequestsFromMapFunc(serverLabelled)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(podGoverned), builder.WithPredicates(podMoved())).
		WatchesMetadata(kept, handler.EnqueueRequestsFromMapFunc(serverLabelled)).
		WatchesRawSource(source.Channel(news, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, key types.NamespacedName) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: key}}
			}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: serverWorkers}).
		Complete(r)
}

// Reconcile writes down what is known of a server.
func (r *GovernedServerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var server v1alpha1.GovernedServer
	if err := r.Client.Get(ctx, req.NamespacedName, &server); err != nil || !server.DeletionTimestamp.IsZero() {
		if client.IgnoreNotFound(err) == nil {
			r.listings.forget(req.NamespacedName)
			r.shelved.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	facts, err := r.gather(ctx, &server)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := server.DeepCopy()
	observe(&server, facts)
	if len(facts.evidence.fresh) > 0 {
		failpoint.Hit(failpoint.BeforeCount)
	}
	if err := r.save(ctx, before, &server, facts); err != nil {
		return quiet(err)
	}
	if err := r.mark(ctx, &server, facts); err != nil {
		return quiet(err)
	}
	if err := r.shelve(ctx, &server, facts); err != nil {
		return quiet(err)
	}
	if facts.more {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, nil
}

// quiet ends a Reconcile with what its last write said. A lost race is not retried hot: the newer version is on its way
// through the watch. In a namespace that is going nothing can be made, and nothing needs to be.
func quiet(err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	default:
		return ctrl.Result{}, err
	}
}

// facts are all that a server's status is made of; nothing is read after them.
type facts struct {
	endpointDigest string
	// namespaceLabels are those of the server's namespace; none when they are not known.
	namespaceLabels map[string]string
	policies        []*policy.Policy
	// operatorNamespace is where baselines count.
	operatorNamespace string
	seen              seen
	// requests of this very server, as the cache has them.
	requests []v1alpha1.ApprovalRequest
	evidence evidence
	// more: there are requests to count that were left for the next time.
	more bool
	now  time.Time
}

func (r *GovernedServerReconciler) gather(ctx context.Context, server *v1alpha1.GovernedServer) (facts, error) {
	f := facts{now: r.Clock.Now()}
	var err error
	if f.endpointDigest, err = tool.EndpointDigest(server.Spec.Endpoint); err != nil {
		return facts{}, reconcile.TerminalError(fmt.Errorf("digest the endpoint: %w", err))
	}
	version, err := r.version(ctx, server)
	if err != nil {
		return facts{}, err
	}
	f.seen = r.listings.keep(client.ObjectKeyFromObject(server), r.orderFor(server, version))

	if f.namespaceLabels, err = labelsOf(ctx, r.Client, server.Namespace); err != nil {
		return facts{}, err
	}
	policies, err := policiesFor(ctx, r.Client, server.Namespace, r.OperatorNamespace)
	if err != nil {
		return facts{}, err
	}
	f.policies, f.operatorNamespace = r.Library.Parse(policies), r.OperatorNamespace
	if err := r.gatherRequests(ctx, server, &f); err != nil {
		return facts{}, err
	}
	return f, nil
}

// version names all that a listing of the server depends on. Of Secrets only metadata is looked at.
func (r *GovernedServerReconciler) version(ctx context.Context, server *v1alpha1.GovernedServer) (string, error) {
	secrets := metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	labelled := client.MatchingLabels{v1alpha1.ServerLabel: server.Name}
	if err := r.Client.List(ctx, &secrets, client.InNamespace(server.Namespace), labelled); err != nil {
		return "", fmt.Errorf("list labelled secrets: %w", err)
	}
	parts := []string{fmt.Sprintf("%s/%d", server.UID, server.Generation)}
	for _, s := range secrets.Items {
		parts = append(parts, s.Name+"/"+s.ResourceVersion)
	}
	if r.throughGateway(server) {
		pod, err := r.governedPod(ctx, server)
		if err != nil {
			return "", err
		}
		if pod != nil {
			parts = append(parts, fmt.Sprintf("pod/%s/%s", pod.UID, pod.Status.PodIP))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " "), nil
}

// gatherRequests reads the server's requests from the cache, and past it those that are about to be counted.
func (r *GovernedServerReconciler) gatherRequests(ctx context.Context, server *v1alpha1.GovernedServer, f *facts) error {
	ofServer := []client.ListOption{client.InNamespace(server.Namespace), client.MatchingFields{serverRefIndex: server.Name}}
	var cached v1alpha1.ApprovalRequestList
	if err := r.Client.List(ctx, &cached, ofServer...); err != nil {
		return fmt.Errorf("list requests: %w", err)
	}
	f.evidence = evidence{settled: map[string]bool{}, ambiguous: map[string]int32{}, endpointDigest: f.endpointDigest, now: f.now}
	held := accountedIn(server.Status.Records)
	known := map[string]bool{}
	for _, request := range cached.Items {
		if request.Spec.ServerRef.UID != string(server.UID) {
			continue
		}
		uid := string(request.UID)
		f.requests = append(f.requests, request)
		known[uid] = true
		switch {
		case request.CurrentPhase() == v1alpha1.PhaseAmbiguous:
			f.evidence.ambiguous[request.Spec.Tool]++
		case isAccounted(&request):
			f.evidence.settled[uid] = true
		case !isCounted(request.CurrentPhase()) || held[uid]:
		case len(f.evidence.fresh) >= maxFresh:
			f.more = true
		default:
			fresh, err := r.confirm(ctx, &request)
			if err != nil {
				return err
			}
			f.evidence.fresh = append(f.evidence.fresh, fresh...)
		}
	}
	return r.settleGone(ctx, held, known, ofServer, f)
}

// confirm reads a request past the cache and returns it if it is still to be counted.
func (r *GovernedServerReconciler) confirm(ctx context.Context, cached *v1alpha1.ApprovalRequest) ([]v1alpha1.ApprovalRequest, error) {
	var live v1alpha1.ApprovalRequest
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), &live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read request %s past the cache: %w", cached.Name, err)
	}
	if live.UID != cached.UID || isAccounted(&live) || !isCounted(live.CurrentPhase()) {
		return nil, nil
	}
	return []v1alpha1.ApprovalRequest{live}, nil
}

// settleGone finds UIDs that are held for requests which are no more. A cache that has not seen a request yet is no
// proof of that, so the API server is asked.
func (r *GovernedServerReconciler) settleGone(ctx context.Context, held, known map[string]bool, ofServer []client.ListOption, f *facts) error {
	missing := slices.DeleteFunc(slices.Collect(maps.Keys(held)), func(uid string) bool { return known[uid] })
	if len(missing) == 0 {
		return nil
	}
	var live v1alpha1.ApprovalRequestList
	if err := r.Live.List(ctx, &live, ofServer...); err != nil {
		return fmt.Errorf("list requests past the cache: %w", err)
	}
	exists := map[string]bool{}
	for i := range live.Items {
		exists[string(live.Items[i].UID)] = true
	}
	for _, uid := range missing {
		f.evidence.settled[uid] = !exists[uid]
	}
	return nil
}

// save patches a changed status, then tells people what is new.
func (r *GovernedServerReconciler) save(ctx context.Context, before, after *v1alpha1.GovernedServer, f facts) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	notices := noticesOf(before, after, r.bodiesOf(ctx, before, after, f))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	for _, n := range notices {
		r.Events.Eventf(after, nil, n.kind, n.reason, n.action, "%s", n.message)
	}
	return nil
}

// mark has every request say itself that it is counted, once the records that count it are saved.
func (r *GovernedServerReconciler) mark(ctx context.Context, server *v1alpha1.GovernedServer, f facts) error {
	held := accountedIn(server.Status.Records)
	for i := range f.requests {
		request := &f.requests[i]
		if !held[string(request.UID)] || isAccounted(request) {
			continue
		}
		before := request.DeepCopy()
		meta.SetStatusCondition(&request.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAccounted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCounted,
			Message:            "The request is counted in the records of its server",
			ObservedGeneration: request.Generation, LastTransitionTime: metav1.NewTime(f.now),
		})
		failpoint.Hit(failpoint.AfterCount)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Status().Patch(ctx, request, patch); err != nil {
			return fmt.Errorf("mark request %s as counted: %w", request.Name, err)
		}
		failpoint.Hit(failpoint.AfterMark)
	}
	return nil
}
