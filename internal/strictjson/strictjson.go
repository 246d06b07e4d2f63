// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strictjson reads only JSON on which no two parsers can differ, and writes its canonical form; it never repairs
// what it reads and does no I/O.
package strictjson

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxDepth is how many arrays and objects may be open at once.
	MaxDepth = 64
	// MaxDigits is how many digits a number may have before its exponent.
	MaxDigits = 400
	// MaxExponent bounds the exponent of a number on either side of zero.
	MaxExponent = 400
	// maxBytes keeps every offset in 32 bits; callers bound what they read far below it.
	maxBytes = 1 << 30
)

// Error says why a document was refused. It never quotes a value of the document.
type Error struct {
	// Offset is the byte at which the document stops being acceptable.
	Offset int
	// Pointer is the JSON pointer (RFC 6901) of the value being read there; "" is the whole document. It is shortened
	// where keys are very long, and what does not print is escaped.
	Pointer string
	// Reason is one of a fixed set of phrases.
	Reason string
}

// Error gives reason, place and offset in one line.
func (e *Error) Error() string {
	at := "the document"
	if e.Pointer != "" {
		at = e.Pointer
	}
	return fmt.Sprintf("%s at %s (byte %d)", e.Reason, at, e.Offset)
}

// place is one open array or object on the way to an error.
type place struct {
	object   bool
	wantsKey bool
	key      []byte
	index    int
}

// pointerTo finds the JSON pointer of what is being read at offset. It runs only after an error, so that reading an
// acceptable document costs nothing for it; everything before offset is known to be well formed.
func pointerTo(data []byte, offset int) string {
	var places []place
	for i := 0; i < offset && i < len(data); {
		top := len(places) - 1
		switch c := data[i]; c {
		case '{', '[':
			places = append(places, place{object: c == '{', wantsKey: c == '{'})
			i++
		case '}', ']':
			if top >= 0 {
				places = places[:top]
			}
			i++
		case ',':
			if top >= 0 {
				places[top].index++
				places[top].wantsKey = places[top].object
			}
			i++
		case '"':
			end := skipString(data, i)
			if whole := end-i >= 2 && data[end-1] == '"' && end <= offset; whole && top >= 0 && places[top].wantsKey {
				places[top].key, places[top].wantsKey = data[i:end], false
			}
			i = end
		default:
			i++
		}
	}
	return writePointer(places)
}

// Bounds of a pointer in an error, in bytes.
const (
	maxPointer      = 256
	maxPointerToken = 64
)

func writePointer(places []place) string {
	var b strings.Builder
	for _, p := range places {
		if b.Len() > maxPointer {
			b.WriteString("/…")
			break
		}
		switch {
		case !p.object:
			fmt.Fprintf(&b, "/%d", p.index)
		case p.wantsKey || p.key == nil:
			return b.String()
		default:
			b.WriteByte('/')
			writeToken(&b, string(Value{doc: p.key, end: len(p.key)}.AppendText(nil)))
		}
	}
	return b.String()
}

// writeToken writes one reference token so that it stays on one line and shows what it holds.
func writeToken(b *strings.Builder, key string) {
	rest := len(key) - maxPointerToken
	if rest > 0 {
		cut := maxPointerToken
		for cut > 0 && !utf8.RuneStart(key[cut]) {
			cut--
		}
		key = key[:cut]
	}
	for _, r := range key {
		switch {
		case r == '~':
			b.WriteString("~0")
		case r == '/':
			b.WriteString("~1")
		case !unicode.IsPrint(r):
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	if rest > 0 {
		b.WriteString("…")
	}
}
