// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

import (
	"slices"
	"testing"
)

func TestAProgramThatWasNotBuiltForItCannotBeToldToDie(t *testing.T) {
	for _, point := range slices.Concat(OfGateway(), OfManager()) {
		t.Setenv(Variable, string(point)+"=1")
		Hit(point) // would kill the test
	}
}
