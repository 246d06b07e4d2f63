// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// header builds headers from pairs of name and value; names stay as they are spelt.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
	}
	return h
}

func TestHeadersThatTwoReadersMayTakeForDifferentOnesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header, trailer http.Header
		wantCode        int // 0: accepted
	}{
		"none": {},
		"each once": {header: header("Mcp-Method", "tools/call", "Mcp-Name", "a", "Authorization", "Bearer x",
			"Mcp-Protocol-Version", "2025-11-25", "Mcp-Session-Id", "s", "Connection", "keep-alive, X-Other")},
		"other headers twice, underscores and all": {header: header("X-A", "1", "X-A", "2", "X_b", "1", "Accept", "a", "Accept", "b")},
		"another header as a trailer":              {trailer: header("X-Sum", "1")},
		"Mcp-Name twice":                           {header: header("Mcp-Name", "get", "Mcp-Name", "drop"), wantCode: -32020},
		"Mcp-Name twice, in two spellings":         {header: header("Mcp-Name", "get", "mcp-name", "drop"), wantCode: -32020},
		"Authorization twice":                      {header: header("Authorization", "a", "Authorization", "b"), wantCode: -32020},
		"Mcp-Param twice":                          {header: header("Mcp-Param-X", "1", "Mcp-Param-X", "1"), wantCode: -32020},
		"the session twice":                        {header: header("Mcp-Session-Id", "a", "Mcp-Session-Id", "b"), wantCode: -32020},
		"the protocol version twice":               {header: header("Mcp-Protocol-Version", "2025-06-18", "Mcp-Protocol-Version", "2025-11-25"), wantCode: -32020},
		"mcp_name":                                 {header: header("Mcp_name", "get"), wantCode: -32020},
		"Mcp-Session_Id":                           {header: header("Mcp-Session_id", "s"), wantCode: -32020},
		"content_type":                             {header: header("Content_type", "text/plain"), wantCode: -32020},
		"Connection lists the session":             {header: header("Connection", "close, mcp-session-id"), wantCode: -32020},
		"Connection lists it in a second line":     {header: header("Connection", "close", "Connection", "AUTHORIZATION"), wantCode: -32020},
		"Mcp-Name beyond ASCII":                    {header: header("Mcp-Name", "gét"), wantCode: -32020},
		"Mcp-Name with a tab":                      {header: header("Mcp-Name", "a\tb"), wantCode: -32020},
		"Mcp-Name as a trailer":                    {trailer: header("Mcp-Name", "a"), wantCode: -32020},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkCode(t, wire.CheckHeaders(tc.header, tc.trailer), tc.wantCode)
		})
	}
}

func checkCode(t *testing.T, refusal *wire.Refusal, want int) {
	t.Helper()
	got := 0
	if refusal != nil {
		got = refusal.Code
	}
	if got != want {
		t.Errorf("code %d (%v), want %d", got, refusal, want)
	}
}

