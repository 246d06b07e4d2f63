// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

const (
	// maxChanges is how many changes of one tool are told apart; the last one stands for the rest.
	maxChanges = 64
	// maxShown is how much of one text or value is shown, in bytes.
	maxShown = 160
	// maxPath is how much of a place is shown, in bytes.
	maxPath = 200
)

// Change is one difference between two definitions of a tool. Its parts are written by a stranger and are shown so that
// a person sees all that is there, on one line and in few bytes.
type Change struct {
	// Path is where the definitions differ, such as inputSchema.properties.bcc.
	Path string
	// Old and New are what stands there, or of a long text what differs; "" for nothing.
	Old, New string
	// member tells that a whole object or array came or went.
	member bool
}

// String is the change in a few words.
func (c Change) String() string {
	switch {
	case c.member && c.Old == "":
		return fmt.Sprintf("%s added (%s)", c.Path, c.New)
	case c.member && c.New == "":
		return fmt.Sprintf("%s removed (%s)", c.Path, c.Old)
	case c.Old == "":
		return fmt.Sprintf("%s absent → %s", c.Path, c.New)
	case c.New == "":
		return fmt.Sprintf("%s %s → absent", c.Path, c.Old)
	default:
		return fmt.Sprintf("%s: %s → %s", c.Path, c.Old, c.New)
	}
}

// Summary puts changes into one line of at most limit bytes, as many as fit; what is left out is counted.
func Summary(changes []Change, limit int) string {
	var line string
	for i, c := range changes {
		more := fmt.Sprintf("; and %d more", len(changes)-i)
		next := c.String()
		if i > 0 {
			next = line + "; " + next
		}
		room := limit
		if i+1 < len(changes) {
			room -= len(more)
		}
		if len(next) > room && i > 0 {
			return glyph.Clip(line+more, limit)
		}
		line = next
	}
	return glyph.Clip(line, limit)
}

// Diff returns how two definitions differ, in the order of their members; it is empty exactly if their digests are the
// same. It takes time linear in their size.
func Diff(old, new Descriptor) []Change {
	if old.Digest() == new.Digest() {
		return nil
	}
	return diffDocuments(old.Canonical(), new.Canonical())
}

// DiffText returns how two texts differ, such as a server's instructions; path says what they are.
func DiffText(path, old, new string) []Change {
	if old == new {
		return nil
	}
	oldPart, newPart := differing(old, new)
	return []Change{{Path: path, Old: oldPart, New: newPart}}
}

func diffDocuments(old, new []byte) []Change {
	was, _ := strictjson.Scan(old) // no definition reads as nothing
	is, _ := strictjson.Scan(new)
	var d differ
	d.value("", was, is)
	return d.changes
}

// differ collects changes.
type differ struct{ changes []Change }

func (d *differ) add(c Change) {
	c.Path = glyph.Clip(c.Path, maxPath)
	switch {
	case len(d.changes) < maxChanges-1:
		d.changes = append(d.changes, c)
	case len(d.changes) == maxChanges-1:
		d.changes = append(d.changes, Change{Path: "more", Old: "…", New: "…"})
	}
}

// full tells that nothing more is taken down.
func (d *differ) full() bool { return len(d.changes) == maxChanges }

// value compares two values in canonical form, of which equal ones are the same bytes.
func (d *differ) value(path string, was, is strictjson.Value) {
	switch {
	case d.full(), was.Exists() && is.Exists() && bytes.Equal(was.Raw(), is.Raw()):
	case path == "annotations" && isEmpty(was) != isEmpty(is):
		d.object(path, was, is) // each hint by itself, also where there were none at all
	case !was.Exists() || !is.Exists() || was.Kind() != is.Kind():
		d.replaced(path, was, is)
	case was.Kind() == strictjson.Object:
		d.object(path, was, is)
	case was.Kind() == strictjson.Array:
		d.array(path, was, is)
	case was.Kind() == strictjson.String:
		old, new := differing(was.Text(), is.Text())
		d.add(Change{Path: path, Old: old, New: new})
	default:
		d.replaced(path, was, is)
	}
}

// isEmpty tells whether there are no members.
func isEmpty(v strictjson.Value) bool {
	for range v.Members() {
		return false
	}
	return true
}

func (d *differ) replaced(path string, was, is strictjson.Value) {
	c := Change{Path: path, Old: describe(was), New: describe(is)}
	one := was
	if !was.Exists() {
		one = is
	}
	c.member = (!was.Exists() || !is.Exists()) && (one.Kind() == strictjson.Object || one.Kind() == strictjson.Array)
	d.add(c)
}

func (d *differ) object(path string, was, is strictjson.Value) {
	other := map[string]strictjson.Value{}
	for key, value := range is.Members() {
		other[key.Text()] = value
	}
	known := map[string]bool{}
	for key, value := range was.Members() {
		name := key.Text()
		known[name] = true
		d.value(join(path, name), value, other[name])
	}
	for key, value := range is.Members() {
		if name := key.Text(); !known[name] {
			d.value(join(path, name), strictjson.Value{}, value)
		}
	}
}

