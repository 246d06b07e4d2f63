// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Spec returns a document whose spec is a part of this one, so that its mistakes have their places here.
func (d *Document) Spec(path string, value map[string]any) *Document {
	part, shown, whole := d.find(path)
	node := &yaml.Node{Kind: yaml.MappingNode, Line: shown.Line, Column: shown.Column}
	if !whole { // all of it comes from elsewhere
		return &Document{Value: value, node: node, lines: d.lines}
	}
	node.Content = []*yaml.Node{{Kind: yaml.ScalarNode, Value: "spec", Line: shown.Line, Column: shown.Column}, part}
	return &Document{Value: value, node: node, lines: d.lines}
}

// jsonNumber is what both YAML and JSON read as the same number.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// unclear are words that YAML 1.1 reads as true or false, and YAML 1.2 as texts.
var unclear = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$`)

// JSON writes a part of the document as JSON. Numbers keep every digit that the file has.
func (d *Document) JSON(path string) (json.RawMessage, *Problem) {
	value, _, whole := d.find(path)
	if !whole {
		return nil, nil
	}
	var out strings.Builder
	if wrong := writeJSON(&out, value, path); wrong != nil {
		return nil, wrong
	}
	return json.RawMessage(out.String()), nil
}

func writeJSON(out *strings.Builder, n *yaml.Node, path string) *Problem {
	switch n = resolve(n); n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			writeText(out, n.Content[i].Value)
			out.WriteByte(':')
			if wrong := writeJSON(out, n.Content[i+1], join(path, n.Content[i].Value)); wrong != nil {
				return wrong
			}
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if wrong := writeJSON(out, item, fmt.Sprintf("%s[%d]", path, i)); wrong != nil {
				return wrong
			}
		}
		out.WriteByte(']')
	default:
		return writeScalar(out, n, path)
	}
	return nil
}

func writeScalar(out *strings.Builder, n *yaml.Node, path string) *Problem {
	refuse := func(message string) *Problem { return &Problem{placeOf(n), clipPath(path), message} }
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		out.WriteString("null")
	case tag == "!!bool":
		out.WriteString(strings.ToLower(n.Value))
	case (tag == "!!int" || tag == "!!float") && !jsonNumber.MatchString(n.Value):
		return refuse("this number cannot be written so in JSON: write it with decimal digits, or in quotes if it is a text")
	case tag == "!!int" || tag == "!!float":
		out.WriteString(n.Value)
	case plain && unclear.MatchString(n.Value):
		return refuse("some readers of YAML take this word for true or false: write true or false, or put it in quotes")
	default:
		writeText(out, n.Value)
	}
	return nil
}

func writeText(out *strings.Builder, text string) {
	raw, err := json.Marshal(text)
	if err != nil { // a string can always be written
		raw = []byte(`""`)
	}
	out.Write(raw)
}
