// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendString appends text as a JSON string with the fewest escapes (RFC 8785, 3.2.2.2). Text must be valid UTF-8.
func AppendString[T string | []byte](dst []byte, text T) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if c < ' ' {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
				continue
			}
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// appendUnescaped appends the text of a scanned string, given without its quotes.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			var r rune
			r, raw = unescapeUnit(raw)
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

// unescapeUnit reads what follows \u, both halves of a surrogate pair at once.
func unescapeUnit(raw []byte) (r rune, rest []byte) {
	high, ok := hex4(raw, 0)
	if !ok {
		return utf8.RuneError, nil
	}
	if !utf16.IsSurrogate(high) {
		return high, raw[4:]
	}
	low, ok := hex4(raw, 6)
	if !ok {
		return utf8.RuneError, nil
	}
	return utf16.DecodeRune(high, low), raw[10:]
}

func hex4(data []byte, i int) (rune, bool) {
	if i+4 > len(data) {
		return 0, false
	}
	var r rune
	for _, c := range data[i : i+4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
