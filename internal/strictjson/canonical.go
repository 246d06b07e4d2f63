// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"bytes"
	"slices"
	"strconv"
)

// Canonical returns the one form that all spellings of a document share: RFC 8785 (no white space, members sorted by the
// UTF-16 units of their names, the fewest escapes), except that numbers keep their exact decimal value and never pass
// through a float.
//
// A number is written from its significant digits d (no leading or trailing zeros) and its decimal point n, value
// 0.d × 10^n, with the layout of ECMAScript: plain digits for n up to 21 and down to -5, else d.ddde±x. Zero is 0
// whatever its sign. So 1.10 and 1.1, 1.0 and 1, 1e2 and 100, -0 and 0 are the same; every number that RFC 8785 can
// express has the text that RFC 8785 gives it.
//
// The result is at most six times as long as data.
func Canonical(data []byte) ([]byte, error) {
	v, err := Scan(data)
	if err != nil {
		return nil, err
	}
	return v.AppendCanonical(make([]byte, 0, len(data))), nil
}

// AppendCanonical appends the canonical form of v.
func (v Value) AppendCanonical(dst []byte) []byte {
	if !v.Exists() {
		return dst
	}
	w := writer{data: v.doc, out: dst, members: make([]member, 0, 24)}
	w.value(v.start)
	return w.out
}

// writer rewrites a scanned document in one pass; an object's members are put in order when it ends.
type writer struct {
	data    []byte
	out     []byte
	members []member // of all objects that are open, the innermost object's last
	texts   []byte   // names that were written with escapes, unescaped
	scratch []byte
}

// member is one written member: its name, and where in the output it stands.
type member struct {
	start, end int32 // of the name in data or, if escaped, in texts
	escaped    bool
	from, to   int
}

// value writes the value at i and returns the offset behind it.
func (w *writer) value(i int) int {
	switch c := w.data[i]; {
	case c == '{':
		return w.object(i)
	case c == '[':
		return w.array(i)
	case c == '"':
		return w.str(i)
	case c == '-' || isDigit(c):
		end := skip(w.data, i, extent{})
		w.out = appendNumber(w.out, w.data[i:end])
		return end
	}
	end := skip(w.data, i, extent{})
	w.out = append(w.out, w.data[i:end]...)
	return end
}

func (w *writer) str(i int) int {
	end := skipString(w.data, i)
	raw := w.data[i:end]
	if bytes.IndexByte(raw, '\\') < 0 {
		w.out = append(w.out, raw...)
		return end
	}
	kept := len(w.texts)
	w.texts = appendUnescaped(w.texts, raw[1:len(raw)-1])
	w.out = AppendString(w.out, w.texts[kept:])
	w.texts = w.texts[:kept]
	return end
}

func (w *writer) array(i int) int {
	w.out = append(w.out, '[')
	first := true
	for i = next(w.data, i+1); w.data[i] != ']'; i = next(w.data, i) {
		if !first {
			w.out = append(w.out, ',')
		}
		first = false
		i = w.value(i)
	}
	w.out = append(w.out, ']')
	return i + 1
}

func (w *writer) object(i int) int {
	first, texts := len(w.members), len(w.texts)
	start := len(w.out)
	w.out = append(w.out, '{')
	sorted := true
	for i = next(w.data, i+1); w.data[i] != '}'; i = next(w.data, i) {
		m := w.name(i)
		if len(w.members) > first {
			w.out = append(w.out, ',')
			sorted = sorted && compareUTF16(w.text(w.members[len(w.members)-1]), w.text(m)) < 0
		}
		m.from = len(w.out)
		i = next(w.data, w.str(i))
		w.out = append(w.out, ':')
		i = w.value(i)
		m.to = len(w.out)
		w.members = append(w.members, m)
	}
	if !sorted {
		w.sort(start, w.members[first:])
	}
	w.out = append(w.out, '}')
	w.members, w.texts = w.members[:first], w.texts[:texts]
	return i + 1
}

// name notes the name at i for comparing; it writes nothing.
func (w *writer) name(i int) member {
	end := skipString(w.data, i)
	raw := w.data[i+1 : end-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return member{start: int32(i + 1), end: int32(end - 1)}
	}
	start := len(w.texts)
	w.texts = appendUnescaped(w.texts, raw)
	return member{start: int32(start), end: int32(len(w.texts)), escaped: true}
}

func (w *writer) text(m member) []byte {
	if m.escaped {
		return w.texts[m.start:m.end]
	}
	return w.data[m.start:m.end]
}

// sort puts the members that were written from start on in order.
func (w *writer) sort(start int, members []member) {
	w.scratch = append(w.scratch[:0], w.out[start:]...)
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(w.text(a), w.text(b)) })
	w.out = append(w.out[:start], '{')
	for n, m := range members {
		if n > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, w.scratch[m.from-start:m.to-start]...)
	}
}

// compareUTF16 orders UTF-8 text as its UTF-16 units are ordered: supplementary characters, whose first unit is a
// surrogate, come before U+E000 to U+FFFF.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		if aHigh, bHigh := a[i] >= 0xf0, b[i] >= 0xf0; aHigh != bHigh && min(a[i], b[i]) >= 0xee {
			if aHigh {
				return -1
			}
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}

// appendNumber appends the normal form of a scanned number; see Canonical.
func appendNumber(dst, raw []byte) []byte {
	var digits [MaxDigits]byte
	d, point, negative := decimal(digits[:0], raw)
	if len(d) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	switch {
	case len(d) <= point && point <= 21:
		return zeros(append(dst, d...), point-len(d))
	case 0 < point && point <= 21:
		return append(append(append(dst, d[:point]...), '.'), d[point:]...)
	case -6 < point && point <= 0:
		return append(zeros(append(dst, '0', '.'), -point), d...)
	}
	dst = append(dst, d[0])
	if len(d) > 1 {
		dst = append(append(dst, '.'), d[1:]...)
	}
	dst = append(dst, 'e')
	if point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(point-1), 10)
}

func zeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// decimal takes a scanned number apart: value = 0.digits × 10^point, digits without zeros at either end.
func decimal(buf, raw []byte) (digits []byte, point int, negative bool) {
	if raw[0] == '-' {
		negative, raw = true, raw[1:]
	}
	exponent := 0
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		// Scan bounded the exponent; Atoi takes its sign and leading zeros.
		exponent, _ = strconv.Atoi(string(raw[i+1:]))
		raw = raw[:i]
	}
	whole, fraction, _ := bytes.Cut(raw, []byte("."))
	digits = append(append(buf, whole...), fraction...)
	point = len(whole) + exponent
	for len(digits) > 0 && digits[0] == '0' {
		digits, point = digits[1:], point-1
	}
	return bytes.TrimRight(digits, "0"), point, negative
}
