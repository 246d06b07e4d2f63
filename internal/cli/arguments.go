// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// maxText is how many bytes of one text are shown on a page.
const maxText = 256

// argumentLines lays arguments out on lines. What is no strict JSON stays as it is.
func argumentLines(arguments string) []string {
	if arguments == "" {
		return nil
	}
	v, err := strictjson.Scan([]byte(arguments))
	if err != nil {
		return strings.Split(arguments, "\n")
	}
	return valueLines(nil, "", v, "")
}

// valueLines appends a value, with what stands before and behind it.
func valueLines(dst []string, before string, v strictjson.Value, behind string) []string {
	indent := before[:len(before)-len(strings.TrimLeft(before, " "))]
	switch v.Kind() {
	case strictjson.Object:
		var members []strictjson.Value
		for key, value := range v.Members() {
			members = append(members, key, value)
		}
		if len(members) == 0 {
			break
		}
		dst = append(dst, before+"{")
		for pair := range slices.Chunk(members, 2) {
			comma := ","
			if pair[1].End() == members[len(members)-1].End() {
				comma = ""
			}
			dst = valueLines(dst, indent+"  "+literal(pair[0])+": ", pair[1], comma)
		}
		return append(dst, indent+"}"+behind)
	case strictjson.Array:
		elements := slices.Collect(v.Elements())
		if len(elements) == 0 {
			break
		}
		dst = append(dst, before+"[")
		for i, element := range elements {
			comma := ","
			if i == len(elements)-1 {
				comma = ""
			}
			dst = valueLines(dst, indent+"  ", element, comma)
		}
		return append(dst, indent+"]"+behind)
	default:
	}
	return append(dst, before+literal(v)+behind+rounding(v))
}

// literal is a key or a value as it was written, cut where it is long.
func literal(v strictjson.Value) string {
	switch v.Kind() {
	case strictjson.Object, strictjson.Array: // an empty one
		return strings.Join(strings.Fields(string(v.Raw())), "")
	default:
		return glyph.Digested(string(v.Raw()), maxText)
	}
}

// rounding marks a number that a program which counts in doubles reads as another one.
func rounding(v strictjson.Value) string {
	if v.Kind() != strictjson.Number {
		return ""
	}
	raw := string(v.Raw())
	double, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return "   <- beyond what a double can hold"
	}
	reads := strconv.FormatFloat(double, 'f', -1, 64)
	exact, ok1 := new(big.Rat).SetString(raw)
	rounded, ok2 := new(big.Rat).SetString(reads)
	if ok1 && ok2 && exact.Cmp(rounded) == 0 {
		return ""
	}
	return "   <- a double reads " + glyph.Digested(strconv.FormatFloat(double, 'g', -1, 64), maxText)
}

// leaf is one scalar, or empty list, of arguments and where it stands.
type leaf struct{ path, text string }

// leaves returns the leaves of arguments in the order of their writing; ok is false for what is no strict JSON.
func leaves(arguments string) (all []leaf, ok bool) {
	v, err := strictjson.Scan([]byte(arguments))
	if err != nil {
		return nil, false
	}
	return appendLeaves(nil, "", v), true
}

func appendLeaves(dst []leaf, path string, v strictjson.Value) []leaf {
	before := len(dst)
	switch v.Kind() {
	case strictjson.Object:
		for key, value := range v.Members() {
			dst = appendLeaves(dst, path+"/"+pointerEscape.Replace(key.Text()), value)
		}
	case strictjson.Array:
		i := 0
		for element := range v.Elements() {
			dst = appendLeaves(dst, path+"/"+strconv.Itoa(i), element)
			i++
		}
	default:
	}
	if len(dst) == before {
		dst = append(dst, leaf{path: path, text: literal(v) + rounding(v)})
	}
	return dst
}

// pointerEscape writes a key into a JSON pointer.
var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// maxDifferences is how many lines of a difference are shown.
const maxDifferences = 40

// difference says what other arguments say than earlier ones: a line for each value that is other (~), new (+) or gone
// (-), at most maxDifferences, and how many more there are. ok is false where one of the two is no strict JSON.
func difference(earlier, now string) (lines []string, ok bool) {
	old, ok1 := leaves(earlier)
	current, ok2 := leaves(now)
	if !ok1 || !ok2 {
		return nil, false
	}
	before := map[string]string{}
	for _, l := range old {
		before[l.path] = l.text
	}
	after := map[string]bool{}
	for _, l := range current {
		after[l.path] = true
		switch was, known := before[l.path]; {
		case !known:
			lines = append(lines, fmt.Sprintf("+ %s: %s", place(l.path), l.text))
		case was != l.text:
			lines = append(lines, fmt.Sprintf("~ %s: %s -> %s", place(l.path), was, l.text))
		}
	}
	for _, l := range old {
		if !after[l.path] {
			lines = append(lines, fmt.Sprintf("- %s: %s", place(l.path), l.text))
		}
	}
	if more := len(lines) - maxDifferences; more > 0 {
		lines = append(lines[:maxDifferences], fmt.Sprintf("and %d more", more))
	}
	return lines, true
}

// place shows where a value stands.
func place(path string) string {
	if path == "" {
		return "(all)"
	}
	return glyph.Digested(path, maxText)
}
