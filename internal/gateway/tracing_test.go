// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
)

// traced has the gateway make spans, and returns those that ended.
func (r *rig) traced() *tracetest.SpanRecorder {
	recorder := tracetest.NewSpanRecorder()
	r.gateway.Tracer = tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	return recorder
}

// spanOf returns the last span of a kind that ended.
func spanOf(recorder *tracetest.SpanRecorder, kind trace.SpanKind) (name string, attributes map[string]string, span sdktrace.ReadOnlySpan) {
	attributes = map[string]string{}
	for _, s := range recorder.Ended() {
		if s.SpanKind() != kind {
			continue
		}
		span, name = s, s.Name()
		clear(attributes)
		for _, a := range s.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
		}
	}
	return name, attributes, span
}

// within is a call that says in its _meta which trace it is part of.
func within(tool, traceID string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"name":%q,"arguments":{"n":1},"_meta":{"traceparent":"00-%s-b7ad6b7169203331-01","tracestate":"a=1","baggage":"k=v"}}}`, tool, traceID)
}

const (
	oneTrace     = "0af7651916cd43dd8448eb211c80319c"
	anotherTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
)

func TestTheTraceGoesOn(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]bool{"with spans": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var recorder *tracetest.SpanRecorder
			if on {
				recorder = r.traced()
			}
			if got := r.post(within("delete_account", oneTrace)); got.code() != codePending {
				t.Fatalf("not asked: %s", got.body)
			}
			r.decide(v1alpha1.DecisionApproved)
			again := within("delete_account", anotherTrace)
			header := "00-" + oneTrace + "-00f067aa0ba902b7-01"
			if got := r.post(again, "Traceparent", header, "Tracestate", "b=2", "Baggage", "k=w"); got.code() != "" || got.status != http.StatusOK {
				t.Fatalf("sent again under another trace: HTTP %d: %s", got.status, got.body)
			}
			seen := r.upstream.requests()
			if len(seen) != 1 {
				t.Fatalf("the server got %+v", seen)
			}
			got := map[string]string{"body": seen[0].body}
			for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
				got[name] = seen[0].header.Get(name)
			}
			want := map[string]string{"Traceparent": header, "Tracestate": "b=2", "Baggage": "k=w", "body": again}
			if on {
				_, _, client := spanOf(recorder, trace.SpanKindClient)
				parent := "00-" + anotherTrace + "-" + client.SpanContext().SpanID().String() + "-01"
				want["Traceparent"], want["Tracestate"] = parent, "a=1"
				want["body"] = strings.Replace(again, "00-"+anotherTrace+"-b7ad6b7169203331-01", parent, 1)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpansSayWhatWasDecided(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*rig)
		message string
		answer  http.HandlerFunc
		span    string
		sent    bool
		want    map[string]string // of the attributes that depend on what happened
	}{
		"a read": {nil, toolCall("get_invoice", `{}`), nil, "tools/call get_invoice", true,
			map[string]string{"tidewaiter.decision": "Allow", "tidewaiter.code": "ReadTool", "tidewaiter.tier": "Read", "tidewaiter.rule": "tier"}},
		"a read that fails": {nil, toolCall("get_invoice", `{}`), answerJSON(`{"isError":true}`), "tools/call get_invoice", true,
			map[string]string{"tidewaiter.decision": "Allow", "tidewaiter.code": "ReadTool", "tidewaiter.tier": "Read", "tidewaiter.rule": "tier", "error.type": "tool_error"}},
		"a call that waits": {nil, toolCall("update_invoice", `{}`), nil, "tools/call update_invoice", false,
			map[string]string{"tidewaiter.decision": "RequireApproval", "tidewaiter.code": codePending, "tidewaiter.tier": "Reversible", "tidewaiter.rule": "tier", "error.type": "tool_error"}},
		"an unattended call": {(*rig).promote, toolCall("update_invoice", `{}`), nil, "tools/call update_invoice", true,
			map[string]string{"tidewaiter.decision": "Allow", "tidewaiter.code": "Unattended", "tidewaiter.rule": "ToolPolicy/team spec.autonomy[0]", "tidewaiter.tier": "Reversible", "tidewaiter.outcome": "Succeeded"}},
		"an unattended call that fails": {(*rig).promote, toolCall("update_invoice", `{}`), answerJSON(`{"isError":true}`), "tools/call update_invoice", true,
			map[string]string{"tidewaiter.decision": "Allow", "tidewaiter.code": "Unattended", "tidewaiter.rule": "ToolPolicy/team spec.autonomy[0]", "tidewaiter.tier": "Reversible", "tidewaiter.outcome": "ToolError", "error.type": "tool_error"}},
		"an unknown tool": {nil, toolCall("drop_table", `{}`), nil, "tools/call", false,
			map[string]string{"tidewaiter.decision": "Deny", "tidewaiter.code": "ToolUnknown", "error.type": "tool_error"}},
		"another method": {nil, ping, nil, "ping", true, map[string]string{}},
		"a method that is refused": {func(r *rig) { r.edit(func() { r.governed.Spec.OtherMethods = v1alpha1.OtherMethodsDeny }) },
			`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc"}}`, nil, "resources/read", false,
			map[string]string{"tidewaiter.decision": "Deny", "tidewaiter.code": "MethodDenied", "tidewaiter.rule": "spec.otherMethods of the server", "error.type": "-32010", "rpc.response.status_code": "-32010"}},
		"a list of tools": {nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, answerWith("application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}`), "tools/list", true,
			map[string]string{"error.type": "-32603", "rpc.response.status_code": "-32603"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			recorder := r.traced()
			if tc.prepare != nil {
				tc.prepare(r)
			}
			r.upstream.answers(tc.answer)
			if got := r.post(tc.message); got.status != http.StatusOK {
				t.Fatalf("HTTP %d: %s", got.status, got.body)
			}
			r.until("the span has ended", func() bool { _, _, span := spanOf(recorder, trace.SpanKindServer); return span != nil })
			span, attributes, server := spanOf(recorder, trace.SpanKindServer)
			got := map[string]string{}
			for key, value := range attributes {
				if strings.HasPrefix(key, "tidewaiter.") && key != "tidewaiter.server" && key != "tidewaiter.request" && key != "tidewaiter.call" || key == "error.type" || key == "rpc.response.status_code" {
					got[key] = value
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || span != tc.span {
				t.Errorf("the span %q, want %q, and (-want +got):\n%s", span, tc.span, diff)
			}
			if failed := server.Status().Code == codes.Error; failed != (tc.want["error.type"] != "") {
				t.Errorf("status %v", server.Status())
			}
			if asked := len(r.requests()) > 0; asked != (attributes["tidewaiter.request"] != "") {
				t.Errorf("the request is %q", attributes["tidewaiter.request"])
			}
			kept := r.receiptLines()
			recorded := slices.ContainsFunc(kept, func(k receipt.Receipt) bool { return k.CallID != "" && k.CallID == attributes["tidewaiter.call"] })
			if recorded != (tc.want["tidewaiter.decision"] != "") {
				t.Errorf("the span is of call %q, and on record is %+v", attributes["tidewaiter.call"], kept)
			}
			_, _, client := spanOf(recorder, trace.SpanKindClient)
			if (client != nil) != tc.sent || tc.sent && client.Parent().SpanID() != server.SpanContext().SpanID() {
				t.Errorf("the span to the server: %v, want one below the other: %v", client, tc.sent)
			}
		})
	}
}

// What the gateway answers for a server that does not is an error of the gateway's own, which the server never said.
func TestSpansSayThatAServerGaveNoAnswer(t *testing.T) {
	t.Parallel()
	const fault = "-32603"
	for name, tc := range map[string]struct {
		answer  http.HandlerFunc
		message string
		want    int
		fault   string
	}{
		"an answer of no known kind":   {answerWith("text/html", "<p>"), toolCall("get_invoice", `{}`), http.StatusBadGateway, fault},
		"no answer to a read":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, toolCall("get_invoice", `{}`), http.StatusBadGateway, fault},
		"no answer to another message": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ping, http.StatusBadGateway, fault},
		"an answer to a read":          {nil, toolCall("get_invoice", `{}`), http.StatusOK, ""},
		"an answer to another message": {nil, ping, http.StatusOK, ""},
		"an answer that nobody reads":  {answerWith("text/html", "<p>"), ping, http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			recorder := r.traced()
			r.upstream.answers(tc.answer)
			if got := r.post(tc.message); got.status != tc.want {
				t.Fatalf("HTTP %d: %s", got.status, got.body)
			}
			r.until("the span has ended", func() bool { _, _, span := spanOf(recorder, trace.SpanKindServer); return span != nil })
			_, attributes, span := spanOf(recorder, trace.SpanKindServer)
			if attributes["error.type"] != tc.fault || attributes["rpc.response.status_code"] != tc.fault || (span.Status().Code == codes.Error) != (tc.fault != "") {
				t.Errorf("the span has %v and the status %v", attributes, span.Status())
			}
		})
	}
}

