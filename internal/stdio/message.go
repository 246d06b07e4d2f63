// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// message is one JSON-RPC message, as it passes, and what is looked at to find its way.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`

	line []byte
}

var errNoMessage = errors.New("this is no JSON-RPC message: one object with a method, or an id, was expected")

// read looks at a message. Line breaks stand only between the tokens of JSON, and end a message on the way to a process:
// they become blanks.
func read(text []byte) (message, error) {
	var m message
	if err := json.Unmarshal(text, &m); err != nil || len(m.ID) == 0 && m.Method == "" || m.Method != "" && len(m.ID) > 0 && m.key() == "" {
		return message{}, errNoMessage
	}
	m.line = bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, bytes.TrimSpace(text))
	return m, nil
}

func (m message) isRequest() bool { return m.Method != "" && len(m.ID) > 0 }

func (m message) isAnswer() bool { return m.Method == "" }

// key is the id as it is compared; "" for what can be no id of a request.
func (m message) key() string {
	var value any
	if json.Unmarshal(m.ID, &value) != nil {
		return ""
	}
	return keyOf(value)
}

func keyOf(value any) string {
	switch v := value.(type) {
	case string:
		return "s" + v
	case float64:
		return "n" + strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return ""
	}
}

// progressToken is what the client wants to hear of the request by.
func (m message) progressToken() string {
	var params struct {
		Meta struct {
			ProgressToken any `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(m.Params, &params) != nil {
		return ""
	}
	return keyOf(params.Meta.ProgressToken)
}

// progressOf is the token of a request that a notification tells the progress of.
func (m message) progressOf() string {
	var params struct {
		ProgressToken any `json:"progressToken"`
	}
	if m.Method != "notifications/progress" || json.Unmarshal(m.Params, &params) != nil {
		return ""
	}
	return keyOf(params.ProgressToken)
}

// belongsToRequest tells of notifications that come with a request.
func (m message) belongsToRequest() bool {
	return m.Method == "notifications/progress" || m.Method == "notifications/message"
}

// refuse answers with a status, and an error for programs.
func refuse(w http.ResponseWriter, r *http.Request, status int, id json.RawMessage, text string) {
	log.FromContext(r.Context()).V(1).Info("message refused", "reason", text)
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	raw, err := json.Marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, rpcError{-32600, text}})
	if err != nil {
		raw = nil // an id that is no JSON cannot get here
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // a client that has gone misses it
}
