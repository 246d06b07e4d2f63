// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package standalone builds what a gateway is made of that runs in pods of its own, and says what has to change in what is
// there; it does no I/O.
package standalone

import (
	"maps"
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
)

const (
	// leaveTime in seconds is how long a gateway that is to stop still takes calls: until nobody is sent to it any more.
	leaveTime = 5
	// stayTime in seconds is how long a client without connections is still sent to the gateway that it had: as long as a
	// gateway keeps a stream on which nothing passes.
	stayTime = 4 * 60 * 60
)

// Settings are those of the operator; they are the same for all servers.
type Settings struct {
	// Gateway is what every gateway gets.
	Gateway sidecar.Settings
	// Allow lists the addresses that the operator, and so its gateways, may dial beside public ones.
	Allow []netip.Prefix
}

// Wanted tells whether a server has a gateway in pods of its own.
func Wanted(server *v1alpha1.GovernedServer) bool {
	return server.Spec.Gateway != nil && server.Spec.Gateway.Standalone != nil
}

// Name is that of every object that is made for the gateway of a server.
func Name(server string) string { return "tidewaiter-" + server }

// AgentURL is where agents reach a server through its gateway.
func AgentURL(server *v1alpha1.GovernedServer) string {
	return publicURL(server) + "/" + server.Namespace + "/" + server.Name + "/mcp"
}

func publicURL(server *v1alpha1.GovernedServer) string {
	if address := server.Spec.Gateway.PublicURL; address != "" {
		return address
	}
	return "http://" + Name(server.Name) + "." + server.Namespace + ".svc"
}

// Build returns all objects of the gateway of a server, in the order in which they are made. What the API server would add
// stands here already where that is known, so that what comes back is what was put in.
func Build(server *v1alpha1.GovernedServer, s Settings) []client.Object {
	b := building{server, s}
	return []client.Object{b.account(), b.deployment(), b.service(), b.budget()}
}

type building struct {
	server   *v1alpha1.GovernedServer
	settings Settings
}

func (b building) meta() metav1.ObjectMeta {
	owner := metav1.NewControllerRef(b.server, v1alpha1.GroupVersion.WithKind("GovernedServer"))
	owner.BlockOwnerDeletion = nil // a server never waits for its gateway to go
	return metav1.ObjectMeta{
		Namespace: b.server.Namespace, Name: Name(b.server.Name),
		Labels: b.labels(), OwnerReferences: []metav1.OwnerReference{*owner},
	}
}

func (b building) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "tidewaiter", "app.kubernetes.io/component": "gateway", "app.kubernetes.io/instance": b.server.Name,
		"app.kubernetes.io/managed-by": "tidewaiter", v1alpha1.ServerLabel: b.server.Name,
	}
}

// podLabels are what Service, NetworkPolicy and the rest know the pods by; a selector cannot be changed later.
func (b building) podLabels() map[string]string {
	return map[string]string{v1alpha1.GovernLabel: b.server.Name, v1alpha1.StandaloneLabel: "true"}
}

// account is who the gateway runs as. Its pods mount a token of their own; nobody else needs one.
func (b building) account() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: b.meta(), AutomountServiceAccountToken: new(false)}
}

// deployment never has fewer gateways than it should while they are exchanged.
func (b building) deployment() *appsv1.Deployment {
	labels := b.labels()
	maps.Copy(labels, b.podLabels())
	return &appsv1.Deployment{ObjectMeta: b.meta(), Spec: appsv1.DeploymentSpec{
		Replicas: new(b.server.Spec.Gateway.Standalone.Replicas),
		Selector: &metav1.LabelSelector{MatchLabels: b.podLabels()},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
		}},
		RevisionHistoryLimit: new(int32(10)), ProgressDeadlineSeconds: new(int32(600)),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: b.pod()},
	}}
}

func (b building) pod() corev1.PodSpec {
	gateway := sidecar.Container(b.server, b.settings.Gateway, publicURL(b.server))
	for _, address := range b.settings.Allow {
		gateway.Args = append(gateway.Args, "--allow-address="+address.String())
	}
	gateway.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: leaveTime}}}
	stop := int64((sidecar.LastCall(b.server) + sidecar.MarginToStop).Seconds()) + leaveTime
	return corev1.PodSpec{
		Containers: []corev1.Container{gateway}, Volumes: sidecar.Volumes(),
		ServiceAccountName: Name(b.server.Name), DeprecatedServiceAccount: Name(b.server.Name),
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: &stop,
		NodeSelector:                  map[string]string{corev1.LabelOSStable: "linux"},
		TopologySpreadConstraints:     []corev1.TopologySpreadConstraint{b.spread(corev1.LabelHostname), b.spread(corev1.LabelTopologyZone)},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: corev1.DefaultSchedulerName,
	}
}

// spread keeps the gateways of one version apart, where there is room.
func (b building) spread(key string) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: b.podLabels()}, MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}
}

// service is the address of agents. It keeps a client with one gateway: streams and calls of several rounds are in the
// memory of one.
func (b building) service() *corev1.Service {
	return &corev1.Service{ObjectMeta: b.meta(), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Selector: b.podLabels(),
		Ports:                 []corev1.ServicePort{{Name: "mcp", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString(sidecar.PortName)}},
		SessionAffinity:       corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(stayTime))}},
	}}
}

// budget lets one gateway at a time be evicted, also a single one: a node can always be drained.
func (b building) budget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: b.meta(), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: b.podLabels()},
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
	}}
}
