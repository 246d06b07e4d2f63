// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import "unicode/utf8"

// match tells whether a glob names a tool. * stands for any characters, / included, ? for exactly one; every other
// character stands for itself, case-sensitively. There are no classes, no braces and no escapes: admission refuses
// their characters, and here they match only themselves.
func match(glob, name string) bool {
	star, retry := -1, 0 // the last * of glob, and where in name it may still grow to
	g, n := 0, 0
	for n < len(name) {
		_, width := utf8.DecodeRuneInString(name[n:])
		switch {
		case g < len(glob) && glob[g] == '*':
			star, retry = g, n
			g++
		case g < len(glob) && glob[g] == '?':
			g++
			n += width
		case g < len(glob) && glob[g] == name[n]:
			g++
			n++
		case star >= 0:
			_, width := utf8.DecodeRuneInString(name[retry:])
			retry += width
			g, n = star+1, retry
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}
