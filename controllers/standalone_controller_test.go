// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

// jetty is the reconciler on a real API server, as the manager, with its admission policies.
type jetty struct {
	*StandaloneReconciler
	*yard
	events *events.FakeRecorder
	clock  *clocktesting.FakePassiveClock
}

// newJetty makes a namespace for the operator's root key too, since that of all tests has none.
func newJetty(t *testing.T) *jetty {
	t.Helper()
	y := newYard(t)
	operator := plane.Namespace(t)
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operator, Name: v1alpha1.VotingKeys}, Data: map[string]string{"root": "cm9vdA=="}}
	if err := y.admin.Create(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	manager := plane.Client(t, y.manager)
	p := &jetty{yard: y, events: events.NewFakeRecorder(16), clock: clocktesting.NewFakePassiveClock(made)}
	p.StandaloneReconciler = &StandaloneReconciler{
		Client: manager, Live: manager, Events: p.events, Clock: p.clock, OperatorNamespace: operator,
		Settings: standalone.Settings{Gateway: sidecar.Settings{Image: "gateway:1"}},
	}
	return p
}

// change edits the spec and reconciles.
func (p *jetty) change(t *testing.T, edit func(*v1alpha1.GovernedServerSpec)) ctrl.Result {
	t.Helper()
	server := p.stored(t)
	edit(&server.Spec)
	if err := p.admin.Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	return p.run(t)
}

func (p *jetty) run(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := p.Reconcile(t.Context(), p.stored(t))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (p *jetty) stored(t *testing.T) *v1alpha1.GovernedServer {
	t.Helper()
	server := &v1alpha1.GovernedServer{}
	if err := p.admin.Get(t.Context(), client.ObjectKeyFromObject(p.server), server); err != nil {
		t.Fatal(err)
	}
	return server
}

func alone(s *v1alpha1.GovernedServerSpec) {
	s.Gateway = &v1alpha1.GatewaySpec{Standalone: &v1alpha1.StandaloneGateway{Replicas: 2}}
}

func notAlone(s *v1alpha1.GovernedServerSpec) { s.Gateway = nil }

// objects are all that a gateway is made of, by their kinds; those that are not there are left out.
func (p *jetty) objects(t *testing.T) map[string]client.Object {
	t.Helper()
	all := map[string]client.Object{}
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		err := p.admin.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "tidewaiter-cranes"}, object)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err == nil {
			all[nounOf(object)] = object
		}
	}
	return all
}

func (p *jetty) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, ok := p.objects(t)["Deployment"].(*appsv1.Deployment)
	if !ok {
		t.Fatal("there is no Deployment")
	}
	return d
}

// report writes the status of the Deployment, as its controller does.
func (p *jetty) report(t *testing.T, ready int32, conditions ...appsv1.DeploymentCondition) {
	t.Helper()
	d := p.deployment(t)
	d.Status = appsv1.DeploymentStatus{Replicas: ready, ReadyReplicas: ready, AvailableReplicas: ready, Conditions: conditions}
	if err := p.admin.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	p.run(t)
}

// says returns the condition as words, and the address.
func (p *jetty) says(t *testing.T) string {
	t.Helper()
	server := p.stored(t)
	c := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionGatewayAvailable)
	if c == nil {
		return server.Status.AgentURL
	}
	return string(c.Status) + "/" + c.Reason + ": " + c.Message
}

func (p *jetty) event() string {
	select {
	case told := <-p.events.Events:
		return told
	default:
		return ""
	}
}

func versionsOf(objects map[string]client.Object) map[string]string {
	versions := map[string]string{}
	for kind, object := range objects {
		versions[kind] = object.GetResourceVersion()
	}
	return versions
}

