// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Scan reads one whole document: a value with white space around it and nothing else. What it accepts every conforming
// parser reads alike: valid UTF-8 without a byte order mark, no name twice in one object (compared after unescaping), no
// lone surrogates, at most MaxDepth levels, numbers of at most MaxDigits digits and an exponent within MaxExponent.
// The error is an *Error. The Value refers to data, which must not change while it is in use.
func Scan(data []byte) (Value, error) {
	if len(data) > maxBytes {
		return Value{}, &Error{Reason: "too many bytes"}
	}
	s := scanner{data: data}
	start := s.space(0)
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return Value{}, &Error{Reason: "byte order mark"}
	}
	end, fault := s.value(start, 0)
	if fault.reason == "" {
		if rest := s.space(end); rest < len(data) {
			fault = failure{at: rest, reason: "data after the end"}
		}
	}
	if fault.reason != "" {
		return Value{}, &Error{Offset: fault.at, Pointer: pointerTo(data, max(fault.at, fault.inside)), Reason: fault.reason}
	}
	return Value{doc: data, start: start, end: end, bulk: s.bulk}, nil
}

// scanner reads a document once, left to right.
type scanner struct {
	data []byte
	// names of all objects that are open, the innermost object's last.
	names names
	// texts holds the names that were written with escapes, unescaped.
	texts []byte
	// bulk is the longest value on the third level so far.
	bulk extent
}

// span is the text of a name: in data between its quotes, or in texts.
type span struct {
	at, start, end int32
	escaped        bool
}

// names is a stack of which the first part lives inside it, so that reading an ordinary message allocates nothing.
type names struct {
	count int
	few   [48]span
	many  []span
}

func (n *names) push(key span) {
	if n.count < len(n.few) {
		n.few[n.count] = key
	} else {
		n.many = append(n.many[:n.count-len(n.few)], key)
	}
	n.count++
}

func (n *names) at(i int) span {
	if i < len(n.few) {
		return n.few[i]
	}
	return n.many[i-len(n.few)]
}

// failure is an Error before its pointer is known; without a reason there is none.
type failure struct {
	at     int
	inside int // where the pointer leads when it is not at
	reason string
}

func (s *scanner) space(i int) int {
	for i < len(s.data) && isSpace(s.data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func (s *scanner) value(i, depth int) (int, failure) {
	if i >= len(s.data) {
		return i, failure{at: i, reason: "unexpected end"}
	}
	switch c := s.data[i]; {
	case c == '"':
		end, _, fault := s.str(i)
		return end, fault
	case c == '{' || c == '[':
		if depth == MaxDepth {
			return i, failure{at: i, reason: "nesting over 64 levels"}
		}
		if c == '{' {
			return s.object(i, depth+1)
		}
		return s.array(i, depth+1)
	case c == '-' || isDigit(c):
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	}
	return i, failure{at: i, reason: "not a JSON value"}
}

func (s *scanner) literal(i int, word string) (int, failure) {
	if len(s.data)-i < len(word) || string(s.data[i:i+len(word)]) != word {
		return i, failure{at: i, reason: "not a JSON value"}
	}
	return i + len(word), failure{}
}

func (s *scanner) array(i, depth int) (int, failure) {
	if i = s.space(i + 1); i < len(s.data) && s.data[i] == ']' {
		return i + 1, failure{}
	}
	for {
		end, fault := s.value(i, depth)
		if fault.reason != "" {
			return end, fault
		}
		i = s.space(end)
		switch {
		case i >= len(s.data):
			return i, failure{at: i, reason: "unexpected end"}
		case s.data[i] == ']':
			return i + 1, failure{}
		case s.data[i] != ',':
			return i, failure{at: i, reason: "expected a comma or the end of the array"}
		}
		i = s.space(i + 1)
	}
}

func (s *scanner) object(i, depth int) (int, failure) {
	first, texts := s.names.count, len(s.texts)
	if i = s.space(i + 1); i < len(s.data) && s.data[i] == '}' {
		return i + 1, failure{}
	}
	for {
		end, fault := s.member(i, depth, first)
		if fault.reason != "" {
			return end, fault
		}
		i = s.space(end)
		switch {
		case i >= len(s.data):
			return i, failure{at: i, reason: "unexpected end"}
		case s.data[i] == '}':
			fault = s.repeated(first)
			s.names.count, s.texts = first, s.texts[:texts]
			return i + 1, fault
		case s.data[i] != ',':
			return i, failure{at: i, reason: "expected a comma or the end of the object"}
		}
		i = s.space(i + 1)
	}
}

// fewNames is how many names are compared one with another as they come; larger objects are sorted at their end, so that
// the cost of an object stays in proportion to its size.
const fewNames = 16

// member reads a name, a colon and a value.
func (s *scanner) member(i, depth, first int) (int, failure) {
	if i >= len(s.data) || s.data[i] != '"' {
		return i, failure{at: i, reason: "expected a name in quotes"}
	}
	end, escaped, fault := s.str(i)
	if fault.reason != "" {
		return end, fault
	}
	key := span{at: int32(i), start: int32(i + 1), end: int32(end - 1), escaped: escaped}
	if escaped {
		key.start = int32(len(s.texts))
		s.texts = appendUnescaped(s.texts, s.data[i+1:end-1])
		key.end = int32(len(s.texts))
	}
	if s.names.count-first < fewNames {
		text := s.text(key)
		for n := first; n < s.names.count; n++ {
			if bytes.Equal(text, s.text(s.names.at(n))) {
				return i, failure{at: i, inside: end, reason: "name given twice"}
			}
		}
	}
	s.names.push(key)
	if i = s.space(end); i >= len(s.data) || s.data[i] != ':' {
		return i, failure{at: i, reason: "expected a colon"}
	}
	start := s.space(i + 1)
	end, fault = s.value(start, depth)
	if depth == 2 && end-start > int(s.bulk.end-s.bulk.start) {
		s.bulk = extent{int32(start), int32(end)}
	}
	return end, fault
}

func (s *scanner) text(k span) []byte {
	if k.escaped {
		return s.texts[k.start:k.end]
	}
	return s.data[k.start:k.end]
}

// repeated looks for a name given twice in an object too large for comparing each with each.
func (s *scanner) repeated(first int) failure {
	if s.names.count-first <= fewNames {
		return failure{}
	}
	keys := make([]span, 0, s.names.count-first)
	for n := first; n < s.names.count; n++ {
		keys = append(keys, s.names.at(n))
	}
	slices.SortFunc(keys, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.end-a.start, b.end-b.start), bytes.Compare(s.text(a), s.text(b)), cmp.Compare(a.at, b.at))
	})
	for n, key := range keys[1:] {
		if bytes.Equal(s.text(keys[n]), s.text(key)) {
			at := int(key.at)
			return failure{at: at, inside: skipString(s.data, at), reason: "name given twice"}
		}
	}
	return failure{}
}

