// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/internal/fixture/collector"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	byMeta   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	byHeader = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	message  = `{"jsonrpc":"2.0","id":"a-1","method":"tools/call","params":{"name":"get_invoice","arguments":{"iban":"DE-secret"},"_meta":{"traceparent":"` + byMeta + `","tracestate":"a=1"}}}`
	unmarked = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_invoice","arguments":{}}}`
	answer   = `{"jsonrpc":"2.0","id":"a-1","result":{"content":[{"type":"text","text":"DE-secret"}]}}`
)

var billing = types.NamespacedName{Namespace: "finance", Name: "billing"}

func parse(t testing.TB, body string) wire.Message {
	t.Helper()
	m, refusal := wire.Parse([]byte(body))
	if refusal != nil {
		t.Fatal(refusal)
	}
	return m
}

// pass is a message on its way through a gateway: it is let through, sent and answered. It returns what the server gets.
func pass(t *testing.T, tracer *Tracer, body, answer string, headers ...string) (outbound *http.Request, sent string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	span := tracer.Serve(r, billing, parse(t, body))
	defer span.End()
	span.Decided(Decision{Verdict: "Allow", Code: "ReadTool", Tier: "Read", Call: "c-1", Request: "billing-1"})
	outbound = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://billing.example.com/mcp", nil)
	outbound.Header = r.Header.Clone()
	sent = string(span.Send(outbound, []byte(body)))
	resp := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 2, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer))}
	span.Received(resp, nil)
	if got := span.Watch(func(m []byte) []byte { return m })([]byte(answer)); string(got) != answer {
		t.Errorf("the answer became %s", got)
	}
	return outbound, sent
}

func TestSpansArriveAtACollector(t *testing.T) {
	for protocol, start := range map[string]func(testing.TB) *collector.Collector{"http/protobuf": collector.StartHTTP, "grpc": collector.StartGRPC} {
		t.Run(protocol, func(t *testing.T) {
			c := start(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
			tracer, stop, err := Export(t.Context(), "gw", func(name string) string {
				return map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}[name]
			})
			if err != nil {
				t.Fatal(err)
			}
			sent, _ := pass(t, tracer, message, answer, "Traceparent", byHeader, "Tracestate", "b=2", "Mcp-Session-Id", "s-1", "Mcp-Protocol-Version", "2025-11-25", "Baggage", "k=v")
			if err := stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			spans := c.Spans()
			server, client := spans["server tools/call get_invoice"], spans["client tools/call get_invoice"]
			both := map[string]string{
				"mcp.method.name": "tools/call", "gen_ai.tool.name": "get_invoice", "gen_ai.operation.name": "execute_tool", "jsonrpc.request.id": "a-1",
				"mcp.session.id": "s-1", "mcp.protocol.version": "2025-11-25", "network.transport": "tcp", "network.protocol.name": "http",
			}
			with := func(more map[string]string) map[string]string {
				maps.Copy(more, both)
				return more
			}
			want := collector.Span{
				Name: "tools/call get_invoice", Kind: "server", TraceID: "0af7651916cd43dd8448eb211c80319c", ParentID: "b7ad6b7169203331", State: "a=1",
				SpanID: server.SpanID, Links: []string{"00f067aa0ba902b7"}, Service: "tidewaiter-gateway", Attributes: with(map[string]string{
					"network.protocol.version": "1.1", "tidewaiter.server": "finance/billing", "tidewaiter.decision": "Allow", "tidewaiter.code": "ReadTool",
					"tidewaiter.tier": "Read", "tidewaiter.call": "c-1", "tidewaiter.request": "billing-1",
				}),
			}
			if diff := cmp.Diff(want, server); diff != "" {
				t.Errorf("of the agent's message (-want +got):\n%s", diff)
			}
			want = collector.Span{
				Name: want.Name, Kind: "client", TraceID: want.TraceID, ParentID: server.SpanID, State: "a=1", SpanID: client.SpanID, Service: want.Service,
				Attributes: with(map[string]string{"network.protocol.version": "2", "server.address": "billing.example.com", "server.port": "443"}),
			}
			if diff := cmp.Diff(want, client); diff != "" {
				t.Errorf("of the one to the server (-want +got):\n%s", diff)
			}
			wantSent := "00-" + want.TraceID + "-" + client.SpanID + "-01"
			if sent.Header.Get("Traceparent") != wantSent || sent.Header.Get("Tracestate") != "a=1" || sent.Header.Get("Baggage") != "k=v" || c.Len() != 2 {
				t.Errorf("the server got %v of %d spans, want the parent %s", sent.Header, c.Len(), wantSent)
			}
		})
	}
	if _, _, err := Export(t.Context(), "gw", func(string) string { return "http/json" }); err == nil {
		t.Error("a protocol that is not known was taken")
	}
}

