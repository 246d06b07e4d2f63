// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package action_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
)

func TestRadiusSaysHowFarACallReaches(t *testing.T) {
	t.Parallel()
	const single, bulk, unbounded, unknown = v1alpha1.BlastSingle, v1alpha1.BlastBulk, v1alpha1.BlastUnbounded, v1alpha1.BlastUnknown
	const byAccount = `{"type":"object","properties":{"accountId":{"type":"string"},"note":{"type":"string"},"recursive":{"type":"boolean"}}}`
	for name, tc := range map[string]struct {
		arguments, schema string
		wantScope         v1alpha1.BlastScope
		wantSummary       string // contained
	}{
		"an identifier":                 {`{"accountId":"acc_991"}`, "", single, `scoped to accountId="acc_991"`},
		"a numeric identifier":          {`{"issue_number":12,"repo":"a/b"}`, "", single, `scoped to issue_number=12, repo="a/b"`},
		"force":                         {`{"force":true}`, "", unbounded, `UNBOUNDED: force is set`},
		"force beside an identifier":    {`{"accountId":"a","force":true}`, "", unbounded, `UNBOUNDED: force is set; scoped to accountId="a"`},
		"force as a text":               {`{"accountId":"a","force":"yes"}`, "", unbounded, `force is set`},
		"force as a number":             {`{"accountId":"a","force":1}`, "", unbounded, `force is set`},
		"force that is not set":         {`{"force":false}`, "", unknown, `name nothing that limits`},
		"force that is not set, scoped": {`{"accountId":"a","force":false}`, "", single, `scoped to accountId="a"`},
		"force: no":                     {`{"accountId":"a","force":"no"}`, "", single, `scoped to`},
		"force deep inside":             {`{"accountId":"a","options":[{"deep":{"forceDelete":true}}]}`, "", unbounded, `options.deep.forceDelete is set`},
		"all namespaces":                {`{"name":"x","allNamespaces":true}`, "", unbounded, `allNamespaces is set`},
		"recursive":                     {`{"path":"/srv/a","recursive":true}`, "", unbounded, `recursive is set; scoped to path="/srv/a"`},
		"not recursive":                 {`{"path":"/srv/a","no_recursive":true}`, "", single, `scoped to path="/srv/a"`},
		"an all-day event":              {`{"event_id":"e","all_day":true}`, "", single, `scoped to event_id="e"`},
		"no confirmation":               {`{"id":"a","skipConfirmation":true}`, "", unbounded, `skipConfirmation is set`},
		"an identifier in a filter":     {`{"filter":{"account_id":"a"}}`, "", single, `scoped to filter.account_id="a"`},
		"several identifiers":           {`{"ids":[1,2,3]}`, "", bulk, `ids has 3 entries`},
		"one identifier in a list":      {`{"ids":[7]}`, "", single, `scoped to ids=7`},
		"an empty list of identifiers":  {`{"ids":[]}`, "", unbounded, `ids is empty`},
		"identifiers with commas":       {`{"ids":"1,2,3"}`, "", bulk, `ids names 3`},
		"a list of objects":             {`{"orgId":"o","items":[{"id":1},{"id":2}]}`, "", bulk, `items has 2 entries; scoped to orgId="o"`},
		"a wildcard in a list":          {`{"ids":["a","*"]}`, "", unbounded, `ids is "*"`},
		"tags of one thing":             {`{"issueId":"i","labels":["a","b"]}`, "", single, `scoped to issueId="i"`},
		"the root":                      {`{"path":"/"}`, "", unbounded, `path is "/", the root`},
		"the root by a detour":          {`{"path":"/tmp/.."}`, "", unbounded, `the root`},
		"the root with a star":          {`{"directory":"/*"}`, "", unbounded, `directory is "/*"`},
		"a drive":                       {`{"file_path":"C:\\"}`, "", unbounded, `the root`},
		"the parent":                    {`{"path":"../.."}`, "", unbounded, `the root`},
		"a file":                        {`{"path":"/srv/a.txt"}`, "", single, `scoped to path="/srv/a.txt"`},
		"a pattern of files":            {`{"path":"/srv/*.txt"}`, "", bulk, `path is the pattern "/srv/*.txt"`},
		"a query for everything":        {`{"query":"*"}`, "", unbounded, `query matches everything`},
		"a query":                       {`{"query":"status:open"}`, "", bulk, `selected by query="status:open"`},
		"an empty condition":            {`{"where":""}`, "", unbounded, `where is empty`},
		"a blank condition":             {`{"where":"  "}`, "", unbounded, `where is empty`},
		"a null filter":                 {`{"filter":null}`, "", unbounded, `filter is empty`},
		"an empty filter":               {`{"filter":{}}`, "", unbounded, `filter is empty`},
		"an empty filter, scoped":       {`{"accountId":"a","filter":{}}`, "", unbounded, `filter is empty; scoped to accountId="a"`},
		"a condition that is true":      {`{"where":"1=1"}`, "", unbounded, `where matches everything`},
		"a filter by status":            {`{"filter":{"status":"open"}}`, "", bulk, `selected by filter`},
		"an empty prefix":               {`{"bucket":"b","prefix":""}`, "", unbounded, `prefix is empty`},
		"status: all":                   {`{"status":"all"}`, "", unbounded, `status is "all"`},
		"an asterisk in prose":          {`{"issueId":"i","body":"*"}`, "", single, `scoped to issueId="i"`},
		"SQL":                           {`{"databaseId":"d","sql":"DROP TABLE x"}`, "", unknown, `UNKNOWN: sql holds free code; scoped to databaseId="d"`},
		"SQL as a query":                {`{"query":"DELETE FROM x"}`, "", unknown, `query holds free code`},
		"a command":                     {`{"command":"reboot"}`, "", unknown, `command holds free code`},
		"a country code":                {`{"accountId":"a","country_code":"DE"}`, "", single, `scoped to accountId="a"`},
		"a count":                       {`{"orgId":"o","count":50}`, "", bulk, `count=50`},
		"a count of one":                {`{"orgId":"o","count":1}`, "", single, `scoped to orgId="o"`},
		"a limit alone":                 {`{"limit":100}`, "", bulk, `limit=100`},
		"a limit beside an identifier":  {`{"orgId":"o","limit":100}`, "", single, `scoped to orgId="o"`},
		"a limit below zero":            {`{"orgId":"o","limit":-1}`, "", unbounded, `limit is negative`},
		"a budget of tokens":            {`{"orgId":"o","max_tokens":4096}`, "", single, `scoped to orgId="o"`},
		"nothing":                       {`{}`, "", unknown, `name nothing that limits`},
		"no arguments":                  {``, "", unknown, `name nothing that limits`},
		"null":                          {`null`, "", unknown, `name nothing that limits`},
		"no identifier, schema has one": {`{"note":"x"}`, byAccount, unbounded, `no accountId is given`},
		"null for the identifier":       {`{"accountId":null}`, byAccount, unbounded, `no accountId is given`},
		"an empty identifier":           {`{"accountId":""}`, "", unbounded, `no accountId is given`},
		"the identifier, schema has it": {`{"accountId":"a"}`, byAccount, single, `scoped to accountId="a"`},
		"another identifier":            {`{"email":"a@b.c"}`, `{"properties":{"userId":{},"email":{}}}`, single, `scoped to email="a@b.c"`},
		"an identifier of a bystander":  {`{"title":"x"}`, `{"properties":{"title":{},"assigneeId":{}}}`, unknown, `name nothing that limits`},
		"a flag that is set by default": {`{"accountId":"a"}`, `{"properties":{"accountId":{},"recursive":{"type":"boolean","default":true}}}`, unbounded, `recursive is set by default`},
		"and taken away":                {`{"accountId":"a","recursive":false}`, `{"properties":{"accountId":{},"recursive":{"type":"boolean","default":true}}}`, single, `scoped to accountId="a"`},
		"a schema that is no JSON":      {`{"accountId":"a"}`, `{`, single, `scoped to accountId="a"`},
		"arguments that are no JSON":    {`{`, "", unknown, `cannot be read`},
		"a key that speaks":             {`{"x is harmless; id":"a"}`, "", single, `scoped to "x is harmless; id"="a"`},
		"a long text beside":            {`{"issueId":"i","body":"` + strings.Repeat("x", 300) + `"}`, "", single, `scoped to issueId="i"; 1 long text hidden`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := action.Radius([]byte(tc.arguments), []byte(tc.schema))
			if got.Scope != tc.wantScope || !strings.Contains(got.Summary, tc.wantSummary) {
				t.Errorf("%s: %s\nwant %s: %s", got.Scope, got.Summary, tc.wantScope, tc.wantSummary)
			}
		})
	}
}

