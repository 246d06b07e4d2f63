// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import "strings"

// Nearest returns the one of the names that a misspelt one was probably meant to be, and "" where none is near.
func Nearest(text string, names []string) string {
	const longest = 64
	if len(text) > longest {
		return ""
	}
	best, least := "", max(len(text)/3, 1)+1
	for _, name := range names {
		if strings.EqualFold(text, name) {
			return name
		}
		if d := distance(text, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or replaced to make one text of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
