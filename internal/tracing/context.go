// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// parentLength is that of a traceparent of version 00, in bytes.
	parentLength = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	// maxState bounds a tracestate, in bytes: spans keep it until they are sent. A longer one is left out of them.
	maxState = 4 << 10
)

// parent returns the context of who sent a message: that in its _meta, and else that of its headers. Where both are there
// and differ the second is linked, as the conventions say.
func parent(r *http.Request, m wire.Message) (ctx context.Context, links []trace.Link, inMeta bool) {
	var byHeader trace.SpanContext
	if parents := r.Header.Values("Traceparent"); len(parents) == 1 {
		byHeader = remote(r.Context(), parents[0], strings.Join(r.Header.Values("Tracestate"), ","))
	}
	byMeta := remote(r.Context(), m.Meta("traceparent").Text(), m.Meta("tracestate").Text())
	if !byMeta.IsValid() {
		return trace.ContextWithRemoteSpanContext(r.Context(), byHeader), nil, false
	}
	if byHeader.IsValid() && !byHeader.Equal(byMeta) {
		links = []trace.Link{{SpanContext: byHeader}}
	}
	return trace.ContextWithRemoteSpanContext(r.Context(), byMeta), links, true
}

// remote reads a trace context; what is malformed is none.
func remote(ctx context.Context, parent, state string) trace.SpanContext {
	if len(state) > maxState {
		state = ""
	}
	carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier))
}

// within returns a message with another parent in its _meta than the one that is there. It is written over that, digit by
// digit, so that nothing else of the message moves or changes: what was judged, and what people approved, is what the
// server gets. What is longer, as a later version may be, stays.
func within(parent string, m wire.Message) []byte {
	before := m.Meta("traceparent")
	if len(before.Raw()) != parentLength+len(`""`) {
		return m.Raw
	}
	body := bytes.Clone(m.Raw)
	copy(body[before.Start()+len(`"`):], parent)
	return body
}
