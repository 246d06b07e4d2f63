// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sidecar puts the gateway into a pod, in front of the MCP server that runs there, or says why that cannot be done
// safely; it does no I/O.
package sidecar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
)

const (
	// GatewayContainer is the name of the gateway's container.
	GatewayContainer = "tidewaiter-gateway"
	// copyContainer brings the gateway's binary to the container of a server that speaks by standard input and output.
	copyContainer = "tidewaiter-copy"

	// AgentPort is where agents reach the gateway.
	AgentPort = 9440
	// PortName is the name of that port.
	PortName = "tidewaiter"
	// opsPort serves probes and metrics.
	opsPort = 9441
	// ControlPort is where the operator asks the gateway for the tools of the server.
	ControlPort = 9442

	tokenVolume    = "tidewaiter-token"
	binaryVolume   = "tidewaiter-binary"
	receiptsVolume = "tidewaiter-receipts"

	binaryFolder   = "/tidewaiter"
	receiptsFolder = "/var/lib/tidewaiter"
	tokenFolder    = "/var/run/secrets/kubernetes.io/serviceaccount"

	// MarginToStop is how much longer a pod may take to stop than its last call.
	MarginToStop = 30 * time.Second
)

// Settings are those of the operator; they are the same for all pods.
type Settings struct {
	// Image of the gateway.
	Image string
	// Resources of the gateway's container.
	Resources corev1.ResourceRequirements
	// VotingRoot is the public half of the root key that vouches for voting keys, in base64.
	VotingRoot string
	// OperatorNamespace is where voting keys are published and baselines count.
	OperatorNamespace string
}

// Result is what became of a pod.
type Result struct {
	// Pod has the gateway in it.
	Pod *corev1.Pod
	// Warnings say what weakens the gateway, or will not work beside it.
	Warnings []string
}

// Inject returns a copy of the pod with the gateway of a server in it; of a pod that has one by an earlier injection, with
// that replaced. It changes nothing else, so the same pod comes out however often it is injected. The error says
// everything that keeps the pod from being governed; a nil server is one that does not exist.
func Inject(pod *corev1.Pod, server *v1alpha1.GovernedServer, s Settings) (Result, error) {
	name := pod.Labels[v1alpha1.GovernLabel]
	if server == nil {
		return Result{}, fmt.Errorf("there is no GovernedServer %q in the pod's namespace, which the label %s names: create it first", name, v1alpha1.GovernLabel)
	}
	if server.Name != name {
		return Result{}, fmt.Errorf("the label %s names %q, and not %q", v1alpha1.GovernLabel, name, server.Name)
	}
	bare := pod.DeepCopy()
	if err := takeOut(bare); err != nil {
		return Result{}, err
	}
	local, ok := endpoint.InPod(server.Spec.Endpoint)
	if !ok {
		return Result{}, fmt.Errorf("spec.endpoint of GovernedServer %q does not lead into the pod: set url to http://127.0.0.1:PORT/PATH, where the server listens, or stdio", name)
	}
	i := injection{pod: bare, server: server, settings: s, local: local}
	if problems := i.problems(); len(problems) > 0 {
		return Result{}, errors.New("the gateway cannot be put into this pod: " + strings.Join(problems, "; "))
	}
	warnings := i.warnings()
	i.putIn()
	if pod.Annotations[v1alpha1.InjectedAnnotation] == i.pod.Annotations[v1alpha1.InjectedAnnotation] {
		return Result{Pod: pod.DeepCopy(), Warnings: warnings}, nil // it is there, with what plugins of the API server added
	}
	return Result{Pod: i.pod, Warnings: warnings}, nil
}

// injection is one pod that is about to be governed.
type injection struct {
	pod      *corev1.Pod
	server   *v1alpha1.GovernedServer
	settings Settings
	local    endpoint.Local
}

// putIn adds everything.
func (i *injection) putIn() {
	spec := &i.pod.Spec
	ours := []corev1.Container{i.gateway()}
	spec.Volumes = append(spec.Volumes, tokenSource())
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == receiptsVolume }) {
		spec.Volumes = append(spec.Volumes, emptyFolder(receiptsVolume))
	}
	if stdio := i.server.Spec.Endpoint.Stdio; stdio != nil {
		ours = append([]corev1.Container{i.copier()}, ours...)
		spec.Volumes = append(spec.Volumes, emptyFolder(binaryVolume))
		wrap(containerOf(spec, stdio.Container))
	}
	for i := range spec.Containers {
		letFinish(&spec.Containers[i])
	}
	// First to start, and so the last to stop: it takes down how the last call ended.
	spec.InitContainers = append(ours, spec.InitContainers...)
	grace := int64((LastCall(i.server) + MarginToStop).Seconds())
	spec.TerminationGracePeriodSeconds = new(max(grace, valueOf(spec.TerminationGracePeriodSeconds)))
	if i.pod.Annotations == nil {
		i.pod.Annotations = map[string]string{}
	}
	i.pod.Annotations[v1alpha1.InjectedAnnotation] = digestOf(i.pod)
}

// LastCall is how long the last call of a gateway that stops may take.
func LastCall(server *v1alpha1.GovernedServer) time.Duration {
	if d := server.Spec.CallTimeout.Duration; d > 0 {
		return d
	}
	return 5 * time.Minute // as the schema has it, for a server that comes from a file
}

// publicURL is scheme and host at which agents reach the gateways in the pods of a server.
func publicURL(server *v1alpha1.GovernedServer) string {
	if g := server.Spec.Gateway; g != nil && g.PublicURL != "" {
		return g.PublicURL
	}
	return "http://" + server.Name + "." + server.Namespace + ".svc"
}

// letFinish has a container stop once the gateway has no call under way, unless it has a word of its own about that.
// Kubernetes stops a pod's containers before its sidecars, so a server could be stopped in the middle of a call.
func letFinish(c *corev1.Container) {
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	if c.Lifecycle.PreStop == nil {
		c.Lifecycle.PreStop = untilIdle()
	}
}

// wrap has a container run the gateway's binary, which runs the container's own command; its arguments stay.
func wrap(c *corev1.Container) {
	c.Command = append(wrapper(), c.Command...)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: binaryVolume, MountPath: binaryFolder, ReadOnly: true})
}

func wrapper() []string {
	return []string{binaryFolder + "/gateway", "stdio", fmt.Sprintf("--listen=127.0.0.1:%d", endpoint.StdioPort), "--"}
}

func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	return nil
}

func valueOf[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
