// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire reads single MCP messages and the HTTP headers around them strictly enough that a gateway and a server
// cannot read different things; it decides nothing about tools, changes no message but a list of tools, and does no I/O
// but reading an event stream it is given.
package wire

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Kind is what a message is in JSON-RPC.
type Kind int

// The kinds of messages; the zero Kind is none.
const (
	Invalid Kind = iota
	Request
	Notification
	Response
)

// Message is one JSON-RPC message. Its byte slices are parts of the body it was read from.
type Message struct {
	Kind Kind
	// Raw is the body as it was received: what is forwarded.
	Raw []byte
	// ID is the raw id, nil for a notification; ids are compared as bytes, never decoded.
	ID []byte
	// Method is unescaped; "" for a response.
	Method string
	// Params are the raw params, nil when absent.
	Params []byte
	// Call is what a tools/call asks for, nil for every other method.
	Call *Call

	params strictjson.Value
}

// Meta returns what the _meta of the params has under a key; its place is that in Raw. It does not exist where there is
// no such key.
func (m Message) Meta(key string) strictjson.Value { return m.params.Get("_meta").Get(key) }

// WantsListChanged tells whether the client asks, in revisions where it has to, to be told when the list of tools changes.
func (m Message) WantsListChanged() bool {
	return m.params.Get("notifications").Get("toolsListChanged").IsTrue()
}

// Target returns what an Mcp-Name header would repeat, "" where the method has no such thing.
func (m Message) Target() string {
	known, _ := Lookup(m.Method)
	if known.NameParam == "" {
		return ""
	}
	return m.params.Get(known.NameParam).Text()
}

// Call is what a tools/call request asks for.
type Call struct {
	// Name of the tool, unescaped; compared byte for byte.
	Name string
	// Arguments are the raw arguments: an object, null, or nil when absent.
	Arguments []byte
	// Meta is the raw _meta of the params, nil when absent or null.
	Meta []byte
	// ProgressToken is the raw token, nil when the client asked for no progress.
	ProgressToken []byte
	// Task, InputResponses and RequestState tell whether params has the member of that name, whatever its value.
	Task, InputResponses, RequestState bool
}

// Parse reads the body of a POST: one JSON-RPC message of a client. Every refusal carries the id of the message where
// that is beyond doubt.
func Parse(body []byte) (Message, *Refusal) {
	doc, err := strictjson.Scan(body)
	if err != nil {
		return Message{}, unreadable(body, err)
	}
	switch doc.Kind() {
	case strictjson.Object:
	case strictjson.Array:
		return Message{}, refuse(mcp.INVALID_REQUEST, "batches are not accepted: send one message per request")
	default:
		return Message{}, refuse(mcp.INVALID_REQUEST, "the body is not a JSON-RPC message")
	}
	env, problem := readEnvelope(doc)
	if problem == "" {
		problem = env.check()
	}
	if problem != "" {
		return Message{}, refuse(mcp.INVALID_REQUEST, problem).For(env.validID())
	}
	m := Message{
		Kind: env.kind(), Raw: body, ID: env.validID(), Method: env.method.Text(),
		Params: env.params.Raw(), params: env.params,
	}
	if refusal := m.readMethod(env); refusal != nil {
		return Message{}, refusal.For(m.ID)
	}
	return m, nil
}

// unreadable refuses a body that is no strict JSON.
func unreadable(body []byte, err error) *Refusal {
	refusal := refuse(mcp.PARSE_ERROR, "the body is not acceptable JSON: "+err.Error())
	if id, ok := strictjson.Salvage(body, "id"); ok && isID(id) {
		return refusal.For(id.Raw())
	}
	return refusal
}

