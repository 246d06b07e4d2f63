// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// roster finds the entries of a policy that name a tool: names without wildcards by a map, so that what a thousand
// policies say of other tools costs nothing, and globs one by one.
type roster struct {
	byName map[string][]int
	globs  []pattern
	doubts []doubt
}

// pattern is a glob of an entry; nil stands for *.
type pattern struct {
	entry int
	glob  *glob
}

// doubt is an entry of which it is not known which tools it names, and why.
type doubt struct {
	entry int
	why   string
}

func (r *roster) addName(entry int, name string) {
	if r.byName == nil {
		r.byName = map[string][]int{}
	}
	r.byName[name] = append(r.byName[name], entry)
}

func (r *roster) addGlob(entry int, text string) {
	switch {
	case text == "*":
		r.globs = append(r.globs, pattern{entry: entry})
	case strings.ContainsAny(text, "*?"):
		r.globs = append(r.globs, pattern{entry, compileGlob(text)})
	default:
		r.addName(entry, text)
	}
}

func (r *roster) addDoubt(entry int, why string) { r.doubts = append(r.doubts, doubt{entry, why}) }

// find returns the entries that name a tool, in their order.
func (r *roster) find(tool string) []int {
	found := slices.Clone(r.byName[tool])
	for _, p := range r.globs {
		if p.glob == nil || p.glob.match(tool) {
			found = append(found, p.entry)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// may returns the entries that name a tool, and those that may, in their order.
func (r *roster) may(tool string) []int { return r.with(r.find(tool)) }

// with adds to entries those that may name any tool.
func (r *roster) with(entries []int) []int {
	if len(r.doubts) == 0 {
		return entries
	}
	all := slices.Clone(entries)
	for _, d := range r.doubts {
		all = append(all, d.entry)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// doubtOf says why it is not known which tools an entry names.
func (r *roster) doubtOf(entry int) string {
	for _, d := range r.doubts {
		if d.entry == entry {
			return d.why
		}
	}
	return ""
}

// flaw says why a text is no glob; "" for one that is.
func flaw(text string) string {
	switch {
	case text == "":
		return "it is empty"
	case !utf8.ValidString(text):
		return "it is not UTF-8"
	case utf8.RuneCountInString(text) > 128:
		return "it has more than 128 characters"
	case strings.ContainsAny(text, `[]{}\`):
		return `there are no classes, braces or escapes, only * and ?`
	}
	return ""
}
