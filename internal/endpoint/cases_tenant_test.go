// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// A tenant writes what it likes into its servers, and reaches nothing of another namespace by it.
func TestNothingOfAnotherNamespaceIsRead(t *testing.T) {
	t.Parallel()
	theirs := secret("token", "billing", map[string]string{"t": "Bearer theirs", "ca.crt": authority(t)})
	theirs.Namespace = "victim"
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "victim", Name: "mcp"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	for name, tenant := range map[string]*v1alpha1.GovernedServer{
		"a token":                     server(withHeader("token", "t")),
		"a token, by a path":          server(withHeader("../victim/token", "t")),
		"a token, by namespace":       server(withHeader("victim/token", "t")),
		"an authority":                server(withCA("token", "ca.crt")),
		"a Service":                   server(withService("mcp")),
		"a Service, by its full name": server(withService("mcp.victim")),
		"a Service, by a path":        server(withService("../victim/mcp")),
	} {
		reader, read := cluster(t, theirs, service)
		got, err := Resolve(t.Context(), reader, tenant, nil)
		if err == nil || len(*read) > 0 {
			t.Errorf("%s: got %+v, read the data of %v", name, got, *read)
		}
	}
	ours, ourService := theirs.DeepCopy(), service.DeepCopy()
	ours.Namespace, ourService.Namespace = "team", "team"
	reader, read := cluster(t, theirs, service, ours, ourService)
	_, err := Resolve(t.Context(), reader, server(withHeader("token", "t"), withCA("token", "ca.crt")), nil)
	_, errService := Resolve(t.Context(), reader, server(withService("mcp")), nil)
	if err := errors.Join(err, errService); err != nil || len(*read) == 0 {
		t.Errorf("its own: %v, read the data of %v", err, *read)
	}
}
