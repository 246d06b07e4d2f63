// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

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

func mayPass(name string, policy headerPolicy) bool {
	switch name {
	case "Authorization", "Cookie", "Host", "Origin", "Content-Length", "Accept-Encoding":
		return false
	case "Accept", "Content-Type", "Traceparent", "Tracestate", "Baggage":
		return true
	}
	if slices.Contains(hopByHop, name) {
		return false
	}
	return policy == allHeaders || strings.HasPrefix(name, "Mcp-")
}

// errNoUpstream: the endpoint of the GovernedServer cannot be used.
var errNoUpstream = errors.New("endpoint cannot be used")

// relay passes an answer of the server to the agent.
type relay struct {
	// transform is given every message of the answer; nil passes the bytes on as they come. An answer of nil drops
	// the message. What it is given is valid for the call only.
	transform func(message []byte) []byte
}

// run relays status, headers and body, and closes the body.
func (f relay) run(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	copyHeader(w.Header(), resp.Header)
	kind := contentType(resp.Header)
	switch {
	case f.transform != nil && kind == "text/event-stream":
		w.WriteHeader(resp.StatusCode)
		pumpEvents(resp.Body, eventSink(w), f.transform)
	case f.transform != nil && kind == "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil || len(body) > maxAnswer {
			w.Header().Del("Content-Type")
			http.Error(w, "the answer of the server is broken off or too large", http.StatusBadGateway)
			return
		}
		body = f.transform(body)
		w.Header().Del("Content-Length")
		w.WriteHeader(resp.StatusCode)
		w.Write(body) //nolint:errcheck // the client has gone; there is nobody to tell
	default:
		w.WriteHeader(resp.StatusCode)
		pumpBytes(resp.Body, w)
	}
}

func copyHeader(dst, src http.Header) {
	for name, values := range src {
		if !slices.Contains(hopByHop, name) {
			dst[name] = values
		}
	}
	// Any of these would be wrong once a byte of the body changes.
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

// pumpEvents relays an event stream; an event whose message transform leaves alone goes on byte for byte. It stops when
// the sink does.
func pumpEvents(body io.Reader, sink func([]byte) bool, transform func([]byte) []byte) {
	events := wire.NewSplitter(body, maxAnswer)
	for {
		event, err := events.Next()
		if err != nil {
			return
		}
		if out := rewriteEvent(event, transform); len(out) > 0 && !sink(out) {
			return
		}
	}
}

func rewriteEvent(event wire.Event, transform func([]byte) []byte) []byte {
	if len(event.Data) == 0 {
		return event.Raw
	}
	message := transform(event.Data)
	switch {
	case message == nil:
		return nil
	case len(message) == len(event.Data) && &message[0] == &event.Data[0]:
		return event.Raw
	default:
		return event.WithData(message)
	}
}
