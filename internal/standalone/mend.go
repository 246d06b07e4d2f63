// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mend returns what an object that is there should be, given how it would be made now. Labels and annotations of others
// stay, and so does what the cluster chose; everything else that was changed or added is put back, since a second
// container or volume would be in the gateway's pod.
func Mend(is, wanted client.Object) client.Object {
	mended, _ := is.DeepCopyObject().(client.Object) // what was a client.Object still is one
	labels := maps.Clone(is.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, wanted.GetLabels())
	mended.SetLabels(labels)
	switch wanted := wanted.(type) {
	case *corev1.ServiceAccount:
		if is, ok := mended.(*corev1.ServiceAccount); ok { // secrets to pull with stay
			is.AutomountServiceAccountToken = wanted.AutomountServiceAccountToken
		}
	case *appsv1.Deployment:
		if is, ok := mended.(*appsv1.Deployment); ok {
			is.Spec = mendDeployment(is.Spec, wanted.Spec)
		}
	case *corev1.Service:
		if is, ok := mended.(*corev1.Service); ok {
			is.Spec = mendService(is.Spec, wanted.Spec)
		}
	case *policyv1.PodDisruptionBudget:
		if is, ok := mended.(*policyv1.PodDisruptionBudget); ok {
			is.Spec = wanted.Spec
		}
	}
	return mended
}

// mendDeployment keeps the annotations of the pods, by which kubectl restarts them, and when their image is pulled.
func mendDeployment(is, wanted appsv1.DeploymentSpec) appsv1.DeploymentSpec {
	mended := *wanted.DeepCopy()
	mended.Template.Annotations = is.Template.Annotations
	for _, was := range is.Template.Spec.Containers {
		if c := &mended.Template.Spec.Containers[0]; was.Name == c.Name && was.Image == c.Image {
			c.ImagePullPolicy = was.ImagePullPolicy
		}
	}
	return mended
}

// mendService keeps the addresses that the cluster chose.
func mendService(is, wanted corev1.ServiceSpec) corev1.ServiceSpec {
	mended := *wanted.DeepCopy()
	mended.ClusterIP, mended.ClusterIPs = is.ClusterIP, is.ClusterIPs
	mended.IPFamilies, mended.IPFamilyPolicy = is.IPFamilies, is.IPFamilyPolicy
	mended.InternalTrafficPolicy = is.InternalTrafficPolicy
	return mended
}
