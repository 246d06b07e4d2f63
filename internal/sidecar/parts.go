// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Names of the gateway's other ports.
const opsPortName, controlPortName = "tidewaiter-ops", "tidewaiter-ctl"

var portNames = []string{PortName, opsPortName, controlPortName}

// user is who the gateway runs as; its image has no other.
const user = 65532

// Container is the gateway of a server as it runs in any pod, beside the server or not, with Volumes. What the API server
// would add stands here already, so that what comes back is what was put in.
func Container(server *v1alpha1.GovernedServer, s Settings, publicURL string) corev1.Container {
	c := contained(GatewayContainer, s, []string{
		"--server=" + server.Namespace + "/" + server.Name,
		"--name=$(POD_NAME)",
		fmt.Sprintf("--listen=:%d", AgentPort),
		fmt.Sprintf("--ops-listen=:%d", opsPort),
		fmt.Sprintf("--control-listen=:%d", ControlPort),
		"--public-url=" + publicURL,
		"--voting-root-key=" + s.VotingRoot,
		"--operator-namespace=" + s.OperatorNamespace,
		"--receipts=" + receiptsFolder + "/receipts.jsonl",
		"--drain=" + LastCall(server).String(),
	})
	c.Resources = s.Resources
	c.Env = []corev1.EnvVar{fromPod("POD_NAME", "metadata.name")}
	c.Ports = []corev1.ContainerPort{
		{Name: PortName, ContainerPort: AgentPort, Protocol: corev1.ProtocolTCP},
		{Name: opsPortName, ContainerPort: opsPort, Protocol: corev1.ProtocolTCP},
		{Name: controlPortName, ContainerPort: ControlPort, Protocol: corev1.ProtocolTCP},
	}
	// Alive is what answers; ready is what knows its policy. A server in the pod starts once the gateway is alive: it may
	// need the server to become ready.
	c.StartupProbe = probe("/healthz", 1, 120)
	c.LivenessProbe = probe("/healthz", 10, 3)
	c.ReadinessProbe = probe("/readyz", 5, 2)
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: receiptsVolume, MountPath: receiptsFolder},
		{Name: tokenVolume, MountPath: tokenFolder, ReadOnly: true},
	}
	return c
}

// Volumes are those that Container mounts; receipts end with the pod.
func Volumes() []corev1.Volume {
	return []corev1.Volume{tokenSource(), emptyFolder(receiptsVolume)}
}

// gateway is the container that enforces: a sidecar of the kind that Kubernetes knows, which starts before the server and
// does not keep a Job from ending.
func (i *injection) gateway() corev1.Container {
	c := Container(i.server, i.settings, publicURL(i.server))
	c.Args = append(c.Args, "--pod-ip=$(POD_IPS)")
	for _, address := range i.local.Addresses {
		c.Args = append(c.Args, "--allow-address="+address.String())
	}
	c.Env = append(c.Env, fromPod("POD_IPS", "status.podIPs"))
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

// copier brings the binary into the pod; the gateway's image has no shell.
func (i *injection) copier() corev1.Container {
	c := contained(copyContainer, i.settings, []string{"copy", binaryFolder + "/gateway"})
	c.Resources = i.settings.Resources
	c.VolumeMounts = []corev1.VolumeMount{{Name: binaryVolume, MountPath: binaryFolder}}
	return c
}

// contained is what the restricted Pod Security Standard asks of a container, and a root that nobody writes.
func contained(name string, s Settings, args []string) corev1.Container {
	return corev1.Container{
		Name: name, Image: s.Image, Args: args,
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)),
			ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false), Privileged: new(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(opsPort), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: period, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: failures,
	}
}

func untilIdle() *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/idle", Port: intstr.FromInt32(opsPort), Scheme: corev1.URISchemeHTTP}}
}

// tokenSource is the gateway's own token for the API server, which only its container mounts: the pod's containers need
// none, and can be kept from having one by automountServiceAccountToken.
func tokenSource() corev1.Volume {
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}}}
}

func fromPod(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}}
}

func emptyFolder(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}
