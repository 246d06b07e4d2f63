// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// strain feeds a message in pieces of so many bytes.
func strain(message string, size int) (string, error) {
	var s wire.Strainer
	var out bytes.Buffer
	for len(message) > 0 {
		n := min(size, len(message))
		passed, err := s.Feed([]byte(message[:n]))
		if err != nil {
			return out.String(), err
		}
		out.Write(passed)
		message = message[n:]
	}
	return out.String(), s.End()
}

func TestAMessagePassesAStrainerButForWhatOnlyTheGatewayMaySay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ message, want string }{
		"nothing to drop":         {` { "jsonrpc":"2.0" , "id":9007199254740993,"result":{"content":[{"text":"a\"\\\u0041 tidewaiter.dev/x"}], "_meta" : { "x" : 1e400 , "y":[{}] } ,"z":[]}}` + "\n", ""},
		"the only member":         {`{"result":{"_meta":{"tidewaiter.dev/decision":{"code":"Approved","_meta":{}}}},"id":1}`, `{"result":{"_meta":{}},"id":1}`},
		"the first":               {`{"result":{"_meta":{"tidewaiter.dev/a":"}","x":1}}}`, `{"result":{"_meta":{"x":1}}}`},
		"the last":                {`{"result":{"_meta":{"x":{"tidewaiter.dev/k":1},"tidewaiter.dev/a":-1.5e3}}}`, `{"result":{"_meta":{"x":{"tidewaiter.dev/k":1}}}}`},
		"between others":          {`{"result":{"_meta":{"x":1,"tidewaiter.dev/a":null,"y":2}}}`, `{"result":{"_meta":{"x":1,"y":2}}}`},
		"several":                 {`{"result":{"_meta":{"tidewaiter.dev/a":1, "tidewaiter.dev/b":[1,2], "x" :true, "tidewaiter.dev/c":false}}}`, `{"result":{"_meta":{ "x" :true}}}`},
		"a comma in a key":        {`{"result":{"_meta":{"a,b":1}}}`, ""},
		"spelt with escapes":      {`{"r\u0065sult":{"_me\u0074a":{"tidewaiter\u002edev\/a":1}}}`, `{"r\u0065sult":{"_me\u0074a":{}}}`},
		"look-alikes":             {`{"Result":{"_META":{"tidewaiter.dev/a":1}}}`, `{"Result":{"_META":{}}}`},
		"given twice":             {`{"result":{"_meta":{}},"result":{"_meta":{"x":1},"_meta":{"tidewaiter.dev/a":1}}}`, `{"result":{"_meta":{}},"result":{"_meta":{"x":1},"_meta":{}}}`},
		"elsewhere":               {`{"error":{"_meta":{"tidewaiter.dev/a":1}},"result":{"a":{"_meta":{"tidewaiter.dev/a":1}},"b":[{"tidewaiter.dev/a":1}]},"params":{"_meta":{"tidewaiter.dev/a":1}}}`, ""},
		"_meta that is no object": {`{"result":{"_meta":["tidewaiter.dev/a"]}}`, ""},
		"a result that is a list": {`{"result":[{"_meta":{"tidewaiter.dev/a":1}}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := tc.want
			if want == "" {
				want = tc.message
			}
			for size := 1; size <= len(tc.message); size++ {
				if got, err := strain(tc.message, size); err != nil || got != want {
					t.Fatalf("in pieces of %d: %v\n got %s\nwant %s", size, err, got, want)
				}
			}
		})
	}
}

func TestAStrainerPassesNothingThatItCannotRead(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 63)
	for name, message := range map[string]string{
		"nothing": "", "half a message": `{"result":{}`, "a batch": `[{"result":{}}]`, "a text": `"x"`, "two messages": `{}{}`,
		"a byte order mark": "\ufeff{}", "UTF-16": "{\x00}\x00", "no colon": `{"a"1}`, "no comma": `{"a":1"b":2}`, "a comma too many": `{"a":1,}`,
		"one at the front": `{,"a":1}`, "a key that is none": `{a:1}`, "the wrong bracket": `{"a":[1}}`, "a line end in a text": "{\"a\":\"\n\"}",
		"a bad escape": `{"a":"\x"}`, "a bad digit": `{"a":"\u00g0"}`, "a word that is none": `{"a":nul}`, "a long word": `{"a":trueish}`,
		"half a surrogate pair in a key": `{"result":{"_meta":{"\ud800":1}}}`, "too deep": deep + `{"a":{}}` + strings.Repeat("}", 63),
		"a key without an end": `{"` + strings.Repeat("a", 5000) + `":1}`, "white space without an end": `{"result":{"_meta":{` + strings.Repeat(" ", 5000) + `}}}`,
	} {
		if _, err := strain(message, 7); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
	if _, err := strain(deep+`{"a":1}`+strings.Repeat("}", 63), 7); err != nil {
		t.Errorf("as deep as may be: %v", err)
	}
}

func TestAStrainerKeepsLittleOfALargeMessage(t *testing.T) { // alone, since it counts allocations
	var s wire.Strainer
	chunk := bytes.Repeat([]byte("a"), 32<<10)
	feed := func(part []byte) {
		if _, err := s.Feed(part); err != nil {
			t.Fatal(err)
		}
	}
	feed([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`))
	feed(chunk)
	if got := testing.AllocsPerRun(1000, func() { feed(chunk) }); got > 0 {
		t.Errorf("%v allocations a piece, want none", got)
	}
	feed([]byte(`"}]}}`))
	if err := s.End(); err != nil {
		t.Error(err)
	}
}

func FuzzStrainer(f *testing.F) {
	f.Add([]byte(`{"result":{"_meta":{"tidewaiter.dev/a":1,"x":{"y":[true,null,-1.5e3]}}},"id":"\u0041"}`), 3)
	f.Add([]byte(`{"result":{"_meta":{ "x":1 , "tidewaiter.dev/a":"\"" }}}`), 1)
	f.Fuzz(func(t *testing.T, message []byte, size int) {
		if size < 1 {
			size = 1
		}
		whole, wholeErr := strain(string(message), len(message)+1)
		pieces, piecesErr := strain(string(message), size)
		if (wholeErr == nil) != (piecesErr == nil) || wholeErr == nil && whole != pieces {
			t.Fatalf("%q depends on how it arrives: %q %v, %q %v", message, whole, wholeErr, pieces, piecesErr)
		}
		if want, err := wire.DropReserved(message); err == nil && wholeErr == nil && !sameJSON(want, whole) {
			t.Fatalf("%q: strained %q, read whole %q", message, whole, want)
		}
		if wholeErr != nil || !json.Valid(message) {
			return
		}
		if !json.Valid([]byte(whole)) {
			t.Fatalf("%q became %q", message, whole)
		}
		var got struct {
			Result json.RawMessage
		}
		if err := json.Unmarshal([]byte(whole), &got); err != nil {
			return
		}
		var result struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		if json.Unmarshal(got.Result, &result) != nil {
			return
		}
		for key := range result.Meta {
			if strings.HasPrefix(key, wire.ReservedPrefix) {
				t.Fatalf("%q passed %s", message, key)
			}
		}
	})
}

// sameJSON tells whether two messages differ in white space alone.
func sameJSON(a []byte, b string) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) != nil || json.Compact(&y, []byte(b)) != nil || x.String() == y.String()
}
