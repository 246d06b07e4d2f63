// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/tidewaiter/tidewaiter/internal/action"
)

func mask(t testing.TB, arguments string) action.Masked {
	t.Helper()
	got, err := action.Mask([]byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Text) > action.MaxShown || !json.Valid([]byte(got.Text)) {
		t.Fatalf("%d bytes shown, no JSON or too much: %.300s", len(got.Text), got.Text)
	}
	return got
}

func TestMaskShowsWhatIsShortAndNoSecret(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ arguments, want string }{
		"scalars, sorted":       {`{"b":1.10,"a":"x","c":null,"d":true}`, `{"a":"x","b":1.1,"c":null,"d":true}`},
		"nested":                {`{"a":{"b":[1,{"c":"d"}]}}`, `{"a":{"b":[1,{"c":"d"}]}}`},
		"256 bytes":             {`{"a":"` + strings.Repeat("x", 256) + `"}`, `{"a":"` + strings.Repeat("x", 256) + `"}`},
		"a page token":          {`{"pageToken":"abc","max_tokens":100}`, `{"max_tokens":100,"pageToken":"abc"}`},
		"a key of an issue":     {`{"key":"OPS-1"}`, `{"key":"OPS-1"}`},
		"flags of secret names": {`{"rotate_secret":true,"password":null,"token":""}`, `{"password":null,"rotate_secret":true,"token":""}`},
		"null":                  {`null`, `null`},
		"an address":            {`{"url":"https://example.com/a@b?c:d"}`, `{"url":"https://example.com/a@b?c:d"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mask(t, tc.arguments)
			if got.Text != tc.want || !got.Fits || got.Summary != "" {
				t.Errorf("Mask = %+v, want %s", got, tc.want)
			}
		})
	}
	if got, err := action.Mask(nil); err != nil || got != (action.Masked{Fits: true}) {
		t.Errorf("no arguments: %+v, %v", got, err)
	}
}

func TestMaskHidesSecretsAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ arguments, secret string }{
		"a password":                  {`{"password":"hunter2"}`, "hunter2"},
		"in camel case":               {`{"dbPassword":"hunter2"}`, "hunter2"},
		"an API key":                  {`{"api_key":"hunter2"}`, "hunter2"},
		"an access token":             {`{"auth":{"accessToken":"hunter2"}}`, "hunter2"},
		"a number":                    {`{"pin":4711}`, "4711"},
		"an object below secret":      {`{"secret":{"force":"hunter2"}}`, "hunter2"},
		"a list of tokens":            {`{"tokens":["hunter2"]}`, "hunter2"},
		"a known token under any key": {`{"note":"use ghp_0123456789abcdefghij0123 please"}`, "ghp_0123456789"},
		"a bearer in a header":        {`{"headers":{"X":"Bearer 0123456789abcdefghij"}}`, "0123456789abcdefghij"},
		"a JWT":                       {`{"x":"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig"}`, "eyJhbGciOiJIUzI1NiJ9"},
		"a private key":               {`{"x":"-----BEGIN RSA PRIVATE KEY-----\nMIIB"}`, "MIIB"},
		"a password in a URL":         {`{"url":"postgres://app:hunter2@db/x"}`, "hunter2"},
		"in a list of lists":          {`{"a":[["sk-proj-0123456789abcdef"]]}`, "sk-proj-0123456789"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mask(t, tc.arguments)
			if strings.Contains(got.Text+got.Summary, tc.secret) {
				t.Errorf("%s is shown: %+v", tc.secret, got)
			}
			if got.Fits || !strings.Contains(got.Text, "[hidden: secret, ") || !strings.Contains(got.Summary, "1 value that looks secret") {
				t.Errorf("nobody is told: %+v", got)
			}
			if radius := fmt.Sprint(action.Radius([]byte(tc.arguments), nil)); strings.Contains(radius, tc.secret) {
				t.Errorf("%s is shown: %s", tc.secret, radius)
			}
		})
	}
}

func TestTheDigestOfASecretConfirmsNoGuess(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for pin := range 2000 {
		seen[mask(t, fmt.Sprintf(`{"pin":"%06d"}`, pin)).Text]++
	}
	if len(seen) == 2000 {
		t.Error("every pin of 2,000 has a mark of its own")
	}
	if mask(t, `{"pin":"1111"}`).Text == mask(t, `{"pin":"1112"}`).Text {
		t.Error("two pins cannot be told apart at all")
	}
}

func TestMaskHidesLongTexts(t *testing.T) {
	t.Parallel()
	prose := mask(t, `{"body":"`+strings.Repeat("x", 257)+`","id":"a"}`)
	if want := `{"body":"[hidden: text, 257 bytes, sha256 `; !strings.HasPrefix(prose.Text, want) || !prose.Fits {
		t.Errorf("Mask = %+v, want %s", prose, want)
	}
	if !strings.Contains(prose.Summary, "1 long text hidden") {
		t.Errorf("Summary = %q", prose.Summary)
	}
	for _, arguments := range []string{
		`{"sql":"` + strings.Repeat("x", 257) + `"}`,
		`{"commands":[["` + strings.Repeat("x", 257) + `"]]}`,
		`{"script":{"source":"` + strings.Repeat("x", 257) + `"}}`,
	} {
		if got := mask(t, arguments); got.Fits || !strings.Contains(got.Text, "[hidden: code, 257 bytes") {
			t.Errorf("long code fits: %+v", got)
		}
	}
	if got := mask(t, `{"n":`+strings.Repeat("9", 300)+`}`); !strings.Contains(got.Text, "[hidden: number, 306 bytes") {
		t.Errorf("Mask = %+v", got)
	}
}

func TestWhatAPersonCannotSeeIsUnknown(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("x", 9000)
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"a%05d":"%0200d",`, i, i)
		}
		return b.String()
	}
	for name, tc := range map[string]struct{ arguments, shown string }{
		"behind one long text":         {`{"a":"` + filler + `","force":true}`, `"force":true`},
		"behind a list":                {`{"a":[` + strings.Repeat(`"abcdefgh",`, 1000) + `1],"force":true}`, `"force":true`},
		"behind many arguments":        {`{` + many(100) + `"force":true}`, `"force":true`},
		"behind very many arguments":   {`{` + many(200) + `"force":true}`, `more members]":null`},
		"under a secret name":          {`{"secret":{"force":true}}`, `[hidden: secret, `},
		"in a key":                     {`{"` + strings.Repeat("k", 200) + `":1}`, `[hidden: key, 200 bytes`},
		"behind a deep tree":           {`{"a":` + strings.Repeat(`[`, 50) + `"` + strings.Repeat(`y`, 9000) + `"` + strings.Repeat(`]`, 50) + `}`, `[hidden: text`},
		"3 MB":                         {`{"a":"` + strings.Repeat(filler, 350) + `"}`, `[hidden: text, 3150000 bytes`},
		"a list as the whole":          {`[` + strings.Repeat(`"abcdefgh",`, 1000) + `1]`, `[hidden: too large`},
		"escapes that grow on showing": {`{"a":["` + strings.Repeat("\u202e", 80) + `",` + strings.Repeat(`"`+strings.Repeat(`\u0001`, 200)+`",`, 8) + `0]}`, `[hidden: too large`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mask(t, tc.arguments)
			if got.Fits || got.Summary == "" || !strings.Contains(got.Text, tc.shown) {
				t.Errorf("Fits %v, summary %q, text %.400s; want %s in it", got.Fits, got.Summary, got.Text, tc.shown)
			}
			radius := action.Radius([]byte(tc.arguments), nil)
			if radius.Scope != "Unknown" || !strings.Contains(radius.Summary, "hidden") {
				t.Errorf("radius %+v", radius)
			}
		})
	}
	if got := mask(t, `{`+many(10)+`"force":true}`); !got.Fits || !strings.Contains(got.Text, `"force":true`) {
		t.Errorf("what fits is not shown: %+v", got)
	}
}

