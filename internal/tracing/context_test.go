// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// recorded returns a tracer, and what keeps its spans as a queue does.
func recorded() (*tracetest.SpanRecorder, *Tracer) {
	recorder := tracetest.NewSpanRecorder()
	return recorder, New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
}

// ofMeta is a call whose _meta is that. Its arguments have a member of the same name, which is nobody's but the tool's.
func ofMeta(meta string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ "name":"get_invoice","arguments":{"traceparent":"` + byHeader + `"}, "_meta" :` + meta + `}}`
}

func TestTheSpanIsTheParentInMetaWhereTheAgentNamedOne(t *testing.T) {
	t.Parallel()
	const span = "<the span>"
	for name, tc := range map[string]struct{ meta, want string }{
		"a parent":                   {`{"progressToken":7, "traceparent" : "` + byMeta + `","tracestate":"a=1","baggage":"k=v"}`, `{"progressToken":7, "traceparent" : "` + span + `","tracestate":"a=1","baggage":"k=v"}`},
		"one of a later version":     {`{"traceparent":"01` + byMeta[2:] + `"}`, `{"traceparent":"` + span + `"}`},
		"none":                       {`{"progressToken":7}`, ""},
		"one of no trace":            {`{"traceparent":"00-00000000000000000000000000000000-b7ad6b7169203331-01"}`, ""},
		"one with capitals":          {`{"traceparent":"` + strings.ToUpper(byMeta) + `"}`, ""},
		"one written with an escape": {`{"traceparent":"\u0030` + byMeta[1:] + `"}`, ""},
		"one that ends with a line":  {`{"traceparent":"` + byMeta[:53] + `\n"}`, ""},
		"one that is too short":      {`{"traceparent":"` + byMeta[:54] + `"}`, ""},
		"one that is longer":         {`{"traceparent":"` + byMeta + `-x"}`, ""},
		"one of a longer version":    {`{"traceparent":"01` + byMeta[2:] + `-what-the-future-adds"}`, ""},
		"one that is no text":        {`{"traceparent":["` + byMeta[:53] + `"]}`, ""},
		"one under another name":     {`{"traceparents":"` + byMeta + `"}`, ""},
		"one deeper":                 {`{"x":{"traceparent":"` + byMeta + `"}}`, ""},
		"nothing":                    {`null`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, tracer := recorded()
			given := ofMeta(tc.meta)
			m := parse(t, given)
			outbound, sent := pass(t, tracer, given, answer)
			want := given
			if tc.want != "" {
				parent := outbound.Header.Get("Traceparent")
				want = ofMeta(strings.ReplaceAll(tc.want, span, parent))
				if len(want) != len(given) || !strings.HasPrefix(parent, "00-0af7651916cd43dd8448eb211c80319c-") || strings.Contains(byMeta, parent[36:]) {
					t.Errorf("the parent %q in %s", parent, want)
				}
			}
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Errorf("the server gets (-want +got):\n%s", diff)
			}
			if string(m.Raw) != given || len(recorder.Ended()) != 2 {
				t.Errorf("%d spans, and the message is %s", len(recorder.Ended()), m.Raw)
			}
		})
	}
}

func TestSeveralHeadersAreReadAsOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		headers       []string
		parent, state string
	}{
		"several states":  {[]string{"Traceparent", byHeader, "Tracestate", "a=1", "Tracestate", "b=2"}, "00f067aa0ba902b7", "a=1,b=2"},
		"several parents": {[]string{"Traceparent", byHeader, "Traceparent", byMeta, "Tracestate", "a=1"}, "0000000000000000", ""},
		"a long state":    {[]string{"Traceparent", byHeader, "Tracestate", "a=1" + strings.Repeat(",", maxState)}, "00f067aa0ba902b7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, tracer := recorded()
			sent, _ := pass(t, tracer, unmarked, answer, tc.headers...)
			for _, span := range recorder.Ended() {
				if span.Name() != "tools/call get_invoice" || span.Parent().IsRemote() && span.Parent().SpanID().String() != tc.parent {
					t.Errorf("%s below %+v", span.Name(), span.Parent())
				}
			}
			if got := sent.Header.Values("Tracestate"); strings.Join(got, ";") != tc.state || len(sent.Header.Values("Traceparent")) != 1 {
				t.Errorf("the server gets %v", sent.Header)
			}
		})
	}
}

func TestSpansThatWaitKeepNoMessage(t *testing.T) { //nolint:paralleltest // memory is measured
	const spans, size = 16, 256 << 10
	long := strings.Repeat("x", size)
	for name, body := range map[string]string{
		"of a long tracestate":  ofMeta(`{"traceparent":"` + byMeta + `","tracestate":"a=1` + strings.Repeat(",", size) + `"}`),
		"of a long traceparent": ofMeta(`{"traceparent":"01` + byMeta[2:] + "-" + long + `"}`),
		"of a long id":          `{"jsonrpc":"2.0","id":"` + long + `","method":"ping"}`,
		"of a long tool":        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + long + `"}}`,
		"of a long method":      `{"jsonrpc":"2.0","id":1,"method":"` + long + `"}`,
		"of long arguments":     `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"x":"` + long + `"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			recorder, tracer := recorded()
			before := live()
			for range spans {
				m := parse(t, body)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
				span := tracer.Serve(r, billing, m)
				span.Decided(Decision{Tier: "Read"})
				span.Send(r, m.Raw)
				span.End()
			}
			if grown := live() - before; grown > size || len(recorder.Ended()) != 2*spans {
				t.Errorf("%d spans keep %d bytes", len(recorder.Ended()), grown)
			}
		})
	}
}

func live() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

func FuzzAnyTraceContextPasses(f *testing.F) {
	f.Add(byMeta, "a=1", byHeader)
	f.Add("00-1", ",,", "")
	f.Add("ff"+byMeta[2:], "a=1,a=1", byMeta)
	f.Add("01"+byMeta[2:]+"-x", strings.Repeat("a=1,", 40), strings.ToUpper(byHeader))
	f.Fuzz(func(t *testing.T, parent, state, header string) {
		given := ofMeta(`{"traceparent":"` + parent + `","tracestate":"` + state + `"}`)
		if _, refusal := wire.Parse([]byte(given)); refusal != nil {
			return // no message
		}
		_, tracer := recorded()
		outbound, sent := pass(t, tracer, given, answer, "Traceparent", header, "Tracestate", state)
		now := outbound.Header.Get("Traceparent")
		if len(now) != parentLength || sent != given && sent != ofMeta(`{"traceparent":"`+now+`","tracestate":"`+state+`"}`) {
			t.Errorf("the server gets %v and %s", outbound.Header, sent)
		}
	})
}
