// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package glyph_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

func TestVisibleIsWhatAPersonSees(t *testing.T) {
	t.Parallel()
	for _, r := range "aZ09 ~é漢😀…" {
		if !glyph.Visible(r) {
			t.Errorf("%U is not visible", r)
		}
	}
	for _, r := range "\x00\n\x1b\x7f\u0085\u009b\u00a0\u00ad\u200b\u200d\u2028\u202e\u2066\u3164\u2800\ufe0f\ufeff\U000e0041" {
		if glyph.Visible(r) {
			t.Errorf("%U is visible", r)
		}
	}
}

func TestAnEscapeIsTheCharacterInJSON(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= utf8.MaxRune; r += 13 {
		if !utf8.ValidRune(r) {
			continue
		}
		var got string
		escape := glyph.AppendEscape([]byte{'"'}, r)
		if err := json.Unmarshal(append(escape, '"'), &got); err != nil || got != string(r) {
			t.Fatalf("%U became %s, which reads as %q (%v)", r, escape, got, err)
		}
	}
}

func TestATextIsShownWithEscapesForWhatNobodySees(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "crane é漢😀": "crane é漢😀", "a\u202eb\n\U000e0041": `a\u202eb\u000a\udb40\udc41`, "\xff": "\ufffd"} {
		if got := glyph.Escaped(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text              string
		limit             int
		wantCut, wantClip string
	}{
		"a text that fits":          {"crane", 5, "crane", "crane"},
		"plain letters":             {"cranes", 5, "crane", "cr…"},
		"the middle of a character": {"é漢é漢é", 6, "é漢", "é…"},
		"no room for a character":   {"漢漢", 4, "漢", "…"},
	} {
		if got := glyph.Cut(tc.text, tc.limit); got != tc.wantCut {
			t.Errorf("%s: Cut is %q, want %q", name, got, tc.wantCut)
		}
		if got := glyph.Clip(tc.text, tc.limit); got != tc.wantClip {
			t.Errorf("%s: Clip is %q, want %q", name, got, tc.wantClip)
		}
	}
}
