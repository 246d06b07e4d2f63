// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"bytes"
	"errors"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Arguments are those of one call. They are read when an expression first looks at them, and then once; nothing about
// that is safe for concurrent use.
type Arguments struct {
	raw  []byte
	read bool
	// value is what expressions see: a map, or an error.
	value any
	// direct are the names of the arguments themselves, anywhere those at every depth.
	direct, anywhere spellings
}

// NewArguments returns the arguments that a JSON object holds; none is an empty one.
func NewArguments(raw []byte) *Arguments { return &Arguments{raw: raw} }

// UnknownArguments stands for arguments that were not kept: what depends on them is ErrUnknown.
func UnknownArguments() *Arguments { return nil }

// unknownID marks what is not known. Expressions are numbered from 1.
const unknownID = -1

func (a *Arguments) resolve() any {
	if a == nil {
		return types.NewUnknown(unknownID, nil)
	}
	a.parse()
	if err, failed := a.value.(error); failed {
		// A fresh value each time: the evaluator writes into it where the error came up.
		return types.WrapErr(err)
	}
	return a.value
}

// resemble tells whether the arguments have a name that may be taken for one that is read.
func (a *Arguments) resemble(r reads) bool {
	if a == nil {
		return false
	}
	a.parse()
	return a.direct.differ(r.direct) || a.anywhere.differ(r.anywhere)
}

// parse makes a map of the arguments, or an error, the first time.
func (a *Arguments) parse() {
	if a.read {
		return
	}
	a.read = true
	raw := a.raw
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	v, err := strictjson.Scan(raw)
	switch {
	case err != nil:
		a.value = errMalformed
	case v.Kind() != strictjson.Object:
		a.value = errNoObject
	default:
		a.value, _ = convert(v)
		a.direct, a.anywhere = spellingsOf(v)
	}
}

// Reasons that lie in the arguments.
var (
	errMalformed  = errors.New("the arguments are not strict JSON")
	errNoObject   = errors.New("the arguments are not a JSON object")
	errInexact    = errors.New("a number in the arguments has no exact value")
	errAbsentHint = errors.New("the server does not give this hint")
)

// inexact stands for a number that has no exact value; the adapter makes an error of it, and so of any list or object
// with one in it: what compares lists and objects takes an error inside them for equal to anything.
type inexact struct{}

// inexactMark is the name under which an object notes that it has an inexact number in it. Such an object is a plain
// map, so that its other members can be selected. No name in JSON is invalid UTF-8, nor is any text of an expression.
const inexactMark = "\xff"

// convert makes a value of the evaluator, and tells whether all numbers in it are exact. Lists and objects that are
// whole values remember how large they are.
func convert(v strictjson.Value) (value any, exact bool) {
	switch v.Kind() {
	case strictjson.Object:
		return convertObject(v)
	case strictjson.Array:
		var elements []ref.Val
		for e := range v.Elements() {
			element, exact := convert(e)
			if !exact {
				return inexact{}, false
			}
			elements = append(elements, element.(ref.Val))
		}
		return types.NewRefValList(types.DefaultTypeAdapter, elements), true
	case strictjson.String:
		return types.String(v.Text()), true
	case strictjson.Bool:
		return types.Bool(v.IsTrue()), true
	case strictjson.Number:
		return convertNumber(v)
	default:
		return types.NullValue, true
	}
}

func convertObject(v strictjson.Value) (any, bool) {
	members, exact := map[string]any{}, true
	for key, member := range v.Members() {
		value, memberExact := convert(member)
		members[key.Text()] = value
		exact = exact && memberExact
	}
	if !exact {
		members[inexactMark] = inexact{}
		return members, false
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, members), true
}

// convertNumber decides on the canonical form, in which every spelling of a number is the same.
func convertNumber(v strictjson.Value) (any, bool) {
	canonical := v.AppendCanonical(make([]byte, 0, 32))
	text := string(canonical)
	if !bytes.ContainsAny(canonical, ".e") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return types.Int(i), true
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return types.Uint(u), true
		}
		return inexact{}, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return inexact{}, false
	}
	// An integer beyond 21 digits is written with an exponent: it is no decimal, and never a float.
	if bytes.Contains(canonical, []byte("e+")) {
		return inexact{}, false
	}
	shortest, err := strictjson.Canonical(strconv.AppendFloat(nil, f, 'e', -1, 64))
	if err != nil || !bytes.Equal(shortest, canonical) {
		return inexact{}, false
	}
	return types.Double(f), true
}