func TestAStandaloneGatewayIsMadeAndRemoved(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	p.run(t)
	if got := p.objects(t); len(got) > 0 {
		t.Errorf("for a server that asks for none there are %v", got)
	}
	p.change(t, alone)
	objects := p.objects(t)
	if len(objects) != 4 {
		t.Fatalf("there are %v", objects)
	}
	for kind, object := range objects {
		if !metav1.IsControlledBy(object, p.server) { // so the collector takes it when the server goes
			t.Errorf("the owners of the %s are %+v", kind, object.GetOwnerReferences())
		}
	}
	if got := p.deployment(t).Spec.Template.Spec.Containers[0]; got.Image != "gateway:1" || !strings.Contains(strings.Join(got.Args, " "), "--voting-root-key=cm9vdA== --operator-namespace="+p.OperatorNamespace) {
		t.Errorf("the gateway is %s with %q", got.Image, got.Args)
	}
	if got, want := p.stored(t).Status.AgentURL, "http://tidewaiter-cranes."+p.namespace+".svc/"+p.namespace+"/cranes/mcp"; got != want {
		t.Errorf("agents are told %q, want %q", got, want)
	}
	p.run(t)
	if diff := cmp.Diff(versionsOf(objects), versionsOf(p.objects(t))); diff != "" {
		t.Errorf("a steady state writes (-before +after):\n%s", diff)
	}
	p.change(t, notAlone)
	if got := p.objects(t); len(got) > 0 {
		t.Errorf("when it is not asked for any more there are %v", got)
	}
	if got := p.says(t); got != "" {
		t.Errorf("status still says %q", got)
	}
	p.change(t, alone)
	if got := p.objects(t); len(got) != 4 {
		t.Errorf("it did not come back: %v", got)
	}
}

func TestAStandaloneGatewayFollowsItsSettings(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	p.change(t, alone)
	for name, tc := range map[string]struct {
		edit func()
		got  func(*appsv1.Deployment) bool
	}{
		"more replicas": {func() { p.change(t, func(s *v1alpha1.GovernedServerSpec) { s.Gateway.Standalone.Replicas = 3 }) },
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 3 }},
		"another image": {func() { p.Settings.Gateway.Image = "gateway:2"; p.run(t) },
			func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == "gateway:2" }},
		"another image that is pulled always": {func() { p.Settings.Gateway.Image = "gateway:latest"; p.run(t) },
			func(d *appsv1.Deployment) bool {
				return d.Spec.Template.Spec.Containers[0].ImagePullPolicy == corev1.PullAlways
			}},
	} {
		before := p.deployment(t)
		if tc.edit(); !tc.got(p.deployment(t)) || tc.got(before) {
			t.Errorf("%s: %+v", name, p.deployment(t).Spec)
		}
	}
}

func TestWhatSomebodyChangesInAStandaloneGatewayIsPutBack(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	p.change(t, alone)
	before := p.objects(t)
	d := p.deployment(t)
	d.Spec.Replicas = new(int32(0))
	d.Spec.Template.Spec.HostNetwork = true
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "evil", Image: "evil:1"})
	for i := range d.Spec.Template.Spec.Containers[0].Ports {
		d.Spec.Template.Spec.Containers[0].Ports[i].HostPort = d.Spec.Template.Spec.Containers[0].Ports[i].ContainerPort
	}
	d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	s, _ := before["Service"].DeepCopyObject().(*corev1.Service)
	s.Spec.Type, s.Spec.ExternalIPs, s.Spec.Selector = corev1.ServiceTypeNodePort, []string{"192.0.2.1"}, map[string]string{"app": "evil"}
	account, _ := before["ServiceAccount"].DeepCopyObject().(*corev1.ServiceAccount)
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	budget := before["PodDisruptionBudget"]
	for _, object := range []client.Object{d, s, account} {
		if err := p.admin.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	p.run(t)
	after := p.objects(t)
	if after["PodDisruptionBudget"] == nil {
		t.Fatal("the PodDisruptionBudget did not come back")
	}
	was, _ := before["Deployment"].(*appsv1.Deployment)
	is := p.deployment(t)
	if is.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != "now" {
		t.Error("a restart is taken back")
	}
	is.Spec.Template.Annotations = nil
	if diff := cmp.Diff(was.Spec, is.Spec); diff != "" {
		t.Errorf("Deployment (-before +after):\n%s", diff)
	}
	if s, ok := after["Service"].(*corev1.Service); !ok || !cmp.Equal(s.Spec, before["Service"].(*corev1.Service).Spec) {
		t.Errorf("Service: %+v", s.Spec)
	}
	if a, ok := after["ServiceAccount"].(*corev1.ServiceAccount); !ok || len(a.ImagePullSecrets) != 1 {
		t.Errorf("what the account pulls images with is gone: %+v", a)
	}
}

