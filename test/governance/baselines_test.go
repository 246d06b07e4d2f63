// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/controllers"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// baseline puts a baseline for the world's namespace into the operator's, where it stays until the test ends.
func (w *world) baseline(edit func(*v1alpha1.ToolPolicySpec)) *v1alpha1.ToolPolicy {
	w.t.Helper()
	p := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.SystemNamespace, Name: "for-" + w.namespace}}
	p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
	edit(&p.Spec)
	if err := w.admin.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.admin.Delete(context.Background(), p)); err != nil {
			w.t.Error(err)
		}
	})
	return p
}

const probe = `{"invoiceId":"probe"}`

// wantCode expects an answer of the gateway.
func wantCode(a answer, code string) error {
	if a.code() != code {
		return fmt.Errorf("got %s, want %s", a.raw, code)
	}
	return nil
}

// A fleet-wide stop is one object; no manager has a part in it, and a gateway that starts afterwards obeys it too.
func TestABaselineStopsTheNextCallWithoutAManager(t *testing.T) {
	t.Parallel()
	w, untouched := newWorld(t), newWorld(t)
	d, other := w.openDoor("gw"), untouched.openDoor("gw")
	w.stopManager()
	stop := w.baseline(func(s *v1alpha1.ToolPolicySpec) { s.Mode = v1alpha1.BaselineStopped })
	w.eventually("stopped", func() error { return wantCode(d.call("get_invoice", probe), "ServerStopped") })
	reads := w.billing.Executions()["get_invoice"]
	d.stop()

	again := w.open("gw", func(d *door) error { return wantCode(d.call("get_invoice", probe), "ServerStopped") }, withReceipts(d.path))
	for _, name := range []string{"get_invoice", "update_invoice", "delete_account"} {
		if got := again.call(name, note); got.code() != "ServerStopped" {
			t.Errorf("%s after the restart: %s", name, got.raw)
		}
	}
	w.executions("get_invoice", reads)
	if err := wantServerAnswer(other.call("get_invoice", probe)); err != nil {
		t.Errorf("a server that the baseline does not cover: %v", err)
	}
	if err := w.admin.Delete(t.Context(), stop); err != nil {
		t.Fatal(err)
	}
	w.eventually("what is not stopped any more runs", func() error { return wantServerAnswer(again.call("get_invoice", probe)) })
}

func TestABaselineMakesAServerReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	d := w.openDoor("gw")
	w.baseline(func(s *v1alpha1.ToolPolicySpec) { s.Mode = v1alpha1.BaselineReadOnly })
	w.eventually("effects are refused", func() error { return wantCode(d.call("update_invoice", note), "ServerReadOnly") })
	asked := len(w.requests()) // before the gateway saw the baseline
	if err := wantCode(d.call("update_invoice", note), "ServerReadOnly"); err != nil {
		t.Error(err)
	}
	if err := wantServerAnswer(d.call("get_invoice", probe)); err != nil {
		t.Errorf("a read: %v", err)
	}
	w.executions("update_invoice", 0)
	if len(w.requests()) > asked {
		t.Error("a person is asked for what is refused")
	}
}

// Of a namespace whose labels nobody has written down every baseline speaks.
func TestWithoutLabelsEveryBaselineHolds(t *testing.T) {
	t.Parallel()
	w, elsewhere := newWorld(t), newWorld(t)
	d := w.openDoor("gw")
	elsewhere.baseline(func(s *v1alpha1.ToolPolicySpec) { s.Mode = v1alpha1.BaselineStopped })
	w.status(func(s *v1alpha1.GovernedServerStatus) { s.NamespaceLabels = nil })
	w.eventually("stopped", func() error { return wantCode(d.call("get_invoice", probe), "ServerStopped") })
	w.status(func(s *v1alpha1.GovernedServerStatus) {
		s.NamespaceLabels = map[string]string{corev1.LabelMetadataName: w.namespace}
	})
	w.eventually("with labels that it does not select", func() error { return wantServerAnswer(d.call("get_invoice", probe)) })
}

// enforcing runs the reconciler of the condition as the manager, on its clock.
func (w *world) enforcing(c clock.PassiveClock) {
	w.t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		w.t.Fatal(err)
	}
	skip := true
	mgr, err := ctrl.NewManager(w.site.Manager(w.t), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: controllerOptions(&skip),
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}, fixture.SystemNamespace: {}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &controllers.EnforcingReconciler{Client: mgr.GetClient(), Clock: c, Library: policy.NewLibrary(), OperatorNamespace: fixture.SystemNamespace}
	if err := r.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
	}
	w.background("the condition Enforcing", mgr.Start)
}

// enforces waits until the condition Enforcing says so, of the policy as it is.
func (w *world) enforces(what, state, message string) {
	w.t.Helper()
	w.eventually(what, func() error {
		c := meta.FindStatusCondition(w.governed().Status.Conditions, v1alpha1.ConditionEnforcing)
		if c == nil || string(c.Status)+"/"+c.Reason != state || !strings.Contains(c.Message, message) {
			return fmt.Errorf("the condition is %+v, want %s", c, state)
		}
		return nil
	})
}

