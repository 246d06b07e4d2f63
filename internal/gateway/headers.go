// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// hopByHop tells whether a header belongs to one connection (RFC 9110, 7.6.1); none of those is ever relayed. The name is
// canonical, as net/http reads it: a switch on it costs every message less than looking it up.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// ofBody tells whether a header of an answer says what is wrong once a byte of the body changes; a body that stays whole
// is given its length anew.
func ofBody(name string) bool {
	switch name {
	case "Content-Length", "Etag", "Content-Md5", "Digest":
		return true
	}
	return false
}

// headerPolicy says which headers of the agent the server gets.
type headerPolicy int

const (
	// mcpHeaders: those of MCP and of the trace context alone. The zero value, since a call with effects must mean
	// the same whoever sends it.
	mcpHeaders headerPolicy = iota
	// allHeaders: all but credentials and what belongs to the connection.
	allHeaders
)

// outboundHeader returns the headers that the server gets: those of the agent that may pass, and over them those that
// the GovernedServer configures. The agent's credentials never pass.
func outboundHeader(agent, configured http.Header, policy headerPolicy) http.Header {
	out := make(http.Header, len(agent)+len(configured))
	for name, values := range agent {
		if mayPass(name, policy) {
			out[name] = values
		}
	}
	for _, name := range wire.ConnectionTokens(agent) {
		out.Del(name)
	}
	for name, values := range configured {
		out[http.CanonicalHeaderKey(name)] = values
	}
	// What is filtered or judged must be readable, and nothing may be sent that the agent did not see.
	out["Accept-Encoding"] = []string{"identity"}
	if _, given := out["User-Agent"]; !given {
		out["User-Agent"] = nil
	}
	return out
}

// userHeaders begin the names of headers by which proxies tell a server who calls. An agent that sets one is no proxy.
var userHeaders = []string{
	"impersonate-", "remote-user", "x-user", "x-remote-", "x-forwarded-user", "x-forwarded-email", "x-forwarded-groups",
	"x-forwarded-preferred-username", "x-auth-request-",
}

// namesUser tells whether a header says who calls, in any spelling that a server may merge.
func namesUser(name string) bool {
	plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	return slices.ContainsFunc(userHeaders, func(prefix string) bool { return strings.HasPrefix(plain, prefix) })
}

func mayPass(name string, policy headerPolicy) bool {
	switch name {
	case "Authorization", "Cookie", "Host", "Origin", "Content-Length", "Accept-Encoding":
		return false
	case "Accept", "Content-Type", "Traceparent", "Tracestate", "Baggage",
		sessionHeader, mcp.HeaderProtocolVersion, mcp.HeaderMethod, mcp.HeaderName:
		return true
	}
	if hopByHop(name) || namesUser(name) {
		return false
	}
	// What MCP does not define, Mcp-Tenant say, could mean anything.
	return policy == allHeaders || strings.HasPrefix(name, mcp.HeaderParamPrefix)
}

// copyHeader passes on the headers of an answer.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		if !hopByHop(name) && !ofBody(name) {
			dst[name] = values
		}
	}
	for _, name := range wire.ConnectionTokens(src) {
		dst.Del(name)
	}
}

func contentType(h http.Header) string {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// isEncoded tells whether a body is something else than it says it is, so that nobody here can read it.
func isEncoded(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Content-Encoding"), func(coding string) bool { return !strings.EqualFold(coding, "identity") })
}
