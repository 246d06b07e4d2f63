// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/control"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

// Through is how a server is asked by its gateways: one that runs in pods, on loopback, and one with a standalone gateway.
type Through struct {
	// Token returns a token of the operator for an audience.
	Token func(ctx context.Context, audience string) (string, error)
	// List and Watch ask a gateway; their errors are as those of Discover and Watch.
	List  func(context.Context, discovery.Target) (discovery.Result, error)
	Watch func(ctx context.Context, target discovery.Target, changed func()) error
}

// throughGateway tells whether a server is asked through its gateways. One with a standalone gateway is, since nobody else
// is to have its credentials; and one that is on loopback in its pods, unless the flag --allow-address lists the operator's
// own loopback, which is another.
func (r *GovernedServerReconciler) throughGateway(server *v1alpha1.GovernedServer) bool {
	if standalone.Wanted(server) {
		return true
	}
	local, inPod := endpoint.InPod(server.Spec.Endpoint)
	return inPod && !slices.ContainsFunc(local.Addresses, func(address netip.Prefix) bool {
		return netguard.Policy{Allow: r.Allow}.Check(address.Addr()) == nil
	})
}

// discover lists the tools of a server, by whichever way leads there.
func (r *GovernedServerReconciler) discover(ctx context.Context, server *v1alpha1.GovernedServer) (discovery.Result, error) {
	if r.throughGateway(server) {
		target, done, err := r.gatewayTarget(ctx, server, control.ToolsPath(client.ObjectKeyFromObject(server)))
		if err != nil {
			return discovery.Result{}, err
		}
		defer done()
		return r.Through.List(ctx, target)
	}
	target, done, err := r.target(ctx, server)
	if err != nil {
		return discovery.Result{}, err
	}
	defer done()
	return r.Discover(ctx, target)
}

// gatewayTarget returns where to ask the gateway of a governed pod, with a token that is good for that server alone.
func (r *GovernedServerReconciler) gatewayTarget(ctx context.Context, server *v1alpha1.GovernedServer, path string) (target discovery.Target, done func(), err error) {
	pod, err := r.governedPod(ctx, server)
	if err != nil {
		return discovery.Target{}, nil, err
	}
	if pod == nil {
		return discovery.Target{}, nil, &discovery.Error{
			Kind: discovery.Unreachable, Cause: fmt.Sprintf("no pod with a gateway and the label %s: %s runs; a pod gets its gateway when it is created", v1alpha1.GovernLabel, server.Name),
		}
	}
	token, err := r.Through.Token(ctx, control.Audience(client.ObjectKeyFromObject(server)))
	if err != nil {
		return discovery.Target{}, nil, fmt.Errorf("ask for a token: %w", err)
	}
	transport := netguard.Policy{Allow: r.Allow, Cluster: true}.Transport(nil)
	return discovery.Target{
		URL:       "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(sidecar.ControlPort)) + path,
		Headers:   http.Header{"Authorization": {"Bearer " + token}},
		Transport: transport,
	}, transport.CloseIdleConnections, nil
}

// governedPod returns the pod whose gateway is asked, nil for none: one that is ready if there is one, of those the newest.
func (r *GovernedServerReconciler) governedPod(ctx context.Context, server *v1alpha1.GovernedServer) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels{v1alpha1.GovernLabel: server.Name}); err != nil {
		return nil, fmt.Errorf("list governed pods: %w", err)
	}
	usable := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		_, alone := p.Labels[v1alpha1.StandaloneLabel]
		// A label can be put on a pod that runs, a gateway cannot.
		return !canBeAsked(&p) || alone != standalone.Wanted(server) || !alone && !sidecar.Has(&p)
	})
	if len(usable) == 0 {
		return nil, nil
	}
	best := slices.MinFunc(usable, func(a, b corev1.Pod) int {
		return cmp.Or(boolOrder(isReady(&a), isReady(&b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return &best, nil
}

// canBeAsked leaves out pods that are going, and those whose address is the node's.
func canBeAsked(p *corev1.Pod) bool {
	return p.DeletionTimestamp.IsZero() && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" && !p.Spec.HostNetwork
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// boolOrder puts what is true first.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// podGoverned maps a pod to the server that its label names.
func podGoverned(_ context.Context, obj client.Object) []reconcile.Request {
	if name := obj.GetLabels()[v1alpha1.GovernLabel]; name != "" {
		return []reconcile.Request{reconcileServer(obj.GetNamespace(), name)}
	}
	return nil
}

// podMoved lets through what decides which pod is asked.
func podMoved() predicate.Predicate {
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, same := e.ObjectNew.(*corev1.Pod)
			return ok && same && (canBeAsked(before) != canBeAsked(after) || isReady(before) != isReady(after) || before.Status.PodIP != after.Status.PodIP)
		},
	}
}
