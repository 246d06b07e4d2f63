// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/standalone"
)

func standsAlone(s *v1alpha1.GovernedServer) { alone(&s.Spec) }

// Nobody else is to have the credentials of the server, so the manager asks the gateway even where it could reach the
// server, and needs no Secret.
func TestAStandaloneGatewayIsAskedForTheTools(t *testing.T) {
	t.Parallel()
	ofGateway := func(p *corev1.Pod) { p.Labels[v1alpha1.StandaloneLabel] = "true" }
	withCredential := func(s *v1alpha1.GovernedServer) {
		standsAlone(s)
		withSecrets("not-there")(s)
	}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		server *v1alpha1.GovernedServer
		asked  bool
	}{
		"its gateway":            {governedPodOf("a", "10.0.0.1", time.Hour, ofGateway), cranes(withCredential), true},
		"a pod that is none":     {governedPodOf("a", "10.0.0.1", time.Hour), cranes(withCredential), false},
		"of a server in its pod": {governedPodOf("a", "10.0.0.1", time.Hour, ofGateway), cranes(inThePod), false},
	} {
		d := newDock(t, interceptor.Funcs{}, tc.pod, tc.server)
		d.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		asked, err := askTools(t, d)
		if got := asked.URL == "http://10.0.0.1:9442/harbour/cranes/tools"; got != tc.asked || tc.asked != (err == nil) {
			t.Errorf("%s: asked %q, %v, want it asked: %v", name, asked.URL, err, tc.asked)
		}
	}
}

func TestTheAccountOfAStandaloneGatewayGetsItsRights(t *testing.T) {
	t.Parallel()
	o := newOffice(t, interceptor.Funcs{}, cranes(standsAlone, withSecrets("token")), secretOf("token", "cranes"))
	if got := authorized(o.mustRun(t)); got != "True/Granted" {
		t.Errorf("it is %s", got)
	}
	if b := o.binding(t); len(b.Subjects) != 1 || b.Subjects[0].Name != "tidewaiter-cranes" || b.Subjects[0].Namespace != "harbour" {
		t.Errorf("the rights are given to %+v", b.Subjects)
	}
	o.edit(t, runBy(""))
	o.mustRun(t)
	if b := o.binding(t); b != nil {
		t.Errorf("they stay: %+v", b)
	}
}

func TestAServerIsReadyWithItsStandaloneGateway(t *testing.T) {
	t.Parallel()
	authorized := func(s *v1alpha1.GovernedServer) {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionGatewayAuthorized, Status: metav1.ConditionTrue, Reason: "Granted"})
	}
	available := func(status metav1.ConditionStatus) func(*v1alpha1.GovernedServer) {
		return func(s *v1alpha1.GovernedServer) {
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionGatewayAvailable, Status: status, Reason: "Said"})
		}
	}
	for name, tc := range map[string]struct {
		server *v1alpha1.GovernedServer
		want   string
	}{
		"before it is made":        {cranes(standsAlone, authorized, inOrder), "Unknown/NotDeployedYet"},
		"before it has its rights": {cranes(standsAlone, available(metav1.ConditionTrue), inOrder), "Unknown/NotGrantedYet"},
		"none is ready":            {cranes(standsAlone, authorized, available(metav1.ConditionFalse), inOrder), "False/Said"},
		"one is ready":             {cranes(standsAlone, authorized, available(metav1.ConditionTrue), inOrder), "True/Ready"},
		"none is asked for":        {cranes(available(metav1.ConditionFalse), inOrder), "True/Ready"},
	} {
		if got := readyOf(tc.server); got != tc.want {
			t.Errorf("%s: Ready is %s, want %s", name, got, tc.want)
		}
	}
}

// Its gateways cannot see whether the server answers others, and nobody says that they can.
func TestTheWayAroundAStandaloneGatewayIsNotKnown(t *testing.T) {
	t.Parallel()
	l := newLookout(t, cranes(standsAlone))
	bypass := func() string {
		t.Helper()
		l.look(t)
		var server v1alpha1.GovernedServer
		if err := l.api.Get(t.Context(), cranesKey, &server); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionBypassClosed)
		if c == nil {
			return "absent"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	if got := bypass(); got != "Unknown/DirectPathUnknown" {
		t.Errorf("it is %s", got)
	}
	if err := l.api.Create(t.Context(), leaseOf("a", "", 0, func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.BypassAnnotation] = "Closed" })); err != nil {
		t.Fatal(err)
	}
	if got := bypass(); got != "Unknown/DirectPathUnknown" {
		t.Errorf("by the word of a gateway in another pod it is %s", got)
	}
	server := cranes()
	if err := l.api.Get(t.Context(), cranesKey, server); err != nil {
		t.Fatal(err)
	}
	server.Spec.Gateway = nil
	if err := l.api.Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	if got := bypass(); got != "True/DirectPathClosed" {
		t.Errorf("without a standalone gateway it is %s", got)
	}
}

