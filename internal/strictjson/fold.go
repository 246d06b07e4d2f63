// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"strings"
	"unicode"
)

// Fold maps all names to one that some parser might take for each other. Parsers are known to ignore case, also beyond
// ASCII (U+017F for s, U+212A for k), to trim, to stop at NUL, and to skip underscores and dashes.
func Fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '_' || r == '-' || unicode.IsSpace(r) || !unicode.IsGraphic(r):
			return -1
		case 0xff01 <= r && r <= 0xff5e: // the full-width forms of ASCII
			r -= 0xfee0
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, name)
}
