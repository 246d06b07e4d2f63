// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api tests the kinds as users meet them on a real kube-apiserver: defaults, validation, kubectl, and the
// manifests that install them.
package api_test

import (
	"os"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

var plane *fixture.ControlPlane

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &plane)) }

// The first lines of manifests; the spec follows, indented.
const (
	serverHead = "apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: %s}\nspec:\n"
	policyHead = "apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: %s}\nspec:\n"
)
