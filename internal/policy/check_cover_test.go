// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAGlobIsCovered(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		glob string
		by   []string
		want bool
	}{
		"by itself":                                  {"get_*", []string{"get_*"}, true},
		"by everything":                              {"get_[", []string{"x", "*"}, true},
		"by a broader one":                           {"get_invoice_*", []string{"get_*"}, true},
		"not by a narrower one":                      {"get_*", []string{"get_invoice_*"}, false},
		"a name by a glob":                           {"delete_x", []string{"delete_?"}, true},
		"not a name of another case":                 {"Delete_x", []string{"delete_*"}, false},
		"a ? by a *":                                 {"a?c", []string{"a*c"}, true},
		"not a * by a ?":                             {"a*c", []string{"a?c"}, false},
		"by two together and by neither alone":       {"*", []string{"??*", "?"}, true},
		"not by two that leave a gap":                {"*", []string{"???*", "?"}, false},
		"whatever the order of stars":                {"a?*", []string{"a*?"}, true},
		"not a name that only others spell":          {"a*", []string{"ab*", "ac*"}, false},
		"a character that stands for a broken one":   {"\uFFFDx", []string{"x"}, false},
		"across the slash":                           {"repo/delete.v2", []string{"repo/*"}, true},
		"with a star in the middle of both":          {"a*b*c", []string{"a*c"}, true},
		"not when the middle may be missing":         {"a*c", []string{"a*b*c"}, false},
		"every length from two on, by three of them": {"??*", []string{"??", "???", "????*"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spend := maxEffort
			if got := spend.covered(tc.glob, tc.by); got != tc.want {
				t.Errorf("%q by %q: covered is %t, want %t", tc.glob, tc.by, got, tc.want)
			}
		})
	}
}

// Two letters that globs name and one that none does tell all names apart that such short globs can tell apart.
func TestAGlobIsCoveredExactlyIfNoNameSaysOtherwise(t *testing.T) {
	t.Parallel()
	var names []string // none is empty
	for last := []string{""}; len(last[0]) < 6; {
		var longer []string
		for _, name := range last {
			longer = append(longer, name+"a", name+"b", name+"c")
		}
		names, last = append(names, longer...), longer
	}
	rapid.Check(t, func(t *rapid.T) {
		globs := rapid.StringOfN(rapid.SampledFrom([]rune("ab*?")), 1, 4, -1)
		glob, by := globs.Draw(t, "glob"), rapid.SliceOfN(globs, 1, 3).Draw(t, "by")
		one, others := compileGlob(glob), make([]interface{ match(string) bool }, len(by))
		for i := range by {
			others[i] = compileGlob(by[i])
		}
		escaped := slices.IndexFunc(names, func(name string) bool {
			return one.match(name) && !slices.ContainsFunc(others, func(g interface{ match(string) bool }) bool { return g.match(name) })
		})
		spend := maxEffort
		if got := spend.covered(glob, by); got != (escaped < 0) {
			t.Fatalf("%q by %q: covered is %t, and name %d escapes", glob, by, got, escaped)
		}
	})
}

func TestGlobsThatTakeTooLongAreNotCovered(t *testing.T) {
	t.Parallel()
	// Each of these remembers which of the last characters were an a: together they need more sets than there are.
	var by []string
	for n := range 60 {
		by = append(by, "*a"+strings.Repeat("?", n)+"b"+strings.Repeat("?", 60-n))
	}
	spend := effort(10_000)
	if spend.covered("*a*b*a*b*a*b*a*b*", by) || spend < -10_000 {
		t.Errorf("covered, or went on long after it should have stopped: %d left", spend)
	}
}
