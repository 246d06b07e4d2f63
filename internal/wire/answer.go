// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Answer is what a response says of the fate of the call that it answers.
type Answer struct {
	// ID is the raw id of the call.
	ID []byte
	// Error tells whether it is a JSON-RPC error; Code is its code, 0 when it cannot be read or there is a result too.
	Error bool
	Code  int
	// UnknownTool tells whether an error with the code of invalid params says that there is no such tool.
	UnknownTool bool
	// IsError is the tool's own word that it failed.
	IsError bool
	// Complete tells whether a result is a final one: not a task, and no request for more input.
	Complete bool
	// Next is what a result says that is not a final one, nil where nobody can tell.
	Next *Next
}

// ScanAnswer reads one message of a server. It tells whether the message is a response; on an error nobody can tell
// what a client would read in it.
func ScanAnswer(message []byte) (answer Answer, found bool, err error) {
	doc, err := strictjson.Scan(message)
	if err != nil {
		return Answer{}, false, err
	}
	result, failure := doc.Get("result"), doc.Get("error")
	if doc.Get("method").Exists() || (!result.Exists() && !failure.Exists()) {
		return Answer{}, false, nil
	}
	if resemblesMember(doc, "id", "result", "error", "method") {
		return Answer{}, false, errors.New("read an answer: a member resembles one of the envelope")
	}
	switch {
	case !failure.Exists():
		answer = readResult(result)
	case result.Exists():
		answer.Error = true // a server that says both proves neither
	default:
		answer = readError(failure)
	}
	answer.ID = doc.Get("id").Raw()
	return answer, true, nil
}

// readError reads the error of a call.
func readError(failure strictjson.Value) Answer {
	answer := Answer{Error: true}
	if code, err := strconv.Atoi(string(failure.Get("code").Raw())); err == nil {
		answer.Code = code
	}
	text := strings.ToLower(failure.Get("message").Text())
	answer.UnknownTool = answer.Code == mcp.INVALID_PARAMS && strings.Contains(text, "tool") &&
		(strings.Contains(text, "unknown") || strings.Contains(text, "not found"))
	return answer
}

// readResult reads the result of a call.
func readResult(result strictjson.Value) Answer {
	var answer Answer
	kind := result.Get("resultType")
	answer.IsError = IsError(result)
	answer.Complete = result.Kind() == strictjson.Object && (!kind.Exists() || kind.Is("complete")) && !result.Get("task").Exists() &&
		!resemblesMember(result, "isError", "resultType", "task")
	if !answer.Complete {
		answer.Next = readNext(result)
	}
	return answer
}

// IsError tells whether a result says that the tool failed. What is not plainly a success is none: isError may be missing
// or false, nothing else.
func IsError(result strictjson.Value) bool {
	said := result.Get("isError")
	return said.Exists() && string(said.Raw()) != "false"
}

// resemblesMember tells whether an object has a member that some parser takes for one of known, and that is none.
func resemblesMember(object strictjson.Value, known ...string) bool {
	if object.Kind() != strictjson.Object {
		return false
	}
	for key := range object.Members() {
		if name := key.Text(); resembles(name, known...) && !slices.Contains(known, name) {
			return true
		}
	}
	return false
}