func TestATraceContextThatNobodyCanReadBreaksNoCall(t *testing.T) {
	t.Parallel()
	const parent = "00-" + oneTrace + "-b7ad6b7169203331-01"
	long := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		meta    string
		headers []string
		goesOn  bool // the parent is that of the message, and becomes the gateway's span
		refused bool
	}{
		"one that is well formed": {meta: `{"traceparent":"` + parent + `","tracestate":"a=1"}`, goesOn: true},
		"a malformed parent":      {meta: `{"traceparent":"00-zz"}`, headers: []string{"Traceparent", "00-zz", "Tracestate", "=,="}},
		"a long parent":           {meta: `{"traceparent":"01` + parent[2:] + `-` + long + `"}`},
		"a long state":            {meta: `{"traceparent":"` + parent + `","tracestate":"a=` + long + `"}`, goesOn: true},
		"a long header":           {meta: `{}`, headers: []string{"Traceparent", parent, "Tracestate", "a=" + long[:32<<10]}},
		"values of another kind":  {meta: `{"traceparent":{"a":[1]},"tracestate":null,"baggage":7}`},
		"two parents":             {meta: `{"traceparent":"` + parent + `","traceparent":"` + parent + `"}`, refused: true},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, spans %v", name, on), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				if on {
					r.traced()
				}
				call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_invoice","arguments":{},"_meta":` + tc.meta + `}}`
				got, seen := r.post(call, tc.headers...), r.upstream.requests()
				if tc.refused {
					if got.status != http.StatusBadRequest || len(seen) != 0 {
						t.Errorf("HTTP %d: %s, and the server got %d requests", got.status, got.body, len(seen))
					}
					return
				}
				if got.status != http.StatusOK || got.code() != "" || len(seen) != 1 {
					t.Fatalf("HTTP %d: %.200s, and the server got %d requests", got.status, got.body, len(seen))
				}
				want := call
				if on && tc.goesOn {
					want = strings.Replace(call, parent, seen[0].header.Get("Traceparent"), 1)
				}
				if seen[0].body != want || on && tc.goesOn && want == call {
					t.Errorf("the server got %.400s", seen[0].body)
				}
			})
		}
	}
}