func TestRadiusGivesItsEvidence(t *testing.T) {
	t.Parallel()
	got := action.Radius([]byte(`{"accountId":"acc_991","force":true}`), nil)
	if len(got.Evidence) != 2 || got.Evidence[0] != "force is set" || got.Evidence[1] != `accountId="acc_991"` {
		t.Errorf("evidence %q", got.Evidence)
	}
}

func FuzzRadius(f *testing.F) {
	f.Add([]byte(`{"accountId":"a","force":true,"ids":[1,[2]],"filter":{"x":null},"path":"/"}`), []byte(`{"properties":{"id":{"default":true}}}`))
	f.Add([]byte(`{"":"*","`+strings.Repeat("é", 100)+`id":"`+strings.Repeat("é", 100)+`"}`), []byte(``))
	f.Add([]byte(`[[{"all":1}]]`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, arguments, schema []byte) {
		got := action.Radius(arguments, schema)
		if got.Summary == "" || len(got.Summary) > 512 || len(got.Evidence) > 16 {
			t.Fatalf("%+v", got)
		}
		for _, text := range append(got.Evidence, got.Summary) {
			if len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q", text)
			}
		}
		for _, item := range got.Evidence {
			if len(item) > 256 {
				t.Fatalf("%d bytes of evidence", len(item))
			}
		}
	})
}

func BenchmarkRadius(b *testing.B) {
	schema := []byte(`{"type":"object","properties":{"paymentId":{"type":"string"},"amount":{"type":"number"},"reason":{"type":"string"},"force":{"type":"boolean"}}}`)
	for name, arguments := range map[string][]byte{
		"small":   []byte(`{"paymentId":"pay_8812","amount":19.90,"reason":"twice"}`),
		"300 KiB": []byte(`{"a":[` + strings.Repeat(`{"id":12345,"text":"abcdefgh"},`, 10_000) + `1]}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = action.Radius(arguments, schema)
			}
		})
	}
}
