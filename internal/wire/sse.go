// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrEventTooLarge ends an event stream whose next event is over the limit.
var ErrEventTooLarge = errors.New("event too large")

// mark is a byte order mark, which may stand before a stream.
const mark = "\ufeff"

// Event is one block of a server-sent event stream. Its slices are valid until the next call of Next.
type Event struct {
	// Raw is the block as it was received, its blank line included. The Raw of all events of a stream, one behind the
	// other, are the stream.
	Raw []byte
	// Data are the joined data lines, nil if the block has none (a comment, an id or retry alone).
	Data []byte
	// Marked says that Raw begins with the byte order mark of the stream; anywhere else such a mark is part of a line.
	Marked bool
	// Whole is false for what stands behind the last blank line of a stream: a client that keeps to the standard
	// ignores it.
	Whole bool
}

// Splitter reads an event stream block by block, whatever its line ends (LF, CRLF, CR). It hands out a block as soon as
// it is complete and never waits for more than that.
type Splitter struct {
	source io.Reader
	limit  int
	buf    []byte // received and not yet handed out, from start on
	start  int    // where the block that is read starts in buf
	at     int    // behind the last line of it that was read
	seen   int    // how much of the line at at was searched for its end
	lines  block
	marked bool // a byte order mark stands before the block that is read
	begun  bool // the first bytes, where a byte order mark may stand, are behind
	skipLF bool // the last line ended in CR at the end of a block: a LF that follows belongs to it
	err    error
}

// NewSplitter reads events of at most limit bytes from source.
func NewSplitter(source io.Reader, limit int) *Splitter {
	return &Splitter{source: source, limit: limit}
}

// Next returns the next block. At the end of the stream it returns what is left as a block that is not whole, then
// io.EOF.
func (s *Splitter) Next() (Event, error) {
	s.start, s.seen, s.lines = s.at, 0, block{data: s.lines.data[:0]}
	if cap(s.lines.data) > maxSpare {
		s.lines.data = nil
	}
	for {
		whole := s.scan()
		if size := s.at - s.start + s.seen; size > s.limit {
			return Event{}, fmt.Errorf("read an event stream: %w", ErrEventTooLarge)
		}
		if whole {
			return s.hand(true), nil
		}
		if s.err != nil {
			return s.last()
		}
		s.fill()
	}
}

// last hands out what is left when the source has ended.
func (s *Splitter) last() (Event, error) {
	if s.start == len(s.buf) {
		return Event{}, s.err
	}
	if !errors.Is(s.err, io.EOF) {
		// The source broke: what is left of a block goes to nobody.
		return Event{}, s.err
	}
	if s.at < len(s.buf) {
		s.lines.add(s.buf[s.at:])
		s.at = len(s.buf)
	}
	return s.hand(false), nil
}

// maxSpare is how much room a stream keeps that waits for its next block, in bytes: one that was large must not keep its
// memory for as long as the stream lasts.
const maxSpare = 64 << 10

// fill reads on. What was handed out gives its room back only here, where no whole block is left: moving what is left
// for every block would cost as much as all that was received at once.
func (s *Splitter) fill() {
	const chunk = 4 << 10
	if s.start > 0 {
		rest := s.buf[s.start:]
		if cap(s.buf) > maxSpare && len(rest) < cap(s.buf)/8 {
			s.buf = nil
		}
		s.buf = append(s.buf[:0], rest...)
		s.at, s.start = s.at-s.start, 0
	}
	old := len(s.buf)
	if cap(s.buf)-old < chunk {
		s.buf = append(s.buf, make([]byte, max(chunk, old))...)[:old]
	}
	n, err := s.source.Read(s.buf[old:cap(s.buf)])
	s.buf, s.err = s.buf[:old+n], err
}