func TestSpansOverAStreamLastToTheAnswer(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	recorder := r.traced()
	a := r.listens()
	call := within("get_invoice", oneTrace)
	a.sends(call)
	if _, _, early := spanOf(recorder, trace.SpanKindClient); early != nil {
		t.Errorf("the span %v ended before the answer", early)
	}
	reached := s.got(1)
	s.answers("1", `{"isError":true}`)
	a.answer()
	r.until("the spans have ended", func() bool { _, _, span := spanOf(recorder, trace.SpanKindServer); return span != nil })
	name, attributes, server := spanOf(recorder, trace.SpanKindServer)
	_, _, client := spanOf(recorder, trace.SpanKindClient)
	if name != "tools/call get_invoice" || attributes["tidewaiter.decision"] != "Allow" || attributes["error.type"] != "tool_error" || server.Parent().TraceID().String() != oneTrace {
		t.Errorf("the span %s has %v", name, attributes)
	}
	parent := "00-" + oneTrace + "-" + client.SpanContext().SpanID().String() + "-01"
	if client.Parent().SpanID() != server.SpanContext().SpanID() || reached.header.Get("Traceparent") != parent ||
		reached.body != strings.Replace(call, "00-"+oneTrace+"-b7ad6b7169203331-01", parent, 1) {
		t.Errorf("the server got %+v, want the parent %s", reached, parent)
	}
	a.sends(withID("2", toolCall("drop_table", `{}`)))
	a.answer()
	a.sends(withID("3", ping))
	s.got(2)
	s.answers("3", `{}`)
	a.answer()
	r.until("all spans have ended", func() bool { return len(recorder.Ended()) == 5 })
	names := map[string]int{}
	for _, span := range recorder.Ended() {
		names[span.SpanKind().String()+" "+span.Name()]++
	}
	want := map[string]int{"server tools/call get_invoice": 1, "client tools/call get_invoice": 1, "server tools/call": 1, "server ping": 1, "client ping": 1}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}