func TestTheTraceGoesOnFromWhoeverIsNearer(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		headers []string
		trace   string // "" begins one
		links   int
	}{
		"in _meta":               {message, nil, "0af7651916cd43dd8448eb211c80319c", 0},
		"in headers":             {unmarked, []string{"Traceparent", byHeader}, "4bf92f3577b34da6a3ce929d0e0e4736", 0},
		"in both, the same":      {message, []string{"Traceparent", byMeta, "Tracestate", "a=1"}, "0af7651916cd43dd8448eb211c80319c", 0},
		"in both, and different": {message, []string{"Traceparent", byHeader}, "0af7651916cd43dd8448eb211c80319c", 1},
		"nowhere":                {unmarked, nil, "", 0},
		"not readable":           {unmarked, []string{"Traceparent", "00-1", "Tracestate", "b=2"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, tracer, stop := exporting(t)
			outbound, _ := pass(t, tracer, tc.body, answer, tc.headers...)
			sent := outbound.Header
			stop()
			server := c.Spans()["server tools/call get_invoice"]
			if tc.trace != "" && server.TraceID != tc.trace || tc.trace == "" && (server.ParentID != "" || sent.Get("Tracestate") != "") || len(server.Links) != tc.links {
				t.Errorf("got %+v and sent %v", server, sent)
			}
			if !strings.HasPrefix(sent.Get("Traceparent"), "00-"+server.TraceID+"-") || strings.Contains(sent.Get("Traceparent"), server.SpanID) {
				t.Errorf("the server got %q", sent.Get("Traceparent"))
			}
		})
	}
}

// exporting returns a tracer that sends to a collector.
func exporting(t *testing.T) (*collector.Collector, *Tracer, func()) {
	t.Helper()
	c := collector.StartHTTP(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	tracer, stop, err := Export(t.Context(), "gw", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return c, tracer, func() {
		if err := stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestSpansSayHowAMessageFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		happens        func(s *Span)
		server, client string // error.type of each; "" for none
		status         string
	}{
		"not at all": {func(s *Span) { s.answered([]byte(answer)) }, "", "", ""},
		"the tool":   {func(s *Span) { s.answered([]byte(`{"jsonrpc":"2.0","id":"a-1","result":{"isError":true}}`)) }, "tool_error", "tool_error", ""},
		"an error": {func(s *Span) {
			s.answered([]byte(`{"jsonrpc":"2.0","id":"a-1","error":{"code":-32602,"message":"DE-secret"}}`))
		}, "-32602", "-32602", "-32602"},
		"that of another": {func(s *Span) {
			s.answered([]byte(`{"jsonrpc":"2.0","id":"b-1","error":{"code":-32602,"message":"x"}}`))
		}, "", "", ""},
		"no JSON":        {func(s *Span) { s.answered([]byte(`{`)) }, "", "", ""},
		"a refusal":      {func(s *Span) { s.Refused(-32010) }, "-32010", "", "-32010"},
		"a notice":       {func(s *Span) { s.ToolError() }, "tool_error", "", ""},
		"not sent":       {func(s *Span) { s.Received(nil, errors.New("dial DE-secret")) }, "", "_OTHER", ""},
		"not in time":    {func(s *Span) { s.Received(nil, context.DeadlineExceeded) }, "", "timeout", ""},
		"the agent left": {func(s *Span) { s.Received(nil, context.Canceled) }, "", "cancelled", ""},
		"an error of HTTP": {func(s *Span) {
			s.Received(&http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody}, nil)
		}, "404", "404", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, tracer, stop := exporting(t)
			span := tracer.Serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil), billing, parse(t, message))
			span.Send(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://billing:8080/mcp", nil), []byte(message))
			tc.happens(span)
			span.End()
			stop()
			spans := c.Spans()
			server, client := spans["server tools/call"], spans["client tools/call"]
			if server.Attributes["error.type"] != tc.server || server.Failed != (tc.server != "") || server.Attributes["rpc.response.status_code"] != tc.status {
				t.Errorf("of the agent's message: %+v", server)
			}
			if client.Attributes["error.type"] != tc.client || client.Failed != (tc.client != "") || client.Attributes["server.port"] != "8080" {
				t.Errorf("of the one to the server: %+v", client)
			}
			for _, s := range spans {
				for key, value := range s.Attributes {
					if strings.Contains(value, "secret") {
						t.Errorf("%s says %s", key, value)
					}
				}
			}
		})
	}
}

