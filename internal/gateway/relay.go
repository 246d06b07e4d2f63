// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// hopByHop headers belong to one connection (RFC 9110, 7.6.1) and are never relayed.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
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
	for _, line := range agent.Values("Connection") {
		for token := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(token))
		}
	}
	for name, values := range configured {
		out[http.CanonicalHeaderKey(name)] = values
	}
	// What is filtered or judged must be readable, and nothing may be sent that the agent did not see.
	out.Set("Accept-Encoding", "identity")
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
		"Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name":
		return true
	}
	if slices.Contains(hopByHop, name) || namesUser(name) {
		return false
	}
	// What MCP does not define, Mcp-Tenant say, could mean anything.
	return policy == allHeaders || strings.HasPrefix(name, "Mcp-Param-")
}

// errNoUpstream: the endpoint of the GovernedServer cannot be used.
var errNoUpstream = errors.New("endpoint cannot be used")

// relay passes an answer of the server to the agent.
type relay struct {
	// transform is given every message of the answer; nil passes the bytes on as they come. An answer of nil drops
	// the message. What it is given is valid for the call only.
	transform func(message []byte) []byte
	// id of the message that is answered, nil without one.
	id []byte
	// span is that of the message, nil without one.
	span *tracing.Span
}

// run relays status, headers and body, and closes the body. An answer that breaks off breaks off for the agent too.
func (f relay) run(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	kind := contentType(resp.Header)
	if f.transform != nil && isEncoded(resp.Header) {
		f.refuse(w, badAnswer("is encoded although it was not asked to be"))
		return
	}
	switch {
	case f.transform != nil && kind == "text/event-stream":
		copyHeader(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		if err := pumpEvents(resp.Body, eventSink(w), f.transform); err != nil {
			panic(http.ErrAbortHandler)
		}
	case f.transform != nil && kind == "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil || len(body) > maxAnswer {
			f.refuse(w, badAnswer("broke off or is too large"))
			return
		}
		copyHeader(w.Header(), resp.Header)
		writeWhole(w, resp.StatusCode, f.transform(body))
	default:
		copyHeader(w.Header(), resp.Header)
		if length := resp.Header.Values("Content-Length"); len(length) == 1 {
			w.Header().Set("Content-Length", length[0]) // the bytes pass as they are
		}
		w.WriteHeader(resp.StatusCode)
		pumpBytes(resp.Body, w)
	}
}

// refuse answers in place of the server.
func (f relay) refuse(w http.ResponseWriter, refusal *wire.Refusal) {
	f.span.Refused(refusal.Code)
	writeRefusal(w, refusal.For(f.id))
}

// badAnswer stands in for an answer that cannot be relayed.
func badAnswer(why string) *wire.Refusal {
	return &wire.Refusal{Status: http.StatusBadGateway, Code: mcp.INTERNAL_ERROR, Message: "Tidewaiter gateway: the answer of the MCP server " + why}
}

// isEncoded tells whether a body is something else than it says it is, so that nobody here can read it.
func isEncoded(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Content-Encoding"), func(coding string) bool { return !strings.EqualFold(coding, "identity") })
}

// writeWhole answers with a whole body; the length tells the agent that there is nothing to wait for.
func writeWhole(w http.ResponseWriter, status int, body []byte) {
	if status != http.StatusNoContent && status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the agent has gone; there is nobody to tell
}

func copyHeader(dst, src http.Header) {
	for name, values := range src {
		if !slices.Contains(hopByHop, name) {
			dst[name] = values
		}
	}
	for _, line := range src.Values("Connection") {
		for token := range strings.SplitSeq(line, ",") {
			dst.Del(strings.TrimSpace(token))
		}
	}
	// Any of these would be wrong once a byte of the body changes; a body that stays whole is given its length anew.
	dst.Del("Content-Length")
	dst.Del("Etag")
	dst.Del("Content-Md5")
	dst.Del("Digest")
}

func contentType(h http.Header) string {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// pumpBytes relays bytes as they come, each read flushed, so that a stream stays one.
func pumpBytes(body io.Reader, w http.ResponseWriter) {
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	flush.Flush() //nolint:errcheck // a writer that cannot flush still gets the bytes
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, writeErr := w.Write(buf[:n]); writeErr != nil {
				return
			}
			flush.Flush() //nolint:errcheck // as above
		}
		if err != nil {
			if err != io.EOF {
				// The agent must not take a torn answer for a whole one.
				panic(http.ErrAbortHandler)
			}
			return
		}
	}
}

// eventSink writes events to an agent and tells whether it still listens.
func eventSink(w http.ResponseWriter) func([]byte) bool {
	flush := http.NewResponseController(w)
	flush.Flush() //nolint:errcheck // a writer that cannot flush still gets the bytes
	return func(event []byte) bool {
		if _, err := w.Write(event); err != nil {
			return false
		}
		flush.Flush() //nolint:errcheck // as above
		return true
	}
}

// pumpEvents relays an event stream; an event whose message transform leaves alone goes on byte for byte. It ends when
// the stream or the sink does, and returns an error when the stream broke off.
func pumpEvents(body io.Reader, sink func([]byte) bool, transform func([]byte) []byte) error {
	events := wire.NewSplitter(body, maxAnswer)
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if out := rewriteEvent(event, transform); len(out) > 0 && !sink(out) {
			return nil
		}
	}
}

func rewriteEvent(event wire.Event, transform func([]byte) []byte) []byte {
	switch {
	case event.NamesEndpoint(): // a client of the older transport would send its messages there, past the gateway
		return nil
	case len(event.Data) == 0:
		return event.Raw
	}
	message := transform(event.Data)
	switch {
	case message == nil:
		return nil
	case len(message) == len(event.Data) && &message[0] == &event.Data[0]:
		return event.Raw
	default:
		return event.WithData(oneLine(message))
	}
}

// oneLine returns a JSON message without line ends, which are white space in it and would cut an event in two.
func oneLine(message []byte) []byte {
	if !bytes.ContainsAny(message, "\r\n") {
		return message
	}
	line := bytes.Clone(message)
	for i, b := range line {
		if b == '\r' || b == '\n' {
			line[i] = ' '
		}
	}
	return line
}
