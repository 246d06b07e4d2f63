// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fold maps all names to one that some parser might take for each other. Parsers are known to ignore case, also beyond
// ASCII (U+017F for s, U+212A for k), to trim, to stop at NUL, and to skip underscores and dashes.
func Fold(name string) string { return strings.Map(fold, name) }

// Alike tells whether Fold maps two names to one.
func Alike(a, b string) bool {
	for {
		var x, y rune
		x, a = foldNext(a)
		y, b = foldNext(b)
		if x != y {
			return false
		}
		if x < 0 {
			return true
		}
	}
}

// foldNext returns the first character that is left of a name, and what comes behind it; -1 at its end.
func foldNext(name string) (rune, string) {
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		name = name[size:]
		if r = fold(r); r >= 0 {
			return r, name
		}
	}
	return -1, ""
}

// fold returns what stands for a character, -1 for nothing.
func fold(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
		return r
	case r == '_' || r == '-' || unicode.IsSpace(r) || !unicode.IsGraphic(r):
		return -1
	case 0xff01 <= r && r <= 0xff5e: // the full-width forms of ASCII
		r -= 0xfee0
	}
	return unicode.ToLower(unicode.ToUpper(r))
}
