// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// envelope holds the members of a JSON-RPC message.
type envelope struct {
	jsonrpc, id, method, params, result, err strictjson.Value
	// unknown tells of a member that is none of these.
	unknown bool
}

// set keeps the value of a member, and tells whether its name is known.
func (e *envelope) set(name []byte, value strictjson.Value) (known bool) {
	switch string(name) {
	case "jsonrpc":
		e.jsonrpc = value
	case "id":
		e.id = value
	case "method":
		e.method = value
	case "params":
		e.params = value
	case "result":
		e.result = value
	case "error":
		e.err = value
	default:
		return false
	}
	return true
}

// readEnvelope reads the members of a message and refuses every name that some parser might take for a known one. What
// it returns beside a problem holds an id only if that is beyond doubt.
func readEnvelope(doc strictjson.Value) (env envelope, problem string) {
	for key, value := range doc.Members() {
		name, plain := key.Plain()
		switch {
		case !plain || !isPlain(name):
			problem = "a member of the message has a name with escapes or characters beyond printable ASCII"
		case env.set(name, value):
		case resembles(string(name), "jsonrpc", "id", "method", "params", "result", "error"):
			problem = "a member of the message has a name that resembles a known one"
		default:
			env.unknown = true
			continue
		}
		if problem != "" && resembles(key.Text(), "id") {
			// Which of the two is the id is in doubt.
			return envelope{}, problem
		}
	}
	return env, problem
}

// isPlain tells whether raw is printable ASCII throughout.
func isPlain(raw []byte) bool {
	for _, b := range raw {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

// answers tells whether the message is an answer.
func (e *envelope) answers() bool { return e.result.Exists() || e.err.Exists() }

// checkKind looks for a message of two kinds, or of none.
func (e *envelope) checkKind() (problem string) {
	switch {
	case e.method.Exists() && e.answers():
		return "a message has either a method or a result or error"
	case !e.method.Exists() && !e.answers():
		return "a message without method, result or error"
	}
	return ""
}

// check looks for contradictions between the members.
func (e *envelope) check() (problem string) {
	if string(e.jsonrpc.Raw()) != `"2.0"` {
		return `jsonrpc must be "2.0"`
	}
	if problem := e.checkKind(); problem != "" {
		return problem
	}
	switch {
	case e.result.Exists() && e.err.Exists():
		return "a response has either a result or an error"
	case e.method.Exists() && (e.method.Kind() != strictjson.String || e.method.Is("")):
		return "method must be a string that is not empty"
	case e.id.Exists() && !isID(e.id):
		return "id must be a string or an integer"
	case e.result.Exists() && !e.id.Exists():
		return "a result without an id"
	case e.answers() && e.params.Exists():
		return "a response has no params"
	case !isOneOf(e.params, strictjson.None, strictjson.Object, strictjson.Null):
		return "params must be an object"
	}
	return ""
}

func (e *envelope) kind() Kind {
	switch {
	case !e.method.Exists():
		return Response
	case e.id.Exists():
		return Request
	}
	return Notification
}

// validID is the raw id if there is one that may be sent back.
func (e *envelope) validID() []byte {
	if !isID(e.id) {
		return nil
	}
	return e.id.Raw()
}

// The members of params that the gateway reads: of tools/call and tools/list, and of requests about tasks.
var (
	toolParams = []string{"name", "arguments", "cursor", "_meta", "task", "inputResponses", "requestState"}
	taskParams = []string{"taskId", "inputResponses"}
)

// checkParamNames refuses names in params that some parser might take for one of known.
func checkParamNames(params strictjson.Value, known []string) (problem string) {
	for key := range params.Members() {
		if name, _ := key.Plain(); !slices.Contains(known, string(name)) && resembles(key.Text(), known...) {
			return "a member of params has a name that resembles a known one"
		}
	}
	return ""
}

// resembles tells whether some parser might take name for one of known.
func resembles(name string, known ...string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return strictjson.Alike(name, k) })
}
