// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"bytes"
	"iter"
)

// Kind is what a Value is.
type Kind int

// The kinds of JSON values; None is the kind of the zero Value, which stands for what is absent.
const (
	None Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// Value is a value of a document that Scan accepted; only this package makes one. It copies nothing.
type Value struct {
	doc        []byte
	start, end int
	bulk       extent
}

// extent is where the longest value on the third level of a document lies: in a message, that is what it carries, and
// whoever looks for its other parts need not walk through it again. The zero extent is none.
type extent struct{ start, end int32 }

// over returns the end of the extent if it starts at i.
func (e extent) over(i int) (end int, ok bool) {
	return int(e.end), int(e.start) == i && e.end > e.start
}

// Exists tells whether v is a value at all; null is one.
func (v Value) Exists() bool { return v.end > v.start }

// Raw is the text of v as it was sent.
func (v Value) Raw() []byte { return v.doc[v.start:v.end:v.end] }

// Start is where v starts in the scanned document.
func (v Value) Start() int { return v.start }

// End is the offset behind v in the scanned document.
func (v Value) End() int { return v.end }

// Kind tells what v is.
func (v Value) Kind() Kind {
	if !v.Exists() {
		return None
	}
	switch v.doc[v.start] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	}
	return Number
}

// IsTrue tells whether v is the literal true.
func (v Value) IsTrue() bool { return v.Exists() && v.doc[v.start] == 't' }

// Escaped tells whether v is a string written with escapes.
func (v Value) Escaped() bool { return v.Kind() == String && bytes.IndexByte(v.Raw(), '\\') >= 0 }

// Text is the unescaped text of a string, and "" for every other kind.
func (v Value) Text() string {
	if v.Escaped() {
		return string(v.AppendText(nil))
	}
	return string(v.inner())
}

// AppendText appends the unescaped text of a string, and nothing for every other kind.
func (v Value) AppendText(dst []byte) []byte { return appendUnescaped(dst, v.inner()) }

// Plain returns the text of a string that is written without escapes, as a part of the document; ok is false for every
// other value.
func (v Value) Plain() (text []byte, ok bool) {
	text = v.inner()
	return text, v.Kind() == String && bytes.IndexByte(text, '\\') < 0
}

// Is tells whether v is a string whose unescaped text is text.
func (v Value) Is(text string) bool {
	inner := v.inner()
	switch {
	case v.Kind() != String || len(inner) < len(text): // escapes make it longer
		return false
	case len(inner) == len(text):
		return string(inner) == text && !v.Escaped()
	default:
		return v.Escaped() && string(v.AppendText(nil)) == text
	}
}

// inner is what stands between the quotes of a string.
func (v Value) inner() []byte {
	if v.Kind() != String {
		return nil
	}
	return v.doc[v.start+1 : v.end-1]
}

// Get returns the member of an object by its unescaped name; it does not exist if the object has none, or v is none.
func (v Value) Get(name string) Value {
	for key, value := range v.Members() {
		if key.Is(name) {
			return value
		}
	}
	return Value{}
}

// Members yields the names (strings) and values of an object in the order in which they were sent, nothing for every
// other kind.
func (v Value) Members() iter.Seq2[Value, Value] {
	return func(yield func(key, value Value) bool) { v.eachMember(yield) }
}

func (v Value) eachMember(yield func(key, value Value) bool) {
	if v.Kind() != Object {
		return
	}
	for i := next(v.doc, v.start+1); i < v.end-1; {
		key := v.at(i)
		i = next(v.doc, key.end)
		value := v.at(i)
		if !yield(key, value) {
			return
		}
		i = next(v.doc, value.end)
	}
}

// Elements yields the elements of an array in order, nothing for every other kind.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) { v.eachElement(yield) }
}

func (v Value) eachElement(yield func(Value) bool) {
	if v.Kind() != Array {
		return
	}
	for i := next(v.doc, v.start+1); i < v.end-1; {
		element := v.at(i)
		if !yield(element) {
			return
		}
		i = next(v.doc, element.end)
	}
}

// at returns the value inside v that starts at i.
func (v Value) at(i int) Value {
	return Value{doc: v.doc, start: i, end: skip(v.doc, i, v.bulk), bulk: v.bulk}
}

// Salvage finds a member of an object that Scan refused, so that a refusal can carry the id of what it refuses. It gives
// a value only if the outline of the object is sound, the name occurs once, and the value itself is strict. Never
// decide on it.
func Salvage(data []byte, name string) (Value, bool) {
	i := next(data, 0)
	if i >= len(data) || data[i] != '{' {
		return Value{}, false
	}
	var found Value
	for i = next(data, i+1); i < len(data) && data[i] == '"'; {
		end := skip(data, i, extent{})
		raw := data[i:end]
		start := next(data, end)
		end = skip(data, start, extent{})
		if string(raw) == `"`+name+`"` {
			if found.Exists() {
				return Value{}, false
			}
			value, err := Scan(data[start:end])
			if err != nil {
				return Value{}, false
			}
			found = value
		}
		i = next(data, end)
	}
	sound := i < len(data) && data[i] == '}' && next(data, i+1) == len(data)
	return found, sound && found.Exists()
}

// next steps over white space and the one separator that may follow: in a scanned document every comma and colon is
// where it must be.
func next(data []byte, i int) int {
	for i < len(data) && (isSpace(data[i]) || data[i] == ',' || data[i] == ':') {
		i++
	}
	return i
}

// skip returns the offset behind the value at i of a scanned document. It stays within data whatever it is given.
func skip(data []byte, i int, bulk extent) int {
	if end, ok := bulk.over(i); ok {
		return end
	}
	if i >= len(data) {
		return len(data)
	}
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
	default:
		for i < len(data) && !isSpace(data[i]) && data[i] != ',' && data[i] != ']' && data[i] != '}' {
			i++
		}
		return i
	}
	for depth := 0; i < len(data); {
		switch data[i] {
		case '"':
			if end, ok := bulk.over(i); ok {
				i = end
			} else {
				i = skipString(data, i)
			}
			continue
		case '{', '[':
			if end, ok := bulk.over(i); ok {
				i = end
				continue
			}
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return i
}

// skipString returns the end of a string that starts at i.
func skipString(data []byte, i int) int {
	start := i
	for i++; ; {
		quote := bytes.IndexByte(data[min(i, len(data)):], '"')
		if quote < 0 {
			return len(data)
		}
		i += quote + 1
		backslash := i - 2
		for backslash > start && data[backslash] == '\\' {
			backslash--
		}
		if escaped := (i-backslash)%2 != 0; !escaped {
			return i
		}
	}
}
