// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing makes OpenTelemetry spans of MCP messages by the semantic conventions for MCP, and continues the trace
// of who sends them; of a message it changes the trace context alone, and no span has an argument of a call, a part of an
// answer, or who calls.
//
// Everything here can be nil, which makes no span and costs nothing.
package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// The attributes of the semantic conventions for MCP, and of this project.
const (
	methodName      = attribute.Key("mcp.method.name")
	sessionID       = attribute.Key("mcp.session.id")
	protocolVersion = attribute.Key("mcp.protocol.version")
	requestID       = attribute.Key("jsonrpc.request.id")
	toolName        = attribute.Key("gen_ai.tool.name")
	promptName      = attribute.Key("gen_ai.prompt.name")
	operationName   = attribute.Key("gen_ai.operation.name")
	errorType       = attribute.Key("error.type")
	statusCode      = attribute.Key("rpc.response.status_code")
	transportName   = attribute.Key("network.transport")
	networkProtocol = attribute.Key("network.protocol.name")
	networkVersion  = attribute.Key("network.protocol.version")
	serverAddress   = attribute.Key("server.address")
	serverPort      = attribute.Key("server.port")

	governedServer = attribute.Key("tidewaiter.server")
	decision       = attribute.Key("tidewaiter.decision")
	code           = attribute.Key("tidewaiter.code")
	tier           = attribute.Key("tidewaiter.tier")
	rule           = attribute.Key("tidewaiter.rule")
	callID         = attribute.Key("tidewaiter.call")
	request        = attribute.Key("tidewaiter.request")
	outcome        = attribute.Key("tidewaiter.outcome")
)

const (
	// toolError is the error.type of a result that says that the tool failed, or that the gateway refused.
	toolError = "tool_error"
	// other is the error.type of what has no name of its own, and the name of the span of a method that is not known.
	other = "_OTHER"
	// maxText bounds what a sender chooses, in bytes.
	maxText = 128
)

// Tracer makes the spans of a gateway.
type Tracer struct{ tracer trace.Tracer }

// New returns a tracer that makes its spans with a provider.
func New(provider trace.TracerProvider) *Tracer {
	return &Tracer{provider.Tracer("github.com/tidewaiter/tidewaiter/internal/tracing")}
}

// Span is the time that one message of an agent takes at the gateway, with the one that it takes at the server.
type Span struct {
	tracer  trace.Tracer
	span    trace.Span
	message wire.Message
	inMeta  bool // its _meta has a trace context
	name    string
	attrs   []attribute.KeyValue // of both

	mu      sync.Mutex
	sending trace.Span // guarded by mu: over HTTP+SSE an answer can come while its request is still on its way
}

// Serve begins the span of a message that an agent sent for a governed server. An answer of an agent to the server has no
// span: it belongs to that of the request.
func (t *Tracer) Serve(r *http.Request, server types.NamespacedName, m wire.Message) *Span {
	if t == nil || m.Kind == wire.Response {
		return nil
	}
	ctx, links, inMeta := parent(r, m)
	s := &Span{tracer: t.tracer, message: m, inMeta: inMeta, name: nameOf(m), attrs: attributesOf(r.Header, m), sending: noop.Span{}}
	_, s.span = t.tracer.Start(ctx, s.name, trace.WithSpanKind(trace.SpanKindServer), trace.WithLinks(links...))
	if s.span.IsRecording() {
		s.span.SetAttributes(s.attrs...)
		s.span.SetAttributes(governedServer.String(server.String()), networkVersion.String(version(r.ProtoMajor, r.ProtoMinor)))
	}
	return s
}

// nameOf is the method. Whoever sends messages must not make up names of spans, so the name of a tool is added once a
// decision shows that there is such a tool.
func nameOf(m wire.Message) string {
	if _, known := wire.Lookup(m.Method); !known {
		return other
	}
	return m.Method
}

func attributesOf(header http.Header, m wire.Message) []attribute.KeyValue {
	attrs := []attribute.KeyValue{methodName.String(clip(m.Method)), transportName.String("tcp"), networkProtocol.String("http")}
	switch {
	case m.Call != nil:
		attrs = append(attrs, toolName.String(clip(m.Call.Name)), operationName.String("execute_tool"))
	case m.Method == string(mcp.MethodPromptsGet):
		attrs = append(attrs, promptName.String(clip(m.Target())))
	}
	for key, value := range map[attribute.Key]string{
		requestID: idText(m.ID), sessionID: header.Get(mcp.HeaderSessionID), protocolVersion: header.Get(mcp.HeaderProtocolVersion),
	} {
		if value != "" {
			attrs = append(attrs, key.String(clip(value)))
		}
	}
	return attrs
}

