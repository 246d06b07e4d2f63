// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Mapper knows the kinds that a gateway needs, so that it can start, and say that it is not ready, while the API server
// that it would have to ask is down.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"GovernedServer", "ToolPolicy", "ApprovalRequest"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind+"List"), meta.RESTScopeNamespace) // caches ask for lists by their own kind
	}
	for _, kind := range []string{"Secret", "Service", "ConfigMap", "ConfigMapList"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	return mapper
}
