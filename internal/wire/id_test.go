// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

func TestIDsThatAreTheSame(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1`, true}, {`"a/b"`, `"a\/b"`, true}, {`"ü"`, `"\u00fc"`, true}, {`""`, `""`, true}, {`""`, `null`, false},
		{`1`, `"1"`, false}, {`"string 1"`, `1`, false}, {`9007199254740993`, `9007199254740992`, false}, {`1`, `1.0`, false}, {`"a"`, `"A"`, false},
		{`null`, `{}`, false}, {``, `"a"`, false}, {`"a`, `"a"`, false},
	} {
		if got := wire.SameID([]byte(tc.a), []byte(tc.b)); got != tc.want {
			t.Errorf("%s and %s: %t", tc.a, tc.b, got)
		}
		if got := wire.SameID([]byte(tc.b), []byte(tc.a)); got != tc.want {
			t.Errorf("%s and %s: %t", tc.b, tc.a, got)
		}
	}
}
