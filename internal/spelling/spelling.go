// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spelling finds the name that a misspelt one was probably meant to be; it knows no language.
package spelling

import (
	"iter"
	"strings"
)

// maxNames bounds with how many names a wrong one is compared, and maxLength how long, in bytes, each may be.
const (
	maxNames  = 1000
	maxLength = 64
)

// Suggest returns "; did you mean …?" with the name nearest to a wrong one, or nothing if none is near: if more than a
// third of its letters would have to change. Capitals do not count, and names that begin with _ or @ are nobody's to use.
func Suggest(wrong string, names iter.Seq[string]) string {
	best, bestDistance, seen := "", len(wrong)/3+1, 0
	for name := range names {
		if seen++; seen > maxNames {
			break
		}
		if len(wrong) > maxLength || len(name) > maxLength || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "@") {
			continue
		}
		d := distance(strings.ToLower(wrong), strings.ToLower(name))
		if d < bestDistance || d == bestDistance && best != "" && name < best {
			best, bestDistance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance counts the letters that have to be added, taken away, changed or swapped with their neighbour.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			changed := last[j-1]
			if a[i-1] != b[j-1] {
				changed++
			}
			row[j] = min(changed, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
