// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// maxForeseen is what a request can hold of a preview, in bytes.
const maxForeseen = 2 << 10

// foreseen is what a server says that a call would affect.
type foreseen struct {
	text   string // as people are shown it
	digest string // of the whole
}

// foresight reads the result of a preview. What is no plain success is no preview.
func foresight(raw []byte) (foreseen, error) {
	result, err := strictjson.Scan(raw)
	if err != nil || result.Kind() != strictjson.Object {
		return foreseen{}, errors.New("the answer cannot be read beyond doubt")
	}
	content, structured := result.Get("content"), result.Get("structuredContent")
	text := textOf(content)
	if wire.IsError(result) {
		return foreseen{}, fmt.Errorf("the tool failed and says: %s", quoted(glyph.Clip(text, maxFailure/2)))
	}
	if kind := result.Get("resultType"); kind.Exists() && !kind.Is("complete") {
		return foreseen{}, errors.New("the tool does not answer in one round")
	}
	whole := []byte("{")
	if content.Exists() {
		whole = append(append(whole, `"content":`...), content.Raw()...)
	}
	if structured.Exists() {
		if content.Exists() {
			whole = append(whole, ',')
		}
		whole = append(append(whole, `"structuredContent":`...), structured.Raw()...)
		if text == "" {
			canonical, err := strictjson.Canonical(structured.Raw())
			if err != nil {
				return foreseen{}, errors.New("the answer cannot be read beyond doubt")
			}
			text = string(canonical)
		}
	}
	if strings.TrimSpace(text) == "" {
		return foreseen{}, errors.New("the answer has no text")
	}
	canonical, err := strictjson.Canonical(append(whole, '}'))
	if err != nil {
		return foreseen{}, errors.New("the answer cannot be read beyond doubt")
	}
	sum := sha256.Sum256(canonical)
	return foreseen{text: bounded(text), digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// textOf joins the texts of a result.
func textOf(content strictjson.Value) string {
	if content.Kind() != strictjson.Array {
		return ""
	}
	var texts []string
	for block := range content.Elements() {
		if text := block.Get("text"); block.Get("type").Is("text") && text.Kind() == strictjson.String {
			texts = append(texts, text.Text())
		}
	}
	return strings.Join(texts, "\n")
}

// bounded returns a text with escapes for what a person does not see as itself. What a request cannot hold is cut, between
// characters and escapes, and a mark says so.
func bounded(text string) string {
	whole := glyph.Escaped(text)
	if len(whole) <= maxForeseen {
		return whole
	}
	mark := fmt.Sprintf("… [cut: the answer has %d bytes of text]", len(text))
	out, end := make([]byte, 0, maxForeseen+16), 0
	for _, r := range text {
		out = glyph.AppendVisible(out, r)
		if len(out) > maxForeseen-len(mark) {
			break
		}
		end = len(out)
	}
	return string(out[:end]) + mark
}
