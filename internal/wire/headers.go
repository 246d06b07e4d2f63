// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// CheckHeaders refuses a request, of any HTTP method, whose headers two readers may take for different ones. The trailer
// is that of the request: what it names is no header.
func CheckHeaders(header, trailer http.Header) *Refusal {
	seen := make(map[string]bool, 8)
	for name, values := range header {
		if !guarded(name) {
			continue
		}
		canonical := http.CanonicalHeaderKey(strings.TrimSpace(name))
		switch {
		case strings.Contains(name, "_"):
			return mismatch("a header is spelt with an underscore where MCP has a dash")
		case len(values) != 1 || seen[canonical]:
			return mismatch("header " + canonical + " is given more than once")
		case !isPlain([]byte(values[0])) && strings.HasPrefix(canonical, "Mcp-"):
			return mismatch("header " + canonical + " has characters beyond printable ASCII")
		}
		seen[canonical] = true
	}
	if slices.ContainsFunc(ConnectionTokens(header), guarded) {
		return mismatch("the Connection header lists a header that must reach the server")
	}
	for name := range trailer {
		if guarded(name) {
			return mismatch("a header that MCP knows is sent as a trailer")
		}
	}
	return nil
}

// CheckVersion refuses a request without a message whose protocol version is not known here. CheckHeaders comes first.
func CheckVersion(header http.Header) *Refusal {
	if version := header.Get(mcp.HeaderProtocolVersion); version != "" && !slices.Contains(mcp.ValidProtocolVersions, version) {
		return unsupportedVersion(version, mcp.ValidProtocolVersions)
	}
	return nil
}

// guardedHeaders are those that carry what is judged, or who calls, or how the body is read; beside them are those that
// begin with guardedPrefix.
var guardedHeaders = []string{"authorization", "content-type", "content-encoding", "last-event-id"}

const guardedPrefix = "mcp-"

// guarded tells whether a name is one of those headers, in any spelling that servers are known to merge.
func guarded(name string) bool {
	plain := strings.ReplaceAll(strings.TrimSpace(name), "_", "-")
	return len(plain) >= len(guardedPrefix) && strings.EqualFold(plain[:len(guardedPrefix)], guardedPrefix) ||
		slices.ContainsFunc(guardedHeaders, func(known string) bool { return strings.EqualFold(plain, known) })
}

// ConnectionTokens returns the names of headers that a message says belong to its connection alone.
func ConnectionTokens(header http.Header) []string {
	var names []string
	for _, line := range header["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func unsupportedVersion(requested string, supported []string) *Refusal {
	data := []byte(`{"supported":[`)
	for i, version := range supported {
		if i > 0 {
			data = append(data, ',')
		}
		data = strictjson.AppendString(data, version)
	}
	refusal := refuse(mcp.UNSUPPORTED_PROTOCOL_VERSION, "the MCP-Protocol-Version is not supported")
	refusal.Data = append(strictjson.AppendString(append(data, `],"requested":`...), requested), '}')
	return refusal
}

// stateless are the versions in which every message names its own: the others are agreed on once, by initialize, and
// are of no use to who gets an answer to a single message.
func stateless() []string {
	return slices.DeleteFunc(slices.Clone(mcp.ValidProtocolVersions), func(version string) bool { return !mcp.RequiresStandardHeaders(version) })
}

// CheckContent refuses a POST whose body could be read as anything but UTF-8 JSON.
func CheckContent(header http.Header) *Refusal {
	types := header.Values("Content-Type")
	if len(types) != 1 {
		return wrongContent("exactly one Content-Type is needed")
	}
	if types[0] != "application/json" { // few say more
		mediaType, params, err := mime.ParseMediaType(types[0])
		if err != nil || mediaType != "application/json" {
			return wrongContent("Content-Type must be application/json")
		}
		if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
			return wrongContent("the charset must be utf-8")
		}
	}
	if len(header.Values("Content-Encoding")) > 0 {
		return wrongContent("Content-Encoding is not accepted")
	}
	return nil
}

func wrongContent(message string) *Refusal {
	refusal := refuse(mcp.INVALID_REQUEST, message)
	refusal.Status = http.StatusUnsupportedMediaType
	return refusal
}

// TooLarge refuses a body over the limit in bytes.
func TooLarge(limit int64) *Refusal {
	refusal := refuse(mcp.INVALID_REQUEST, fmt.Sprintf("the body has more than %d bytes, which is as much as the gateway takes", limit))
	refusal.Status = http.StatusRequestEntityTooLarge
	return refusal
}

