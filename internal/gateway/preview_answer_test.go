// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

func TestAnAnswerIsShownWithinBoundsAndAsItIs(t *testing.T) {
	t.Parallel()
	text := func(s string) string { return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, s) }
	for name, tc := range map[string]struct{ answer, want string }{
		"texts":               {`{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}`, `a\u000ab`},
		"no text, structured": {`{"content":[],"structuredContent":{"b":1,"a":[2]}}`, `{"a":[2],"b":1}`},
		"hostile letters":     {`{"content":[{"type":"text","text":"\u001b[2J\u202e\r"}]}`, `\u001b[2J\u202e\u000d`},
		"what fits":           {text(strings.Repeat("x", maxForeseen)), strings.Repeat("x", maxForeseen)},
	} {
		got, err := foresight([]byte(tc.answer))
		if err != nil || got.text != tc.want {
			t.Errorf("%s: got %q, %v", name, got.text, err)
		}
	}
	long := strings.Repeat("ж\u001b", maxForeseen)
	got, err := foresight([]byte(`{"content":[{"type":"text","text":"` + strings.ReplaceAll(long, "\u001b", `\u001b`) + `"}]}`))
	if err != nil || len(got.text) > maxForeseen || !utf8.ValidString(got.text) || !strings.HasSuffix(got.text, fmt.Sprintf("[cut: the answer has %d bytes of text]", len(long))) {
		t.Errorf("got %q, %v", got.text, err)
	}
	cut, err := foresight([]byte(text(strings.Repeat("x", 5000) + "y")))
	twin, errTwin := foresight([]byte(text(strings.Repeat("x", 5000) + "z")))
	if err != nil || errTwin != nil || cut.text != twin.text || cut.digest == twin.digest {
		t.Error("the digest is not of the whole")
	}
}

func FuzzForesight(f *testing.F) {
	f.Add([]byte(rows(1)))
	f.Add([]byte(`{"content":[{"type":"text","text":"\u202e"}],"structuredContent":{"a":1e9},"isError":false}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		seen, err := foresight(raw)
		if (err == nil) != (seen.digest != "" && seen.text != "") || len(seen.text) > maxForeseen {
			t.Fatalf("%+v, %v", seen, err)
		}
		for _, r := range seen.text {
			if !glyph.Visible(r) {
				t.Fatalf("%q is shown", r)
			}
		}
	})
}
