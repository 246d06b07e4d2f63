// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

func TestScanAcceptsWhatAllParsersReadAlike(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"an empty object":                       `{}`,
		"white space of all four sorts":         " \t\r\n{ \"a\" :\t1 ,\n\"b\":[ ] } ",
		"a scalar":                              `"x"`,
		"names that differ only in case":        `{"a":1,"A":2}`,
		"the same name in two objects":          `{"a":{"a":1},"b":{"a":2}}`,
		"every escape":                          `"\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00"`,
		"text beyond ASCII":                     `{"naïve":"日本 😀"}`,
		"DEL and line separators in a string":   "\"\x7f\u2028\"",
		"64 levels":                             nested(64),
		"a number of 400 digits":                strings.Repeat("9", 400),
		"400 digits on both sides of the point": "1." + strings.Repeat("0", 398) + "1",
		"an exponent of 400":                    `[1e400,1E-400,1e+0400]`,
		"an exponent of 400 once written short": `[10e399,1.5e400,0.01e400,12.5e-400,100e-400,0e400,0.00e-400]`,
		"numbers of every shape":                `[0,-0,1,-1.5,0.25e10,10]`,
		"seventeen different names":             object(17),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := strictjson.Scan([]byte(doc))
			if err != nil {
				t.Fatalf("Scan: %v", err)
			}
			if got, want := string(v.Raw()), strings.Trim(doc, " \t\r\n"); got != want {
				t.Errorf("Raw() = %q, want %q", got, want)
			}
		})
	}
}

