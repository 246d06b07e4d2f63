// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

func TestAlikeIsWhatFoldMapsToOneName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"inputResponses", "input_responses", true},
		{"task", "TASK", true},
		{"task", "taſk", true},
		{"task", "ｔａｓｋ\u200b", true},
		{"_meta", "meta ", true},
		{"", "-_\x00", true},
		{"task", "tasks", false},
		{"tasks", "task", false},
		{"id", "ID1", false},
		{"\xff", "", false},
	} {
		if got := strictjson.Alike(tc.a, tc.b); got != tc.want || got != (strictjson.Fold(tc.a) == strictjson.Fold(tc.b)) {
			t.Errorf("Alike(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
	name := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("tTſ_-  KkKｔ1"))))
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		if got := strictjson.Alike(a, b); got != (strictjson.Fold(a) == strictjson.Fold(b)) {
			t.Errorf("Alike(%q, %q) = %v", a, b, got)
		}
	})
}
