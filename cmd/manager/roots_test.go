// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestCertificatesAreVerifiedWhereTheSystemHasNoRoots(t *testing.T) {
	t.Parallel()
	fixture.ExpectRoots(t)
}