// object writes an object of n different names.
func object(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestScanRefusesWhatTwoParsersMayReadDifferently(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		doc  string
		want strictjson.Error
	}{
		"nothing":                               {"", strictjson.Error{Offset: 0, Reason: "unexpected end"}},
		"a byte order mark":                     {"\ufeff{}", strictjson.Error{Offset: 0, Reason: "byte order mark"}},
		"two documents":                         {`{} {}`, strictjson.Error{Offset: 3, Reason: "data after the end"}},
		"a comment":                             {`{"a":/**/1}`, strictjson.Error{Offset: 5, Pointer: "/a", Reason: "not a JSON value"}},
		"NaN":                                   {`[NaN]`, strictjson.Error{Offset: 1, Pointer: "/0", Reason: "not a JSON value"}},
		"Infinity":                              {`[1,-Infinity]`, strictjson.Error{Offset: 4, Pointer: "/1", Reason: "number without digits"}},
		"a name given twice":                    {`{"a":1,"a":2}`, strictjson.Error{Offset: 7, Pointer: "/a", Reason: "name given twice"}},
		"a name given twice by an escape":       {`{"x":{"a":1,"\u0061":2}}`, strictjson.Error{Offset: 12, Pointer: "/x/a", Reason: "name given twice"}},
		"two escaped spellings of a name":       {`{"\u0061b":1,"a\u0062":2}`, strictjson.Error{Offset: 13, Pointer: "/ab", Reason: "name given twice"}},
		"a name given twice among many":         {object(40)[:len(object(40))-1] + `,"k3":0}`, strictjson.Error{Offset: 341, Pointer: "/k3", Reason: "name given twice"}},
		"a lone high surrogate":                 {`["\ud800"]`, strictjson.Error{Offset: 2, Pointer: "/0", Reason: "half of a surrogate pair"}},
		"a lone low surrogate":                  {`["a\udc00"]`, strictjson.Error{Offset: 3, Pointer: "/0", Reason: "half of a surrogate pair"}},
		"two high surrogates":                   {`["\ud800\ud800"]`, strictjson.Error{Offset: 2, Pointer: "/0", Reason: "half of a surrogate pair"}},
		"a surrogate cut short":                 {`["\ud83d\u"]`, strictjson.Error{Offset: 2, Pointer: "/0", Reason: "half of a surrogate pair"}},
		"invalid UTF-8":                         {"{\"a\":\"\xff\"}", strictjson.Error{Offset: 6, Pointer: "/a", Reason: "invalid UTF-8"}},
		"an overlong encoding":                  {"\"\xc0\xaf\"", strictjson.Error{Offset: 1, Reason: "invalid UTF-8"}},
		"a surrogate in UTF-8":                  {"\"\xed\xa0\x80\"", strictjson.Error{Offset: 1, Reason: "invalid UTF-8"}},
		"a raw newline in a string":             {"\"a\nb\"", strictjson.Error{Offset: 2, Reason: "control character in a string"}},
		"an unknown escape":                     {`"\x41"`, strictjson.Error{Offset: 1, Reason: "unknown escape"}},
		"a short escape":                        {`"\u12"`, strictjson.Error{Offset: 1, Reason: "escape without four hexadecimal digits"}},
		"65 levels":                             {nested(65), strictjson.Error{Offset: 64, Pointer: strings.Repeat("/0", 64), Reason: "nesting over 64 levels"}},
		"a number of 401 digits":                {`{"a":[0,` + strings.Repeat("9", 401) + `]}`, strictjson.Error{Offset: 8, Pointer: "/a/1", Reason: "number over 400 digits"}},
		"401 digits split by the point":         {"1." + strings.Repeat("0", 400), strictjson.Error{Reason: "number over 400 digits"}},
		"an exponent of 401":                    {`{"a":1e401}`, strictjson.Error{Offset: 5, Pointer: "/a", Reason: "exponent beyond 400"}},
		"an exponent of 401 once written short": {`[10e400]`, strictjson.Error{Offset: 1, Pointer: "/0", Reason: "exponent beyond 400"}},
		"one of -401 once written short":        {`-0.5E-400`, strictjson.Error{Reason: "exponent beyond 400"}},
		"an exponent of -401":                   {`1e-401`, strictjson.Error{Reason: "exponent beyond 400"}},
		"an exponent that overflows":            {`1e99999999999999999999`, strictjson.Error{Reason: "exponent beyond 400"}},
		"a leading zero":                        {`[01]`, strictjson.Error{Offset: 1, Pointer: "/0", Reason: "number with a leading zero"}},
		"a plus sign":                           {`+1`, strictjson.Error{Reason: "not a JSON value"}},
		"a point without digits":                {`1.`, strictjson.Error{Offset: 1, Reason: "number without digits after its point"}},
		"an exponent without digits":            {`1e+`, strictjson.Error{Offset: 3, Reason: "exponent without digits"}},
		"a trailing comma":                      {`[1,]`, strictjson.Error{Offset: 3, Pointer: "/1", Reason: "not a JSON value"}},
		"a trailing comma in an object":         {`{"a":1,}`, strictjson.Error{Offset: 7, Reason: "expected a name in quotes"}},
		"a name without quotes":                 {`{a:1}`, strictjson.Error{Offset: 1, Reason: "expected a name in quotes"}},
		"single quotes":                         {`{'a':1}`, strictjson.Error{Offset: 1, Reason: "expected a name in quotes"}},
		"a document cut off":                    {`{"a":[1`, strictjson.Error{Offset: 7, Pointer: "/a/0", Reason: "unexpected end"}},
		"a NUL behind the document":             {"{}\x00", strictjson.Error{Offset: 2, Reason: "data after the end"}},
		"a form feed as white space":            {"\f{}", strictjson.Error{Reason: "not a JSON value"}},
		"UTF-16":                                {"{\x00}\x00", strictjson.Error{Offset: 1, Reason: "expected a name in quotes"}},
		"a pointer with a slash and newline":    {`{"a/b\n~":tru}`, strictjson.Error{Offset: 10, Pointer: `/a~1b\u000a~0`, Reason: "not a JSON value"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := strictjson.Scan([]byte(tc.doc))
			var got *strictjson.Error
			if !errors.As(err, &got) {
				t.Fatalf("Scan = %v, want an *Error", err)
			}
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPointerOfAnErrorStaysShort(t *testing.T) {
	t.Parallel()
	doc := strings.Repeat(`{"`+strings.Repeat("é", 500)+`":`, 60) + "x"
	_, err := strictjson.Scan([]byte(doc))
	if got := len(err.Error()); got > 600 {
		t.Errorf("the error has %d bytes", got)
	}
}

func TestScanOfManyNamesIsNotQuadratic(t *testing.T) {
	t.Parallel()
	doc := []byte(object(300_000))
	start := time.Now()
	if _, err := strictjson.Scan(doc); err != nil {
		t.Fatal(err)
	}
	// Comparing each with each takes minutes; this is a second even under the race detector.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("300,000 names took %v", took)
	}
}

func TestValueIsReadWithoutDecoding(t *testing.T) {
	t.Parallel()
	v, err := strictjson.Scan([]byte(` {"n\u0061me":"t\u00e9\ud83d\ude00", "list":[1, "b]",{"c":[]}],"yes":true ,"no":null}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for key, value := range v.Members() {
		got = append(got, key.Text()+"="+string(value.Raw()))
	}
	for element := range v.Get("list").Elements() {
		got = append(got, string(element.Raw()))
	}
	want := []string{`name="t\u00e9\ud83d\ude00"`, `list=[1, "b]",{"c":[]}]`, `yes=true`, `no=null`, `1`, `"b]"`, `{"c":[]}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members and elements (-want +got):\n%s", diff)
	}
	if got := v.Get("name").Text(); got != "té😀" {
		t.Errorf("Text() = %q", got)
	}
	if !v.Get("name").Is("té😀") || v.Get("name").Is("t") || v.Get("no").Is("null") || !v.Get("yes").IsTrue() {
		t.Error("Is and IsTrue do not compare the value")
	}
	if v.Get("absent").Exists() || v.Get("absent").Kind() != strictjson.None || !v.Get("no").Exists() {
		t.Error("what is absent must be told from null")
	}
}

func TestSalvageFindsTheIDOfARefusedMessageOnlyWhereItIsCertain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ doc, want string }{
		"a bad value elsewhere":          {`{"id":9007199254740993,"params":{"a":1e999}}`, "9007199254740993"},
		"behind the bad value":           {`{"params":{"a":"\ud800"},"id":"x\"y"}`, `"x\"y"`},
		"another name twice":             {`{"a":1,"a":2,"id":0}`, "0"},
		"the id twice":                   {`{"id":1,"id":2}`, ""},
		"an id that is itself refused":   {`{"id":01}`, ""},
		"a document cut off":             {`{"id":1,"a":`, ""},
		"two documents":                  {`{"id":1}{"id":2}`, ""},
		"an id inside another value":     {`{"params":{"id":1}}`, ""},
		"an array":                       {`[{"id":1}]`, ""},
		"an unclosed string at the end":  {`{"id":1,"`, ""},
		"an escape at the very end":      {`{"id":1,"\`, ""},
		"nothing":                        {``, ""},
		"an object that is opened only":  {`{`, ""},
		"a name without anything behind": {`{"id"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, ok := strictjson.Salvage([]byte(tc.doc), "id")
			if got := string(v.Raw()); ok != (tc.want != "") || (ok && got != tc.want) {
				t.Errorf("Salvage = %q, %v, want %q", got, ok, tc.want)
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.50,-0,1e5],"b":"\u00e9\ud83d\ude00","c":null}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\ufeff{}",
		`{"a":{"b":{}}} `, `[1e400,1e-400]`, `[10e400,0.1e-400]`, nested(65), "\"\xed\xa0\x80\"", `{"x":1}{"x":2}`, object(20),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := strictjson.Scan(data)
		strictjson.Salvage(data, "id")
		if err != nil {
			_ = err.Error()
			return
		}
		if !json.Valid(data) {
			t.Fatalf("encoding/json refuses %q", data)
		}
		want := jsontext.Value(bytes.Clone(data))
		if !want.IsValid() {
			t.Fatalf("jsontext refuses %q", data)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil || !bytes.Equal(walk(nil, v), compact.Bytes()) {
			t.Fatalf("%q is walked as %s, %v", data, walk(nil, v), err)
		}
		canonical := v.AppendCanonical(nil)
		if len(canonical) > 6*len(data) {
			t.Fatalf("%d bytes became %d", len(data), len(canonical))
		}
		again, err := strictjson.Canonical(canonical)
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("Canonical(%s) = %s, %v", canonical, again, err)
		}
		// Where no number is beyond a float, RFC 8785 as jsontext implements it agrees on all but the numbers.
		if !bytes.ContainsAny(data, "0123456789") {
			if err := want.Canonicalize(); err != nil || !bytes.Equal(want, canonical) {
				t.Fatalf("Canonical = %s, jsontext = %s, %v", canonical, want, err)
			}
		}
	})
}

// walk writes a value as its members and elements say.
func walk(out []byte, v strictjson.Value) []byte {
	begin := len(out)
	switch v.Kind() {
	case strictjson.Object:
		for key, value := range v.Members() {
			out = walk(append(append(append(out, ','), key.Raw()...), ':'), value)
		}
		out = append(out, '}')
		if len(out) == begin+1 {
			return append(out[:begin], "{}"...)
		}
		out[begin] = '{'
	case strictjson.Array:
		for element := range v.Elements() {
			out = walk(append(out, ','), element)
		}
		out = append(out, ']')
		if len(out) == begin+1 {
			return append(out[:begin], "[]"...)
		}
		out[begin] = '['
	default:
		out = append(out, v.Raw()...)
	}
	return out
}

// TestTheBulkOfADocumentIsWalkedOverRightly has the longest value of the third level at every place.
func TestTheBulkOfADocumentIsWalkedOverRightly(t *testing.T) {
	t.Parallel()
	for _, bulk := range []string{`"a long text with \\ and \" and {"`, `{"a":[1,{"b":"} ] ,"}],"c":{}}`, `[[],[1,2],"x"]`, `-12.5e10`, `{}`} {
		for _, doc := range []string{
			`{"p":{"bulk":` + bulk + `},"after":[1,2]}`, `{"before":{},"p":{"x":1,"bulk":` + bulk + `,"y":{"z":2}}}`,
			`[` + bulk + `,{"p":{"bulk":` + bulk + `}}]`, `{"p":[{"bulk":` + bulk + `}],"q":3}`, bulk,
		} {
			v, err := strictjson.Scan([]byte(doc))
			if err != nil {
				t.Fatal(err)
			}
			if got := walk(nil, v); string(got) != doc {
				t.Errorf("%s is walked as %s", doc, got)
			}
		}
	}
}

func BenchmarkScan(b *testing.B) {
	for name, doc := range map[string][]byte{
		"190 bytes":              message,
		"256 KiB":                []byte(`{"text":"` + strings.Repeat("lorem ipsum ", 256<<10/12) + `"}`),
		"4 MiB of 300,000 names": []byte(object(300_000)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if _, err := strictjson.Scan(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// message is an ordinary tools/call.
var message = []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"refund_payment","arguments":{"paymentId":"pay_8812","amount":19.90,"reason":"twice"},"_meta":{"progressToken":3}}}`)

func BenchmarkMembers(b *testing.B) {
	v, err := strictjson.Scan(message)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !v.Get("params").Get("_meta").Get("progressToken").Exists() {
			b.Fatal("not found")
		}
	}
}

func TestScanningAnOrdinaryMessageAllocatesNothing(t *testing.T) {
	got := testing.AllocsPerRun(100, func() {
		v, err := strictjson.Scan(message)
		if err != nil || !v.Get("params").Get("name").Is("refund_payment") {
			t.Fatal("not read")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestEveryByteCountsWhereverItStandsInAString(t *testing.T) {
	t.Parallel()
	for before := range 64 {
		for _, after := range []int{0, 1, 7, 40} {
			for c := range 256 {
				text := strings.Repeat("~", before) + string([]byte{byte(c)}) + strings.Repeat(" ", after)
				doc := []byte(`["` + text + `",1]`)
				got, err := strictjson.Scan(doc)
				if want := json.Valid(doc) && utf8.Valid(doc); (err == nil) != want {
					t.Fatalf("%q: got %v", doc, err)
				}
				if fault, failed := errors.AsType[*strictjson.Error](err); failed && c < ' ' && fault.Offset != before+2 {
					t.Fatalf("%q: the error is at %d", doc, fault.Offset)
				}
				if err != nil {
					continue
				}
				var read []any
				if err := json.Unmarshal(doc, &read); err != nil {
					t.Fatal(err)
				}
				n := 0
				for element := range got.Elements() {
					if text, ok := read[n].(string); ok && element.Text() != text {
						t.Fatalf("%q: read %q", doc, element.Text())
					}
					n++
				}
				if n != len(read) {
					t.Fatalf("%q: %d elements", doc, n)
				}
			}
		}
	}
}