// fewBytes is the length up to which a string is cheaper read byte by byte.
const fewBytes = 16

// str reads a string that starts at i and tells whether it holds escapes. Quotes and backslashes are looked for with
// what the processor has for that, each once, and what lies before them in blocks, so that long text costs little.
func (s *scanner) str(i int) (end int, escaped bool, fault failure) {
	i++
	for few := min(i+fewBytes, len(s.data)); i < few && isOrdinary(s.data[i]) && s.data[i] != '\\'; i++ {
		if s.data[i] == '"' {
			return i + 1, false, failure{}
		}
	}
	quote, mark := -1, -1 // mark is the first quote or backslash from i on
	for i < len(s.data) {
		if mark < i {
			quote, mark = s.mark(i, quote)
		}
		i = ordinary(s.data[:mark], i)
		switch {
		case i == len(s.data):
		case i < mark && s.data[i] < ' ':
			return i, escaped, failure{at: i, reason: "control character in a string"}
		case i < mark:
			r, size := utf8.DecodeRune(s.data[i:])
			if r == utf8.RuneError && size == 1 {
				return i, escaped, failure{at: i, reason: "invalid UTF-8"}
			}
			i += size
		case i == quote:
			return i + 1, escaped, failure{}
		default:
			escaped = true
			next, reason := s.escape(i)
			if reason != "" {
				return i, true, failure{at: i, reason: reason}
			}
			i = next
		}
	}
	return len(s.data), escaped, failure{at: len(s.data), reason: "unexpected end"}
}

// mark returns the first quote from i on, which is looked for only if the one known is behind i, and the first quote or
// backslash; without any they are the end of the document.
func (s *scanner) mark(i, known int) (quote, mark int) {
	if quote = known; quote < i {
		if quote = bytes.IndexByte(s.data[i:], '"') + i; quote < i {
			quote = len(s.data)
		}
	}
	if mark = bytes.IndexByte(s.data[i:quote], '\\') + i; mark < i {
		mark = quote
	}
	return quote, mark
}

// ordinary returns the index of the first byte from i on that is no printable ASCII character, or the length of data.
func ordinary(data []byte, i int) int {
	for ; len(data)-i >= 32; i += 32 {
		block := (*[32]byte)(data[i:])
		if special(block[0:8])|special(block[8:16])|special(block[16:24])|special(block[24:32]) != 0 {
			break
		}
	}
	for ; len(data)-i >= 8; i += 8 {
		if marks := special(data[i:]); marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	for i < len(data) && isOrdinary(data[i]) {
		i++
	}
	return i
}

// isOrdinary tells whether c is ASCII and no control character.
func isOrdinary(c byte) bool { return ' ' <= c && c < utf8.RuneSelf }

// special sets the high bit of each of the first eight bytes that is under a space, where the difference borrows, or
// beyond ASCII. A borrow may set those above the first one too, so only the lowest of them counts.
func special(data []byte) uint64 {
	const spaces, high = 0x2020202020202020, 0x8080808080808080
	word := binary.LittleEndian.Uint64(data)
	return (word - spaces | word) & high
}

func (s *scanner) escape(i int) (next int, reason string) {
	if i+1 >= len(s.data) {
		return i, "unexpected end"
	}
	switch s.data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, ""
	case 'u':
	default:
		return i, "unknown escape"
	}
	unit, ok := hex4(s.data, i+2)
	switch {
	case !ok:
		return i, "escape without four hexadecimal digits"
	case unit < 0xd800 || unit > 0xdfff:
		return i + 6, ""
	}
	low, ok := hex4(s.data, i+8)
	if unit > 0xdbff || !ok || s.data[i+6] != '\\' || s.data[i+7] != 'u' || low < 0xdc00 || low > 0xdfff {
		return i, "half of a surrogate pair"
	}
	return i + 12, ""
}
