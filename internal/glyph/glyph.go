// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package glyph tells which characters a person sees as themselves, and cuts texts between characters; it knows nothing
// of what the texts say.
package glyph

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Visible tells whether a person sees r as itself: controls, marks that turn the direction of text, and some letters and
// marks that print as nothing are not.
func Visible(r rune) bool {
	if r < 0x7f {
		return r >= ' '
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		r != '\u2800' // BRAILLE PATTERN BLANK
}

// AppendEscape appends r as JSON escapes it, beyond the basic plane as two halves.
func AppendEscape(dst []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return AppendEscape(AppendEscape(dst, high), low)
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// AppendVisible appends r, or its escape where a person does not see it as itself.
func AppendVisible(dst []byte, r rune) []byte {
	if Visible(r) {
		return utf8.AppendRune(dst, r)
	}
	return AppendEscape(dst, r)
}

// Escaped returns a text with escapes for everything that a person does not see as itself.
func Escaped(text string) string {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		out = AppendVisible(out, r)
	}
	return string(out)
}

// Cut returns at most limit bytes of a text, whole characters only.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Clip returns a text in at most limit bytes, with an ellipsis where something is cut.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return Cut(text, limit-len(more)) + more
}
