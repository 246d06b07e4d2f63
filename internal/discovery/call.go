// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxCall is how long all answers of a session that calls a tool may be together, in bytes.
const maxCall = 256 << 10

// ToolCall is one call of a tool.
type ToolCall struct {
	Tool string
	// Arguments is a JSON object.
	Arguments json.RawMessage
	// InputSchema of the tool, which says what of the arguments goes into headers too; nil for nothing.
	InputSchema json.RawMessage
}

// Call calls a tool in a session of its own and returns the result, byte for byte as it was received. Only what reads may
// be called: where the server has forgotten the session, the call is made a second time. Its errors are of type *Error.
func Call(ctx context.Context, target Target, what ToolCall) (json.RawMessage, error) {
	result, err := call(ctx, target, what)
	if fault, ok := errors.AsType[*Error](err); ok && fault.status == http.StatusNotFound {
		result, err = call(ctx, target, what)
	}
	return result, err
}

func call(ctx context.Context, target Target, what ToolCall) (json.RawMessage, error) {
	s, err := connect(ctx, target, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.line.bound(maxCall)
	s.schema = what.InputSchema
	return s.request(ctx, mcp.MethodToolsCall, map[string]any{"name": what.Tool, "arguments": what.Arguments})
}
