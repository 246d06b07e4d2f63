// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// Bounds of a BlastRadius in bytes and items, as the API has them.
const (
	maxSummary      = 512
	maxEvidence     = 16
	maxEvidenceItem = 256
	maxQuoted       = 64
)

// maxVisited is how many members and entries of the arguments are judged. With more the arguments are far from fitting,
// so that the scope is Unknown whatever the rest says; looking at all of it would take a caller's word for how long.
const maxVisited = 5000

// Radius says how far a call reaches, as far as its arguments and the tool's input schema (nil if not known) tell. It is
// the same for every spelling of the same arguments.
//
// Unknown comes first where a person cannot see what counts (see Masked.Fits); then Unbounded for whatever widens: flags
// that are set, wildcards, the root of a tree, an empty filter, no identifier where the schema has one; then Unknown for
// free code; then Bulk for lists, counts and filters; then Single for identifiers; and Unknown for everything else.
func Radius(arguments, inputSchema []byte) v1alpha1.BlastRadius {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	canonical, err := strictjson.Canonical(arguments)
	if err != nil {
		return unreadable()
	}
	v, err := strictjson.Scan(canonical)
	if err != nil {
		return unreadable()
	}
	var r reach
	r.object("", v)
	if schema, err := strictjson.Scan(inputSchema); err == nil {
		r.schema("", schema, v)
	}
	r.noIdentifier()
	return r.verdict(maskValue(v))
}

func unreadable() v1alpha1.BlastRadius {
	return v1alpha1.BlastRadius{Scope: v1alpha1.BlastUnknown, Summary: "UNKNOWN: the arguments cannot be read"}
}

// reach gathers what the arguments say.
type reach struct {
	widens, code, bulk, scoped []string
	// upTo are limits, which count only where nothing else does.
	upTo []string
	// missing are identifiers that the schema has and the arguments do not give.
	missing []string
	// visited counts members and entries.
	visited int
}

