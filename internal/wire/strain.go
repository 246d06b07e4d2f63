// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Strainer passes a server's message on as it comes, without the members of result._meta that only the gateway may write.
// It keeps no more of the message than a key and what stands around it, however large the message is. What it drops it
// drops from everything that some parser may take for result._meta; every other byte stays as it is. The zero value is
// ready for a message.
type Strainer struct {
	out     []byte
	state   strainState
	depth   int
	objects [maxStrained + 1]bool // whether the container at that depth is an object
	key     []byte                // the raw key that is being read
	literal []byte                // the word that is being read
	hex     int                   // digits of an escape that are still to come
	isKey   bool                  // the string is a key
	named   string                // the last key, where it matters; "" elsewhere

	inResult, inMeta bool
	// Of members of _meta: whether one was kept, whether the present one is dropped, and what is not decided yet.
	kept, dropping, holding bool
	held                    []byte
}

const (
	// maxStrained is how deep a message may be nested, as elsewhere.
	maxStrained = 64
	// maxHeldBack bounds a key, and what stands between two members, in bytes.
	maxHeldBack = 4 << 10
)

// strainState is what may come next, or what is being read.
type strainState int

const (
	wantMessage strainState = iota // an object, and nothing else
	wantValue
	wantValueOrEnd
	wantKey
	wantKeyOrEnd
	wantColon
	wantCommaOrEnd
	inString
	inEscape
	inHex
	inNumber
	inLiteral
	atEnd
)

// errStrained: nobody can tell what a client would read in the message.
var errStrained = errors.New("strain a message: no acceptable JSON")

// Feed takes the next bytes of the message and returns what may go on of all that was fed; the slice is valid until the
// next call.
func (s *Strainer) Feed(chunk []byte) ([]byte, error) {
	s.out = s.out[:0]
	for i := 0; i < len(chunk); {
		if s.state == inString && !s.isKey { // the bulk of a large message
			n := plainPrefix(chunk[i:])
			s.pass(chunk[i : i+n])
			if i += n; i == len(chunk) {
				break
			}
		}
		again, err := s.step(chunk[i])
		if err != nil || len(s.held) > maxHeldBack || len(s.key) > maxHeldBack {
			return nil, errStrained
		}
		if !again {
			i++
		}
	}
	return s.out, nil
}

// End tells whether the message was whole.
func (s *Strainer) End() error {
	if s.state != atEnd {
		return errStrained
	}
	return nil
}

// plainPrefix is how many bytes of a string neither end it nor begin an escape.
func plainPrefix(text []byte) int {
	for i, c := range text {
		if c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return len(text)
}

// pass sends bytes on, unless they are dropped or not decided.
func (s *Strainer) pass(bytes []byte) {
	switch {
	case s.dropping:
	case s.holding:
		s.held = append(s.held, bytes...)
	default:
		s.out = append(s.out, bytes...)
	}
}

// step takes one byte; again says that the byte ended something and is to be taken once more.
func (s *Strainer) step(c byte) (again bool, err error) {
	switch s.state {
	case inString, inEscape, inHex:
		return false, s.inText(c)
	case inNumber:
		if strings.IndexByte("0123456789+-.eE", c) < 0 {
			s.endValue()
			return true, nil
		}
	case inLiteral:
		if c < 'a' || c > 'z' {
			if word := string(s.literal); word != "true" && word != "false" && word != "null" {
				return false, errStrained
			}
			s.endValue()
			return true, nil
		}
		if s.literal = append(s.literal, c); len(s.literal) > len("false") {
			return false, errStrained
		}
	default:
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return false, s.token(c)
		}
	}
	s.pass([]byte{c})
	return false, nil
}

// inText reads on in a string.
func (s *Strainer) inText(c byte) error {
	s.pass([]byte{c})
	if s.isKey && (s.state != inString || c != '"') {
		s.key = append(s.key, c)
	}
	switch {
	case s.state == inEscape && c == 'u':
		s.state, s.hex = inHex, 4
	case s.state == inEscape && strings.IndexByte(`"\/bfnrt`, c) >= 0:
		s.state = inString
	case s.state == inEscape:
		return errStrained
	case s.state == inHex && strings.IndexByte("0123456789abcdefABCDEF", c) < 0:
		return errStrained
	case s.state == inHex:
		if s.hex--; s.hex == 0 {
			s.state = inString
		}
	case c == '\\':
		s.state = inEscape
	case c < ' ':
		return errStrained
	case c == '"' && s.isKey:
		return s.endKey()
	case c == '"':
		s.endValue()
	}
	return nil
}

