// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Entry is a tool of a list, and the server that the list says it is of.
type Entry struct {
	// Server is the member "server" of the line or list; empty where there is none.
	Server string
	Descriptor
}

// ParseList reads tools from a file: a tools/list result, the whole JSON-RPC
// response around one, an array of tools, or one of these or a tool a line. The
// error says where the file went wrong and what was expected there.
func ParseList(data []byte) ([]Entry, error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, errors.New("the file begins with a byte order mark: save it as UTF-8 without one")
	}
	var entries []Entry
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var document json.RawMessage
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: not valid JSON: %w", position(data, syntaxOffset(err, decoder)), err)
		}
		at := position(data, decoder.InputOffset()-int64(len(document)))
		found, err := parseDocument(document, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		entries = append(entries, found...)
	}
	if len(entries) == 0 {
		return nil, errors.New("the file holds no tool: a tools/list result, an array of tools or a tool a line was expected")
	}
	return entries, nil
}

// parseDocument reads one JSON value of a file; server is what the values around it said.
func parseDocument(document json.RawMessage, server string) ([]Entry, error) {
	switch document[0] {
	case '[':
		return parseTools(document, server)
	case '{':
	default:
		return nil, errors.New("a tool or a list of tools was expected, and this is neither an object nor an array")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, err
	}
	server, err := serverOf(members, server)
	switch {
	case err != nil:
		return nil, err
	case members["name"] != nil:
		entry, err := parseEntry(document, members, server)
		return []Entry{entry}, err
	case members["tools"] != nil:
		return parseTools(members["tools"], server)
	case members["result"] != nil:
		return parseDocument(members["result"], server)
	case members["error"] != nil:
		return nil, errors.New("this is an error answer of the server: ask it for tools/list again")
	}
	return nil, errors.New(`this object has neither "tools" nor "result" nor the "name" of a tool`)
}

func parseTools(list json.RawMessage, server string) ([]Entry, error) {
	var tools []json.RawMessage
	if err := json.Unmarshal(list, &tools); err != nil {
		return nil, errors.New(`the tools are not an array of objects`)
	}
	entries := make([]Entry, 0, len(tools))
	for i, raw := range tools {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil || members["name"] == nil {
			return nil, fmt.Errorf(`tool %d of the list is not an object with a "name"`, i+1)
		}
		own, err := serverOf(members, server)
		if err != nil {
			return nil, fmt.Errorf("tool %d of the list: %w", i+1, err)
		}
		entry, err := parseEntry(raw, members, own)
		if err != nil {
			return nil, fmt.Errorf("tool %d of the list: %w", i+1, err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

func serverOf(members map[string]json.RawMessage, server string) (string, error) {
	if raw := members["server"]; raw != nil {
		if err := json.Unmarshal(raw, &server); err != nil {
			return "", errors.New(`the member "server" is not a string`)
		}
	}
	return server, nil
}

// parseEntry reads one tool. What the writer of the file put beside the words of
// the server is no part of them: the digest must be the one that discovery finds.
func parseEntry(raw json.RawMessage, members map[string]json.RawMessage, server string) (Entry, error) {
	descriptor, err := Parse(raw)
	if err != nil {
		return Entry{}, err
	}
	if members["server"] != nil {
		said := map[string]json.RawMessage{}
		for _, key := range protocolMembers {
			if value, ok := members[key]; ok {
				said[key] = value
			}
		}
		if raw, err = json.Marshal(said); err != nil {
			return Entry{}, err
		}
		if descriptor, err = Parse(raw); err != nil {
			return Entry{}, err
		}
	}
	return Entry{Server: server, Descriptor: descriptor}, nil
}

// protocolMembers are the members of a tool in the MCP specification.
var protocolMembers = []string{
	"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta",
}

// syntaxOffset returns the byte at which decoding stopped.
func syntaxOffset(err error, decoder *json.Decoder) int64 {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return max(syntax.Offset-1, 0)
	}
	return decoder.InputOffset()
}

func position(data []byte, offset int64) string {
	offset = min(offset, int64(len(data)))
	return fmt.Sprintf("line %d (byte %d)", bytes.Count(data[:offset], []byte("\n"))+1, offset)
}
