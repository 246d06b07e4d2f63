// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// ReservedPrefix starts the _meta keys that only the gateway may write to a client.
const ReservedPrefix = "tidewaiter.dev/"

// ToolsList is a response that carries a list of tools. It refers to the message it was read from.
type ToolsList struct {
	Tools []ListedTool

	message       []byte
	result, array strictjson.Value
}

// ListedTool is one entry of a list of tools.
type ListedTool struct {
	// Name of the tool, unescaped.
	Name string
	// Raw is the whole entry as the server sent it.
	Raw []byte

	value strictjson.Value
}

// Note is a member of _meta that the gateway adds to an entry. Both parts are valid UTF-8.
type Note struct{ Key, Value string }

// ScanToolsList reads one message of a server. It tells whether the message is a response with result.tools; on an error
// nobody can tell what a client would read in it, and it must be withheld.
func ScanToolsList(message []byte) (list ToolsList, found bool, err error) {
	result, err := scanResponse(message)
	if err != nil {
		return ToolsList{}, false, err
	}
	for key, value := range result.Members() {
		switch {
		case key.Is("tools"):
			list.array = value
		case resembles(key.Text(), "tools"):
			return ToolsList{}, false, errors.New("read a list of tools: a member of the result resembles tools")
		}
	}
	if !list.array.Exists() {
		return ToolsList{}, false, nil
	}
	if list.array.Kind() != strictjson.Array {
		return ToolsList{}, false, errors.New("read a list of tools: result.tools is not an array")
	}
	list.message, list.result = message, result
	for entry := range list.array.Elements() {
		name, err := entryName(entry)
		if err != nil {
			return ToolsList{}, false, fmt.Errorf("read entry %d of a list of tools: %w", len(list.Tools), err)
		}
		list.Tools = append(list.Tools, ListedTool{Name: name, Raw: entry.Raw(), value: entry})
	}
	return list, true, nil
}

// scanObject reads a message of a server strictly.
func scanObject(message []byte) (strictjson.Value, error) {
	doc, err := strictjson.Scan(message)
	if err != nil {
		return strictjson.Value{}, fmt.Errorf("read a message of the server: %w", err)
	}
	if doc.Kind() != strictjson.Object {
		return strictjson.Value{}, errors.New("read a message of the server: not an object")
	}
	return doc, nil
}

// scanResponse reads a message of a server strictly; the result does not exist if it is no response with one.
func scanResponse(message []byte) (result strictjson.Value, err error) {
	doc, err := scanObject(message)
	if err != nil {
		return strictjson.Value{}, err
	}
	env, problem := readEnvelope(doc)
	if problem != "" {
		return strictjson.Value{}, fmt.Errorf("read a message of the server: %s", problem)
	}
	return env.result, nil
}

func entryName(entry strictjson.Value) (string, error) {
	var name string
	for key, value := range entry.Members() {
		switch {
		case key.Is("name"):
			name = value.Text()
		case resembles(key.Text(), "name"):
			return "", errors.New("a member resembles name")
		}
	}
	if name == "" {
		return "", errors.New("no name")
	}
	return name, nil
}

// Rewrite returns the message with the entries that keep says to keep, in their order, each with its notes in _meta.
// Members of _meta that start with ReservedPrefix are dropped, and a public cacheScope becomes private, since the list
// now depends on who asks. Every other byte stays as it is.
func (l ToolsList) Rewrite(keep func(ListedTool) (notes []Note, ok bool)) []byte {
	const notesOfEntry = 96 // about what the gateway says of one
	out := make([]byte, 0, len(l.message)+notesOfEntry*len(l.Tools))
	at := 0
	for key, value := range l.result.Members() {
		isTools, isMeta := key.Is("tools"), key.Is("_meta") && hasReserved(value)
		if !isTools && !isMeta && !key.Is("cacheScope") {
			continue
		}
		out = append(out, l.message[at:value.Start()]...)
		at = value.End()
		switch {
		case isTools:
			out = l.appendKept(out, keep)
		case isMeta:
			out = appendMeta(out, value, nil)
		default:
			out = append(out, `"private"`...)
		}
	}
	return append(out, l.message[at:]...)
}

// appendKept appends the array of the entries that keep says to keep.
func (l ToolsList) appendKept(dst []byte, keep func(ListedTool) (notes []Note, ok bool)) []byte {
	dst = append(dst, '[')
	start := len(dst)
	for _, entry := range l.Tools {
		notes, ok := keep(entry)
		if !ok {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = appendNoted(dst, entry.value, notes)
	}
	return append(dst, ']')
}

// appendNoted appends an object with notes added to its _meta.
func appendNoted(dst []byte, object strictjson.Value, notes []Note) []byte {
	meta := object.Get("_meta")
	raw := object.Raw()
	switch {
	case len(notes) == 0 && !hasReserved(meta):
		return append(dst, raw...)
	case meta.Exists():
		dst = append(dst, raw[:meta.Start()-object.Start()]...)
		dst = appendMeta(dst, meta, notes)
		return append(dst, raw[meta.End()-object.Start():]...)
	}
	// An entry has a name, so there is a member to put a comma behind.
	dst = append(append(dst, raw[:len(raw)-1]...), `,"_meta":`...)
	dst = appendMeta(dst, meta, notes)
	return append(dst, '}')
}

// appendMeta appends a _meta object without what is reserved, and with notes.
func appendMeta(dst []byte, meta strictjson.Value, notes []Note) []byte {
	dst = append(dst, '{')
	start := len(dst)
	comma := func() {
		if len(dst) > start {
			dst = append(dst, ',')
		}
	}
	for key, value := range meta.Members() {
		if strings.HasPrefix(key.Text(), ReservedPrefix) {
			continue
		}
		comma()
		dst = append(append(append(dst, key.Raw()...), ':'), value.Raw()...)
	}
	for _, note := range notes {
		comma()
		dst = append(strictjson.AppendString(dst, note.Key), ':')
		dst = strictjson.AppendString(dst, note.Value)
	}
	return append(dst, '}')
}

func hasReserved(meta strictjson.Value) bool {
	for key := range meta.Members() {
		if strings.HasPrefix(key.Text(), ReservedPrefix) {
			return true
		}
	}
	return false
}

// DropReserved returns a server's message without the members of result._meta that only the gateway may write; it is the
// message itself if there are none. On an error nobody can tell what a client would read in it.
func DropReserved(message []byte) ([]byte, error) {
	result, err := scanResponse(message)
	if err != nil {
		return nil, err
	}
	meta := result.Get("_meta")
	if resemblesMember(result, "_meta") {
		return nil, errors.New("read a message of the server: a member of the result resembles _meta")
	}
	if !hasReserved(meta) {
		return message, nil
	}
	out := append([]byte(nil), message[:meta.Start()]...)
	out = appendMeta(out, meta, nil)
	return append(out, message[meta.End():]...), nil
}
