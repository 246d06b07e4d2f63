// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"os"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// plane is the control plane of this package's tests; every test has a namespace of its own.
var plane *fixture.ControlPlane

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &plane)) }
