// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// call writes a tools/call with these params.
func call(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
}

func TestParseReadsWhatAMessageAsksFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		want wire.Message
	}{
		"a call with everything": {
			` {"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{"name":"pay","arguments":{"n":1.0},"_meta":{"progressToken":7,"x":1},"vendor":[1]}} `,
			wire.Message{Kind: wire.Request, ID: []byte(`"a\"b"`), Method: "tools/call",
				Params: []byte(`{"name":"pay","arguments":{"n":1.0},"_meta":{"progressToken":7,"x":1},"vendor":[1]}`),
				Call:   &wire.Call{Name: "pay", Arguments: []byte(`{"n":1.0}`), Meta: []byte(`{"progressToken":7,"x":1}`), ProgressToken: []byte("7")}},
		},
		"a call without arguments": {
			call(`{"name":"now"}`),
			wire.Message{Kind: wire.Request, ID: []byte("1"), Method: "tools/call", Params: []byte(`{"name":"now"}`), Call: &wire.Call{Name: "now"}},
		},
		"nulls in a call": {
			call(`{"name":"now","arguments":null,"_meta":null}`),
			wire.Message{Kind: wire.Request, ID: []byte("1"), Method: "tools/call",
				Params: []byte(`{"name":"now","arguments":null,"_meta":null}`), Call: &wire.Call{Name: "now", Arguments: []byte("null")}},
		},
		"tasks and further rounds": {
			call(`{"name":"a","task":{},"inputResponses":{"q":{}},"requestState":"s"}`),
			wire.Message{Kind: wire.Request, ID: []byte("1"), Method: "tools/call",
				Params: []byte(`{"name":"a","task":{},"inputResponses":{"q":{}},"requestState":"s"}`),
				Call:   &wire.Call{Name: "a", Task: true, InputResponses: true, RequestState: true}},
		},
		"escapes in method and name are read as a server reads them": {
			`{"jsonrpc":"2.0","id":0,"method":"tools\u002fcall","params":{"name":"\u0064rop"}}`,
			wire.Message{Kind: wire.Request, ID: []byte("0"), Method: "tools/call", Params: []byte(`{"name":"\u0064rop"}`), Call: &wire.Call{Name: "drop"}},
		},
		"an id beyond any float": {
			`{"jsonrpc":"2.0","id":-90071992547409931234567890,"method":"ping"}`,
			wire.Message{Kind: wire.Request, ID: []byte("-90071992547409931234567890"), Method: "ping"},
		},
		"a notification": {
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
			wire.Message{Kind: wire.Notification, Method: "notifications/cancelled", Params: []byte(`{"requestId":1}`)},
		},
		"a response": {
			`{"jsonrpc":"2.0","id":3,"result":{}}`, wire.Message{Kind: wire.Response, ID: []byte("3")},
		},
		"an error response without an id": {
			`{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`, wire.Message{Kind: wire.Response},
		},
		"an unknown method, with names that resemble those of tools/call": {
			`{"jsonrpc":"2.0","id":1,"method":"vendor/do","params":{"Name":1},"extra":true}`,
			wire.Message{Kind: wire.Request, ID: []byte("1"), Method: "vendor/do", Params: []byte(`{"Name":1}`)},
		},
		"null params of another method": {
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}`,
			wire.Message{Kind: wire.Request, ID: []byte("1"), Method: "tools/list", Params: []byte(`null`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, refusal := wire.Parse([]byte(tc.body))
			if refusal != nil {
				t.Fatal(refusal)
			}
			tc.want.Raw = []byte(tc.body)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(wire.Message{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesWhatAServerMayReadDifferently(t *testing.T) {
	t.Parallel()
	const parse, request, params = -32700, -32600, -32602
	for name, tc := range map[string]struct {
		body     string
		wantCode int
		wantID   string
	}{
		"a batch":                                {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, request, ""},
		"a batch behind a byte order mark":       {"\ufeff" + `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, parse, ""},
		"two messages":                           {call(`{"name":"a"}`) + call(`{"name":"b"}`), parse, ""},
		"a scalar":                               {`"ping"`, request, ""},
		"nothing":                                {``, parse, ""},
		"an object without members":              {`{}`, request, ""},
		"a name twice":                           {call(`{"name":"get","name":"drop"}`), parse, "1"},
		"a method twice":                         {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, parse, "1"},
		"an id twice":                            {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, parse, ""},
		"a name twice by an escape":              {call(`{"name":"get","n\u0061me":"drop"}`), parse, "1"},
		"duplicates deep in the arguments":       {call(`{"name":"a","arguments":{"x":[{"y":1,"y":2}]}}`), parse, "1"},
		"a number of 401 digits":                 {call(`{"name":"a","arguments":{"x":` + strings.Repeat("9", 401) + `}}`), parse, "1"},
		"a lone surrogate in the name":           {call(`{"name":"a\ud800"}`), parse, "1"},
		"invalid UTF-8 in the name":              {call("{\"name\":\"a\xff\"}"), parse, "1"},
		"65 levels":                              {call(`{"name":"a","arguments":{"x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}}`), parse, "1"},
		"Method beside method":                   {`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, request, "1"},
		"Method alone":                           {`{"jsonrpc":"2.0","id":1,"Method":"tools/call"}`, request, "1"},
		"ID beside id":                           {`{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}`, request, ""},
		"params with a long s":                   {`{"jsonrpc":"2.0","id":1,"method":"tools/call","paramſ":{"name":"drop"},"params":{"name":"get"}}`, request, "1"},
		"an id with a NUL behind":                {`{"jsonrpc":"2.0","id":1,"method":"ping","method\u0000":"tools/call"}`, request, "1"},
		"a method with a space in front":         {`{"jsonrpc":"2.0","id":1,"method":"ping"," method":"tools/call"}`, request, "1"},
		"a full-width method":                    {`{"jsonrpc":"2.0","id":1,"method":"ping","ｍethod":"tools/call"}`, request, "1"},
		"a Cyrillic letter in method":            {`{"jsonrpc":"2.0","id":1,"method":"ping","mеthod":"tools/call"}`, request, "1"},
		"json_rpc":                               {`{"jsonrpc":"2.0","id":1,"method":"ping","json_rpc":"1.0"}`, request, "1"},
		"an escaped envelope name":               {`{"jsonrpc":"2.0","id":1,"m\u0065thod":"ping"}`, request, "1"},
		"an unknown member beside the params":    {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"tenant":"x"}`, request, "1"},
		"a member without a name":                {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"":"x"}`, request, "1"},
		"params.Name beside name":                {call(`{"name":"drop","Name":"get"}`), params, "1"},
		"Arguments beside arguments":             {call(`{"name":"a","arguments":{},"Arguments":{"x":1}}`), params, "1"},
		"meta beside _meta":                      {call(`{"name":"a","meta":{}}`), params, "1"},
		"TASK":                                   {call(`{"name":"a","TASK":{}}`), params, "1"},
		"request_state":                          {call(`{"name":"a","request_state":"s"}`), params, "1"},
		"inputResponses that are null":           {call(`{"name":"a","inputResponses":null}`), params, "1"},
		"an input response that is a number":     {call(`{"name":"a","inputResponses":{"x":{},"y":12345}}`), params, "1"},
		"a requestState that is null":            {call(`{"name":"a","requestState":null}`), params, "1"},
		"taſk":                                   {call(`{"name":"a","taſk":{}}`), params, "1"},
		"tasK with a Kelvin sign":                {call(`{"name":"a","tas\u212a":{}}`), params, "1"},
		"an escaped name of a param":             {call(`{"n\u0061me":"a"}`), params, "1"},
		"name with a NUL behind":                 {call(`{"name":"a","name\u0000":"b"}`), params, "1"},
		"Cursor in tools/list":                   {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"Cursor":"x"}}`, params, "1"},
		"no params":                              {`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, params, "1"},
		"null params":                            {call(`null`), params, "1"},
		"params in a list":                       {call(`["a"]`), request, "1"},
		"no name":                                {call(`{"arguments":{}}`), params, "1"},
		"a name that is a number":                {call(`{"name":1}`), params, "1"},
		"an empty name":                          {call(`{"name":""}`), params, "1"},
		"arguments in a string":                  {call(`{"name":"a","arguments":"{}"}`), params, "1"},
		"arguments in a list":                    {call(`{"name":"a","arguments":[]}`), params, "1"},
		"_meta in a list":                        {call(`{"name":"a","_meta":[]}`), params, "1"},
		"a progress token with a point":          {call(`{"name":"a","_meta":{"progressToken":1.0}}`), params, "1"},
		"an object as progress token":            {call(`{"name":"a","_meta":{"progressToken":{}}}`), params, "1"},
		"a call without an id":                   {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`, request, ""},
		"a null id":                              {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, request, ""},
		"an id with a point":                     {`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, request, ""},
		"an id with an exponent":                 {`{"jsonrpc":"2.0","id":1e0,"method":"ping"}`, request, ""},
		"an id of minus zero":                    {`{"jsonrpc":"2.0","id":-0,"method":"ping"}`, request, ""},
		"an object as id":                        {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, request, ""},
		"another version of JSON-RPC":            {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, request, "1"},
		"a number as version":                    {`{"jsonrpc":2.0,"id":1,"method":"ping"}`, request, "1"},
		"an escaped version":                     {`{"jsonrpc":"2\u002e0","id":1,"method":"ping"}`, request, "1"},
		"no version":                             {`{"id":1,"method":"ping"}`, request, "1"},
		"method and result":                      {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, request, "1"},
		"method and error":                       {`{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}`, request, "1"},
		"result and error":                       {`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, request, "1"},
		"a result without an id":                 {`{"jsonrpc":"2.0","result":{}}`, request, ""},
		"params in a response":                   {`{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, request, "1"},
		"a method that is null":                  {`{"jsonrpc":"2.0","id":1,"method":null}`, request, "1"},
		"Tools/Call":                             {`{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"a"}}`, request, "1"},
		"tools/call with a space behind":         {`{"jsonrpc":"2.0","id":1,"method":"tools/call ","params":{"name":"a"}}`, request, "1"},
		"tools/call with a newline in front":     {`{"jsonrpc":"2.0","id":1,"method":"\ntools/call","params":{"name":"a"}}`, request, "1"},
		"tools/call with a NUL behind":           {`{"jsonrpc":"2.0","id":1,"method":"tools/call\u0000","params":{"name":"a"}}`, request, "1"},
		"toolſ/call":                             {`{"jsonrpc":"2.0","id":1,"method":"toolſ/call","params":{"name":"a"}}`, request, "1"},
		"tools/call with a zero-width space":     {`{"jsonrpc":"2.0","id":1,"method":"tools/\u200bcall","params":{"name":"a"}}`, request, "1"},
		"TOOLS/LIST":                             {`{"jsonrpc":"2.0","id":1,"method":"TOOLS/LIST"}`, request, "1"},
		"Tools/Call without an id":               {`{"jsonrpc":"2.0","method":"Tools/Call","params":{"name":"a"}}`, request, ""},
		"a bad message with a large id":          {`{"jsonrpc":"2.0","id":900719925474099312345,"method":"ping","x":1e999}`, parse, "900719925474099312345"},
		"a bad message with a string for an id":  {`{"jsonrpc":"2.0","id":"x-1","method":"Ping"}`, request, `"x-1"`},
		"a bad message with an id of 0":          {`{"jsonrpc":"2.0","id":0,"method":"Ping"}`, request, `0`},
		"a bad message with an id that is wrong": {`{"jsonrpc":"2.0","id":1.5,"method":"ping","x":1e999}`, parse, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, refusal := wire.Parse([]byte(tc.body))
			if refusal == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if refusal.Status != http.StatusBadRequest || refusal.Code != tc.wantCode || string(refusal.ID) != tc.wantID {
				t.Errorf("refused with %d, id %q: %v; want code %d, id %q", refusal.Code, refusal.ID, refusal, tc.wantCode, tc.wantID)
			}
			var body struct {
				ID    json.RawMessage
				Error struct{ Code int }
			}
			if err := json.Unmarshal(refusal.Body(), &body); err != nil || body.Error.Code != tc.wantCode {
				t.Errorf("body %s: %v", refusal.Body(), err)
			}
			if want := orNull(tc.wantID); string(body.ID) != want {
				t.Errorf("id in the body is %s, want %s", body.ID, want)
			}
		})
	}
}

func TestEveryGovernedMethodIsKnownByItsExactNameOnly(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tools/call", "tools/list"} {
		if m, ok := wire.Lookup(name); !ok || !m.Governed {
			t.Errorf("Lookup(%q) = %+v, %v", name, m, ok)
		}
		if _, ok := wire.Lookup(strings.ToUpper(name)); ok {
			t.Errorf("%q in capitals is known", name)
		}
	}
	if m, ok := wire.Lookup("ping"); !ok || m.Governed {
		t.Errorf("Lookup(ping) = %+v, %v", m, ok)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		call(`{"name":"pay","arguments":{"n":1.0,"m":[null]},"_meta":{"progressToken":7}}`),
		call(`{"name":"a","Name":"b"}`), `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"Method":"tools/call"}`, `{"jsonrpc":"2.0","id":"a","result":{"tools":[]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools\u002fcall","params":{"name":"\u0064rop","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","paramſ":{"name":"x"}}`, `[]`, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, refusal := wire.Parse(body)
		if refusal != nil {
			if !json.Valid(refusal.Body()) {
				t.Fatalf("body %q", refusal.Body())
			}
			return
		}
		var old struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(body, &old); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", body, err)
		}
		members := newMembers(t, body)
		if old.Method != got.Method || text(t, members["method"]) != got.Method {
			t.Fatalf("method %q, encoding/json reads %q, jsontext %s", got.Method, old.Method, members["method"])
		}
		if !bytes.Equal(old.ID, got.ID) || !bytes.Equal(members["id"], got.ID) {
			t.Fatalf("id %q, encoding/json reads %q", got.ID, old.ID)
		}
		if got.Call == nil {
			return
		}
		var oldCall struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if err := json.Unmarshal(old.Params, &oldCall); err != nil {
			t.Fatalf("encoding/json refuses the params of %q: %v", body, err)
		}
		params := newMembers(t, members["params"])
		if oldCall.Name != got.Call.Name || text(t, params["name"]) != got.Call.Name {
			t.Fatalf("name %q, encoding/json reads %q, jsontext %s", got.Call.Name, oldCall.Name, params["name"])
		}
		if !bytes.Equal(oldCall.Arguments, got.Call.Arguments) || !bytes.Equal(params["arguments"], got.Call.Arguments) {
			t.Fatalf("arguments %q, encoding/json reads %q", got.Call.Arguments, oldCall.Arguments)
		}
	})
}

