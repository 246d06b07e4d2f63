// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// reply is the answer to one call. It starts as whatever the server's answer will be; the first sign of life during a
// hold commits it to an event stream.
type reply struct {
	w         http.ResponseWriter
	id        []byte
	token     []byte
	events    bool // the client reads event streams
	stateless bool // the client speaks a revision whose results have a resultType
	task      bool // the client asked for a task: it reads no result of a tool
	span      *tracing.Span
	serial    bool // the connection takes no other request before the end of this one
	committed bool
	gone      bool
	answered  bool // by the gateway
}

func newReply(w http.ResponseWriter, r *http.Request, m wire.Message, span *tracing.Span) *reply {
	return &reply{
		w: w, id: m.ID, token: m.Call.ProgressToken, span: span,
		events:    strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream"),
		stateless: mcp.RequiresStandardHeaders(r.Header.Get(mcp.HeaderProtocolVersion)),
		task:      m.Call.Task,
		serial:    r.ProtoMajor < 2,
	}
}

// progress tells a client that asked for it that the call is still held. The numbers are tiny, so that those of the
// server, which start anew when the call runs, go on from there.
func (p *reply) progress(n int, text string) {
	if p.token == nil || !p.events || p.gone {
		return
	}
	p.commit()
	message := append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), p.token...)
	message = append(message, `,"progress":`...)
	message = append(message, "0.00000"...)
	message = appendDigits(message, n)
	message = append(message, `,"message":`...)
	message = strictjson.AppendString(message, text)
	p.event(append(message, `}}`...))
}

// appendDigits keeps the numbers of at most five holds of progress apart and growing: 10, 11, … 99.
func appendDigits(dst []byte, n int) []byte {
	n = min(n+9, 99)
	return append(dst, byte('0'+n/10), byte('0'+n%10))
}

func (p *reply) commit() {
	if p.committed {
		return
	}
	p.committed = true
	p.w.Header().Set("Content-Type", "text/event-stream")
	p.w.Header().Set("Cache-Control", "no-cache")
	p.w.WriteHeader(http.StatusOK)
}

// event sends one message on the committed stream.
func (p *reply) event(message []byte) {
	p.raw(eventOf(message))
}

// eventOf returns a message as an event.
func eventOf(message []byte) []byte {
	return append(append([]byte("event: message\ndata: "), oneLine(message)...), "\n\n"...)
}

// raw sends bytes on the committed stream, as long as the client listens.
func (p *reply) raw(bytes []byte) {
	if !p.gone {
		p.gone = writeNow(p.w, bytes) != nil
	}
}

// flush has the client get at once what was written. One that stalls for too long counts as gone: what becomes of a call
// must not depend on whether somebody reads.
func (p *reply) flush() {
	if !p.gone {
		p.gone = flush(p.w) != nil
	}
}

// last tells the client not to send its next request on this connection: it would wait for the end of this call.
func (p *reply) last() {
	if p.serial && !p.committed {
		p.w.Header().Set("Connection", "close")
	}
}

// message answers with one message of the gateway, or of the server.
func (p *reply) message(status int, body []byte) {
	p.answered = true
	switch {
	case p.committed:
		p.event(body)
	default:
		writeJSON(p.w, status, body)
	}
}

func (p *reply) notice(n notice) {
	if p.task {
		p.refuse(n.refusal())
		return
	}
	p.span.ToolError()
	p.message(http.StatusOK, n.body(p.id, p.stateless))
}

func (p *reply) refuse(refusal *wire.Refusal) {
	p.span.Refused(refusal.Code)
	p.message(refusal.Status, refusal.For(p.id).Body())
}