func mismatch(message string) *Refusal { return refuse(mcp.HEADER_MISMATCH, message) }

// CheckAgreement refuses a message whose protocol version is not known here, or that its headers describe differently:
// Mcp-Method, Mcp-Name and MCP-Protocol-Version. From revision 2026-07-28 on the first two are required as well.
// CheckHeaders comes first.
func CheckAgreement(header http.Header, m Message) *Refusal {
	if refusal := CheckVersion(header); refusal != nil {
		if m.params.Get("_meta").Get(mcp.MetaKeyProtocolVersion).Exists() {
			refusal = unsupportedVersion(header.Get(mcp.HeaderProtocolVersion), stateless())
		}
		return refusal.For(m.ID)
	}
	if problem := disagreement(header, m); problem != "" {
		return mismatch(problem).For(m.ID)
	}
	return nil
}

func disagreement(header http.Header, m Message) string {
	version := header.Get(mcp.HeaderProtocolVersion)
	if said := m.params.Get("_meta").Get(mcp.MetaKeyProtocolVersion); said.Exists() && !said.Is(version) {
		return "MCP-Protocol-Version and the protocolVersion in _meta differ"
	}
	required := mcp.RequiresStandardHeaders(version) && m.Kind != Response
	method, given := only(header, mcp.HeaderMethod)
	switch {
	case given && method != m.Method:
		return "Mcp-Method and the method differ"
	case !given && required:
		return "the header Mcp-Method is missing"
	}
	known, _ := Lookup(m.Method)
	if known.NameParam == "" {
		return ""
	}
	raw, given := only(header, mcp.HeaderName)
	if !given {
		if required && mcp.MethodRequiresNameHeader(mcp.MCPMethod(m.Method)) {
			return "the header Mcp-Name is missing"
		}
		return ""
	}
	name, ok := mcp.DecodeHeaderValue(raw)
	if !ok || !m.params.Get(known.NameParam).Is(name) {
		return "Mcp-Name and params." + known.NameParam + " differ"
	}
	return ""
}

func only(header http.Header, name string) (value string, given bool) {
	values := header.Values(name)
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// CheckParamHeaders refuses a call whose Mcp-Param-* headers do not repeat its arguments exactly as the x-mcp-header
// annotations of the tool's input schema say. A header that no annotation asks for is refused, so that without a schema
// (nil) every such header is: what nobody can compare nobody approved. A header that is missing is the server's affair:
// it changes nothing of what the arguments say.
func CheckParamHeaders(header http.Header, m Message, inputSchema []byte) *Refusal {
	var bound map[string][]strictjson.Value
	for name, values := range header {
		suffix, ok := strings.CutPrefix(strings.ToLower(name), strings.ToLower(mcp.HeaderParamPrefix))
		if !ok {
			continue
		}
		if bound == nil {
			bound = bindings(m, inputSchema)
		}
		arguments := bound[suffix]
		if len(arguments) == 0 || len(values) != 1 {
			return mismatch("an Mcp-Param header has no counterpart in the tool's input schema as known here").For(m.ID)
		}
		for _, argument := range arguments {
			if !repeats(values[0], argument) {
				return mismatch("an Mcp-Param header and the argument it repeats differ").For(m.ID)
			}
		}
	}
	return nil
}

// bindings returns the arguments of the call that each x-mcp-header annotation repeats, by its name in lower case.
func bindings(m Message, inputSchema []byte) map[string][]strictjson.Value {
	bound := map[string][]strictjson.Value{}
	if m.Call == nil {
		return bound
	}
	schema, err := strictjson.Scan(inputSchema)
	if err != nil {
		return bound
	}
	bind(schema, m.params.Get("arguments"), bound)
	return bound
}

func bind(schema, arguments strictjson.Value, bound map[string][]strictjson.Value) {
	for name, property := range schema.Get("properties").Members() {
		argument := arguments.Get(name.Text())
		if annotation := strings.ToLower(property.Get("x-mcp-header").Text()); annotation != "" {
			bound[annotation] = append(bound[annotation], argument)
		}
		bind(property, argument, bound)
	}
}

// repeats tells whether a header's value is the one text that an argument has in a header.
func repeats(raw string, argument strictjson.Value) bool {
	value, ok := mcp.DecodeHeaderValue(raw)
	if !ok {
		return false
	}
	switch argument.Kind() {
	case strictjson.String:
		return argument.Is(value)
	case strictjson.Bool, strictjson.Number:
		return string(argument.AppendCanonical(nil)) == value
	default:
		return false
	}
}