// newMembers reads an object with jsontext.
func newMembers(t *testing.T, object []byte) map[string]jsontext.Value {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := d.ReadToken(); err != nil {
		t.Fatalf("jsontext refuses %q: %v", object, err)
	}
	members := map[string]jsontext.Value{}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			t.Fatalf("jsontext refuses %q: %v", object, err)
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			t.Fatalf("jsontext refuses %q: %v", object, err)
		}
		members[key] = bytes.Clone(value)
	}
	return members
}

func text(t *testing.T, value jsontext.Value) string {
	t.Helper()
	if len(value) == 0 || value.Kind() != '"' {
		return ""
	}
	got, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func BenchmarkParse(b *testing.B) {
	small := []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"refund_payment","arguments":{"paymentId":"pay_8812","amount":19.90,"reason":"twice"},"_meta":{"progressToken":3}}}`)
	large := func(size int) []byte {
		return []byte(call(`{"name":"write","arguments":{"text":"` + strings.Repeat("lorem ipsum ", size/12) + `"}}`))
	}
	for name, body := range map[string][]byte{"190 bytes": small, "16 KiB": large(16 << 10), "256 KiB": large(256 << 10)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, refusal := wire.Parse(body); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	}
}

// orNull is the id of a refusal as the client reads it.
func orNull(id string) string {
	if id == "" {
		return "null"
	}
	return id
}
