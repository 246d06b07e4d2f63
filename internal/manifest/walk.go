// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// Bounds of one document, aliases followed.
const (
	maxDepth = 64
	maxNodes = 200_000
)

// maxMessage is how many bytes a message has at most.
const maxMessage = 512

// walk looks at every node of a document once, and through aliases, so that what it lets pass can be expanded.
type walk struct {
	places   map[*yaml.Node]bool // that were looked at
	nodes    int
	problems []Problem
}

// node returns whether the walk may go on.
func (w *walk) node(n *yaml.Node, path string, depth int) bool {
	if w.nodes++; w.nodes > maxNodes || depth > maxDepth {
		what := fmt.Sprintf("the document has more than %d values, its aliases written out", maxNodes)
		if depth > maxDepth {
			what = fmt.Sprintf("the document is nested more than %d deep, or an alias holds itself", maxDepth)
		}
		w.problems = append(w.problems, Problem{placeOf(n), clipPath(path), what})
		return false
	}
	first := !w.places[n]
	w.places[n] = true
	switch n.Kind {
	case yaml.AliasNode:
		return w.node(n.Alias, path, depth+1)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			if !w.node(item, fmt.Sprintf("%s[%d]", path, i), depth+1) {
				return false
			}
		}
	case yaml.MappingNode:
		if first {
			w.keys(n, path)
		}
		for i := 1; i < len(n.Content); i += 2 {
			if !w.node(n.Content[i], join(path, n.Content[i-1].Value), depth+1) {
				return false
			}
		}
	case yaml.ScalarNode, yaml.DocumentNode: // nothing below
	}
	return true
}

// keys looks for keys that are there twice, and for those that only some readers know.
func (w *walk) keys(n *yaml.Node, path string) {
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		say := func(format string, args ...any) {
			w.problems = append(w.problems, Problem{placeOf(key), clipPath(join(path, key.Value)), glyph.Clip(glyph.Plain(fmt.Sprintf(format, args...)), maxMessage)})
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			say("a key is a plain text, and this is none")
		case key.Tag == "!!merge":
			say("merge keys are not read: write the fields out")
		case lines[key.Value] > 0:
			say("the key %q is there already, in line %d", key.Value, lines[key.Value])
		default:
			lines[key.Value] = key.Line
		}
	}
}

func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, ".[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func clipPath(path string) string { return glyph.Plain(glyph.Clip(path, 128)) }

// shift moves the places of a document down to where it stands in its file.
func shift(n *yaml.Node, by int) {
	n.Line += by
	for _, child := range n.Content {
		shift(child, by)
	}
}

func placeOf(n *yaml.Node) Place { return Place{max(n.Line, 1), max(n.Column, 1)} }

var lineOfError = regexp.MustCompile(`\bline (\d+): ?`)

// placeOf finds the line in an error of a YAML parser.
func (c chunk) placeOf(err error) Place {
	line := 1
	if found := lineOfError.FindStringSubmatch(err.Error()); found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil {
			line = n
		}
	}
	return Place{c.before + max(line, 1), 1}
}

// withoutLine takes the line, which is that of the document and not of the file, out of an error of a YAML parser.
func withoutLine(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "\n", " ")
	return strings.TrimPrefix(lineOfError.ReplaceAllString(text, ""), "yaml: ")
}

// blank tells whether nothing but comments and white space is there.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// member returns the value of a key, nil for none.
func member(n *yaml.Node, key string) *yaml.Node {
	if _, value := entry(n, key); value != nil {
		return value
	}
	return nil
}

func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// step is one part of a path: a key, or an index where it is one.
type step struct {
	key   string
	index int
}

// steps reads a path such as spec.rules[2].when or metadata.labels[a.b/c].
func steps(path string) []step {
	var all []step
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			inside, rest, _ := strings.Cut(path[1:], "]")
			path = rest
			if index, err := strconv.Atoi(inside); err == nil {
				all = append(all, step{inside, index})
			} else {
				all = append(all, step{inside, -1})
			}
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			all = append(all, step{path[:end], -1})
			path = path[end:]
		}
	}
	return all
}

// find follows a path as far as it leads. It returns the value there and what a person is pointed to: a key before a
// longer value, else the value itself.
func (d *Document) find(path string) (value, shown *yaml.Node, whole bool) {
	value, shown = d.node, d.node
	for _, s := range steps(path) {
		switch value.Kind {
		case yaml.MappingNode:
			key, next := entry(value, s.key)
			if next == nil {
				return value, shown, false
			}
			value, shown = resolve(next), key
			if next.Kind == yaml.ScalarNode {
				shown = next
			}
		case yaml.SequenceNode:
			if s.index < 0 || s.index >= len(value.Content) {
				return value, shown, false
			}
			shown = value.Content[s.index]
			value = resolve(shown)
		default:
			return value, shown, false
		}
	}
	return value, shown, true
}

// Place is where a field stands, or the last one on the way to it that is there.
func (d *Document) Place(field string) Place {
	_, shown, _ := d.find(field)
	return placeOf(shown)
}

// Inside is the place of a line and column of a field that is a text, and whether it could be told: escapes and folded
// lines move it.
func (d *Document) Inside(field string, line, column int) (Place, bool) {
	value, shown, whole := d.find(field)
	at := placeOf(shown)
	if !whole || value.Kind != yaml.ScalarNode || shown.Kind == yaml.AliasNode || line < 1 || column < 1 {
		return at, false
	}
	texts := strings.Split(value.Value, "\n")
	if line > len(texts) {
		return at, false
	}
	text := []byte(texts[line-1])
	if row := value.Line + line - 1; value.Style&yaml.LiteralStyle != 0 {
		row++
		if row > len(d.lines) {
			return at, false
		}
		indent := bytes.Index(d.lines[row-1], text)
		return Place{row, indent + column}, indent >= 0 && slices.Equal(bytes.TrimRight(d.lines[row-1][indent:], "\r"), text)
	}
	if value.Line > len(d.lines) || line > 1 || len(texts) > 1 {
		return at, false
	}
	// Columns of nodes count characters.
	source, begin := []rune(string(d.lines[value.Line-1])), value.Column-1
	if value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		begin++
	}
	if begin > len(source) || !strings.HasPrefix(string(source[begin:]), string(text)) {
		return at, false
	}
	return Place{value.Line, begin + column}, true
}