func TestAnUnknownVersionIsToldWhichAreKnown(t *testing.T) {
	t.Parallel()
	const plain = `{"jsonrpc":"2.0","id":"a","method":"tools/list"}`
	claims := `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}}`
	for name, tc := range map[string]struct {
		version, body string // no body: there is no message
		want          string // "" for one that is known
	}{
		"none":                        {"", plain, ""},
		"one that is known":           {"2025-11-25", plain, ""},
		"one that is known, no body":  {"2025-11-25", "", ""},
		"an unknown one":              {"1999-01-01", plain, `"id":"a","error":{"code":-32022,"message":"the MCP-Protocol-Version is not supported","data":{"supported":["2026-07-28","2025-11-25",`},
		"an unknown one, no body":     {"1999-01-01", "", `"id":null,"error":{"code":-32022,"message":"the MCP-Protocol-Version is not supported","data":{"supported":["2026-07-28","2025-11-25",`},
		"one of a single message":     {"1999-01-01", claims, `"id":"a","error":{"code":-32022,"message":"the MCP-Protocol-Version is not supported","data":{"supported":["2026-07-28"],"requested":"1999-01-01"}}`},
		"one that is known, repeated": {"2025-11-25, 2025-11-25", plain, `"requested":"2025-11-25, 2025-11-25"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := header()
			if tc.version != "" {
				h = header("Mcp-Protocol-Version", tc.version)
			}
			refusal := wire.CheckVersion(h)
			if tc.body != "" {
				refusal = wire.CheckAgreement(h, parse(t, tc.body))
			}
			switch {
			case tc.want == "" && refusal != nil:
				t.Errorf("refused: %s", refusal.Body())
			case tc.want != "" && (refusal == nil || refusal.Status != http.StatusBadRequest || !strings.Contains(string(refusal.Body()), tc.want)):
				t.Errorf("got %v, want it to have %s", refusal, tc.want)
			}
		})
	}
}

func TestOnlyUTF8JSONIsAcceptedAsContent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header     http.Header
		wantStatus int // 0: accepted
	}{
		"application/json":        {header("Content-Type", "application/json"), 0},
		"in capitals":             {header("Content-Type", "Application/JSON"), 0},
		"with utf-8":              {header("Content-Type", `application/json; charset="UTF-8"`), 0},
		"none":                    {header(), 415},
		"two":                     {header("Content-Type", "application/json", "Content-Type", "application/json"), 415},
		"two in one":              {header("Content-Type", "application/json, text/plain"), 415},
		"text/plain":              {header("Content-Type", "text/plain"), 415},
		"a suffix":                {header("Content-Type", "application/vnd.api+json"), 415},
		"utf-16le":                {header("Content-Type", "application/json; charset=utf-16le"), 415},
		"utf-7":                   {header("Content-Type", "application/json; charset=utf-7"), 415},
		"two charsets":            {header("Content-Type", "application/json; charset=utf-8; charset=utf-7"), 415},
		"an empty charset":        {header("Content-Type", `application/json; charset=""`), 415},
		"a broken parameter":      {header("Content-Type", "application/json; charset"), 415},
		"gzip":                    {header("Content-Type", "application/json", "Content-Encoding", "gzip"), 415},
		"identity and gzip":       {header("Content-Type", "application/json", "Content-Encoding", "identity", "Content-Encoding", "gzip"), 415},
		"an empty encoding given": {header("Content-Type", "application/json", "Content-Encoding", ""), 415},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := 0
			if refusal := wire.CheckContent(tc.header); refusal != nil {
				got = refusal.Status
			}
			if got != tc.wantStatus {
				t.Errorf("status %d, want %d", got, tc.wantStatus)
			}
		})
	}
	if refusal := wire.TooLarge(7); refusal.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %v", refusal)
	}
}

func parse(t testing.TB, body string) wire.Message {
	t.Helper()
	m, refusal := wire.Parse([]byte(body))
	if refusal != nil {
		t.Fatal(refusal)
	}
	return m
}

func sentinel(text string) string {
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func TestHeadersMustAgreeWithTheBody(t *testing.T) {
	t.Parallel()
	const old, modern = "2025-11-25", "2026-07-28"
	deletes := call(`{"name":"delete_x"}`)
	modernCall := call(`{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
	read := `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///é"}}`
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		want   bool
	}{
		"no headers":                            {header(), deletes, true},
		"method and name agree":                 {header("Mcp-Method", "tools/call", "Mcp-Name", "delete_x"), deletes, true},
		"the name in base64":                    {header("Mcp-Name", sentinel("delete_x")), deletes, true},
		"the name of another tool":              {header("Mcp-Name", "get_x"), deletes, false},
		"another tool in base64":                {header("Mcp-Name", sentinel("get_x")), deletes, false},
		"base64 that is none":                   {header("Mcp-Name", "=?base64?!?="), deletes, false},
		"the name in capitals":                  {header("Mcp-Name", "DELETE_X"), deletes, false},
		"an empty name":                         {header("Mcp-Name", ""), deletes, false},
		"another method":                        {header("Mcp-Method", "tools/list"), deletes, false},
		"the method in capitals":                {header("Mcp-Method", "Tools/Call"), deletes, false},
		"an empty method":                       {header("Mcp-Method", ""), deletes, false},
		"the escaped name":                      {header("Mcp-Name", "delete_x"), call(`{"name":"\u0064elete_x"}`), true},
		"a name that looks like base64":         {header("Mcp-Name", sentinel("=?base64?eA==?=")), call(`{"name":"=?base64?eA==?="}`), true},
		"the uri of a resource":                 {header("Mcp-Name", sentinel("file:///é")), read, true},
		"the uri of another resource":           {header("Mcp-Name", "file:///e"), read, false},
		"the id of another task":                {header("Mcp-Name", "t2"), `{"jsonrpc":"2.0","id":1,"method":"tasks/cancel","params":{"taskId":"t1"}}`, false},
		"the id of the task":                    {header("Mcp-Name", "t1"), `{"jsonrpc":"2.0","id":1,"method":"tasks/cancel","params":{"taskId":"t1"}}`, true},
		"a method in front of a response":       {header("Mcp-Method", "tools/call"), `{"jsonrpc":"2.0","id":1,"result":{}}`, false},
		"old revision without Mcp-Method":       {header("Mcp-Protocol-Version", old), deletes, true},
		"2026-07-28 with both":                  {header("Mcp-Protocol-Version", modern, "Mcp-Method", "tools/call", "Mcp-Name", "a"), modernCall, true},
		"2026-07-28 without Mcp-Method":         {header("Mcp-Protocol-Version", modern, "Mcp-Name", "a"), modernCall, false},
		"2026-07-28 without Mcp-Name":           {header("Mcp-Protocol-Version", modern, "Mcp-Method", "tools/call"), modernCall, false},
		"2026-07-28, a list needs no Mcp-Name":  {header("Mcp-Protocol-Version", modern, "Mcp-Method", "tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, true},
		"2026-07-28 in the body alone":          {header("Mcp-Method", "tools/call", "Mcp-Name", "a"), modernCall, false},
		"an old revision in front of a new one": {header("Mcp-Protocol-Version", old, "Mcp-Method", "tools/call", "Mcp-Name", "a"), modernCall, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := parse(t, tc.body)
			refusal := wire.CheckAgreement(tc.header, m)
			if got := refusal == nil; got != tc.want {
				t.Fatalf("accepted %v, want %v: %v", got, tc.want, refusal)
			}
			if refusal != nil && (refusal.Code != -32020 || refusal.Status != http.StatusBadRequest || string(refusal.ID) != "1") {
				t.Errorf("refused with %d, HTTP %d, id %s", refusal.Code, refusal.Status, refusal.ID)
			}
		})
	}
}

func TestParamHeadersMustRepeatTheArguments(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{
		"amount":{"type":"integer","x-mcp-header":"Amount"},
		"region":{"type":"string","x-mcp-header":"Region"},
		"dry":{"type":"boolean","x-mcp-header":"Dry"},
		"to":{"type":"object","properties":{"bank":{"type":"string","x-mcp-header":"Bank"}}},
		"note":{"type":"string"}}}`
	body := call(`{"name":"pay","arguments":{"amount":2000,"region":"zürich","dry":false,"to":{"bank":"b1"},"note":"n","empty":""}}`)
	for name, tc := range map[string]struct {
		header http.Header
		schema string
		want   bool
	}{
		"no header":                           {header(), schema, true},
		"no header and no schema":             {header(), ``, true},
		"all agree":                           {header("Mcp-Param-Amount", "2000", "Mcp-Param-Region", sentinel("zürich"), "Mcp-Param-Dry", "false", "Mcp-Param-Bank", "b1"), schema, true},
		"in other capitals":                   {header("Mcp-Param-AMOUNT", "2000"), schema, true},
		"another number":                      {header("Mcp-Param-Amount", "2001"), schema, false},
		"a plus sign":                         {header("Mcp-Param-Amount", "+2000"), schema, false},
		"an underscore":                       {header("Mcp-Param-Amount", "2_000"), schema, false},
		"a point":                             {header("Mcp-Param-Amount", "2000.0"), schema, false},
		"an exponent":                         {header("Mcp-Param-Amount", "2e3"), schema, false},
		"a leading zero":                      {header("Mcp-Param-Amount", "02000"), schema, false},
		"hexadecimal":                         {header("Mcp-Param-Amount", "0x7d0"), schema, false},
		"a space inside base64":               {header("Mcp-Param-Amount", sentinel(" 2000")), schema, false},
		"another text":                        {header("Mcp-Param-Region", "zurich"), schema, false},
		"another truth":                       {header("Mcp-Param-Dry", "true"), schema, false},
		"the truth in capitals":               {header("Mcp-Param-Dry", "False"), schema, false},
		"another bank":                        {header("Mcp-Param-Bank", "b2"), schema, false},
		"a header that nothing asks for":      {header("Mcp-Param-Note", "n"), schema, false},
		"an empty one that nothing asks for":  {header("Mcp-Param-Other", ""), schema, false},
		"a schema that is not known":          {header("Mcp-Param-Amount", "2000"), ``, false},
		"a schema without such an annotation": {header("Mcp-Param-Amount", "2000"), `{"properties":{"amount":{}}}`, false},
		"an argument that is not given":       {header("Mcp-Param-X", ""), `{"properties":{"x":{"x-mcp-header":"X"}}}`, false},
		"an empty text":                       {header("Mcp-Param-X", ""), `{"properties":{"empty":{"x-mcp-header":"X"}}}`, true},
		"two arguments with one header":       {header("Mcp-Param-X", "n"), `{"properties":{"note":{"x-mcp-header":"X"},"region":{"x-mcp-header":"x"}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal := wire.CheckParamHeaders(tc.header, parse(t, body), []byte(tc.schema))
			if got := refusal == nil; got != tc.want {
				t.Fatalf("accepted %v, want %v: %v", got, tc.want, refusal)
			}
			if refusal != nil && (refusal.Code != -32020 || string(refusal.ID) != "1") {
				t.Errorf("refused with %d, id %s", refusal.Code, refusal.ID)
			}
		})
	}
}

func TestANumberAgreesWithItsHeaderByValue(t *testing.T) {
	t.Parallel()
	const schema = `{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}`
	for number, want := range map[string]bool{"2000": true, "2e3": true, "2000.0": true, "2000.5": false, "9007199254740993": false, `"2000"`: true, "null": false, "[2000]": false} {
		m := parse(t, call(`{"name":"a","arguments":{"n":`+number+`}}`))
		if got := wire.CheckParamHeaders(header("Mcp-Param-N", "2000"), m, []byte(schema)) == nil; got != want {
			t.Errorf("argument %s with header 2000: accepted %v, want %v", number, got, want)
		}
	}
}

func FuzzHeaderAgreement(f *testing.F) {
	f.Add("tools/call", "a", "2026-07-28", "1", `{"name":"a","arguments":{"n":1}}`)
	f.Add("tools/call", "=?base64?YQ==?=", "2025-11-25", "+1", `{"name":"a","arguments":{"n":1}}`)
	f.Add("", "", "", "", `{"name":"","arguments":null}`)
	f.Fuzz(func(t *testing.T, method, name, version, param, params string) {
		m, refusal := wire.Parse([]byte(call(params)))
		if refusal != nil {
			return
		}
		h := header("Mcp-Method", method, "Mcp-Name", name, "Mcp-Protocol-Version", version, "Mcp-Param-N", param)
		if wire.CheckHeaders(h, nil) != nil || wire.CheckAgreement(h, m) != nil {
			return
		}
		if method != m.Method || (name != m.Call.Name && name != sentinel(m.Call.Name) && !strings.HasPrefix(name, "=?base64?")) {
			t.Fatalf("headers %q with %q agree with %q", h, name, m.Call.Name)
		}
		wire.CheckParamHeaders(h, m, []byte(`{"properties":{"n":{"x-mcp-header":"N"}}}`))
		if wire.CheckParamHeaders(h, m, nil) == nil {
			t.Fatal("a header without a schema was accepted")
		}
	})
}