// note adds evidence, as much of it as may be told.
func note(list *[]string, format string, args ...any) {
	if len(*list) < maxEvidence {
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

func merge(list *[]string, more []string) {
	*list = append(*list, more[:min(len(more), max(maxEvidence-len(*list), 0))]...)
}

// object follows the members of an object at a path; "" is the arguments themselves.
func (r *reach) object(path string, v strictjson.Value) {
	for key, value := range v.Members() {
		if r.visited++; r.visited > maxVisited {
			return
		}
		name := key.Text()
		r.member(join(path, name), tool.Words(name), value, secretKey(name))
	}
}

// join writes the path of a member so that no key can pass for more than a key.
func join(path, key string) string {
	plain := key != "" && strings.IndexFunc(key, func(c rune) bool {
		return c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) < 0
	if !plain || len(key) > maxQuoted {
		key = string(quote(key))
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// quote shows the beginning of a text.
func quote(text string) []byte {
	if secretShaped(text) || strings.HasPrefix(text, HiddenMark) {
		return []byte("[hidden]")
	}
	if len(text) <= maxQuoted {
		return appendVisible(nil, text)
	}
	return append(appendVisible(nil, glyph.Cut(text, maxQuoted)), "…"...)
}

func (r *reach) member(path string, words []string, v strictjson.Value, secret bool) {
	switch {
	case widens(words) && truthy(words, v):
		note(&r.widens, "%s is set", path)
	case secret:
		// Mask hides it, so that the scope is Unknown whatever it holds.
	case isFilter(words):
		r.filter(path, words, v)
	case v.Kind() == strictjson.String && runs(words, v.Text()):
		note(&r.code, "%s holds free code", path)
	case v.Kind() == strictjson.Number:
		r.number(path, words, v)
	case v.Kind() == strictjson.String:
		r.text(path, words, v.Text())
	case v.Kind() == strictjson.Array:
		r.list(path, words, v)
	case v.Kind() == strictjson.Object:
		r.object(path, v)
	}
}

func (r *reach) filter(path string, words []string, v strictjson.Value) {
	text := strings.TrimSpace(v.Text())
	switch kind := v.Kind(); {
	case kind == strictjson.Null, kind == strictjson.String && text == "", kind == strictjson.Object && len(v.Raw()) == 2,
		kind == strictjson.Array && len(v.Raw()) == 2:
		note(&r.widens, "%s is empty", path)
	case kind == strictjson.String && (matchesAll(text) || isAlwaysTrue(text)):
		note(&r.widens, "%s matches everything", path)
	case kind == strictjson.String && isStatement(text):
		note(&r.code, "%s holds free code", path)
	case kind == strictjson.String:
		note(&r.bulk, "selected by %s=%s", path, quote(text))
	case kind == strictjson.Object || kind == strictjson.Array:
		before := len(r.widens) + len(r.code) + len(r.bulk) + len(r.scoped)
		r.inside(path, words, v)
		if len(r.widens)+len(r.code)+len(r.bulk)+len(r.scoped) == before {
			note(&r.bulk, "selected by %s", path)
		}
	}
}

func (r *reach) inside(path string, words []string, v strictjson.Value) {
	if v.Kind() == strictjson.Array {
		r.list(path, words, v)
		return
	}
	r.object(path, v)
}

func (r *reach) number(path string, words []string, v strictjson.Value) {
	negative := v.Raw()[0] == '-'
	many := !negative && string(v.Raw()) != "0" && string(v.Raw()) != "1"
	switch {
	case identifies(words):
		note(&r.scoped, "%s=%s", path, glyph.Cut(string(v.Raw()), maxQuoted))
	case hasAny(words, measureWords):
	case hasAny(words, limitWords) && negative:
		note(&r.widens, "%s is negative", path)
	case hasAny(words, limitWords) && many:
		note(&r.upTo, "%s=%s", path, glyph.Cut(string(v.Raw()), maxQuoted))
	case hasAny(words, countWords) && many:
		note(&r.bulk, "%s=%s", path, glyph.Cut(string(v.Raw()), maxQuoted))
	}
}

func (r *reach) text(path string, words []string, text string) {
	trimmed := strings.TrimSpace(text)
	switch {
	case hasAny(words, proseWords):
	case matchesAll(trimmed):
		note(&r.widens, "%s is %s", path, quote(trimmed))
	case hasAny(words, pathWords) && isRoot(trimmed):
		note(&r.widens, "%s is %s, the root", path, quote(trimmed))
	case !identifies(words) && !hasAny(words, pathWords):
	case trimmed == "":
		note(&r.missing, "%s", path)
	case strings.ContainsAny(trimmed, "*?[{") && !strings.Contains(trimmed, "://"):
		note(&r.bulk, "%s is the pattern %s", path, quote(trimmed))
	case isPlural(words) && strings.ContainsAny(trimmed, ",;\n"):
		note(&r.bulk, "%s names %d", path, 1+strings.Count(trimmed, ",")+strings.Count(trimmed, ";")+strings.Count(trimmed, "\n"))
	default:
		note(&r.scoped, "%s=%s", path, quote(text))
	}
}

// list follows a list: its entries one by one for what widens, and their number.
func (r *reach) list(path string, words []string, v strictjson.Value) {
	each := reach{visited: r.visited}
	count := 0
	for element := range v.Elements() {
		if each.visited++; each.visited <= maxVisited {
			each.member(path, words, element, false)
		}
		count++
	}
	r.visited = each.visited
	merge(&r.widens, each.widens)
	merge(&r.code, each.code)
	targets := len(each.scoped)+len(each.bulk) > 0
	switch {
	case count == 0 && identifies(words):
		note(&r.widens, "%s is empty", path)
	case count == 1:
		merge(&r.scoped, each.scoped)
		merge(&r.bulk, each.bulk)
		merge(&r.missing, each.missing)
	case count > 1 && (targets || !hasAny(words, attributeWords) && !hasAny(words, proseWords)):
		note(&r.bulk, "%s has %d entries", path, count)
	}
}

// schema follows the input schema for what the arguments leave out: flags that are set by default, and identifiers.
func (r *reach) schema(path string, schema, v strictjson.Value) {
	properties := schema.Get("properties")
	values := described(properties, v)
	for key, property := range properties.Members() {
		name := key.Text()
		at, words, given := join(path, name), tool.Words(name), values[name]
		absent := !given.Exists() || given.Kind() == strictjson.Null
		switch {
		case absent && widens(words) && truthy(words, property.Get("default")):
			note(&r.widens, "%s is set by default", at)
		case absent && isIdentifier(words):
			note(&r.missing, "%s", at)
		default:
			r.schema(at, property, given)
		}
	}
}

// described returns the arguments that have a property, by name, in one walk: there may be many of both.
func described(properties, v strictjson.Value) map[string]strictjson.Value {
	values := map[string]strictjson.Value{}
	for key := range properties.Members() {
		values[key.Text()] = strictjson.Value{}
	}
	if len(values) == 0 {
		return values
	}
	for key, value := range v.Members() {
		name := key.Text()
		if _, ok := values[name]; ok {
			values[name] = value
		}
	}
	return values
}

// noIdentifier judges a call that names nothing though the tool could be told what to act on.
func (r *reach) noIdentifier() {
	if len(r.missing) > 0 && len(r.widens)+len(r.code)+len(r.bulk)+len(r.scoped)+len(r.upTo) == 0 {
		note(&r.widens, "no %s is given", r.missing[0])
	}
}

func (r *reach) verdict(shown Masked) v1alpha1.BlastRadius {
	if len(r.scoped) == 0 {
		merge(&r.bulk, r.upTo)
	}
	scope, lead := v1alpha1.BlastUnknown, "UNKNOWN: the arguments name nothing that limits the call"
	var said []string
	switch {
	case !shown.Fits:
		lead, said = "UNKNOWN: "+shown.Summary, slices.Concat(r.widens, r.code, r.bulk)
	case len(r.widens) > 0:
		scope, lead, said = v1alpha1.BlastUnbounded, "UNBOUNDED: ", slices.Concat(r.widens, r.code, r.bulk)
	case len(r.code) > 0:
		lead, said = "UNKNOWN: ", slices.Concat(r.code, r.bulk)
	case len(r.bulk) > 0:
		scope, lead, said = v1alpha1.BlastBulk, "BULK: ", r.bulk
	case len(r.scoped) > 0:
		scope, lead = v1alpha1.BlastSingle, ""
	}
	var b strings.Builder
	b.WriteString(lead)
	if !shown.Fits && len(said) > 0 {
		b.WriteString("; ")
	}
	b.WriteString(strings.Join(said, ", "))
	if len(r.scoped) > 0 {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString("scoped to " + strings.Join(r.scoped[:min(3, len(r.scoped))], ", "))
		if more := len(r.scoped) - 3; more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
	}
	if shown.Fits && shown.Summary != "" {
		b.WriteString("; " + shown.Summary)
	}
	return v1alpha1.BlastRadius{Scope: scope, Summary: glyph.Clip(b.String(), maxSummary), Evidence: evidence(said, r.scoped)}
}

func evidence(lists ...[]string) []string {
	all := slices.Concat(lists...)
	all = slices.Clip(all[:min(len(all), maxEvidence)])
	for i := range all {
		all[i] = glyph.Clip(all[i], maxEvidenceItem)
	}
	return all
}
