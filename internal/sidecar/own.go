// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// takeOut removes what an earlier injection put into a pod, unless something has changed it since: what somebody else made
// of the gateway may be no gateway any more.
func takeOut(pod *corev1.Pod) error {
	digest, injected := pod.Annotations[v1alpha1.InjectedAnnotation]
	if !injected {
		return nil
	}
	if digest != digestOf(pod) {
		return fmt.Errorf("something has changed what was injected into this pod: have it leave out pods with the label %s, and begin again from the pod as it was before, without the annotation %s",
			v1alpha1.GovernLabel, v1alpha1.InjectedAnnotation)
	}
	delete(pod.Annotations, v1alpha1.InjectedAnnotation)
	spec := &pod.Spec
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return isOurs(c.Name) })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, isOurVolume)
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if waits(c) {
			c.Lifecycle.PreStop = nil
			if reflect.DeepEqual(c.Lifecycle, &corev1.Lifecycle{}) {
				c.Lifecycle = nil
			}
		}
		if isWrapped(c) {
			c.Command = c.Command[len(wrapper()):]
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == binaryVolume })
		}
	}
	return nil
}

// Has tells whether a pod was made with a gateway in it.
func Has(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == GatewayContainer })
}

func isOurs(container string) bool {
	return container == GatewayContainer || container == copyContainer
}

// isOurVolume tells the volumes that an injection makes from one for receipts that the pod brought.
func isOurVolume(v corev1.Volume) bool {
	return v.Name == tokenVolume || v.Name == binaryVolume || reflect.DeepEqual(v, emptyFolder(receiptsVolume))
}

func isWrapped(c *corev1.Container) bool {
	return len(c.Command) > len(wrapper()) && slices.Equal(c.Command[:len(wrapper())], wrapper())
}

// waits tells whether a container stops once the gateway is idle.
func waits(c *corev1.Container) bool {
	return c.Lifecycle != nil && reflect.DeepEqual(c.Lifecycle.PreStop, untilIdle())
}

// parts is what an injection puts into a pod, as far as nobody else may change it.
type parts struct {
	Containers []corev1.Container `json:"containers"`
	Volumes    []corev1.Volume    `json:"volumes"`
	Wrapped    []wrapped          `json:"wrapped,omitempty"`
}

type wrapped struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
}

// digestOf is over what an injection put into a pod. Resources and the policy for pulling images are left out: plugins of
// the API server set those of every container.
func digestOf(pod *corev1.Pod) string {
	var p parts
	for _, c := range pod.Spec.InitContainers {
		if !isOurs(c.Name) {
			continue
		}
		c.Resources, c.ImagePullPolicy = corev1.ResourceRequirements{}, ""
		if c.Name != GatewayContainer { // the API server gives every container that has none a token
			c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return m.MountPath == tokenFolder })
		}
		p.Containers = append(p.Containers, c)
	}
	for _, v := range pod.Spec.Volumes {
		if isOurVolume(v) {
			p.Volumes = append(p.Volumes, v)
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; isWrapped(c) {
			p.Wrapped = append(p.Wrapped, wrapped{c.Name, c.Command})
		}
	}
	raw, _ := json.Marshal(p) // structs of Kubernetes always have a JSON form
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}
