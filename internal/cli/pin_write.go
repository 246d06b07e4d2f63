// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/manifest"
)

// maxPins is how many pins a policy can have.
const maxPins = 1024

// writePins prints a policy that pins everything that the server says now.
func (o *pinOptions) writePins(ctx context.Context, server *v1alpha1.GovernedServer) error {
	pins := currentPins(server)
	switch {
	case len(pins) == 0:
		return notDone("%s lists no tools and gives no instructions: there is nothing to pin", server.Name)
	case len(pins) > maxPins:
		return notDone("%s has %d definitions, and a policy has room for %d pins", server.Name, len(pins), maxPins)
	case len(o.files) > 0:
		return o.rewrite(ctx, server, pins)
	}
	entries := make([]any, 0, len(pins))
	for _, pin := range pins {
		entries = append(entries, pinEntry(pin))
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"targets": []any{server.Name}, "pins": entries}}}
	policy.SetGroupVersionKind(policyKind)
	policy.SetNamespace(server.Namespace)
	policy.SetName(cmp.Or(o.name, server.Name+"-pins"))
	if o.forPeople() { // what is printed is for Git in any case
		yaml := "yaml"
		o.flags.OutputFormat = &yaml
		if err := o.complete(); err != nil {
			return err
		}
	}
	return o.object(o.Out, o.client, policy)
}

func pinEntry(pin v1alpha1.Pin) map[string]any {
	entry := map[string]any{"digest": pin.Digest}
	if pin.Tool != "" {
		entry["tool"] = pin.Tool
	}
	return entry
}

// rewrite prints the file with the pins of its policy brought up to date.
func (o *pinOptions) rewrite(ctx context.Context, server *v1alpha1.GovernedServer, pins []v1alpha1.Pin) error {
	files, err := readManifests(ctx, o.In, o.files, o.namespace)
	if err != nil {
		return err
	}
	found := files.targeting(server)
	if o.name != "" {
		found = slices.DeleteFunc(found, func(p linted) bool { return p.Policy.Name != o.name })
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(p linted) bool { return len(p.Policy.Spec.Pins) == 0 })
	}
	switch {
	case len(files.files) != 1:
		return notDone("%s is no file: --write brings one file up to date", glyph.Plain(o.files[0]))
	case len(found) != 1:
		return notDone("%s has %d policies that the pins of %s could stand in; name one with --name", glyph.Plain(o.files[0]), len(found), server.Name)
	case len(found[0].Policy.Spec.Targets) > 1:
		return notDone("ToolPolicy %s targets %s, and a pin accepts the same definition on all of them; give the pins of %s a policy of their own: "+
			"kubectl tidewaiter pin %s --write -n %s", found[0].Policy.Name, and(found[0].Policy.Spec.Targets), server.Name, server.Name, server.Namespace)
	}
	text, err := editPins(string(files.files[0].data), found[0], pins)
	if err != nil {
		return notDone("the pins of ToolPolicy %s in %s cannot be brought up to date in place: %v; "+
			"write them a line each, as kubectl tidewaiter pin %s --write does", found[0].Policy.Name, glyph.Plain(o.files[0]), err, server.Name)
	}
	if err := proveEdit(text, files.files[0], found[0], pins); err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

// editPins replaces digests in the text of a file, takes out the lines of pins that are wanted no more and adds lines
// for those that are new. All other lines stay as they are.
func editPins(text string, p linted, wanted []v1alpha1.Pin) (string, error) {
	e := pinEdit{lines: strings.SplitAfter(text, "\n"), document: p.Document, missing: map[string]string{}}
	for _, pin := range wanted {
		e.missing[pin.Tool] = pin.Digest
	}
	var err error
	for i, pin := range p.Policy.Spec.Pins {
		if digest, ok := e.missing[pin.Tool]; ok {
			err = e.replace(i, pin.Digest, digest)
			delete(e.missing, pin.Tool)
		} else {
			err = e.takeOut(i)
		}
		if err != nil {
			return "", err
		}
	}
	if err := e.add(len(p.Policy.Spec.Pins)); err != nil {
		return "", err
	}
	return strings.Join(e.lines, ""), nil
}

// pinEdit is a file whose pins are edited, line by line: a line that is taken out becomes empty, so that the places in
// the document stay true.
type pinEdit struct {
	lines    []string
	document *manifest.Document
	// missing are the digests that no pin has been found for yet, by tool.
	missing map[string]string
}

func (e *pinEdit) replace(i int, old, digest string) error {
	at, known := e.document.Inside(fmt.Sprintf("spec.pins[%d].digest", i), 1, 1)
	if !known {
		return fmt.Errorf("line %d: the digest is not written in one piece", at.Line)
	}
	line := []rune(e.lines[at.Line-1])
	before, rest := string(line[:at.Column-1]), string(line[at.Column-1:])
	behind, found := strings.CutPrefix(rest, old)
	if !found {
		return fmt.Errorf("line %d: the digest is not written in one piece", at.Line)
	}
	e.lines[at.Line-1] = before + digest + behind
	return nil
}