func TestSendersMakeUpNoNames(t *testing.T) {
	long := strings.Repeat("x", 4096)
	for name, tc := range map[string]struct{ body, want, method string }{
		"a method":         {`{"jsonrpc":"2.0","id":1,"method":"vendor/` + long + `"}`, "_OTHER", ("vendor/" + long)[:maxText]},
		"a tool":           {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + long + `"}}`, "tools/call", "tools/call"},
		"a known method":   {`{"jsonrpc":"2.0","id":"` + long + `","method":"prompts/get","params":{"name":"greet"}}`, "prompts/get", "prompts/get"},
		"a notification":   {`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, "notifications/cancelled", "notifications/cancelled"},
		"a resource's URI": {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///` + long + `"}}`, "resources/read", "resources/read"},
	} {
		t.Run(name, func(t *testing.T) {
			c, tracer, stop := exporting(t)
			span := tracer.Serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil), billing, parse(t, tc.body))
			span.End()
			stop()
			got, found := c.Spans()["server "+tc.want]
			if !found || got.Attributes["mcp.method.name"] != tc.method {
				t.Fatalf("spans %+v", c.Spans())
			}
			for key, value := range got.Attributes {
				if len(value) > maxText || strings.Contains(value, "file:") {
					t.Errorf("%s has %d bytes", key, len(value))
				}
			}
		})
	}
	c, tracer, stop := exporting(t)
	if span := tracer.Serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil), billing, parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)); span != nil {
		t.Error("an answer of the agent has a span of its own")
	}
	stop()
	if c.Len() != 0 {
		t.Errorf("%d spans", c.Len())
	}
}

// off is everything that the gateway does for a message, without a tracer.
func off(r *http.Request, m wire.Message, transform func([]byte) []byte) (body []byte) {
	var tracer *Tracer
	span := tracer.Serve(r, billing, m)
	span.Decided(Decision{Verdict: "Allow", Code: "ReadTool", Tier: "Read"})
	body = span.Send(r, m.Raw)
	span.Received(nil, nil)
	span.Watch(transform)
	span.Refused(-32010)
	span.ToolError()
	span.End()
	return body
}

func TestOffCostsNothing(t *testing.T) { //nolint:paralleltest // allocations are counted
	r, m := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil), parse(t, message)
	r.Header.Set("Traceparent", byHeader)
	transform := func(m []byte) []byte { return m }
	var got []byte
	if n := testing.AllocsPerRun(100, func() { got = off(r, m, transform) }); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
	if &got[0] != &m.Raw[0] || len(got) != len(m.Raw) || len(r.Header) != 1 || r.Header.Get("Traceparent") != byHeader {
		t.Errorf("the server would get %v and %s", r.Header, got)
	}
}

func BenchmarkOff(b *testing.B) {
	r, m := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/mcp", nil), parse(b, message)
	transform := func(m []byte) []byte { return m }
	b.ReportAllocs()
	for b.Loop() {
		off(r, m, transform)
	}
}
