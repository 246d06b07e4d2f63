// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package glyph

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Plain returns a text in which a person sees nothing but what is there. These stand as escapes: what Visible does not
// show; letters that are written from right to left, since terminals reorder what stands around them; digits, letters and
// signs that look like those of ASCII; and of a word that mixes alphabets, or has only letters that look like Latin ones,
// every letter that is not ASCII. Texts in one alphabet stay readable, and ASCII stays as it is.
func Plain(text string) string {
	if isPlainASCII(text) {
		return text
	}
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 {
		word, length := nextWord(text)
		out = appendPlain(out, text[:length], word && deceives(text[:length]))
		text = text[length:]
	}
	return string(out)
}

// Digested returns a text of at most limit bytes as it is, and a longer one cut, with its length and the first 64 bits of
// its SHA-256 behind it, by which copies can be compared; a text that would not become shorter by that stays whole.
func Digested(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	cut := fmt.Sprintf("%s… [%d bytes, sha256 %s]", Cut(text, limit), len(text), hex.EncodeToString(sum[:8]))
	if len(cut) >= len(text) {
		return text
	}
	return cut
}

func isPlainASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r) }

// nextWord returns the length of the word that a text begins with, or of what stands before the next word.
func nextWord(text string) (word bool, length int) {
	first, _ := utf8.DecodeRuneInString(text)
	word = isWord(first)
	end := strings.IndexFunc(text, func(r rune) bool { return isWord(r) != word })
	if end < 0 {
		end = len(text)
	}
	return word, end
}

// maxMarks is how many marks in a row are shown on one letter: more cover the lines around it.
const maxMarks = 3

// appendPlain appends a word, or what stands between words; all tells that nothing beyond ASCII is shown of it.
func appendPlain(dst []byte, text string, all bool) []byte {
	base, marks := script(nil), 0
	for _, r := range text {
		switch {
		case unicode.IsMark(r):
			marks++
		default:
			base, marks = scriptOf(r), 0
		}
		if r >= utf8.RuneSelf && (all || marks > maxMarks || unicode.IsMark(r) && (base == nil || !unicode.Is(base, r)) || !plain(r)) || !Visible(r) {
			dst = AppendEscape(dst, r)
		} else {
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// script is the alphabet of a letter; nil is none that is shown.
type script = *unicode.RangeTable

// scripts are the alphabets in daily use that run from left to right.
var scripts = []script{
	unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Cyrillic, unicode.Greek,
	unicode.Armenian, unicode.Georgian, unicode.Ethiopic, unicode.Bengali, unicode.Devanagari, unicode.Gujarati, unicode.Gurmukhi,
	unicode.Kannada, unicode.Khmer, unicode.Lao, unicode.Malayalam, unicode.Myanmar, unicode.Oriya, unicode.Sinhala, unicode.Tamil,
	unicode.Telugu, unicode.Thai, unicode.Tibetan,
}

func scriptOf(r rune) script {
	for _, s := range scripts {
		if unicode.Is(s, r) {
			return s
		}
	}
	return nil
}

// eastAsian are the alphabets that are mixed in one word as a matter of course, also with Latin.
func eastAsian(s script) bool {
	return s == unicode.Han || s == unicode.Hiragana || s == unicode.Katakana || s == unicode.Hangul || s == unicode.Bopomofo
}

// likeLatin are the letters of other alphabets that look like ASCII ones.
const likeLatin = "асеһіјӏорѕухԁԛԝѵҽүԍьАВЕКМНОРСТУХІЈЅӀԌѴҮЗЬЅ" + // Cyrillic
	"αβγεηικνορτυχωϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳ" + // Greek
	"օոսցհյզգղռքՕՍՏԼՈԶ" // Armenian

// deceives tells whether a word may be read as another one: it mixes alphabets, or all of its letters look like Latin ones.
func deceives(word string) bool {
	var found script
	allLike, letters := true, false
	for _, r := range word {
		if !unicode.IsLetter(r) {
			continue
		}
		s := scriptOf(r)
		letters = true
		allLike = allLike && strings.ContainsRune(likeLatin, r)
		if s == nil || eastAsian(s) {
			continue // it looks like no letter of ASCII, or is not shown by itself
		}
		if found != nil && found != s {
			return true
		}
		found = s
	}
	return letters && allLike
}

const (
	// ownLatin are letters of living languages that are no ASCII letter with a mark, and look like none.
	ownLatin = "ßæœøðþđłħŋÆŒØÐÞĐŁĦŊẞ"
	// knownSigns are signs that stand for ASCII ones, and are told from them at a glance.
	knownSigns = "…，！？：；（）"
	// likeSigns are signs that look like ASCII ones.
	likeSigns = "‐‑‒−⁃∕⧸⟋╱⁄∖⧵⟍╲∣❘│￨∶։⁚‚‛′″․‹›⟨⟩"
)

// plain tells whether a visible character beyond ASCII is shown as itself, as far as it alone can tell.
func plain(r rune) bool {
	switch {
	case rightToLeft(r):
		return false
	case unicode.IsMark(r):
		return true // the letter before it decides
	case unicode.IsNumber(r):
		return false
	case unicode.IsLetter(r):
		return r == '\u30fc' || plainLetter(r)
	default:
		return strings.ContainsRune(knownSigns, r) || !strings.ContainsRune(likeSigns, r) && !isPlainASCII(norm.NFKC.String(string(r)))
	}
}

// plainLetter tells whether a letter is of an alphabet in use; a Latin one is shown if it is an ASCII letter with marks.
func plainLetter(r rune) bool {
	switch scriptOf(r) {
	case nil:
		return false
	case unicode.Latin:
		parts := norm.NFD.String(string(r))
		return strings.ContainsRune(ownLatin, r) || parts[0] < utf8.RuneSelf && len(parts) > 1
	default:
		return true
	}
}

func rightToLeft(r rune) bool {
	return 0x590 <= r && r <= 0x8ff || 0xfb1d <= r && r <= 0xfdff || 0xfe70 <= r && r <= 0xfeff ||
		0x10800 <= r && r <= 0x10fff || 0x1e800 <= r && r <= 0x1efff
}
