// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseList(t *testing.T) {
	t.Parallel()
	type found struct{ Server, Name, Description string }
	const one, two = `{"name":"fetch_a","description":"Fetches a","inputSchema":{"type":"object"}}`, `{"name":"drop_b","inputSchema":{}}`
	cases := map[string]struct {
		data string
		want []found
	}{
		"a tools/list result":             {`{"tools":[` + one + `,` + two + `],"nextCursor":"x"}`, []found{{"", "fetch_a", "Fetches a"}, {"", "drop_b", ""}}},
		"a whole response":                {`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + two + `]}}`, []found{{"", "drop_b", ""}}},
		"an array":                        {"[\n" + one + ",\n" + two + "\n]\n", []found{{"", "fetch_a", "Fetches a"}, {"", "drop_b", ""}}},
		"a single tool":                   {one, []found{{"", "fetch_a", "Fetches a"}}},
		"a tool a line":                   {one + "\n\n" + two + "\n", []found{{"", "fetch_a", "Fetches a"}, {"", "drop_b", ""}}},
		"lines that name the server":      {`{"server":"desk","name":"fetch_a","inputSchema":{}}` + "\n" + two, []found{{"desk", "fetch_a", ""}, {"", "drop_b", ""}}},
		"a result a line, with servers":   {`{"server":"desk","tools":[` + one + `]}` + "\n" + `{"server":"shop","tools":[` + two + `]}`, []found{{"desk", "fetch_a", "Fetches a"}, {"shop", "drop_b", ""}}},
		"a tool may be called server":     {`[{"name":"server","inputSchema":{}}]`, []found{{"", "server", ""}}},
		"a tool with parameters of tools": {`[{"name":"x","inputSchema":{"properties":{"tools":{}}}}]`, []found{{"", "x", ""}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, err := ParseList([]byte(tc.data))
			if err != nil {
				t.Fatal(err)
			}
			var got []found
			for _, entry := range entries {
				got = append(got, found{entry.Server, entry.Name, entry.Description})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseListSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ data, want string }{
		"nothing":           {" \n", "holds no tool"},
		"an empty list":     {`{"tools":[]}`, "holds no tool"},
		"no JSON":           {"{\"name\":\"a\",\"inputSchema\":{}}\n{\"name\":oops}", "line 2 (byte "},
		"a cut file":        {`[{"name":"a"`, "not valid JSON"},
		"a mark":            {"\xef\xbb\xbf[]", "byte order mark"},
		"a number":          {"42", "neither an object nor an array"},
		"an error answer":   {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`, "error answer"},
		"a strange object":  {`{"a":1}`, `neither "tools"`},
		"tools of a kind":   {`{"tools":{"a":1}}`, "not an array"},
		"a nameless tool":   {`[{"name":"a","inputSchema":{}},{"title":"b"}]`, "tool 2 of the list"},
		"a server number":   {`{"server":1,"name":"a","inputSchema":{}}`, `"server" is not a string`},
		"a name of numbers": {`{"name":1,"inputSchema":{}}`, "line 1"},
	}
	for name, tc := range cases {
		_, err := ParseList([]byte(tc.data))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}

func TestWhatALineAddsDoesNotChangeTheDigest(t *testing.T) {
	t.Parallel()
	digest := func(data string) string {
		t.Helper()
		entries, err := ParseList([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return entries[0].Digest()
	}
	want := digest(`{"tools":[{"name":"a","description":"<b> & c","inputSchema":{"type":"object"}}]}`)
	if got := digest(`{"server":"s","version":"1","name":"a","inputSchema":{"type":"object"},"description":"<b> & c"}`); got != want {
		t.Errorf("the digest of a line is %s, of the list %s", got, want)
	}
	if got := digest(`{"server":"s","name":"a","inputSchema":{"type":"object"},"description":"<b> & d"}`); got == want {
		t.Error("another description has the same digest")
	}
}

func FuzzParseList(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{}}]}`))
	f.Add([]byte("{\"name\":\"a\"}\n[[]]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseList(data)
		if (err == nil) != (len(entries) > 0) {
			t.Errorf("%d entries with error %v", len(entries), err)
		}
	})
}
