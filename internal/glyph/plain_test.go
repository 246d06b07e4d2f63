// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package glyph_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

func TestPlainShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"ASCII":                                {"pay 100 to acc_991: (x|y) ~\\u0061", "pay 100 to acc_991: (x|y) ~\\u0061"},
		"words in one alphabet":                {"Größe, déjà vu, việc, Ředitel, ångström", "Größe, déjà vu, việc, Ředitel, ångström"},
		"Russian":                              {"удалить все записи", "удалить все записи"},
		"Greek":                                {"διαγραφή όλων", "διαγραφή όλων"},
		"Chinese, Japanese and Korean":         {"删除所有记录，谢谢！PDFファイルを全て削除 한국어", "删除所有记录，谢谢！PDFファイルを全て削除 한국어"},
		"Hindi and Thai with their marks":      {"सभी हटाएं ลบทั้งหมด", "सभी हटाएं ลบทั้งหมด"},
		"prose of a machine":                   {"it’s “done” – and 😀 sent…", "it’s “done” – and 😀 sent…"},
		"an escape sequence":                   {"\x1b[2Kgone\r", `\u001b[2Kgone\u000d`},
		"a single byte that begins a sequence": {"a\u009b2J", `a\u009b2J`},
		"a text that is turned round":          {"a\u202egnp.exe\u2066", `a\u202egnp.exe\u2066`},
		"what nobody sees":                     {"pay\u200b \u00a0\ufeff\u00ad\u2060", `pay\u200b \u00a0\ufeff\u00ad\u2060`},
		"letters from right to left":           {"10 שלום 20", `10 \u05e9\u05dc\u05d5\u05dd 20`},
		"signs from right to left":             {"1\u05be2\u061f3", `1\u05be2\u061f3`},
		"a Cyrillic letter in a Latin word":    {"p\u0430yroll", `p\u0430yroll`},
		"a Latin letter in a Cyrillic word":    {"\u0443даліть a\u0443", `удаліть a\u0443`},
		"a Greek letter in a Latin word":       {"g\u03bfogle.com", `g\u03bfogle.com`},
		"a Cyrillic word that reads as Latin":  {"\u0440\u0430\u0443", `\u0440\u0430\u0443`},
		"a Greek word that reads as Latin":     {"\u039d\u039f\u03a4", `\u039d\u039f\u03a4`},
		"letters of mathematics":               {"\U0001d429\U0001d41a\U0001d432", `\ud835\udc29\ud835\udc1a\ud835\udc32`},
		"letters of full width":                {"ｄｅｌｅｔｅ", `\uff44\uff45\uff4c\uff45\uff54\uff45`},
		"letters of phonetics":                 {"ɡet\u0131 ʟist", `\u0261et\u0131 \u029fist`},
		"the letters of a sign":                {"K\u212a ſ\u017f", `K\u212a \u017f\u017f`},
		"digits of other alphabets":            {"৪৪ ٣ ２ ²", `\u09ea\u09ea \u0663 \uff12 \u00b2`},
		"signs that look like ASCII":           {"a\u2215b c\u2010d e\u2024f", `a\u2215b c\u2010d e\u2024f`},
		"a mark on an ASCII letter":            {"a\u0338b\u20e3", `a\u0338b\u20e3`},
		"marks without end":                    {"ก" + strings.Repeat("\u0e49", 5), "ก" + strings.Repeat("\u0e49", 3) + `\u0e49\u0e49`},
		"an alphabet that nobody writes":       {"\u13a0\u13a1", `\u13a0\u13a1`},
		"bytes that are no text":               {"a\xff\xc0b", "a\ufffd\ufffdb"},
		"tags":                                 {"a\U000e0041", `a\udb40\udc41`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := glyph.Plain(tc.text); got != tc.want {
				t.Errorf("Plain(%+q) is\n%+q, want\n%+q", tc.text, got, tc.want)
			}
		})
	}
}

func TestWhatIsCutHasItsLengthAndDigest(t *testing.T) {
	t.Parallel()
	if got := glyph.Digested("cranes", 6); got != "cranes" {
		t.Errorf("a text that fits is %q", got)
	}
	cranes := strings.Repeat("cranes", 10)
	const want = "cra… [60 bytes, sha256 0f0471f0d82fa2a1]"
	if got := glyph.Digested(cranes, 3); got != want {
		t.Errorf("a text that does not fit is %q, want %q", got, want)
	}
	if glyph.Digested(cranes, 3) == glyph.Digested(cranes[:59]+"t", 3) {
		t.Error("two texts look the same")
	}
	for length := range 100 {
		if got := glyph.Digested(cranes[:min(length, 60)], 20); len(got) > length && length <= 60 {
			t.Errorf("a text of %d bytes becomes one of %d: %q", length, len(got), got)
		}
	}
}

// checkPlain tells what of a plain text could deceive.
func checkPlain(t interface {
	Errorf(format string, args ...any)
}, text string) {
	if !utf8.ValidString(text) {
		t.Errorf("%+q is no UTF-8", text)
	}
	for _, r := range text {
		if r < ' ' || r > '~' && (!unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Cf, r) ||
			unicode.Is(unicode.Hebrew, r) || unicode.Is(unicode.Arabic, r) || unicode.IsDigit(r)) {
			t.Errorf("%U is left in %+q", r, text)
		}
	}
}

func TestPlainIsPlainWhateverTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.StringOf(rapid.SampledFrom([]rune("aоpр\u0301\u0e49กא1٣\x1b\u202e\u200bé漢ー-_. "))),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(t, "text")
		checkPlain(t, glyph.Plain(text))
		checkPlain(t, glyph.Plain(glyph.Digested(text, rapid.IntRange(0, 40).Draw(t, "limit"))))
	})
}

func FuzzPlain(f *testing.F) {
	for _, text := range []string{"pay", "p\u0430y", "\x1b[2J", "\xff", "שלום", "ก\u0e49\u0e49\u0e49\u0e49"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkPlain(t, glyph.Plain(text)) })
}