// readMethod checks what the method asks of a message, and reads a call.
func (m *Message) readMethod(env envelope) *Refusal {
	if m.Kind == Response {
		return nil
	}
	if _, known := Lookup(m.Method); !known && resemblesMethod(m.Method) {
		return refuse(mcp.INVALID_REQUEST, "the method is a known one but for case, white space or invisible characters")
	}
	var params []string // other methods may have names that resemble one
	switch {
	case m.Method == string(mcp.MethodToolsCall), m.Method == string(mcp.MethodToolsList):
		params = toolParams
	case m.AboutTasks():
		params = taskParams
	}
	if problem := checkParamNames(m.params, params); problem != "" {
		return refuse(mcp.INVALID_PARAMS, problem)
	}
	if m.Method != string(mcp.MethodToolsCall) {
		return nil
	}
	if m.Kind != Request {
		return refuse(mcp.INVALID_REQUEST, "tools/call without an id is not accepted")
	}
	if env.unknown {
		return refuse(mcp.INVALID_REQUEST, "tools/call has a member beside params that JSON-RPC does not know")
	}
	call, problem := readCall(m.params)
	if problem != "" {
		return refuse(mcp.INVALID_PARAMS, problem)
	}
	m.Call = &call
	return nil
}

func readCall(params strictjson.Value) (Call, string) {
	if params.Kind() != strictjson.Object {
		return Call{}, "tools/call has no params"
	}
	var c Call
	var name, arguments, meta, answers, state strictjson.Value
	for key, value := range params.Members() {
		known, _ := key.Plain() // no other spelling of a known name has passed
		switch string(known) {
		case "name":
			name = value
		case "arguments":
			arguments = value
		case "_meta":
			meta = value
		case "task":
			c.Task = true
		case "inputResponses":
			c.InputResponses, answers = true, value
		case "requestState":
			c.RequestState, state = true, value
		}
	}
	c.Name = name.Text()
	token := meta.Get("progressToken")
	switch {
	case c.Name == "":
		return Call{}, "params.name must be the name of a tool"
	case !isOneOf(arguments, strictjson.None, strictjson.Object, strictjson.Null):
		return Call{}, "params.arguments must be an object"
	case !isOneOf(meta, strictjson.None, strictjson.Object, strictjson.Null):
		return Call{}, "params._meta must be an object"
	case !isOneOf(token, strictjson.None, strictjson.Null) && !isID(token):
		return Call{}, "params._meta.progressToken must be a string or an integer"
	case c.InputResponses && !areAnswers(answers):
		return Call{}, "params.inputResponses must be an object of objects"
	case c.RequestState && state.Kind() != strictjson.String:
		return Call{}, "params.requestState must be a string"
	}
	c.Arguments = arguments.Raw()
	if meta.Kind() == strictjson.Object {
		c.Meta = meta.Raw()
	}
	if isID(token) {
		c.ProgressToken = token.Raw()
	}
	return c, ""
}

// areAnswers tells whether v can be the answers to what a server asked in the round before.
func areAnswers(v strictjson.Value) bool {
	if v.Kind() != strictjson.Object {
		return false
	}
	for _, answer := range v.Members() {
		if answer.Kind() != strictjson.Object {
			return false
		}
	}
	return true
}

func isOneOf(v strictjson.Value, kinds ...strictjson.Kind) bool {
	for _, kind := range kinds {
		if v.Kind() == kind {
			return true
		}
	}
	return false
}

// isID tells whether v may identify a request: a string, or an integer spelt as one.
func isID(v strictjson.Value) bool {
	switch v.Kind() {
	case strictjson.String:
		return true
	case strictjson.Number:
		return !bytes.ContainsAny(v.Raw(), ".eE") && string(v.Raw()) != "-0"
	default:
		return false
	}
}

// Refusal is an answer of the gateway's own to a message or request that it does not accept.
type Refusal struct {
	// Status is the HTTP status, Code the JSON-RPC error code.
	Status, Code int
	// Message says in one sentence what is wrong. It quotes no value of the request.
	Message string
	// ID is the raw id of the refused message, nil where it could not be read beyond doubt.
	ID []byte
	// Data is the raw data member of the error, nil for none.
	Data []byte
}

func refuse(code int, message string) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: code, Message: message}
}

// For returns the refusal as the answer to the message with that raw id.
func (r Refusal) For(id []byte) *Refusal {
	r.ID = id
	return &r
}

// Body is the JSON-RPC error response; without an id its id is null.
func (r *Refusal) Body() []byte {
	id := r.ID
	if id == nil {
		id = []byte("null")
	}
	out := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":`, id, r.Code)
	out = strictjson.AppendString(out, r.Message)
	if r.Data != nil {
		out = append(append(out, `,"data":`...), r.Data...)
	}
	return append(out, "}}"...)
}
