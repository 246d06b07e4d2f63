// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// port is a real API server with the receivers of notifications, and the two namespaces that the tests are about.
type port struct {
	plane           *fixture.ControlPlane
	admin, manager  client.Client
	watched, silent string
	chat, broken    *endpoint
	receivers       []Receiver
	metrics         *Metrics
	// cache is that of the manager that was started last.
	cache cache.Cache
}

func newPort(t *testing.T) *port {
	t.Helper()
	log.SetLogger(logr.Discard())
	plane, err := fixture.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	p := &port{
		plane: plane, admin: plane.Client(t, plane.Admin), manager: plane.Client(t, plane.Manager(t)), metrics: metricsOf(t),
		watched: plane.Namespace(t), silent: plane.Namespace(t), chat: newEndpoint(t, status(200)), broken: newEndpoint(t, status(404)),
	}
	chat, broken := p.chat.receiver("chat"), p.broken.receiver("broken")
	chat.Namespaces = labels.SelectorFromSet(labels.Set{"tidewaiter.dev/notify": "chat"})
	p.receivers = []Receiver{chat, broken}
	p.label(t, p.watched)
	return p
}

// label makes the receiver chat select a namespace.
func (p *port) label(t *testing.T, namespace string) {
	t.Helper()
	var object corev1.Namespace
	if err := p.admin.Get(t.Context(), types.NamespacedName{Name: namespace}, &object); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tidewaiter.dev/notify":"chat"}}}`))
	if err := p.admin.Patch(t.Context(), &object, patch); err != nil {
		t.Fatal(err)
	}
}

// open makes the nth request of a namespace.
func (p *port) open(t *testing.T, namespace string, n int) *v1alpha1.ApprovalRequest {
	t.Helper()
	made := fixture.ApprovalRequest(namespace, "billing", n)
	if err := p.admin.Create(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	return &made
}

// end writes a phase as the manager.
func (p *port) end(t *testing.T, request *v1alpha1.ApprovalRequest, status string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
	if err := p.manager.Status().Patch(t.Context(), request.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
}

// run starts a manager with a notifier, as the operator's own identity, and returns what stops it.
func (p *port) run(t *testing.T, c *clocktesting.FakeClock) (stop func()) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(p.plane.Manager(t), ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	p.cache = mgr.GetCache()
	n := &Notifier{Cache: p.cache, Clock: c, Receivers: p.receivers, Allow: loopback, Metrics: p.metrics}
	if !n.NeedLeaderElection() {
		t.Error("every replica would notify")
	}
	if err := mgr.Add(n); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
		done <- nil // for the cleanup, after a test that stopped it
	}
	t.Cleanup(stop)
	return stop
}

// ids returns the ids that an endpoint got, from the nth on.
func ids(e *endpoint, from int) []string {
	var found []string
	for _, p := range e.got()[from:] {
		found = append(found, p.header.Get(deliveryHeader))
	}
	slices.Sort(found)
	return found
}

func id(request *v1alpha1.ApprovalRequest, event Event) string {
	return string(request.UID) + "." + string(event)
}

// wants waits until an endpoint has got these notifications, from the nth on, and says if it got others.
func wants(t *testing.T, e *endpoint, from int, want ...string) {
	t.Helper()
	until(t, "the notifications", func() bool { return len(e.got()) >= from+len(want) })
	slices.Sort(want)
	if diff := cmp.Diff(want, ids(e, from)); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

func TestReceiversLearnOfARequestsLifeFromARealAPIServer(t *testing.T) {
	p := newPort(t)
	c := clocktesting.NewFakeClock(time.Now())
	stop := p.run(t, c)

	first, unseen := p.open(t, p.watched, 1), p.open(t, p.silent, 2)
	wants(t, p.chat, 0, id(first, EventOpened))
	wants(t, p.broken, 0, id(first, EventOpened), id(unseen, EventOpened))
	check(t, p.chat.got()[0], c.Now())

	// A namespace is judged by the labels that it has when something happens.
	p.label(t, p.silent)
	until(t, "the label in the cache", func() bool {
		namespace := namespaceLabels()
		err := p.cache.Get(t.Context(), types.NamespacedName{Name: p.silent}, namespace)
		return err == nil && len(namespace.Labels) > 1
	})
	second := p.open(t, p.silent, 5)
	wants(t, p.chat, 1, id(second, EventOpened))
	before := len(p.chat.got())

	// Half of the life of the youngest is over, so it is of all.
	c.SetTime(second.CreationTimestamp.Add(30 * time.Minute))
	wants(t, p.chat, before, id(first, EventExpiring), id(unseen, EventExpiring), id(second, EventExpiring))
	before = len(p.chat.got())

	// The receiver that refuses everything has changed nothing of the request, nor has the other.
	p.unchanged(t, first)

	p.end(t, first, `{"phase":"Cancelled","cancellation":{"reason":"ToolChanged"}}`)
	p.end(t, second, `{"phase":"Expired"}`)
	wants(t, p.chat, before, id(first, "Cancelled"), id(second, "Expired"))
	until(t, "the refusals", func() bool { return count(p.metrics, "broken", "Expired", refused) == 1 })
	if got := count(p.metrics, "chat", "Cancelled", delivered); got != 1 {
		t.Errorf("%d cancellations counted", got)
	}
	before = len(p.chat.got())
	stop()

	// A manager that starts later tells what happened shortly before, under the same ids, and nothing older.
	until(t, "another second", func() bool { return time.Now().Unix() > second.CreationTimestamp.Unix() })
	third := p.open(t, p.watched, 3)
	p.run(t, clocktesting.NewFakeClock(third.CreationTimestamp.Add(lookBack)))
	wants(t, p.chat, before, id(third, EventOpened), id(second, "Expired"))
	fourth := p.open(t, p.watched, 4)
	wants(t, p.chat, before, id(third, EventOpened), id(second, "Expired"), id(fourth, EventOpened))
}

func check(t *testing.T, p post, now time.Time) {
	t.Helper()
	if !verified([]byte(secret), p.header.Get(signatureHeader), []byte(p.body), now) {
		t.Errorf("%s is not verified", p.header.Get(signatureHeader))
	}
	var got body
	if err := json.Unmarshal([]byte(p.body), &got); err != nil || got.ID != p.header.Get(deliveryHeader) || got.Request.Phase != v1alpha1.PhasePending {
		t.Errorf("%v: %s", err, p.body)
	}
}

func (p *port) unchanged(t *testing.T, request *v1alpha1.ApprovalRequest) {
	t.Helper()
	var now v1alpha1.ApprovalRequest
	if err := p.admin.Get(t.Context(), client.ObjectKeyFromObject(request), &now); err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != request.ResourceVersion {
		t.Errorf("the request was changed: %+v", now.Status)
	}
}
