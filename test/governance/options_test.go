// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func inNamespace(name string) cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{name: {}, fixture.SystemNamespace: {}}}
}

// controllerOptions let several managers run in one test process, which is what the check of names forbids.
func controllerOptions(skip *bool) config.Controller {
	return config.Controller{SkipNameValidation: skip}
}