func TestAnObjectOfSomebodyElseIsNoGateway(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]client.Object{
		"ServiceAccount": &corev1.ServiceAccount{},
		"Service":        &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newJetty(t)
			theirs.SetNamespace(p.namespace)
			theirs.SetName("tidewaiter-cranes")
			if err := p.admin.Create(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			if result := p.change(t, alone); result.RequeueAfter == 0 {
				t.Error("nobody looks again")
			}
			if got := p.objects(t); len(got) != 1 || got[name].GetResourceVersion() != theirs.GetResourceVersion() {
				t.Errorf("there are %v", got)
			}
			want := "False/ObjectConflict: There are objects tidewaiter-cranes that do not belong to this GovernedServer, of which the gateway would be made: delete or rename " + name
			if got := p.says(t); got != want {
				t.Errorf("it says %q, want %q", got, want)
			}
			if told := p.event(); !strings.HasPrefix(told, "Warning ObjectConflict") {
				t.Errorf("told %q", told)
			}
			p.change(t, notAlone)
			if got := p.objects(t); len(got) != 1 {
				t.Errorf("it was removed: %v", got)
			}
			p.change(t, alone)
			if err := p.admin.Delete(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			p.run(t)
			if got := p.objects(t); len(got) != 4 {
				t.Errorf("after it has gone there are %v", got)
			}
		})
	}
}

// What belongs to an earlier server of the name goes by itself, and is not used meanwhile.
func TestTheGatewayOfAnEarlierServerIsNotUsed(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	p.change(t, alone)
	server := p.stored(t)
	if err := p.admin.Delete(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	p.server = &v1alpha1.GovernedServer{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "cranes"}, Spec: server.Spec}
	if err := p.admin.Create(t.Context(), p.server); err != nil {
		t.Fatal(err)
	}
	before := versionsOf(p.objects(t))
	if result := p.run(t); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	if diff := cmp.Diff(before, versionsOf(p.objects(t))); diff != "" {
		t.Errorf("it was used (-before +after):\n%s", diff)
	}
	if got := p.says(t); !strings.HasPrefix(got, "False/NotDeployedYet") {
		t.Errorf("it says %q", got)
	}
}

func TestNothingIsMadeBeforeItCanWork(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	key := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.OperatorNamespace, Name: v1alpha1.VotingKeys}}
	if err := p.admin.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if result := p.change(t, alone); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	if got := p.says(t); !strings.Contains(got, "The root key of the votes is not published yet") || len(p.objects(t)) > 0 {
		t.Errorf("without the root key: %q, %v", got, p.objects(t))
	}
	p.Settings.Gateway.Image = ""
	p.run(t)
	if got := p.says(t); !strings.Contains(got, "--gateway-image") || len(p.objects(t)) > 0 {
		t.Errorf("without an image: %q, %v", got, p.objects(t))
	}
}

func TestWhetherAStandaloneGatewayIsThereIsToldByItsDeployment(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	p.change(t, alone)
	expect := func(said, told string) {
		t.Helper()
		if got := p.says(t); got != said {
			t.Errorf("it says %q, want %q", got, said)
		}
		if got := p.event(); got != told {
			t.Errorf("told %q, want %q", got, told)
		}
	}
	const none = "No gateway is ready: look at the pods of Deployment tidewaiter-cranes"
	expect("False/Unavailable: "+none, "Normal Unavailable "+none)
	p.report(t, 1)
	expect("True/Available: 1 of 2 gateways are ready", "Normal Available 1 of 2 gateways are ready")
	p.report(t, 3) // while they are exchanged
	expect("True/Available: 2 of 2 gateways are ready", "")
	failure := appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		Message: `pods "tidewaiter-cranes-5d7f-x2k" is forbidden: exceeded quota`}
	p.report(t, 0, failure)
	expect("False/Unavailable: No gateway is ready: pods is forbidden: exceeded quota", "Warning Unavailable No gateway is ready: pods is forbidden: exceeded quota")
	failure.Message = strings.ReplaceAll(failure.Message, "x2k", "y3l")
	version := p.stored(t).ResourceVersion
	p.report(t, 0, failure)
	if p.stored(t).ResourceVersion != version {
		t.Error("the name of another pod is news")
	}
}
