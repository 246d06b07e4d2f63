// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"os"
	"testing"

	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
)

// plane is the control plane of this package's tests, with a webhook that takes votes; every test has a namespace of
// its own.
var (
	plane *fixture.ControlPlane
	votes *booth.Booth
)

func TestMain(m *testing.M) { os.Exit(booth.Main(m, &plane, &votes, clock.RealClock{})) }
