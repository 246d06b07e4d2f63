// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery lists the tools of an MCP server through an MCP client, within bounds and with stable errors. It calls
// a tool only where it is told to.
package discovery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// maxTools is how many tools of a server are kept.
	maxTools = 1000
	// maxPages is how many pages of a list are read.
	maxPages = 200
	// maxAnswer is how long one answer may be, in bytes.
	maxAnswer = 8 << 20
	// maxListing is how long all answers of one listing may be together, in bytes.
	maxListing = 32 << 20
	// maxTool is how long the definition of one tool may be, in bytes.
	maxTool = 1 << 20
	// maxCursor is how long a cursor may be, in bytes.
	maxCursor = 8 << 10
	// maxInfo is how much is kept of what a server says of itself, in bytes.
	maxInfo = 256
	// maxInstructions is how much is kept of a server's instructions, in bytes.
	maxInstructions = 64 << 10
)

// Info is what a server said of itself.
type Info struct {
	Name, Version, ProtocolVersion string
	// Instructions are what it tells models, as it wrote them, cut at 64 KiB; InstructionsDigest is of the whole, and
	// empty without any.
	Instructions, InstructionsDigest string
}

// Result is one whole list of a server's tools.
type Result struct {
	Server Info
	// Announces tells whether the server says that it tells of changes to its list.
	Announces bool
	// Tools are sorted by name; no name occurs twice.
	Tools []tool.Descriptor
	// Gaps say, in stable words, what of the list is left out and why; none when Tools is all there is.
	Gaps []string
}

// Tools lists the tools of a server. Its errors are of type *Error; with an error nothing is known, also where some
// pages were read.
func Tools(ctx context.Context, target Target) (Result, error) {
	result, err := list(ctx, target)
	if fault, ok := errors.AsType[*Error](err); ok && fault.status == http.StatusNotFound {
		// The server has forgotten the session; a new one may find it well.
		result, err = list(ctx, target)
	}
	return result, err
}

func list(ctx context.Context, target Target) (Result, error) {
	s, err := connect(ctx, target, false)
	if err != nil {
		return Result{}, err
	}
	defer s.close()

	var found collection
	cursor, seen := "", map[string]bool{}
	for range maxPages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		raw, err := s.request(ctx, mcp.MethodToolsList, params)
		if err != nil {
			return Result{}, err
		}
		page, err := readPage(raw)
		if err != nil {
			return Result{}, err
		}
		found.add(page.tools)
		switch cursor = page.next; {
		case cursor == "":
		case seen[cursor]:
			found.endsEarly("the server repeats a cursor, so its list ends there")
		case len(found.tools) > maxTools:
		default:
			seen[cursor] = true
			continue
		}
		return found.result(s.info(), s.announces()), nil
	}
	found.endsEarly(fmt.Sprintf("the server lists more than %d pages", maxPages))
	return found.result(s.info(), s.announces()), nil
}

type page struct {
	tools []json.RawMessage
	next  string
}

// readPage splits a tools/list result without decoding its tools. A result that two parsers could split differently is
// refused whole; what is wrong inside one tool is that tool's own fault.
func readPage(raw json.RawMessage) (page, error) {
	refused := protocolError("the server's answer to tools/list is no list of tools")
	members, ok := splitObject(raw)
	if !ok {
		return page{}, refused
	}
	var p page
	if list := members["tools"]; list == nil || bytes.Equal(list, []byte("null")) || json.Unmarshal(list, &p.tools) != nil {
		return page{}, refused
	}
	if next := members["nextCursor"]; next != nil && json.Unmarshal(next, &p.next) != nil || len(p.next) > maxCursor {
		return page{}, refused
	}
	return p, nil
}

// splitObject returns the members of an object as they stand, unless it is none, or two of its keys are the same to
// some parser.
func splitObject(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, false
	}
	members, folded := map[string]json.RawMessage{}, map[string]bool{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, false
		}
		name, _ := key.(string) // the decoder lets nothing else be a key
		var value json.RawMessage
		if fold := strictjson.Fold(name); folded[fold] || decoder.Decode(&value) != nil {
			return nil, false
		} else {
			folded[fold] = true
		}
		members[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return members, errors.Is(err, io.EOF)
}

// collection gathers the tools of a list and what is wrong with them.
type collection struct {
	tools map[string]tool.Descriptor
	// doubtful are names with two definitions: nobody knows which one a call would meet.
	doubtful          map[string]bool
	unreadable, large int
	end               string
}

func (c *collection) endsEarly(why string) { c.end = why }

func (c *collection) add(entries []json.RawMessage) {
	if c.tools == nil {
		c.tools, c.doubtful = map[string]tool.Descriptor{}, map[string]bool{}
	}
	for _, raw := range entries {
		if len(raw) > maxTool {
			c.large++
			continue
		}
		d, err := tool.Parse(raw)
		switch known, listed := c.tools[d.Name]; {
		case err != nil, clip(d.Name, tool.MaxName) != d.Name:
			c.unreadable++
		case listed && known.Digest() != d.Digest():
			c.doubtful[d.Name] = true
		default:
			c.tools[d.Name] = d
		}
	}
}

func (c *collection) result(said Info, announces bool) Result {
	for name := range c.doubtful {
		delete(c.tools, name)
	}
	tools := make([]tool.Descriptor, 0, len(c.tools))
	for _, d := range c.tools {
		tools = append(tools, d)
	}
	slices.SortFunc(tools, func(a, b tool.Descriptor) int { return cmp.Compare(a.Name, b.Name) })
	more := len(tools) > maxTools
	return Result{
		Server: said, Announces: announces,
		Tools: tools[:min(len(tools), maxTools)], Gaps: c.gaps(more),
	}
}

func (c *collection) gaps(more bool) []string {
	var gaps []string
	count := func(n int, what string) {
		if n > 0 {
			gaps = append(gaps, fmt.Sprintf("left out %d with %s", n, what))
		}
	}
	if more {
		gaps = append(gaps, fmt.Sprintf("the server lists more than %d tools", maxTools))
	}
	if c.end != "" {
		gaps = append(gaps, c.end)
	}
	count(len(c.doubtful), "two definitions")
	count(c.unreadable, fmt.Sprintf("no strict JSON definition, or without a printable name of 1 to %d bytes", tool.MaxName))
	count(c.large, fmt.Sprintf("a definition of more than %d bytes", maxTool))
	return gaps
}
