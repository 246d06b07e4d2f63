// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Fault is what is wrong with a line or the link before it.
type Fault string

const (
	// FaultAltered: the line does not fit its own hash.
	FaultAltered Fault = "Altered"
	// FaultUnreadable: the line is no receipt of this schema.
	FaultUnreadable Fault = "Unreadable"
	// FaultMissing: one or more receipts before the line are gone.
	FaultMissing Fault = "Missing"
	// FaultBrokenLink: the line does not follow the one before it, though it says that it does.
	FaultBrokenLink Fault = "BrokenLink"
	// FaultTornTail: the last line has no end, as after a crash.
	FaultTornTail Fault = "TornTail"
)

// Problem is one fault and its place.
type Problem struct {
	// Line counts from 1.
	Line   int    `json:"line"`
	Fault  Fault  `json:"fault"`
	Detail string `json:"detail"`
}

// String says it in one line.
func (p Problem) String() string { return fmt.Sprintf("line %d: %s: %s", p.Line, p.Fault, p.Detail) }

// Report is what Verify found. A tail that was cut at the end of a line, and lines appended by one who knows how to
// hash, show only against a copy of LastSeq and LastHash that was kept elsewhere.
type Report struct {
	Gateway  string    `json:"gateway"`
	Chain    string    `json:"chain"`
	Receipts int       `json:"receipts"`
	LastSeq  uint64    `json:"lastSeq"`
	LastHash string    `json:"lastHash"`
	Problems []Problem `json:"problems,omitempty"`
	// MoreProblems counts those beyond the first hundred.
	MoreProblems int `json:"moreProblems,omitempty"`
}

// maxProblems bounds a report.
const maxProblems = 100

// Verify checks one chain from its first line to its last. The error is the reader's.
func Verify(r io.Reader) (Report, error) {
	var report Report
	s := newScanner(r)
	for s.next() {
		report.Receipts++
		if s.problem == nil {
			continue
		}
		if len(report.Problems) == maxProblems {
			report.MoreProblems++
			continue
		}
		report.Problems = append(report.Problems, *s.problem)
	}
	report.Gateway, report.Chain = s.gateway, s.chain
	report.LastSeq, report.LastHash = s.last.seq, s.last.hash
	if s.err == nil && len(s.torn) > 0 && len(report.Problems) < maxProblems {
		report.Problems = append(report.Problems, Problem{
			Line: s.number + 1, Fault: FaultTornTail, Detail: fmt.Sprintf("%d bytes without the end of a line", len(s.torn)),
		})
	}
	return report, s.err
}

// maxLine bounds a line that is read, in bytes; clip keeps those that are written far below.
const maxLine = 1 << 20

var errLineTooLong = errors.New("a line is longer than a receipt can be")

// scanner walks over the lines of a chain and checks each link.
type scanner struct {
	reader *bufio.Reader
	err    error

	number  int
	line    []byte   // without its line feed; valid until the next call of next
	problem *Problem // of the line
	whole   int64    // bytes of whole lines so far
	torn    []byte   // what follows the last line feed

	gateway, chain string
	last           link
	hole           bool // the line before was unreadable: its hash is not known
}

func newScanner(r io.Reader) *scanner { return &scanner{reader: bufio.NewReaderSize(r, 64<<10)} }

// next reads one whole line; it returns false at the end, with err and torn set.
func (s *scanner) next() bool {
	line, err := s.readLine()
	if err != nil {
		if errors.Is(err, io.EOF) {
			s.torn = line
		} else {
			s.err = err
		}
		return false
	}
	s.number++
	s.whole += int64(len(line))
	s.line = bytes.TrimSuffix(line, []byte("\n"))
	s.problem = s.check()
	return true
}

func (s *scanner) readLine() ([]byte, error) {
	var long []byte
	for {
		part, err := s.reader.ReadSlice('\n')
		if long == nil && err == nil {
			return part, nil
		}
		long = append(long, part...)
		if len(long) > maxLine {
			return nil, fmt.Errorf("line %d: %w", s.number+1, errLineTooLong)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return long, err
		}
	}
}

// check compares the line with its own hash and with the line before.
func (s *scanner) check() *Problem {
	e, ok := parseEnvelope(s.line)
	if !ok {
		s.hole = true
		return s.fault(FaultUnreadable, "this is no "+Schema)
	}
	before, hole := s.last, s.hole
	s.last, s.hole = link{seq: e.seq, hash: e.hash}, false
	if !e.intact {
		return s.fault(FaultAltered, "receipt %d does not fit its own hash", e.seq)
	}
	if s.number == 1 {
		return s.checkFirst(e)
	}
	if hole {
		before.seq++ // the unreadable line stands for one receipt
	}
	switch {
	case e.seq > before.seq+1:
		return s.fault(FaultMissing, "receipts %d to %d are not here", before.seq+1, e.seq-1)
	case e.seq != before.seq+1:
		return s.fault(FaultBrokenLink, "receipt %d stands after receipt %d", e.seq, before.seq)
	case !hole && e.prevHash != before.hash:
		return s.fault(FaultBrokenLink, "receipt %d does not name the hash of receipt %d", e.seq, before.seq)
	}
	return nil
}

func (s *scanner) checkFirst(e envelope) *Problem {
	var r Receipt
	if err := json.Unmarshal(s.line, &r); err != nil {
		return s.fault(FaultUnreadable, "the first line is no JSON")
	}
	s.gateway, s.chain = r.Gateway, r.Chain
	switch {
	case e.seq > 1:
		return s.fault(FaultMissing, "the chain begins with receipt %d", e.seq)
	case e.seq != 1 || r.Kind != KindOpened || e.prevHash != genesis(r.Gateway, r.Chain):
		return s.fault(FaultBrokenLink, "the first receipt does not begin the chain of its gateway")
	}
	return nil
}

func (s *scanner) fault(f Fault, format string, args ...any) *Problem {
	return &Problem{Line: s.number, Fault: f, Detail: fmt.Sprintf(format, args...)}
}
