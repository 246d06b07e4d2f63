// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidewaiter/tidewaiter/internal/endpoint"
)

// problems says all that keeps the gateway from being put into the pod, or from being of any use there.
func (i *injection) problems() []string {
	var all []string
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	spec := &i.pod.Spec
	add(i.settings.Image == "", "the operator was not told the gateway's image: set --gateway-image")
	add(i.settings.VotingRoot == "", "the root key of the votes is not known yet: try again when the operator has published it")
	add(spec.HostNetwork, "hostNetwork leaves no loopback that is the pod's own: take it out")
	add(spec.HostPID || valueOf(spec.ShareProcessNamespace), "other processes could read the gateway's token: take out hostPID and shareProcessNamespace")
	add(spec.OS != nil && spec.OS.Name == corev1.Windows, "the gateway runs on Linux only")
	if g := i.server.Spec.Gateway; g != nil && g.ServiceAccountName != "" {
		account := cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount, "default")
		add(account != g.ServiceAccountName, "it runs as the ServiceAccount %q, and GovernedServer %q gives its rights to %q: make them the same", account, i.server.Name, g.ServiceAccountName)
	}
	for _, v := range spec.Volumes {
		add(v.Name == tokenVolume || v.Name == binaryVolume, "it has a volume %q, which is the gateway's: rename it", v.Name)
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		add(isWrapped(&c), "container %q runs the gateway's binary already: give it the command of the server alone", c.Name)
		add(c.Name == GatewayContainer || c.Name == copyContainer, "it has a container %q, which is the gateway's: rename it", c.Name)
		for _, p := range c.Ports {
			add(slices.Contains(i.ports(), p.ContainerPort), "port %d of container %q is the gateway's: use another", p.ContainerPort, c.Name)
			// A Service asks for a port by name, and takes the first container that has one.
			add(slices.Contains(portNames, p.Name), "port %d of container %q has the name %q, which is the gateway's: rename it", p.ContainerPort, c.Name, p.Name)
		}
		for _, m := range c.VolumeMounts {
			add(slices.Contains([]string{tokenVolume, binaryVolume, receiptsVolume}, m.Name), "container %q mounts %q, which is the gateway's: take it out", c.Name, m.Name)
		}
	}
	stdio := i.server.Spec.Endpoint.Stdio
	add(stdio == nil && slices.Contains(i.ports(), int32(i.local.Port)), "port %d, where spec.endpoint.url says that the server listens, is the gateway's: use another", i.local.Port)
	if stdio != nil {
		all = append(all, i.stdioProblems(stdio.Container)...)
	}
	return all
}

// ports are those that nothing else in the pod may have.
func (i *injection) ports() []int32 {
	taken := []int32{AgentPort, opsPort, ControlPort}
	if i.server.Spec.Endpoint.Stdio != nil {
		taken = append(taken, endpoint.StdioPort)
	}
	return taken
}

// stdioProblems says what keeps a container from being wrapped.
func (i *injection) stdioProblems(name string) []string {
	c := containerOf(&i.pod.Spec, name)
	switch {
	case c == nil:
		return []string{fmt.Sprintf("it has no container %q, which spec.endpoint.stdio of GovernedServer %q names", name, i.server.Name)}
	case len(c.Command) == 0:
		return []string{fmt.Sprintf("container %q has no command, and what its image would run is not known here: set command", name)}
	case slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == binaryFolder }):
		return []string{fmt.Sprintf("container %q mounts something at %s, where the gateway's binary goes: use another path", name, binaryFolder)}
	default:
		return nil
	}
}

// warnings says what weakens the gateway, or will not work once the server listens on loopback only.
func (i *injection) warnings() []string {
	var all []string
	if i.pod.Spec.AutomountServiceAccountToken == nil || *i.pod.Spec.AutomountServiceAccountToken {
		all = append(all, "the containers of this pod share the gateway's ServiceAccount: set automountServiceAccountToken to false where they need no token")
	}
	if i.server.Spec.Gateway == nil || i.server.Spec.Gateway.ServiceAccountName == "" {
		all = append(all, fmt.Sprintf("spec.gateway.serviceAccountName of GovernedServer %q is not set: give the pod's ServiceAccount the rights of a gateway by hand", i.server.Name))
	}
	for _, c := range i.pod.Spec.Containers {
		for kind, p := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe} {
			if p != nil && i.local.Port == dialled(p, c.Ports) {
				all = append(all, fmt.Sprintf("%s of container %q dials the pod's address, where a server on loopback does not answer: use exec", kind, c.Name))
			}
		}
	}
	slices.Sort(all)
	return all
}

// dialled returns the port that kubelet connects to for a probe, 0 for none.
func dialled(p *corev1.Probe, ports []corev1.ContainerPort) uint16 {
	var port intstr.IntOrString
	switch {
	case p.HTTPGet != nil:
		port = p.HTTPGet.Port
	case p.TCPSocket != nil:
		port = p.TCPSocket.Port
	case p.GRPC != nil:
		port = intstr.FromInt32(p.GRPC.Port)
	}
	for _, named := range ports {
		if port.Type == intstr.String && port.StrVal == named.Name {
			return uint16(named.ContainerPort)
		}
	}
	return uint16(port.IntValue())
}