// scan reads on by lines and tells whether the block is complete; s.at is behind it then.
func (s *Splitter) scan() bool {
	if !s.begun && !s.skipMark() {
		return false
	}
	for s.at < len(s.buf) {
		if s.skipLF && s.buf[s.at] == '\n' {
			s.at++
			s.skipLF = false
			continue
		}
		s.skipLF = false
		length := bytes.IndexAny(s.buf[s.at+s.seen:], "\r\n")
		if length < 0 {
			s.seen = len(s.buf) - s.at
			return false
		}
		length += s.seen
		s.seen = 0
		line := s.buf[s.at : s.at+length]
		s.skipLF = s.buf[s.at+length] == '\r'
		s.at += length + 1
		if length == 0 || s.lines.isKeepAlive(line) {
			s.takeLF()
			return true
		}
		s.lines.add(line)
	}
	return false
}

// takeLF adds the LF of a CRLF to the block if it is there already.
func (s *Splitter) takeLF() {
	if s.skipLF && s.at < len(s.buf) && s.buf[s.at] == '\n' {
		s.at++
		s.skipLF = false
	}
}

// skipMark steps over a byte order mark at the start of the stream; false means that more bytes are needed to tell.
func (s *Splitter) skipMark() bool {
	if s.err == nil && len(s.buf) < len(mark) && string(s.buf) == mark[:len(s.buf)] {
		return false
	}
	s.begun = true
	if bytes.HasPrefix(s.buf, []byte(mark)) {
		s.at, s.marked = len(mark), true
	}
	return true
}

func (s *Splitter) hand(whole bool) Event {
	event := Event{Raw: s.buf[s.start:s.at:s.at], Marked: s.marked, Whole: whole}
	s.marked = false
	if s.lines.hasData {
		event.Data = s.lines.data
	}
	return event
}

// block gathers the lines of an event.
type block struct {
	any, hasData bool
	data         []byte
}

// isKeepAlive tells whether the line is a comment outside any event: it goes on at once, so that it keeps alive what
// waits for it.
func (b *block) isKeepAlive(line []byte) bool {
	return !b.any && len(line) > 0 && line[0] == ':'
}

func (b *block) add(line []byte) {
	b.any = true
	value, ok := dataOf(line)
	if !ok {
		return
	}
	if b.hasData {
		b.data = append(b.data, '\n')
	}
	b.hasData = true
	b.data = append(b.data, value...)
}

// dataOf returns the value of a data line.
func dataOf(line []byte) (value []byte, ok bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return nil, false
	}
	return bytes.TrimPrefix(value, []byte(" ")), true
}

// WithData returns the block with other data, which must hold no line ends; every other line stays as it is.
func (e Event) WithData(data []byte) []byte {
	out := make([]byte, 0, len(e.Raw)+len(data))
	placed := false
	for rest := e.Raw; len(rest) > 0; {
		line, end := rest, []byte(nil)
		if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
			line, end = rest[:i], rest[i:i+1]
			if bytes.HasPrefix(rest[i:], []byte("\r\n")) {
				end = rest[i : i+2]
			}
		}
		rest = rest[len(line)+len(end):]
		text := line
		if e.Marked && len(out) == 0 && !placed {
			text = bytes.TrimPrefix(line, []byte(mark))
		}
		if _, ok := dataOf(text); !ok {
			out = append(append(out, line...), end...)
			continue
		}
		if placed {
			continue
		}
		placed = true
		out = append(append(append(out, "data: "...), data...), end...)
	}
	return out
}

// Odd returns the lines of the block that some reader might take for data although they are none: those beside the data
// that are neither empty nor a field of the standard, or a comment, in printable ASCII.
func (e Event) Odd() [][]byte {
	var odd [][]byte
	raw := e.Raw
	if e.Marked {
		raw = bytes.TrimPrefix(raw, []byte(mark))
	}
	for line := range linesOf(raw) {
		if _, isData := dataOf(line); isData || len(line) == 0 {
			continue
		}
		field, _, _ := bytes.Cut(line, []byte(":"))
		switch string(field) {
		case "", "event", "id", "retry":
			if bytes.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
				continue
			}
		}
		odd = append(odd, line)
	}
	return odd
}
