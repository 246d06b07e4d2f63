// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

func digest(t *testing.T, raw string) string {
	t.Helper()
	d, err := tool.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d.Digest()
}

const pay = `{"name":"pay","title":"Pay","description":"Pays.","inputSchema":{"type":"object","properties":{"a":{"type":"integer","maximum":1.0},"b":{}}},` +
	`"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"destructiveHint":true},"icons":[{"src":"i"}],"_meta":{"v":1}}`

func TestADigestIsTheSameForTheSameWords(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"white space":                  strings.ReplaceAll(pay, ",", " ,\n "),
		"order of keys in a schema":    strings.Replace(pay, `"a":{"type":"integer","maximum":1.0},"b":{}`, `"b":{},"a":{"maximum":1.0,"type":"integer"}`, 1),
		"another spelling":             strings.Replace(strings.Replace(pay, "Pays.", `\u0050ays.`, 1), "1.0", "1", 1),
		"a list that passed a gateway": strings.Replace(pay, `"_meta":{"v":1}`, `"_meta":{"v":1,"tidewaiter.dev/tier":"Irreversible"}`, 1),
	} {
		if got := digest(t, raw); got != digest(t, pay) {
			t.Errorf("%s changes the digest", name)
		}
	}
	if digest(t, `{"name":"a","_meta":{"tidewaiter.dev/tier":"Read"}}`) != digest(t, `{"name":"a"}`) {
		t.Error("a _meta of the gateway alone changes the digest")
	}
}

func TestADigestChangesWithEveryWordOfTheServer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{digest(t, pay): "the tool itself"}
	for name, raw := range map[string]string{
		"name":                     strings.Replace(pay, `"pay"`, `"Pay"`, 1),
		"title":                    strings.Replace(pay, `"Pay"`, `"pay"`, 1),
		"a letter of the prose":    strings.Replace(pay, "Pays.", "Pays!", 1),
		"destructiveHint":          strings.Replace(pay, `"destructiveHint":true`, `"destructiveHint":false`, 1),
		"readOnlyHint":             strings.Replace(pay, `"readOnlyHint":false`, `"readOnlyHint":true`, 1),
		"no hint":                  strings.Replace(pay, `"readOnlyHint":false,`, ``, 1),
		"input schema":             strings.Replace(pay, "1.0", "1.5", 1),
		"output schema":            strings.Replace(pay, `"outputSchema":{"type":"object"}`, `"outputSchema":{"type":"array"}`, 1),
		"icons":                    strings.Replace(pay, `"src":"i"`, `"src":"j"`, 1),
		"_meta":                    strings.Replace(pay, `"v":1`, `"v":2`, 1),
		"a member of no spec":      strings.Replace(pay, `"title"`, `"x-vendor":null,"title"`, 1),
		"a key like the gateway's": strings.Replace(pay, `"v":1`, `"v":1,"Tidewaiter.dev/tier":"Read"`, 1),
	} {
		got := digest(t, raw)
		if other, ok := seen[got]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[got] = name
	}
}

func TestParseReadsWhatClassificationNeeds(t *testing.T) {
	t.Parallel()
	no, yes := false, true
	want := tool.Descriptor{
		Name: "pay", Title: "Pay", Description: "Pays.",
		InputSchema:  []byte(`{"type":"object","properties":{"a":{"type":"integer","maximum":1.0},"b":{}}}`),
		OutputSchema: []byte(`{"type":"object"}`),
		Annotations:  tool.Annotations{ReadOnlyHint: &no, DestructiveHint: &yes},
		Raw:          []byte(pay),
	}
	got, err := tool.Parse([]byte(" " + pay))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(tool.Descriptor{})); diff != "" {
		t.Errorf("descriptor (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got.Digest(), "sha256:") || len(got.Digest()) != 71 {
		t.Errorf("Digest() = %q", got.Digest())
	}
}

func TestParseRefusesWhatItCannotReadForSure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		raw  string
		want bool
	}{
		"a name alone":                {`{"name":"a"}`, true},
		"128 bytes of name":           {`{"name":"` + strings.Repeat("a", 128) + `"}`, true},
		"nulls":                       {`{"name":"a","title":null,"description":null,"inputSchema":null,"annotations":{"readOnlyHint":null}}`, true},
		"129 bytes of name":           {`{"name":"` + strings.Repeat("a", 129) + `"}`, false},
		"no name":                     {`{"title":"a"}`, false},
		"a null name":                 {`{"name":null}`, false},
		"a name twice":                {`{"name":"a","name":"b"}`, false},
		"a number as name":            {`{"name":1}`, false},
		"a list as schema":            {`{"name":"a","inputSchema":[]}`, false},
		"a string as hint":            {`{"name":"a","annotations":{"destructiveHint":"true"}}`, false},
		"a string as annotations":     {`{"name":"a","annotations":"x"}`, false},
		"an array":                    {`[{"name":"a"}]`, false},
		"a comment":                   {`{"name":"a"} // x`, false},
		"a description that is a map": {`{"name":"a","description":{}}`, false},
	} {
		if _, err := tool.Parse([]byte(tc.raw)); (err == nil) != tc.want {
			t.Errorf("%s: %v, accepted should be %v", name, err, tc.want)
		}
	}
}

func TestAnEndpointDigestChangesWithAnyOfItsFields(t *testing.T) {
	t.Parallel()
	get := func(e v1alpha1.Endpoint) string {
		t.Helper()
		digest, err := tool.EndpointDigest(e)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	tenant := func(value string) []v1alpha1.Header { return []v1alpha1.Header{{Name: "X-Tenant", Value: value}} }
	staging := v1alpha1.Endpoint{URL: "https://staging.example.com/mcp?a<b", Headers: tenant("1")}
	if get(staging) != get(v1alpha1.Endpoint{URL: staging.URL, Headers: tenant("1")}) {
		t.Error("two equal endpoints differ")
	}
	if get(staging) == get(v1alpha1.Endpoint{URL: "https://production.example.com/mcp", Headers: staging.Headers}) {
		t.Error("another url has the same digest")
	}
	if get(staging) == get(v1alpha1.Endpoint{URL: staging.URL, Headers: tenant("2")}) {
		t.Error("another header value has the same digest")
	}
	if get(staging) == get(v1alpha1.Endpoint{URL: staging.URL, Headers: tenant("1"), Transport: v1alpha1.TransportSSE}) {
		t.Error("another transport has the same digest")
	}
	// Objects from before the field have none; after an upgrade they read back with the default.
	if get(staging) != get(v1alpha1.Endpoint{URL: staging.URL, Headers: tenant("1"), Transport: v1alpha1.TransportStreamableHTTP}) {
		t.Error("the default transport makes another endpoint")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(pay))
	f.Add([]byte(`{"name":"a","_meta":{"tidewaiter.dev/x":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := tool.Parse(raw)
		if err == nil && (d.Name == "" || len(d.Digest()) != 71) {
			t.Fatalf("%q was read as %+v", raw, d)
		}
	})
}