// place returns the first and the last line of a pin, from 1, and what stands before its first field.
func (e *pinEdit) place(i int) (first, last int, indent string, err error) {
	field := fmt.Sprintf("spec.pins[%d]", i)
	at := e.document.Place(field)
	first, last = at.Line, at.Line
	for _, member := range []string{".digest", ".tool"} {
		last = max(last, e.document.Place(field+member).Line)
	}
	before := string([]rune(e.lines[first-1])[:at.Column-1])
	if strings.TrimSpace(before) != "-" {
		return 0, 0, "", fmt.Errorf("line %d: the pin does not stand on a line of its own", first)
	}
	return first, last, before, nil
}

func (e *pinEdit) takeOut(i int) error {
	first, last, _, err := e.place(i)
	if err != nil {
		return err
	}
	for line := first; line <= last; line++ {
		e.lines[line-1] = ""
	}
	return nil
}

// add puts the pins that are missing behind the last one, or first into the spec.
func (e *pinEdit) add(pins int) error {
	if len(e.missing) == 0 {
		return nil
	}
	line, indent, head := 0, "", ""
	if pins > 0 {
		_, last, before, err := e.place(pins - 1)
		if err != nil {
			return err
		}
		line, indent = last, before
	} else {
		at := e.document.Place("spec")
		line = at.Line
		below := e.below(line)
		if below == "" || !strings.HasPrefix(strings.TrimSpace(e.lines[line-1]), "spec:") {
			return fmt.Errorf("line %d: the spec is not written a field a line", line)
		}
		if e.document.Place("spec.pins") != at {
			return fmt.Errorf("line %d: an empty list of pins stands there", e.document.Place("spec.pins").Line)
		}
		head, indent = below+"pins:\n", below+"- "
	}
	var added strings.Builder
	added.WriteString(head)
	for _, tool := range slices.Sorted(maps.Keys(e.missing)) {
		if tool == "" {
			fmt.Fprintf(&added, "%sdigest: %s\n", indent, e.missing[tool])
			continue
		}
		fmt.Fprintf(&added, "%sdigest: %s\n%stool: %s\n", indent, e.missing[tool], strings.Repeat(" ", len(indent)), yamlWord(tool))
	}
	if current := e.lines[line-1]; current != "" && !strings.HasSuffix(current, "\n") {
		e.lines[line-1] += "\n"
	}
	e.lines[line-1] += added.String()
	return nil
}

// plainWord matches a name that YAML reads as it is written, whatever its version.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_/.-]*$`)

// otherWords are words that some version of YAML reads as something else than a text.
var otherWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

// yamlWord writes a name so that YAML reads it as a text.
func yamlWord(name string) string {
	if plainWord.MatchString(name) && !slices.Contains(otherWords, strings.ToLower(name)) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// below returns the white space before what follows a line, "" where that stands no deeper.
func (e *pinEdit) below(line int) string {
	for _, text := range e.lines[min(line, len(e.lines)):] {
		if content := strings.TrimLeft(text, " "); strings.TrimSpace(content) != "" && content[0] != '#' {
			return text[:len(text)-len(content)]
		}
	}
	return ""
}

// proveEdit reads the edited text as the API server would, and makes sure that it says what it should and nothing else
// has changed.
func proveEdit(text string, file sourceFile, p linted, wanted []v1alpha1.Pin) error {
	before, _ := manifest.Read(file.data)
	after, problems := manifest.Read([]byte(text))
	if len(problems) > 0 || len(before) != len(after) {
		return notDone("the pins of ToolPolicy %s cannot be brought up to date in place; edit them by hand", p.Policy.Name)
	}
	for i := range after {
		pins, _, _ := unstructured.NestedSlice(after[i].Value, "spec", "pins")
		isIt := before[i].Text("kind") == "ToolPolicy" && before[i].Text("metadata", "name") == p.Policy.Name
		if isIt {
			unstructured.RemoveNestedField(before[i].Value, "spec", "pins")
			unstructured.RemoveNestedField(after[i].Value, "spec", "pins")
		}
		if !equality.Semantic.DeepEqual(before[i].Value, after[i].Value) || isIt && !samePins(pins, wanted) {
			return notDone("the pins of ToolPolicy %s cannot be brought up to date in place; edit them by hand", p.Policy.Name)
		}
	}
	return nil
}

// samePins compares pins in any order.
func samePins(pins []any, wanted []v1alpha1.Pin) bool {
	for _, pin := range pins {
		entry, _ := pin.(map[string]any)
		if !slices.ContainsFunc(wanted, func(w v1alpha1.Pin) bool { return equality.Semantic.DeepEqual(pinEntry(w), entry) }) {
			return false
		}
	}
	return len(pins) == len(wanted)
}
