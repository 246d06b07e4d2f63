// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package spelling

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatWasMeantIsFoundAndNothingFar(t *testing.T) {
	t.Parallel()
	names := []string{"rules", "targets", "decision", "when", "tools", "_hidden", "@in"}
	for text, want := range map[string]string{
		"rulez": "rules", "Rules": "rules", "descision": "decision", "target": "targets", "wen": "when", "tool": "tools", "whne": "when",
		"callers": "", "x": "", "": "", strings.Repeat("rules", 100): "", "_hiden": "", "@inn": "",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := Suggest(text, slices.Values(names)); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