// said returns what each gateway says that it runs.
func (w *world) said() map[string]string {
	w.t.Helper()
	var leases coordinationv1.LeaseList
	if err := w.admin.List(w.t.Context(), &leases, client.InNamespace(w.namespace), client.MatchingLabels{v1alpha1.ServerLabel: "billing"}); err != nil {
		w.t.Fatal(err)
	}
	said := map[string]string{}
	for _, l := range leases.Items {
		said[*l.Spec.HolderIdentity] = l.Annotations[v1alpha1.PolicyRevisionAnnotation]
	}
	return said
}

// The manager and the gateways work out the same revision from the same objects, whatever these are.
func TestEnforcingComesTrueAfterEveryChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcing(clock.RealClock{})
	w.enforces("nobody enforces", "False/NoGateway", "No gateway")
	a, b := w.openDoor("gw-a"), w.openDoor("gw-b")
	w.enforces("two gateways", "True/Enforced", "2 of 2")
	changes := []struct {
		what   string
		change func()
	}{
		{"a policy", func() { w.policy("team", raise("get_invoice")) }},
		{"a baseline", func() { w.baseline(raise("list_invoices")) }},
		{"the mode of the server", func() {
			server := w.governed()
			server.Spec.Mode = v1alpha1.ModeReadOnly
			if err := w.person.Update(t.Context(), server); err != nil {
				t.Fatal(err)
			}
		}},
		{"a tool that came", func() {
			w.status(func(s *v1alpha1.GovernedServerStatus) {
				s.Tools = append(s.Tools, v1alpha1.ToolStatus{Name: "zap", ClassifiedTier: v1alpha1.TierIrreversible, Tier: v1alpha1.TierIrreversible,
					Source: v1alpha1.TierSourceName, Reason: "r", Digest: fixture.Digest("f")})
			})
		}},
	}
	before := a.server.Snapshot().Policy.Revision
	for _, c := range changes {
		c.change()
		w.eventually(c.what+" is in force", func() error {
			now := a.server.Snapshot().Policy.Revision
			if now == before || b.server.Snapshot().Policy.Revision != now || w.said()["gw-a"] != now || w.said()["gw-b"] != now {
				return fmt.Errorf("the gateways run %s, the Leases say %v; it was %s", now, w.said(), before)
			}
			return nil
		})
		before = a.server.Snapshot().Policy.Revision
		w.enforces("after "+c.what, "True/Enforced", "2 of 2")
	}
	b.stop()
	w.enforces("a gateway that was stopped is not missed", "True/Enforced", "1 of 1")
	if said := w.said(); len(said) != 1 {
		t.Errorf("Leases are %v", said)
	}
}

// raise has a tool count as Irreversible.
func raise(tool string) func(*v1alpha1.ToolPolicySpec) {
	return func(s *v1alpha1.ToolPolicySpec) {
		s.Tiers = []v1alpha1.TierOverride{{Tools: []string{tool}, Tier: v1alpha1.TierIrreversible, Reason: "Tried"}}
	}
}

// cut is a way to the API that a test cuts.
type cut struct {
	http.RoundTripper
	down *atomic.Bool
}

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.down.Load() {
		return nil, errors.New("the API server is down")
	}
	return c.RoundTripper.RoundTrip(r)
}

// Case 23.
func TestAGatewayThatRestartsWithoutTheAPIEnforcesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := testclock.NewFakePassiveClock(time.Now())
	w.enforcing(now)
	down := &atomic.Bool{}
	line := throughAPI(func(next http.RoundTripper) http.RoundTripper { return cut{next, down} })
	d := w.openDoor("gw", line)
	w.enforces("it enforces", "True/Enforced", "1 of 1")
	reads := w.billing.Executions()["get_invoice"]
	down.Store(true)
	d.stop() // it cannot take its Lease back

	g, restarted := w.start("gw", line, withReceipts(d.path))
	if err := g.Ready(); err == nil {
		t.Error("a gateway without the API is ready")
	}
	if got := restarted.call("get_invoice", probe); !got.isError() {
		t.Errorf("it lets a read pass: %s", got.raw)
	}
	w.executions("get_invoice", reads)
	w.enforces("its Lease has not expired yet", "True/Enforced", "1 of 1")
	now.SetTime(time.Now().Add(4 * time.Minute))
	w.touch()
	w.enforces("nobody enforces", "False/NoGateway", "there were 1")
	down.Store(false)
	now.SetTime(time.Now())
	w.eventually("ready", g.Ready)
	w.touch() // a clock that goes back wakes nobody
	w.enforces("it enforces again", "True/Enforced", "1 of 1")
}

// touch has the manager look at the server again.
func (w *world) touch() {
	w.t.Helper()
	server := w.governed()
	before := server.DeepCopy()
	server.Annotations = map[string]string{"example.com/looked-at": server.ResourceVersion}
	if err := w.person.Patch(w.t.Context(), server, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}