// token reads a byte between values.
func (s *Strainer) token(c byte) error {
	switch s.state {
	case wantMessage:
		if c != '{' {
			return errStrained
		}
		return s.open(c)
	case wantValue, wantValueOrEnd:
		if c == ']' && s.state == wantValueOrEnd {
			return s.close(c)
		}
		return s.value(c)
	case wantKey, wantKeyOrEnd:
		switch {
		case c == '"':
			s.pass([]byte{c})
			s.state, s.isKey, s.key = inString, true, s.key[:0]
			return nil
		case c == '}' && s.state == wantKeyOrEnd:
			return s.close(c)
		}
	case wantColon:
		if c == ':' {
			s.pass([]byte{c})
			s.decide()
			s.state = wantValue
			return nil
		}
	case wantCommaOrEnd:
		switch {
		case c == ',':
			s.pass([]byte{c})
			s.state = wantValue
			if s.objects[s.depth] {
				s.state = wantKey
			}
			return nil
		case c == '}' && s.objects[s.depth], c == ']' && !s.objects[s.depth]:
			return s.close(c)
		}
	default:
	}
	return errStrained
}

// value reads the first byte of a value.
func (s *Strainer) value(c byte) error {
	switch {
	case c == '{' || c == '[':
		return s.open(c)
	case c == '"':
		s.state, s.isKey = inString, false
	case c == '-' || c >= '0' && c <= '9':
		s.state = inNumber
	case c == 't' || c == 'f' || c == 'n':
		s.state, s.literal = inLiteral, append(s.literal[:0], c)
	default:
		return errStrained
	}
	s.pass([]byte{c})
	return nil
}

func (s *Strainer) open(c byte) error {
	if s.depth == maxStrained {
		return errStrained
	}
	s.pass([]byte{c})
	s.depth++
	s.objects[s.depth] = c == '{'
	s.state = wantValueOrEnd
	if c == '{' {
		s.state = wantKeyOrEnd
	}
	switch {
	case s.depth == 2:
		s.inResult = c == '{' && resembles(s.named, "result")
	case s.depth == 3 && s.inResult && c == '{' && resembles(s.named, "_meta"):
		s.inMeta, s.kept, s.holding = true, false, true
	}
	return nil
}

func (s *Strainer) close(c byte) error {
	if s.inMeta && s.depth == 3 {
		s.inMeta, s.holding = false, false
		s.out = append(s.out, s.held...)
		s.held = s.held[:0]
	}
	s.pass([]byte{c})
	s.depth--
	s.endValue()
	return nil
}

// endValue goes on behind a value.
func (s *Strainer) endValue() {
	s.state = wantCommaOrEnd
	if s.depth == 0 {
		s.state = atEnd
	}
	if s.inMeta && s.depth == 3 {
		s.dropping, s.holding = false, true
	}
}

// endKey reads a key where it matters.
func (s *Strainer) endKey() error {
	s.state, s.isKey, s.named = wantColon, false, ""
	if s.depth > 3 {
		return nil
	}
	quoted := append(append([]byte{'"'}, s.key...), '"')
	text, err := strictjson.Scan(quoted)
	if err != nil {
		return errStrained
	}
	s.named = text.Text()
	return nil
}

// decide keeps or drops a member of _meta once its key is known.
func (s *Strainer) decide() {
	if !s.inMeta || s.depth != 3 {
		return
	}
	s.holding = false
	if strings.HasPrefix(s.named, ReservedPrefix) {
		s.held, s.dropping = s.held[:0], true
		return
	}
	if comma := bytes.IndexByte(s.held, ','); !s.kept && comma >= 0 && comma < bytes.IndexByte(s.held, '"') { // it stood behind one that was dropped
		s.held = append(s.held[:comma], s.held[comma+1:]...)
	}
	s.kept = true
	s.out = append(s.out, s.held...)
	s.held = s.held[:0]
}
