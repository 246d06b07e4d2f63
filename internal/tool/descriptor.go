// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tool holds what an MCP server says of one of its tools, and the digest of it; it does no I/O.
package tool

import "encoding/json"

// Descriptor is one entry of a tools/list result, as the server sent it.
type Descriptor struct {
	// Name identifies the tool within its server, byte for byte.
	Name string
	// Title and Description are prose of the server's author, never trusted to lower a tier.
	Title, Description string
	// Annotations are the server's own hints; a nil hint was not given.
	Annotations Annotations
	// InputSchema and OutputSchema are the raw JSON schemas; nil when absent.
	InputSchema, OutputSchema json.RawMessage
	// Raw is the whole entry, byte for byte as received: what Digest is computed over.
	Raw json.RawMessage

	digest string
}

// Annotations are the hints of the MCP tool annotations object (revision 2025-03-26 and later).
type Annotations struct {
	Title           string `json:"title,omitempty"`
	ReadOnlyHint    *bool  `json:"readOnlyHint,omitempty"`
	DestructiveHint *bool  `json:"destructiveHint,omitempty"`
	IdempotentHint  *bool  `json:"idempotentHint,omitempty"`
	OpenWorldHint   *bool  `json:"openWorldHint,omitempty"`
}
