// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// Pods puts the gateway into pods that ask for it by the label tidewaiter.dev/govern, or refuses them.
type Pods struct {
	// Client reads past any cache.
	Client client.Reader
	// Settings are those that flags have; the root key and the namespace are added for each pod.
	Settings sidecar.Settings
	// OperatorNamespace is where no pod is governed, and where the root key is published.
	OperatorNamespace string
}

// +kubebuilder:rbac:groups=tidewaiter.dev,resources=governedservers,verbs=get

// govern answers the creation of a pod.
func (p *Pods) govern(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.Resource.Resource != "pods" || req.SubResource != "" || req.Namespace == p.OperatorNamespace {
		return admission.Allowed("")
	}
	labels, err := sidecar.Labels(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	name, asked := labels[v1alpha1.GovernLabel]
	if !asked {
		return admission.Allowed("")
	}
	var server *v1alpha1.GovernedServer
	if name != "" { // of which there is none
		server, err = read(ctx, p.Client, req.Namespace, name, &v1alpha1.GovernedServer{})
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("this pod cannot be governed now, try again: read GovernedServer %q: %w", name, err))
	}
	settings, err := p.settings(ctx)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("this pod cannot be governed now, try again: read the root key: %w", err))
	}
	change, err := sidecar.Patch(req.Object.Raw, server, settings)
	if err != nil {
		log.FromContext(ctx).Info("pod refused", "server", req.Namespace+"/"+name, "reason", err.Error())
		return admission.Denied(err.Error())
	}
	answer := admission.Patched("", change.Operations...)
	return answer.WithWarnings(change.Warnings...)
}

// settings are the flags and what is published for gateways.
func (p *Pods) settings(ctx context.Context) (sidecar.Settings, error) {
	published, err := read(ctx, p.Client, p.OperatorNamespace, v1alpha1.VotingKeys, &corev1.ConfigMap{})
	if err != nil {
		return sidecar.Settings{}, err
	}
	s := p.Settings
	s.OperatorNamespace = p.OperatorNamespace
	if published != nil {
		s.VotingRoot = published.Data[vote.RootEntry]
	}
	return s, nil
}
