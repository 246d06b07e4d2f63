// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads YAML files more strictly than kubectl does, without an API server, and says of every mistake
// where it stands; it opens no file by itself and never repairs what it reads.
package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// MaxBytes is how large a file may be; an object of Kubernetes has at most a third of it.
const MaxBytes = 4 << 20

// maxDocuments is how many documents a file may have.
const maxDocuments = 2000

// hiddenBreak matches what YAML takes for the end of a line, and editors and reviews show as nothing: what stands behind it
// could pass for a part of a comment.
var hiddenBreak = regexp.MustCompile("[\r\u0085\u2028\u2029]")

// Place is where something stands in a file, from 1.
type Place struct{ Line, Column int }

// Problem is a mistake in a file.
type Problem struct {
	Place
	// Field is the path of what is wrong, such as spec.rules[2].when; "" where it is the whole document.
	Field string
	// Message says what is wrong in one line.
	Message string
}

func compareProblems(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
}

// Document is one document of a file, or one item of a List.
type Document struct {
	// Value is what kubectl would send. Schema.Check adds what the API server would add to it.
	Value map[string]any

	node  *yaml.Node
	lines [][]byte // of the whole file
}

// Read returns the documents of a file that can be read, and what is wrong with the others. An item of a List is a
// document. What two readers of YAML could read differently is a problem: a key that is there twice, or a merge key.
func Read(data []byte) ([]*Document, []Problem) {
	switch {
	case len(data) > MaxBytes:
		return nil, []Problem{{Place{1, 1}, "", fmt.Sprintf("the file is larger than %d bytes", MaxBytes)}}
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return nil, []Problem{{Place{1, 1}, "", "this is no text in UTF-8"}}
	}
	var documents []*Document
	var problems []Problem
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		if at := hiddenBreak.FindIndex(bytes.TrimSuffix(line, []byte("\r"))); at != nil {
			return nil, []Problem{{Place{i + 1, utf8.RuneCount(line[:at[0]]) + 1}, "", "here YAML begins a new line, and a person sees none: write it as an escape, or as a line"}}
		}
	}
	chunks := split(lines)
	if len(chunks) > maxDocuments {
		return nil, []Problem{{Place{1, 1}, "", fmt.Sprintf("the file has more than %d documents", maxDocuments)}}
	}
	for _, c := range chunks {
		read, wrong := c.read(lines)
		documents = append(documents, read...)
		problems = append(problems, wrong...)
	}
	slices.SortStableFunc(problems, compareProblems)
	return documents, problems
}

// chunk is the text of one document, and the number of lines before it.
type chunk struct {
	text   []byte
	before int
	marker string // what stands behind the --- that begins it
}

// split cuts a file at the lines that begin with ---, as kubectl does.
func split(lines [][]byte) []chunk {
	const marker = "---"
	var chunks []chunk
	begin, behind := 0, ""
	for i, line := range lines {
		if rest, ok := bytes.CutPrefix(line, []byte(marker)); ok && !bytes.HasPrefix(rest, []byte("-")) {
			chunks = append(chunks, chunk{bytes.Join(lines[begin:i], []byte("\n")), begin, behind})
			begin, behind = i+1, string(bytes.TrimSpace(rest))
		}
	}
	return append(chunks, chunk{bytes.Join(lines[begin:], []byte("\n")), begin, behind})
}

func (c chunk) read(lines [][]byte) ([]*Document, []Problem) {
	refuse := func(at Place, format string, args ...any) ([]*Document, []Problem) {
		return nil, []Problem{{at, "", glyph.Plain(glyph.Clip(fmt.Sprintf(format, args...), maxMessage))}}
	}
	if c.marker != "" && !strings.HasPrefix(c.marker, "#") {
		return refuse(Place{c.before, 4}, "a document begins on the line after ---")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(c.text))
	var root yaml.Node
	if err := decoder.Decode(&root); err != nil {
		if blank(c.text) {
			return nil, nil
		}
		return refuse(c.placeOf(err), "not valid YAML: %s", withoutLine(err))
	}
	if !errors.Is(decoder.Decode(&yaml.Node{}), io.EOF) {
		return refuse(Place{c.before + 1, 1}, "this document goes on behind its end: separate documents with ---")
	}
	top := root.Content[0]
	shift(&root, c.before)
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return refuse(placeOf(top), "this is no object: a mapping with apiVersion and kind was expected")
	}
	w := walk{places: map[*yaml.Node]bool{}}
	w.node(top, "", 0)
	if len(w.problems) > 0 {
		return nil, w.problems
	}
	raw, err := kyaml.YAMLToJSONStrict(c.text)
	if err != nil {
		return refuse(c.placeOf(err), "not valid YAML: %s", withoutLine(err))
	}
	value := map[string]any{}
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return refuse(placeOf(top), "not an object: %v", err)
	}
	return expand(&Document{Value: value, node: top, lines: lines})
}

// expand takes the items out of a List.
func expand(d *Document) ([]*Document, []Problem) {
	kind, _ := d.Value["kind"].(string)
	items, ok := d.Value["items"].([]any)
	if !strings.HasSuffix(kind, "List") || !ok {
		return []*Document{d}, nil
	}
	nodes := resolve(member(d.node, "items"))
	var documents []*Document
	var problems []Problem
	for i, item := range items {
		value, ok := item.(map[string]any)
		if !ok || nodes == nil || i >= len(nodes.Content) {
			problems = append(problems, Problem{d.Place("items"), fmt.Sprintf("items[%d]", i), "this is no object"})
			continue
		}
		documents = append(documents, &Document{Value: value, node: resolve(nodes.Content[i]), lines: d.lines})
	}
	return documents, problems
}

// Text is a member of the document that is a string, and "" where it is none.
func (d *Document) Text(path ...string) string {
	var value any = d.Value
	for _, name := range path {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	text, _ := value.(string)
	return text
}
