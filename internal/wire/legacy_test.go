// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// first returns the first block of a stream that has data or a type.
func first(t testing.TB, stream string) wire.Event {
	t.Helper()
	e, err := wire.NewSplitter(strings.NewReader(stream), 1<<20).Next()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTheEndpointIsTheServersOwn(t *testing.T) {
	t.Parallel()
	const stream = "https://mcp.example.com/tenant/sse"
	event := func(data string) string { return "event: endpoint\r\ndata: " + data + "\r\n\r\n" }
	for name, tc := range map[string]struct{ stream, said, want string }{
		"a path":                       {stream, event("/messages/?sessionId=1"), "https://mcp.example.com/messages/?sessionId=1"},
		"a relative path":              {stream, event("messages?session_id=a%2Fb"), "https://mcp.example.com/tenant/messages?session_id=a%2Fb"},
		"a query alone":                {stream, event("?sessionId=1"), "https://mcp.example.com/tenant/sse?sessionId=1"},
		"an absolute address":          {stream, event("https://mcp.example.com/m?sessionId=1"), "https://mcp.example.com/m?sessionId=1"},
		"the default port":             {stream, event("https://MCP.example.com:443/m"), "https://MCP.example.com:443/m"},
		"a byte order mark":            {stream, "\ufeff" + event("/m"), "https://mcp.example.com/m"},
		"a literal address":            {"http://[::1]:8080/sse", event("http://[::1]:8080/m"), "http://[::1]:8080/m"},
		"another host":                 {stream, event("https://evil.example.com/m"), ""},
		"another host without scheme":  {stream, event("//evil.example.com/m"), ""},
		"another port":                 {stream, event("https://mcp.example.com:444/m"), ""},
		"another scheme":               {stream, event("http://mcp.example.com/m"), ""},
		"a file":                       {stream, event("file:///m"), ""},
		"a user":                       {stream, event("https://mcp.example.com@evil.example.com/m"), ""},
		"a user of the right host":     {stream, event("https://a:b@mcp.example.com/m"), ""},
		"a backslash":                  {stream, event(`/\evil.example.com/m`), ""},
		"a fragment":                   {stream, event("/m#x"), ""},
		"white space":                  {stream, event("/m evil"), ""},
		"letters beyond ASCII":         {stream, event("/m\u2028"), ""},
		"a line end":                   {stream, "event: endpoint\ndata: /m\ndata: x\n\n", ""},
		"nothing":                      {stream, event(""), ""},
		"too long":                     {stream, event("/" + strings.Repeat("m", 2048)), ""},
		"no data":                      {stream, "event: endpoint\n\n", ""},
		"a message":                    {stream, "data: /m\n\n", ""},
		"another type":                 {stream, "event: Endpoint\ndata: /m\n\n", ""},
		"the last of two types counts": {stream, "event: endpoint\nevent: message\ndata: /m\n\n", ""},
		"an event that was cut":        {stream, "event: endpoint\ndata: /m", ""},
	} {
		from, err := url.Parse(tc.stream)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		address, err := wire.EndpointOf(first(t, tc.said), from)
		if err == nil {
			got = address.String()
		}
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

func TestWhatAnyClientMightTakeForAnEndpointIsNoticed(t *testing.T) {
	t.Parallel()
	for block, want := range map[string]bool{
		"event: endpoint\ndata: /m\n\n":                                 true,
		"event:endpoint\r\ndata: /m\r\n\r\n":                            true,
		"data: /m\revent: endpoint\r\r":                                 true,
		"event: message\nevent: endpoint\ndata: x\n\n":                  true,
		"event: endpoint\nevent: message\ndata: x\n\n":                  true,
		"event: \u00a0endpoint\ndata: /m\n\n":                           true,
		"event: ENDPOINT\ndata: /m\n\n":                                 true,
		"\ufeffevent: endpoint\ndata: /m\n\n":                           true,
		"event: endpoint\n\n":                                           true,
		"event:" + strings.Repeat(" ", 1000) + "endpoint\ndata: /m\n\n": true,
		strings.Repeat("\t", 1000) + "event: endpoint\ndata: /m\n\n":    true,
		"event: message\ndata: event: endpoint\n\n":                     false,
		"event: message\ndata: {\"endpoint\":\"/m\"}\n\n":               false,
		"data: x\n\n":                false,
		"id: endpoint\nretry: 1\n\n": false,
	} {
		if got := first(t, block).NamesEndpoint(); got != want {
			t.Errorf("%q: got %t, want %t", block, got, want)
		}
	}
}

func TestAnswersAreToldFromOtherMessages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		message  string
		response bool
		id       string
		fails    bool
	}{
		"a result":                  {`{"jsonrpc":"2.0","id":1,"result":{}}`, true, "number 1", false},
		"an error":                  {`{"jsonrpc":"2.0","id":"a\u002f","error":{}}`, true, "string a/", false},
		"an error about no message": {`{"jsonrpc":"2.0","id":null,"error":{}}`, true, "", false},
		"a request":                 {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, false, "number 1", false},
		"a notification":            {`{"jsonrpc":"2.0","method":"notifications/message","params":{"result":1}}`, false, "", false},
		"an answer with a method":   {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, true, "", true},
		"neither":                   {`{"jsonrpc":"2.0","id":1}`, false, "number 1", true},
		"a Result beside a method":  {`{"jsonrpc":"2.0","id":1,"method":"ping","Result":{}}`, false, "", true},
		"two ids":                   {`{"jsonrpc":"2.0","id":1,"ID":2,"result":{}}`, false, "", true},
		"an id twice":               {`{"id":1,"id":2,"result":{}}`, false, "", true},
		"a result twice":            {`{"id":1,"result":{},"result":{}}`, false, "number 1", true},
		"a request with a twin":     {`{"id":1,"method":"ping","params":{"a":1,"a":2}}`, false, "", true},
		"a batch":                   {`[{"id":1,"result":{}}]`, false, "", true},
		"no JSON":                   {`hello`, false, "", true},
	} {
		got, err := wire.ScanIncoming([]byte(tc.message))
		if (err != nil) != tc.fails || got.ID != tc.id || err == nil && got.Response != tc.response {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	if wire.IDOf([]byte(`"1"`)) == wire.IDOf([]byte(`1`)) || wire.IDOf([]byte(`"\u0031"`)) != wire.IDOf([]byte(`"1"`)) {
		t.Error("ids are told apart by their kind and not by their spelling")
	}
}

func FuzzEndpointOf(f *testing.F) {
	f.Add("event: endpoint\ndata: /messages?sessionId=1\n\n")
	f.Add("event: endpoint\r\ndata: https://mcp.example.com:8443/m\r\n\r\n")
	f.Add("\ufeffevent: endpoint\rdata: //evil.example.com/m\r\r")
	f.Add("event: endpoint\ndata: https://mcp.example.com:8443@evil.example.com/m\n\n")
	from := &url.URL{Scheme: "https", Host: "mcp.example.com:8443", Path: "/sse"}
	f.Fuzz(func(t *testing.T, stream string) {
		e, err := wire.NewSplitter(strings.NewReader(stream), 1<<20).Next()
		if err != nil {
			return
		}
		address, err := wire.EndpointOf(e, from)
		if err != nil {
			return
		}
		if !e.NamesEndpoint() {
			t.Errorf("%q names an endpoint and is not noticed later", stream)
		}
		read, err := url.Parse(address.String())
		if err != nil || read.Scheme != "https" || !strings.EqualFold(read.Host, "mcp.example.com:8443") || read.User != nil {
			t.Errorf("%q leads to %q", stream, address)
		}
	})
}
