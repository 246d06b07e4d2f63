// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// hook is one webhook of a configuration.
type hook struct {
	name   string
	config *admissionregistrationv1.WebhookClientConfig
}

// hooksOf returns the webhooks of a configuration, to be read and changed in place.
func hooksOf(configuration client.Object) []hook {
	var hooks []hook
	switch c := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			hooks = append(hooks, hook{c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig})
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			hooks = append(hooks, hook{c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig})
		}
	}
	return hooks
}

// configurations are the two webhook configurations as they were read.
type configurations struct {
	found []client.Object
	// missing names those that are not installed.
	missing []string
}

func (s *Serving) readConfigurations(ctx context.Context) (configurations, error) {
	var c configurations
	for kind, configuration := range map[string]client.Object{
		"MutatingWebhookConfiguration":   &admissionregistrationv1.MutatingWebhookConfiguration{},
		"ValidatingWebhookConfiguration": &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		err := s.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookConfiguration}, configuration)
		switch {
		case apierrors.IsNotFound(err):
			c.missing = append(c.missing, kind)
		case err != nil:
			return configurations{}, fmt.Errorf("read %s %s: %w", kind, v1alpha1.WebhookConfiguration, err)
		default:
			c.found = append(c.found, configuration)
		}
	}
	return c, nil
}

// carry tells whether both are there and every webhook in them has the bundle.
func (c configurations) carry(bundle []byte) bool {
	for _, configuration := range c.found {
		for _, h := range hooksOf(configuration) {
			if !bytes.Equal(h.config.CABundle, bundle) {
				return false
			}
		}
	}
	return len(c.missing) == 0
}

// paths are the secret paths that a configuration may have: the first is written where it has another one. The second is
// the next period's, which a replica whose clock is ahead has written already.
type paths [2]string

// correct writes path and bundle into the first configuration that has others; a nil bundle leaves the bundles alone.
// The patch names no other field, and holds for the version that was read.
func (s *Serving) correct(ctx context.Context, c configurations, secret paths, bundle []byte) (changed bool, err error) {
	for _, configuration := range c.found {
		before := configuration.DeepCopyObject().(client.Object)
		for _, h := range hooksOf(configuration) {
			if err := h.point(secret, bundle); err != nil {
				return false, fmt.Errorf("webhook %s of %T %s: %w", h.name, configuration, configuration.GetName(), err)
			}
		}
		if equality.Semantic.DeepEqual(before, configuration) {
			continue
		}
		patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
		if err := s.Client.Patch(ctx, configuration, patch); err != nil {
			return false, fmt.Errorf("patch %T %s: %w", configuration, configuration.GetName(), err)
		}
		return true, nil
	}
	return false, nil
}

// point makes a webhook lead to a secret path, with the bundle.
func (h hook) point(secret paths, bundle []byte) error {
	if bundle != nil {
		h.config.CABundle = bundle
	}
	switch {
	case h.config.URL != nil:
		u, err := url.Parse(*h.config.URL)
		if err != nil {
			return fmt.Errorf("read its URL: %w", err)
		}
		u.Path = h.path(secret, u.Path)
		*h.config.URL = u.String()
	case h.config.Service != nil:
		var now string
		if h.config.Service.Path != nil {
			now = *h.config.Service.Path
		}
		now = h.path(secret, now)
		h.config.Service.Path = &now
	}
	return nil
}

// path returns the secret path with the last segment of the one that is there. Manifests leave the path out, so that
// applying them again takes nothing back: then it is the first label of the webhook's name.
func (h hook) path(secret paths, now string) string {
	if segment, _, _ := strings.Cut(strings.TrimPrefix(now, "/"), "/"); slices.Contains(secret[:], segment) {
		return now
	}
	last := path.Base(now)
	if last == "." || last == "/" {
		last, _, _ = strings.Cut(h.name, ".")
	}
	return "/" + secret[0] + "/" + last
}
