// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// Matches tells whether one of the globs of an entry names a tool, as a verdict would have it.
func Matches(globs []string, tool string) bool {
	return slices.ContainsFunc(globs, func(pattern string) bool { return compileGlob(pattern).match(tool) })
}
