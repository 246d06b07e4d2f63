// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package action says what a call would do: its identity as a hash, its arguments as a person may see them, and how far
// it reaches; it decides nothing and does no I/O.
package action

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Version is part of every hash. It changes with the inputs of Hash and with the rules of Mask, so that what was asked
// under other rules is asked anew.
const Version = 1

// Input is everything that gives a call its meaning.
type Input struct {
	// ServerUID is the UID of the GovernedServer.
	ServerUID string
	// EndpointDigest and ToolDigest are those of the server's endpoint and the tool's definition.
	EndpointDigest, ToolDigest string
	// Tool is the name of the tool, the same as in Params.
	Tool string
	// Params are the raw params of the tools/call, as they were received.
	Params []byte
	// Requester is the username of who calls.
	Requester string
	// ActsFor is the user that the requester acts for, "" for none.
	ActsFor string
	// Continues tells that the call goes on with one before it: what only such a call has, requestState and
	// inputResponses, does not count, so that it has the hash of the call that it goes on with.
	Continues bool
}

// Hash identifies an action: "sha256:" and 64 hexadecimal digits over the canonical form of one JSON object of all
// inputs. Two calls have the same hash exactly if they mean the same.
//
// Order of names, white space, escapes and the spelling of a number mean nothing. Every member of the params counts, and
// of _meta every member but the progress token, trace context and keys that start with io.modelcontextprotocol/. Absent
// arguments, null and {} are three actions: servers tell them apart. A _meta without a member that counts is the same as
// none.
func Hash(in Input) (string, error) {
	params, err := strictjson.Scan(in.Params)
	if err != nil {
		return "", fmt.Errorf("read the params: %w", err)
	}
	if !params.Get("name").Is(in.Tool) {
		return "", errors.New("hash an action: the params do not name the tool")
	}
	meta := params.Get("_meta")
	if kind := meta.Kind(); kind != strictjson.None && kind != strictjson.Null && kind != strictjson.Object {
		return "", errors.New("hash an action: _meta is not an object")
	}
	doc, err := appendInputs([]byte{'{'}, in)
	if err != nil {
		return "", err
	}
	doc = append(doc, `,"params":`...)
	doc = appendFiltered(doc, params, func(key string) bool {
		return key != "_meta" && (!in.Continues || key != "requestState" && key != "inputResponses")
	})
	doc = append(doc, `,"meta":`...)
	doc = appendFiltered(doc, meta, means)
	canonical, err := strictjson.Canonical(append(doc, '}'))
	if err != nil {
		return "", fmt.Errorf("write the action in canonical form: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hashPrefix + hex.EncodeToString(sum[:]), nil
}

const hashPrefix = "sha256:"

// appendInputs appends what does not come from the params. JSON strings frame each value, so that no two inputs run into
// one another.
func appendInputs(doc []byte, in Input) ([]byte, error) {
	doc = strconv.AppendInt(append(doc, `"version":`...), Version, 10)
	for _, field := range []struct {
		name, value string
		optional    bool
	}{
		{"serverUID", in.ServerUID, false},
		{"endpointDigest", in.EndpointDigest, false},
		{"tool", in.Tool, false},
		{"toolDigest", in.ToolDigest, false},
		{"requester", in.Requester, false},
		{"actsFor", in.ActsFor, true},
	} {
		if field.value == "" {
			if field.optional {
				continue
			}
			return nil, fmt.Errorf("hash an action: no %s", field.name)
		}
		doc = append(append(append(doc, `,"`...), field.name...), `":`...)
		doc = strictjson.AppendString(doc, field.value)
	}
	return doc, nil
}

// appendFiltered appends an object of the members of another that keep says to keep.
func appendFiltered(doc []byte, object strictjson.Value, keep func(key string) bool) []byte {
	doc = append(doc, '{')
	first := true
	for key, value := range object.Members() {
		if !keep(key.Text()) {
			continue
		}
		if !first {
			doc = append(doc, ',')
		}
		first = false
		doc = append(append(append(doc, key.Raw()...), ':'), value.Raw()...)
	}
	return append(doc, '}')
}

// means tells whether a key of _meta gives the call a meaning.
func means(key string) bool {
	switch key {
	case "progressToken", "traceparent", "tracestate", "baggage":
		return false
	}
	return !strings.HasPrefix(key, "io.modelcontextprotocol/")
}

// RequestName names the ApprovalRequest of an action: the server, the first 20 hexadecimal digits of the hash, and the
// number of the attempt.
func RequestName(server, hash string, attempt int) string {
	digits := strings.TrimPrefix(hash, hashPrefix)
	return fmt.Sprintf("%s-%s-%d", server, digits[:min(20, len(digits))], attempt)
}