// array compares lists of scalars as the sets that they mostly are, and others by place.
func (d *differ) array(path string, was, is strictjson.Value) {
	old, oldScalar := elements(was)
	new, newScalar := elements(is)
	if !oldScalar || !newScalar {
		for i := range max(len(old), len(new)) {
			var a, b strictjson.Value
			if i < len(old) {
				a = old[i]
			}
			if i < len(new) {
				b = new[i]
			}
			d.value(path+"["+strconv.Itoa(i)+"]", a, b)
		}
		return
	}
	before := len(d.changes)
	d.missing(old, new, func(v strictjson.Value) Change { return Change{Path: path, Old: describe(v), member: true} })
	d.missing(new, old, func(v strictjson.Value) Change { return Change{Path: path, New: describe(v), member: true} })
	if len(d.changes) == before { // another order, or something twice
		a, b := apart(describeAll(old), describeAll(new), string(was.Raw()), string(is.Raw()))
		d.add(Change{Path: path, Old: a, New: b})
	}
}

// missing adds a change for each of the values that is not among the others.
func (d *differ) missing(values, others []strictjson.Value, change func(strictjson.Value) Change) {
	there := map[string]bool{}
	for _, v := range others {
		there[string(v.Raw())] = true
	}
	for _, v := range values {
		if raw := string(v.Raw()); !there[raw] {
			there[raw] = true
			d.add(change(v))
		}
	}
}

func elements(array strictjson.Value) (all []strictjson.Value, scalar bool) {
	scalar = true
	for v := range array.Elements() {
		all = append(all, v)
		scalar = scalar && v.Kind() != strictjson.Object && v.Kind() != strictjson.Array
	}
	return all, scalar
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,64}$`)

func join(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + quoted(glyph.Digested(key, 64)) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// describe says what a value is: scalars themselves, a schema its type, and of anything else its kind.
func describe(v strictjson.Value) string {
	switch v.Kind() {
	case strictjson.None:
		return ""
	case strictjson.String:
		return quoted(v.Text())
	case strictjson.Object:
		if kind := v.Get("type"); kind.Kind() == strictjson.String && kind.Text() != "" {
			return glyph.Clip(escaped(kind.Text()), maxShown)
		}
		return "object"
	case strictjson.Array:
		all, scalar := elements(v)
		if scalar {
			return describeAll(all)
		}
		return "array"
	default:
		return glyph.Digested(string(v.Raw()), maxShown)
	}
}

func describeAll(values []strictjson.Value) string {
	line := "["
	for i, v := range values {
		if i > 0 {
			line += ", "
		}
		if len(line) > maxShown {
			line += "…"
			break
		}
		line += describe(v)
	}
	return glyph.Clip(line+"]", maxShown)
}

// quoted shows a text in quotes, in at most maxShown bytes.
func quoted(text string) string {
	shown := escaped(glyph.Cut(text, maxShown))
	if limit := maxShown - len(`""`); len(shown) > limit || len(text) > maxShown {
		shown = glyph.Clip(shown+"…", limit)
	}
	return `"` + shown + `"`
}

func escaped(text string) string {
	return glyph.Plain(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text))
}

// differing returns the parts of two texts that are not the same, from the word before on; whole texts where they are
// short.
func differing(old, new string) (oldPart, newPart string) {
	const short, context = 80, 24
	if len(old) <= short && len(new) <= short {
		return apart(quoted(old), quoted(new), old, new)
	}
	from := 0
	for from < len(old) && from < len(new) && old[from] == new[from] {
		from++
	}
	from = wordBefore(old, max(from-context, 0))
	end := 0
	for end < len(old)-from && end < len(new)-from && old[len(old)-1-end] == new[len(new)-1-end] {
		end++
	}
	end = max(end-context, 0)
	return apart(part(old, from, end), part(new, from, end), old, new)
}

// apart adds to two texts that are shown alike what tells that they are not.
func apart(shownOld, shownNew, old, new string) (a, b string) {
	if shownOld != shownNew {
		return shownOld, shownNew
	}
	mark := func(text string) string { return " [sha256 " + DigestOf(text)[len("sha256:"):][:16] + "]" }
	return shownOld + mark(old), shownNew + mark(new)
}

// wordBefore returns where the word at i begins, if that is near, in any case the beginning of a character.
func wordBefore(text string, i int) int {
	const near = 24
	if at := strings.LastIndexByte(text[max(i-near, 0):i], ' '); at >= 0 {
		return max(i-near, 0) + at + 1
	}
	if i <= near {
		return 0
	}
	return len(glyph.Cut(text, i))
}

// part shows a text from a place to as many bytes before its end.
func part(text string, from, end int) string {
	middle := strings.ToValidUTF8(text[from:len(text)-end], "")
	shown := quoted(middle)
	if from > 0 {
		shown = `"…` + shown[1:]
	}
	if end > 0 && len(middle) <= maxShown {
		shown = shown[:len(shown)-1] + `…"`
	}
	return shown
}