func TestThePodsOfAStandaloneGatewayAdmitItsPortAlone(t *testing.T) {
	t.Parallel()
	m := newMoat(t, elsewhere)
	if m.policy(t) != nil {
		t.Fatal("a server elsewhere has a NetworkPolicy")
	}
	alone(&m.server.Spec)
	m.move(t, elsewhere)
	p := m.policy(t)
	if p == nil || len(p.Spec.Ingress) != 2 {
		t.Fatalf("it is %+v", p)
	}
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range standalone.Build(m.server, standalone.Settings{}) {
		if d, ok := object.(*appsv1.Deployment); ok && !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("it does not select the pods: %v", p.Spec.PodSelector)
		}
	}
	m.server.Spec.Gateway = nil
	m.move(t, elsewhere)
	if m.policy(t) != nil {
		t.Error("it stays")
	}
}

// The manager's rights on these kinds are wide, and admission narrows them.
func TestTheManagerWritesNothingBesideStandaloneGateways(t *testing.T) {
	t.Parallel()
	p := newJetty(t)
	manager := plane.Client(t, p.manager)
	p.change(t, alone)
	server := p.stored(t)
	p.change(t, notAlone)
	build := func(edit func(client.Object)) []client.Object {
		objects := standalone.Build(server, p.Settings)
		for _, object := range objects {
			edit(object)
		}
		return objects
	}
	pod := func(edit func(*corev1.PodSpec)) func(client.Object) {
		return func(o client.Object) {
			if d, ok := o.(*appsv1.Deployment); ok {
				edit(&d.Spec.Template.Spec)
			}
		}
	}
	service := func(edit func(*corev1.ServiceSpec)) func(client.Object) {
		return func(o client.Object) {
			if s, ok := o.(*corev1.Service); ok {
				edit(&s.Spec)
			}
		}
	}
	for name, tc := range map[string]struct {
		edit    func(client.Object)
		refused int
	}{
		"as they should be": {func(client.Object) {}, 0},
		"of another name":   {func(o client.Object) { o.SetName("tidewaiter-other") }, 4},
		"of nobody":         {func(o client.Object) { o.SetOwnerReferences(nil) }, 4},
		"of something else": {func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "cranes", UID: "u", Controller: new(true)}})
		}, 4},
		"another account":      {pod(func(s *corev1.PodSpec) { s.ServiceAccountName, s.DeprecatedServiceAccount = "default", "default" }), 1},
		"the node's network":   {pod(func(s *corev1.PodSpec) { s.HostNetwork = true; hostPorts(s) }), 1},
		"the node's processes": {pod(func(s *corev1.PodSpec) { s.HostPID = true }), 1},
		"privileges": {pod(func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}), 1},
		"privileges before": {pod(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "a", Image: "a", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}
		}), 1},
		"a capability": {pod(func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		}), 1},
		"a folder of the node": {pod(func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}), 1},
		"an address outside":     {service(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.1"} }), 1},
		"a port of every node":   {service(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }), 1},
		"a name of another host": {service(func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "evil.example" }), 1},
	} {
		refused := 0
		for _, object := range build(tc.edit) {
			switch err := manager.Create(t.Context(), object, client.DryRunAll); {
			case fixture.RefusedBy(err, "tidewaiter-standalone"):
				refused++
			case err != nil:
				t.Errorf("%s: %T: %v", name, object, err)
			}
		}
		if refused != tc.refused {
			t.Errorf("%s: %d are refused, want %d", name, refused, tc.refused)
		}
	}
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "theirs"}}
	if err := p.admin.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if err := manager.Delete(t.Context(), theirs, client.DryRunAll); !fixture.RefusedBy(err, "tidewaiter-standalone") {
		t.Errorf("it removes what is somebody's: %v", err)
	}
	mine := theirs.DeepCopy()
	mine.Name = "tidewaiter-cranes"
	mine.ResourceVersion = ""
	if err := p.admin.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	taken := mine.DeepCopy()
	taken.OwnerReferences = standalone.Build(server, p.Settings)[0].GetOwnerReferences()
	if err := manager.Patch(t.Context(), taken, client.MergeFrom(mine), client.DryRunAll); !fixture.RefusedBy(err, "tidewaiter-standalone") {
		t.Errorf("it takes over what is somebody's: %v", err)
	}
}

func hostPorts(s *corev1.PodSpec) {
	for i := range s.Containers[0].Ports {
		s.Containers[0].Ports[i].HostPort = s.Containers[0].Ports[i].ContainerPort
	}
}
