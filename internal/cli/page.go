// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// page is what a person reads before a decision: names with a text behind each. Every text is made harmless as it comes
// in, because most of it was written by an agent.
type page struct {
	colours bool
	text    bytes.Buffer
}

func newPage(colours bool) *page { return &page{colours: colours} }

// line adds a text under a name; without a name it goes on with the one before.
func (p *page) line(name, format string, args ...any) {
	p.add(name, glyph.Plain(fmt.Sprintf(format, args...)))
}

// alert is a line that must not be missed.
func (p *page) alert(name, format string, args ...any) {
	text := glyph.Plain(fmt.Sprintf(format, args...))
	if p.colours {
		text = "\x1b[1;31m" + text + "\x1b[0m"
	}
	p.add(name, text)
}

func (p *page) add(name, text string) { fmt.Fprintf(&p.text, "%-14s %s\n", name, text) }

// indented adds lines below what came before.
func (p *page) indented(lines []string) {
	for _, line := range lines {
		fmt.Fprintf(&p.text, "  %s\n", glyph.Plain(line))
	}
}

// print prints the page, and a blank line after it.
func (p *page) print(out io.Writer) error {
	p.text.WriteByte('\n')
	_, err := out.Write(p.text.Bytes())
	return err
}