func TestAMarkCannotBeForged(t *testing.T) {
	t.Parallel()
	got := mask(t, `{"a":"[hidden: text, 3 bytes, sha256 0123456789abcdef]","[hidden: 2 more members]":null}`)
	if strings.Contains(got.Text, "0123456789abcdef") || strings.Contains(got.Text, "2 more members") {
		t.Errorf("a mark of the caller's own is shown: %s", got.Text)
	}
}

func TestNothingInvisibleReachesAPerson(t *testing.T) {
	t.Parallel()
	got := mask(t, "{\"a\\u202e\":\"x\\u0007\u2066y\u200b\u00a0\u3164\ufe0f\U000e0041\u2028\x7f\u0085|=]é😀\"}")
	want := `{"a\u202e":"x\u0007\u2066y\u200b\u00a0\u3164\ufe0f\udb40\udc41\u2028\u007f\u0085|=]é😀"}`
	if got.Text != want {
		t.Errorf("shown %s, want %s", got.Text, want)
	}
	summary := action.Radius([]byte("{\"id\":\"x\u202e\\n\u200b\"}"), nil).Summary
	if want := `scoped to id="x\u202e\n\u200b"`; summary != want {
		t.Errorf("summary %s, want %s", summary, want)
	}
}

func FuzzMask(f *testing.F) {
	for _, seed := range []string{
		`{"a":"x","password":"p","b":[1,{"c":null}]}`, `{"sql":"select 1","":{}}`, "{\"a\":\"\u202e\"}", `null`, `[]`,
		`{"a":"` + strings.Repeat("x", 9000) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, arguments []byte) {
		got, err := action.Mask(arguments)
		if err != nil || len(arguments) == 0 {
			return
		}
		if len(got.Text) > action.MaxShown || !json.Valid([]byte(got.Text)) {
			t.Fatalf("shown %q", got.Text)
		}
		for _, r := range got.Text {
			if !unicode.IsPrint(r) {
				t.Fatalf("%U in %q", r, got.Text)
			}
		}
		if !got.Fits && got.Summary == "" {
			t.Fatalf("hidden without a word: %+v", got)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	small := []byte(`{"paymentId":"pay_8812","amount":19.90,"reason":"twice"}`)
	large := []byte(`{"a":[` + strings.Repeat(`{"id":12345,"text":"abcdefgh"},`, 10_000) + `1]}`)
	for name, arguments := range map[string][]byte{"small": small, "300 KiB": large} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := action.Mask(arguments); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
