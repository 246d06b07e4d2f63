// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

const (
	// MaxShown is how many bytes of arguments a person is shown.
	MaxShown = 8 << 10
	// maxScalar is how many bytes a scalar may have to be shown.
	maxScalar = 256
	// maxKey is how many bytes a key may have to be shown whole.
	maxKey = 128
	// HiddenMark starts what stands in the place of what is hidden. A text of the caller's that starts like it is
	// hidden too, so that every mark a person sees is genuine.
	HiddenMark = "[hidden: "
)

// Masked is what a person sees of a call's arguments. It is made of their canonical form: every spelling of the same
// arguments looks the same.
type Masked struct {
	// Text is JSON of at most MaxShown bytes, every key and value of the arguments or a mark in its place; "" if there
	// are no arguments. What does not print or turns the direction of text is escaped.
	Text string
	// Size is the length of the arguments' canonical form in bytes.
	Size int
	// Fits is false if something is hidden that may change what the call does: the whole did not fit, or it is under a
	// secret-looking key, looks like a secret, is a long text of code, or is a key. Long prose alone is hidden and fits.
	Fits bool
	// Summary says in words what is hidden, "" if nothing is.
	Summary string
}

// Mask shows arguments to a person. The error is that of arguments that are no strict JSON.
//
// A mark gives length and SHA-256 of what it stands for: of a string its text, of everything else its canonical JSON.
// The digest of a text is cut to 64 bits, enough to compare with a copy. That of a secret is cut to 16: enough to see
// that it is not the one of last time, too little to confirm a guess of a short one. (Who reads the action hash can
// still confirm a guess of everything that is hidden at once; what is short enough to guess is not protected by hiding.)
func Mask(arguments []byte) (Masked, error) {
	if len(arguments) == 0 {
		return Masked{Fits: true}, nil
	}
	canonical, err := strictjson.Canonical(arguments)
	if err != nil {
		return Masked{}, fmt.Errorf("read the arguments: %w", err)
	}
	v, err := strictjson.Scan(canonical)
	if err != nil {
		return Masked{}, fmt.Errorf("read the canonical arguments: %w", err)
	}
	return maskValue(v), nil
}

// maskValue masks arguments in canonical form.
func maskValue(v strictjson.Value) Masked {
	var h hidden
	text := h.appendMembers(v)
	size := len(v.Raw())
	h.oversize = size > MaxShown
	return Masked{Text: string(text), Size: size, Fits: h.harmless(), Summary: h.summary(size)}
}

// part is a rendered member of the arguments.
type part struct {
	key, value strictjson.Value
	text       []byte
}

// appendMembers renders the arguments. If they do not fit, the largest members give way to marks first, so that small
// ones behind a lot of filler are still seen.
func (h *hidden) appendMembers(v strictjson.Value) []byte {
	if v.Kind() != strictjson.Object {
		text := h.appendValue(nil, v)
		if len(text) > MaxShown {
			h.large++
			return appendMark(nil, v, "too large", 16)
		}
		return text
	}
	var parts []part
	total, rest := len("{}"), 0
	for key, value := range v.Members() {
		if len(parts) == maxParts {
			rest++ // nobody will see it: what stands before it fills the room
			continue
		}
		p := part{key: key, value: value, text: h.appendMember(nil, key, value)}
		total += len(p.text) + len(",")
		parts = append(parts, p)
	}
	bySize := make([]*part, len(parts))
	for i := range parts {
		bySize[i] = &parts[i]
	}
	slices.SortStableFunc(bySize, func(a, b *part) int { return len(b.text) - len(a.text) })
	for _, p := range bySize {
		if total <= MaxShown {
			break
		}
		short := appendMark(append(h.appendKey(nil, p.key), ':'), p.value, "too large", 16)
		if len(short) >= len(p.text) {
			break
		}
		h.large++
		total -= len(p.text) - len(short)
		p.text = short
	}
	return h.join(parts, rest, total)
}

// maxParts is how many members of the least size fit into MaxShown. Who calls could send hundreds of thousands, and all
// that comes behind these costs nothing but its count.
const maxParts = MaxShown / len(`"":0,`)

// join writes the members one behind the other, and in the place of the last ones, if they do not fit, how many they
// are; rest is the number of those that are not among the parts.
func (h *hidden) join(parts []part, rest, total int) []byte {
	const reserve = 128 // for the last mark
	out := []byte{'{'}
	for i, p := range parts {
		if (total > MaxShown || rest > 0) && len(out)+len(p.text) > MaxShown-reserve {
			return h.appendRest(out, len(parts)-i+rest)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p.text...)
	}
	if rest > 0 {
		return h.appendRest(out, rest)
	}
	return append(out, '}')
}

