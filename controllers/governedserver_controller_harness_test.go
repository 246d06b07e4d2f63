// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

func cranes(edits ...func(*v1alpha1.GovernedServer)) *v1alpha1.GovernedServer {
	return fixture.With(v1alpha1.GovernedServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "cranes", UID: "server-uid", Generation: 1},
		Spec: v1alpha1.GovernedServerSpec{
			Endpoint:  v1alpha1.Endpoint{URL: "https://cranes.example/mcp"},
			Discovery: v1alpha1.Discovery{Interval: metav1.Duration{Duration: 10 * time.Minute}, Timeout: metav1.Duration{Duration: 30 * time.Second}},
			Autonomy:  v1alpha1.AutonomySpec{CleanApprovals: 3},
		},
	}, edits...)
}

func endpointOf(t tester, s *v1alpha1.GovernedServer) string {
	t.Helper()
	digest, err := tool.EndpointDigest(s.Spec.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// dock runs the reconciler of servers on a fake API, with what discovery has seen set by hand.
type dock struct {
	*GovernedServerReconciler
	api     client.WithWatch
	events  *events.FakeRecorder
	clock   *clocktesting.FakeClock
	patches atomic.Int64
}

func serverScheme(t tester) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func serverMetrics(t tester) *GovernedServerMetrics {
	t.Helper()
	metrics, err := NewGovernedServerMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

func newDock(t tester, faults interceptor.Funcs, objects ...client.Object) *dock {
	t.Helper()
	d := &dock{events: events.NewFakeRecorder(4096), clock: clocktesting.NewFakeClock(made)}
	d.api = fake.NewClientBuilder().WithScheme(serverScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.GovernedServer{}, &v1alpha1.ApprovalRequest{}).
		WithIndex(&v1alpha1.ApprovalRequest{}, serverRefIndex, serverOfRequest).Build()
	patch := faults.SubResourcePatch
	faults.SubResourcePatch = func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		d.patches.Add(1)
		if patch != nil {
			return patch(ctx, c, sub, obj, p, opts...)
		}
		return c.SubResource(sub).Patch(ctx, obj, p, opts...)
	}
	d.GovernedServerReconciler = &GovernedServerReconciler{
		Library: policy.NewLibrary(), OperatorNamespace: fixture.SystemNamespace,
		Client: interceptor.NewClient(d.api, faults), Live: d.api, Events: d.events, Clock: d.clock, Metrics: serverMetrics(t),
	}
	d.listings = newListings(d.clock, func() float64 { return 0 }, func(types.NamespacedName) {}, d.Metrics)
	return d
}

var cranesKey = types.NamespacedName{Namespace: "harbour", Name: "cranes"}

func (d *dock) reconcile(t tester) (ctrl.Result, error) {
	t.Helper()
	return d.Reconcile(t.Context(), ctrl.Request{NamespacedName: cranesKey})
}

// see sets what discovery knows of cranes and reconciles.
func (d *dock) see(t tester, what seen) *v1alpha1.GovernedServer {
	t.Helper()
	if _, err := d.reconcile(t); err != nil {
		t.Fatal(err)
	}
	d.listings.entries[cranesKey].seen = what
	if _, err := d.reconcile(t); err != nil {
		t.Fatal(err)
	}
	return d.stored(t)
}

func (d *dock) stored(t tester) *v1alpha1.GovernedServer {
	t.Helper()
	var s v1alpha1.GovernedServer
	if err := d.api.Get(t.Context(), cranesKey, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func (d *dock) edit(t tester, edits ...func(*v1alpha1.GovernedServer)) {
	t.Helper()
	s := d.stored(t)
	for _, edit := range edits {
		edit(s)
	}
	s.Generation++
	if err := d.api.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// told drains the events and returns type and reason of each.
func (d *dock) told() []string {
	var all []string
	for {
		select {
		case e := <-d.events.Events:
			words := strings.Fields(e)
			all = append(all, words[0]+" "+words[1])
		default:
			return all
		}
	}
}

func liftBox(edits ...func(*v1alpha1.ToolStatus)) v1alpha1.ToolStatus {
	return *fixture.With(v1alpha1.ToolStatus{
		Name: "lift_box", ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible,
		Source: v1alpha1.TierSourceName, Reason: "lift is no verb of reading", Digest: "sha256:t",
	}, edits...)
}

func getBox() v1alpha1.ToolStatus {
	return v1alpha1.ToolStatus{
		Name: "get_box", ClassifiedTier: v1alpha1.TierRead, Tier: v1alpha1.TierRead,
		Source: v1alpha1.TierSourceName, Reason: "get is a verb of reading", Digest: "sha256:g",
	}
}

func listed(tools ...v1alpha1.ToolStatus) seen {
	return seen{last: &listing{server: v1alpha1.ServerInfo{Name: "cranes", Version: "1", ProtocolVersion: "2026-07-28"}, tools: tools}}
}

// states returns each condition as type=status/reason.
func states(s *v1alpha1.GovernedServer) map[string]string {
	all := map[string]string{}
	for _, c := range s.Status.Conditions {
		all[c.Type] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	return all
}