// idText is the id of a request as a text.
func idText(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// clip returns a text that keeps nothing of a longer one in memory: a span outlives its message.
func clip(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxText)]), "")
}

func version(major, minor int) string {
	if major > 1 {
		return strconv.Itoa(major)
	}
	return strconv.Itoa(major) + "." + strconv.Itoa(minor)
}

// Decision is what the gateway decided on a message, in the words of receipts; what is empty is not said.
type Decision struct{ Verdict, Code, Tier, Rule, Call, Request, Outcome string }

// Decided notes a decision; what a later one says of the same holds.
func (s *Span) Decided(d Decision) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	if s.message.Call != nil && d.Tier != "" {
		s.name = s.message.Method + " " + clip(s.message.Call.Name)
		s.span.SetName(s.name)
	}
	for _, a := range []attribute.KeyValue{
		decision.String(d.Verdict), code.String(d.Code), tier.String(d.Tier), rule.String(d.Rule), callID.String(d.Call), request.String(d.Request), outcome.String(d.Outcome),
	} {
		if a.Value.AsString() != "" {
			s.span.SetAttributes(a)
		}
	}
}

// Refused notes that the gateway answered with an error of JSON-RPC of its own.
func (s *Span) Refused(code int) {
	if s != nil {
		refused(s.span, strconv.Itoa(code))
	}
}

// ToolError notes that the gateway answered with a result that says that the call failed.
func (s *Span) ToolError() {
	if s != nil {
		failed(s.span, toolError)
	}
}

func refused(span trace.Span, code string) {
	span.SetAttributes(statusCode.String(code))
	failed(span, code)
}

func failed(span trace.Span, kind string) {
	span.SetAttributes(errorType.String(kind))
	span.SetStatus(codes.Error, "")
}

// End ends the span, and that of the message on its way to the server.
func (s *Span) End() {
	if s != nil {
		s.sent().End()
		s.span.End()
	}
}

// Send begins the span of the message on its way to the server, and names it as the parent of what follows: in the headers
// of the request that it goes with, and in its _meta where the agent named one there. It returns the body to send.
func (s *Span) Send(req *http.Request, body []byte) []byte {
	if s == nil {
		return body
	}
	ctx, span := s.tracer.Start(trace.ContextWithSpan(req.Context(), s.span), s.name, trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(s.attrs...)
		span.SetAttributes(serverAddress.String(req.URL.Hostname()), serverPort.Int(port(req.URL)))
	}
	s.mu.Lock()
	s.sending = span
	s.mu.Unlock()
	header := req.Header
	header.Del("Tracestate") // it belongs to the traceparent that is replaced
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	if !s.inMeta {
		return s.message.Raw
	}
	return within(header.Get("Traceparent"), s.message)
}

// sent is the span of the message on its way to the server; before there is one it takes no notice of anything.
func (s *Span) sent() trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sending
}

func port(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// Received notes what the server answered to the message that was sent, or that it did not.
func (s *Span) Received(resp *http.Response, err error) {
	if s == nil {
		return
	}
	sending := s.sent()
	if err != nil {
		kind := other
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			kind = "timeout"
		case errors.Is(err, context.Canceled):
			kind = "cancelled"
		}
		failed(sending, kind)
		sending.End()
		return
	}
	sending.SetAttributes(networkVersion.String(version(resp.ProtoMajor, resp.ProtoMinor)))
	for _, span := range []trace.Span{sending, s.span} {
		if resp.StatusCode >= http.StatusBadRequest {
			failed(span, strconv.Itoa(resp.StatusCode))
		}
		if id := resp.Header.Get(mcp.HeaderSessionID); id != "" {
			span.SetAttributes(sessionID.String(clip(id)))
		}
	}
}

// Watch returns what looks at every message of an answer before it is transformed. Without a span that is the
// transformation.
func (s *Span) Watch(transform func([]byte) []byte) func([]byte) []byte {
	if s == nil {
		return transform
	}
	return func(message []byte) []byte {
		s.answered(message)
		return transform(message)
	}
}

// answered notes what a message of the server says of the fate of the request; with the answer its time there is over.
func (s *Span) answered(message []byte) {
	answer, found, err := wire.ScanAnswer(message)
	if err != nil || !found || !wire.SameID(answer.ID, s.message.ID) {
		return
	}
	sending := s.sent()
	for _, span := range []trace.Span{sending, s.span} {
		switch {
		case answer.Error:
			refused(span, strconv.Itoa(answer.Code))
		case answer.IsError:
			failed(span, toolError)
		}
	}
	sending.End()
}