// appendRest ends an object with the number of the members that are not shown.
func (h *hidden) appendRest(out []byte, count int) []byte {
	h.members += count
	if len(out) > len("{") {
		out = append(out, ',')
	}
	return fmt.Appendf(out, `"%s%d more members]":null}`, HiddenMark, count)
}

func (h *hidden) appendMember(dst []byte, key, value strictjson.Value) []byte {
	dst = append(h.appendKey(dst, key), ':')
	name := key.Text()
	switch {
	case isEmpty(value) || value.Kind() == strictjson.Bool:
		return h.appendValue(dst, value)
	case secretKey(name):
		h.secrets++
		return appendMark(dst, value, "secret", 4)
	}
	outside := h.inCode
	h.inCode = outside || codeKey(name)
	dst = h.appendValue(dst, value)
	h.inCode = outside
	return dst
}

// isEmpty tells whether v holds nothing to hide.
func isEmpty(v strictjson.Value) bool {
	return v.Kind() == strictjson.Null || len(v.Raw()) <= 2 && v.Kind() != strictjson.Number
}

func (h *hidden) appendKey(dst []byte, key strictjson.Value) []byte {
	text := key.Text()
	if len(text) <= maxKey && !strings.HasPrefix(text, HiddenMark) {
		return appendVisible(dst, text)
	}
	h.keys++
	return appendMark(dst, key, "key", 16)
}

func (h *hidden) appendValue(dst []byte, v strictjson.Value) []byte {
	if len(dst) > MaxShown {
		return dst // it will not be shown, so it need not be written
	}
	switch v.Kind() {
	case strictjson.Object:
		first := true
		dst = append(dst, '{')
		for key, value := range v.Members() {
			if len(dst) > MaxShown {
				break
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = h.appendMember(dst, key, value)
		}
		return append(dst, '}')
	case strictjson.Array:
		first := true
		dst = append(dst, '[')
		for element := range v.Elements() {
			if len(dst) > MaxShown {
				break
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = h.appendValue(dst, element)
		}
		return append(dst, ']')
	case strictjson.String:
		return h.appendText(dst, v)
	default:
		if len(v.Raw()) > maxScalar {
			h.texts++
			return appendMark(dst, v, "number", 16)
		}
		return append(dst, v.Raw()...)
	}
}

func (h *hidden) appendText(dst []byte, v strictjson.Value) []byte {
	text := v.Text()
	switch {
	case secretShaped(text):
		h.secrets++
		return appendMark(dst, v, "secret", 4)
	case len(text) > maxScalar && h.inCode:
		h.codes++
		return appendMark(dst, v, "code", 16)
	case len(text) > maxScalar || strings.HasPrefix(text, HiddenMark):
		h.texts++
		return appendMark(dst, v, "text", 16)
	}
	return appendVisible(dst, text)
}

// appendMark appends what stands in the place of v.
func appendMark(dst []byte, v strictjson.Value, what string, digits int) []byte {
	content := v.Raw()
	if v.Kind() == strictjson.String {
		content = v.AppendText(nil)
	}
	sum := sha256.Sum256(content)
	return fmt.Appendf(dst, `"%s%s, %d bytes, sha256 %s]"`, HiddenMark, what, len(content), hex.EncodeToString(sum[:])[:digits])
}

// hidden counts what a person does not see.
type hidden struct {
	secrets, codes, keys, large, members, texts int
	oversize                                    bool
	// inCode is true below a key whose texts are run.
	inCode bool
}

func (h hidden) harmless() bool {
	return h.secrets+h.codes+h.keys+h.large+h.members == 0 && !h.oversize
}

func (h hidden) summary(size int) string {
	var parts []string
	for _, p := range []struct {
		count     int
		one, many string
	}{
		{h.secrets, "1 value that looks secret", "%d values that look secret"},
		{h.codes, "1 long text of code", "%d long texts of code"},
		{h.keys, "1 long key", "%d long keys"},
		{h.large, "1 value too large to show", "%d values too large to show"},
		{h.members, "1 further member", "%d further members"},
		{h.texts, "1 long text", "%d long texts"},
	} {
		switch {
		case p.count == 1:
			parts = append(parts, p.one)
		case p.count > 1:
			parts = append(parts, fmt.Sprintf(p.many, p.count))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s hidden, of %d bytes of arguments", strings.Join(parts, ", "), size)
}
