// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	read         = v1alpha1.TierRead
	reversibly   = v1alpha1.TierReversible
	irreversibly = v1alpha1.TierIrreversible
)

func TestTool(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		tool       tool.Descriptor
		opts       Options
		wantTier   v1alpha1.Tier
		wantSource v1alpha1.TierSource
		wantReason string // a part of it
	}{
		"a read verb is proof":                                    {tool.Descriptor{Name: "fetch_profile"}, Options{}, read, v1alpha1.TierSourceName, `"fetch"`},
		"a plural that looks like a verb is a noun":               {tool.Descriptor{Name: "get_settings"}, Options{}, read, v1alpha1.TierSourceName, `"get"`},
		"case 27: scaling is no read":                             {tool.Descriptor{Name: "scale_deployment", Description: "Change how many replicas run."}, Options{}, reversibly, v1alpha1.TierSourceName, `"scale"`},
		"case 28: rotation has effects":                           {tool.Descriptor{Name: "rotate_credentials", Description: "Issue new ones; the old set stops working."}, Options{}, reversibly, v1alpha1.TierSourceName, `"rotate"`},
		"case 29: cleaning up is for good":                        {tool.Descriptor{Name: "cleanup", Description: "Permanently deletes old records"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"cleanup"`},
		"case 29: prose does not lower an effect":                 {tool.Descriptor{Name: "archive_records", Description: "Harmless, it only counts"}, Options{}, reversibly, v1alpha1.TierSourceName, `"archive"`},
		"case 30: neither prose nor a hint lowers":                {tool.Descriptor{Name: "delete_everything", Description: "Only looks", Annotations: tool.Annotations{ReadOnlyHint: new(true)}}, Options{TrustReadOnlyHint: true}, irreversibly, v1alpha1.TierSourceName, `"delete"`},
		"case 31: no evidence is Reversible":                      {tool.Descriptor{Name: "frobnicate", Description: "Lists things"}, Options{}, reversibly, v1alpha1.TierSourceName, `"frobnicate"`},
		"case 32: the verb behind a conjunction counts":           {tool.Descriptor{Name: "getAndDelete"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"delete"`},
		"case 32: a get that may create has effects":              {tool.Descriptor{Name: "fetch_or_create"}, Options{}, reversibly, v1alpha1.TierSourceName, `"create"`},
		"case 32: an acronym hides no verb":                       {tool.Descriptor{Name: "HTTPDelete"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"delete"`},
		"case 32: the noun may come first":                        {tool.Descriptor{Name: "volumes_delete"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"delete"`},
		"case 32: writing is no noun":                             {tool.Descriptor{Name: "issue_write"}, Options{}, reversibly, v1alpha1.TierSourceName, `"issue"`},
		"case 32: searching to replace":                           {tool.Descriptor{Name: "search_and_replace"}, Options{}, reversibly, v1alpha1.TierSourceName, `"replace"`},
		"case 32: a second verb that no table knows":              {tool.Descriptor{Name: "get_and_yeet"}, Options{}, reversibly, v1alpha1.TierSourceName, `"yeet"`},
		"case 32: a verb after then":                              {tool.Descriptor{Name: "list_guests_then_defenestrate"}, Options{}, reversibly, v1alpha1.TierSourceName, `"defenestrate"`},
		"case 32: two verbs that read":                            {tool.Descriptor{Name: "search_and_fetch_guests"}, Options{}, read, v1alpha1.TierSourceName, `"search"`},
		"case 32: two things that are read":                       {tool.Descriptor{Name: "list_guests_and_rooms"}, Options{}, read, v1alpha1.TierSourceName, `"list"`},
		"getting rid of something is no read":                     {tool.Descriptor{Name: "get_rid_of_guest"}, Options{}, reversibly, v1alpha1.TierSourceName, `"get"`},
		"settling accounts":                                       {tool.Descriptor{Name: "find_bills_and_settle"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"settle"`},
		"case 33: free SQL":                                       {tool.Descriptor{Name: "execute_sql", Description: "Query the data"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"execute"`},
		"case 33: free code in a browser":                         {tool.Descriptor{Name: "browser_evaluate"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"evaluate"`},
		"case 33: a free request":                                 {tool.Descriptor{Name: "http_request"}, Options{}, irreversibly, v1alpha1.TierSourceName, `"request"`},
		"case 33: a free method":                                  {tool.Descriptor{Name: "fetch", InputSchema: []byte(`{"properties":{"url":{"type":"string"},"method":{"type":"string"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"method"`},
		"an address alone is read":                                {tool.Descriptor{Name: "fetch", InputSchema: []byte(`{"properties":{"url":{"type":"string"}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"fetch"`},
		"a method of reading only is read":                        {tool.Descriptor{Name: "fetch", InputSchema: []byte(`{"properties":{"url":{"type":"string"},"method":{"enum":["GET","HEAD"]}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"fetch"`},
		"case 34: a dispatcher is its worst action":               {tool.Descriptor{Name: "ticket_desk", InputSchema: []byte(`{"properties":{"action":{"enum":["list","create","delete"]}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"delete"`},
		"case 34: a dispatcher that creates":                      {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"properties":{"action":{"enum":["list","create"]}}}`)}, Options{}, reversibly, v1alpha1.TierSourceSchema, `"create"`},
		"a dispatcher of reads stays what its name says":          {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"properties":{"action":{"enum":["list","get"]}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"get"`},
		"an action behind a reference":                            {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"$defs":{"A":{"enum":["list","purge_all"]}},"properties":{"action":{"$ref":"#/$defs/A"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"purge_all"`},
		"actions as alternatives":                                 {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"oneOf":[{"properties":{"action":{"const":"list"}}},{"properties":{"action":{"const":"wipe"}}}]}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"wipe"`},
		"an action one object down":                               {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"properties":{"params":{"properties":{"action":{"enum":["delete"]}}}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"params.action"`},
		"a parameter of SQL":                                      {tool.Descriptor{Name: "query", InputSchema: []byte(`{"properties":{"sql":{"type":"string"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"sql"`},
		"a query that is no SQL":                                  {tool.Descriptor{Name: "query", InputSchema: []byte(`{"properties":{"query":{"type":"string","description":"what to look for"}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"query"`},
		"a command to an unknown verb":                            {tool.Descriptor{Name: "frobnicate", InputSchema: []byte(`{"properties":{"command":{"type":["string","null"]}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"command"`},
		"code to an unknown verb":                                 {tool.Descriptor{Name: "frobnicate", InputSchema: []byte(`{"properties":{"code":{"type":"string"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"code"`},
		"code to a verb that runs":                                {tool.Descriptor{Name: "start_probe", InputSchema: []byte(`{"properties":{"code":{"type":"string"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"code"`},
		"a command that is only stored":                           {tool.Descriptor{Name: "add_timer", InputSchema: []byte(`{"properties":{"command":{"type":"string"}}}`)}, Options{}, reversibly, v1alpha1.TierSourceName, `"add"`},
		"a code to join with":                                     {tool.Descriptor{Name: "join_room", InputSchema: []byte(`{"properties":{"code":{"type":"string"}}}`)}, Options{}, reversibly, v1alpha1.TierSourceName, `"join"`},
		"a permanent removal":                                     {tool.Descriptor{Name: "archive_page", InputSchema: []byte(`{"properties":{"permanent":{"type":"boolean"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"permanent"`},
		"a filter of permanent things":                            {tool.Descriptor{Name: "list_pages", InputSchema: []byte(`{"properties":{"permanent":{"type":"boolean"}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"list"`},
		"a forced stop":                                           {tool.Descriptor{Name: "stop_job", InputSchema: []byte(`{"properties":{"force":{"anyOf":[{"type":"boolean"},{"type":"null"}]}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"force"`},
		"code that is only stored":                                {tool.Descriptor{Name: "create_function", InputSchema: []byte(`{"properties":{"code":{"type":"string"}}}`)}, Options{}, reversibly, v1alpha1.TierSourceName, `"create"`},
		"a switch that makes it final":                            {tool.Descriptor{Name: "stop_job", InputSchema: []byte(`{"properties":{"purge":{"type":"boolean"}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"purge"`},
		"a forced read is a read":                                 {tool.Descriptor{Name: "get_job", InputSchema: []byte(`{"properties":{"force":{"type":"boolean"}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"get"`},
		"prose raises by its leading verb":                        {tool.Descriptor{Name: "get_guide", Description: "Updates the guide and returns it"}, Options{}, reversibly, v1alpha1.TierSourceDescription, `"update"`},
		"prose raises by a strong phrase":                         {tool.Descriptor{Name: "update_guide", Description: "Sets the guide. This can't be undone!"}, Options{}, irreversibly, v1alpha1.TierSourceDescription, `"cant be undone"`},
		"a phrase that is denied raises nothing":                  {tool.Descriptor{Name: "update_guide", Description: "Sets the guide; not irreversible."}, Options{}, reversibly, v1alpha1.TierSourceName, `"update"`},
		"a title raises":                                          {tool.Descriptor{Name: "get_guide", Title: "Delete guide"}, Options{}, irreversibly, v1alpha1.TierSourceDescription, `title`},
		"a hint of writing takes Read away":                       {tool.Descriptor{Name: "get_guide", Annotations: tool.Annotations{ReadOnlyHint: new(false)}}, Options{}, reversibly, v1alpha1.TierSourceAnnotation, `readOnlyHint`},
		"hints that are the same everywhere say nothing":          {tool.Descriptor{Name: "get_guide", Annotations: tool.Annotations{ReadOnlyHint: new(false)}}, Options{uniformHints: true}, read, v1alpha1.TierSourceName, `"get"`},
		"a destructive hint on an unknown verb":                   {tool.Descriptor{Name: "frobnicate", Annotations: tool.Annotations{DestructiveHint: new(true)}}, Options{}, irreversibly, v1alpha1.TierSourceAnnotation, `destructiveHint`},
		"a destructive hint on an update says nothing new":        {tool.Descriptor{Name: "update_guide", Annotations: tool.Annotations{DestructiveHint: new(true)}}, Options{}, reversibly, v1alpha1.TierSourceName, `"update"`},
		"a read-only hint alone is no proof":                      {tool.Descriptor{Name: "frobnicate", Annotations: tool.Annotations{ReadOnlyHint: new(true)}}, Options{}, reversibly, v1alpha1.TierSourceName, `"frobnicate"`},
		"a trusted read-only hint is":                             {tool.Descriptor{Name: "frobnicate", Annotations: tool.Annotations{ReadOnlyHint: new(true)}}, Options{TrustReadOnlyHint: true}, read, v1alpha1.TierSourceAnnotation, `readOnlyHint`},
		"a trusted hint does not stand against a verb":            {tool.Descriptor{Name: "update_x", Annotations: tool.Annotations{ReadOnlyHint: new(true)}}, Options{TrustReadOnlyHint: true}, reversibly, v1alpha1.TierSourceName, `"update"`},
		"a trusted hint that is the same everywhere says nothing": {tool.Descriptor{Name: "frobnicate", Annotations: tool.Annotations{ReadOnlyHint: new(true)}}, Options{TrustReadOnlyHint: true, uniformHints: true}, reversibly, v1alpha1.TierSourceName, `"frobnicate"`},
		"case 118: a lying name meets the minimum":                {tool.Descriptor{Name: "get_report"}, Options{MinimumTier: reversibly}, reversibly, v1alpha1.TierSourceMinimum, `minimumTier`},
		"a minimum below the tier changes nothing":                {tool.Descriptor{Name: "delete_report"}, Options{MinimumTier: reversibly}, irreversibly, v1alpha1.TierSourceName, `"delete"`},
		"a minimum that is no tier is the strictest":              {tool.Descriptor{Name: "get_report"}, Options{MinimumTier: "Never"}, irreversibly, v1alpha1.TierSourceMinimum, `minimumTier`},
		"a read verb with effects on its object":                  {tool.Descriptor{Name: "check_in_guest"}, Options{}, reversibly, v1alpha1.TierSourceName, `"check"`},
		"a bare remove is a loss":                                 {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"properties":{"action":{"enum":["list","remove"]}}}`)}, Options{}, irreversibly, v1alpha1.TierSourceSchema, `"remove"`},
		"steps of a list raise to Reversible":                     {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"properties":{"steps":{"items":{"properties":{"action":{"enum":["wipe"]}}}}}}`)}, Options{}, reversibly, v1alpha1.TierSourceSchema, `"steps.action"`},
		"a word that is an event is no action":                    {tool.Descriptor{Name: "get_desk", InputSchema: []byte(`{"properties":{"action":{"enum":["build_failed","branch_deleted"]}}}`)}, Options{}, read, v1alpha1.TierSourceName, `"get"`},
		"prose too long to be read takes Read away":               {tool.Descriptor{Name: "get_desk", Description: strings.Repeat("word ", maxProse/4)}, Options{}, reversibly, v1alpha1.TierSourceDescription, `too long`},
		"no name":          {tool.Descriptor{}, Options{}, reversibly, v1alpha1.TierSourceName, `""`},
		"only punctuation": {tool.Descriptor{Name: "--"}, Options{}, reversibly, v1alpha1.TierSourceName, `"--"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := verdictOn(tc.tool, tc.opts)
			if got.Tier != tc.wantTier || got.Source != tc.wantSource || !strings.Contains(got.Reason, tc.wantReason) || got.flagged {
				t.Errorf("got %+v, want %s by %s with %s in its reason", got, tc.wantTier, tc.wantSource, tc.wantReason)
			}
		})
	}
}

func TestNamesThatCanBeMistakenProveNothing(t *testing.T) {
	t.Parallel()
	trusting := Options{TrustReadOnlyHint: true}
	for _, name := range []string{
		"g\u0435t_users",                  // Cyrillic e
		"ge\u200bt_users",                 // zero-width space
		"\uff47\uff45\uff54\uff3fusers",   // full-width
		"get_users\u202e",                 // bidirectional override
		"get_users\n", "get_\x1b[2Kusers", // control characters
		"get_\xff", "\u00addelete_x", strings.Repeat("get_", 80),
	} {
		got := verdictOn(tool.Descriptor{Name: name, Annotations: tool.Annotations{ReadOnlyHint: new(true)}}, trusting)
		if got.Tier != reversibly || !got.flagged || got.Source != v1alpha1.TierSourceName {
			t.Errorf("%q: got %+v, want Reversible and flagged", name, got)
		}
		mustBePlain(t, got.Reason)
		raised := verdictOn(tool.Descriptor{Name: name, Description: "Deletes users"}, trusting)
		if raised.Tier != irreversibly || !raised.flagged {
			t.Errorf("%q: the description raised it to %+v, want Irreversible and flagged", name, raised)
		}
	}
	if plain := verdictOn(tool.Descriptor{Name: "get_users"}, trusting); plain.Tier != read || plain.flagged {
		t.Errorf("control: get_users is %+v", plain)
	}
}

// mustBePlain fails unless the reason fits into status and onto one line of ASCII.
func mustBePlain(tb testing.TB, reason string) {
	tb.Helper()
	if len(reason) == 0 || len(reason) > 512 {
		tb.Errorf("a reason of %d bytes: %q", len(reason), reason)
	}
	if i := strings.IndexFunc(reason, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }); i >= 0 {
		tb.Errorf("the reason %q holds a character that is not plain at %d", reason, i)
	}
}

func TestServerFindsWhatItsToolsShare(t *testing.T) {
	t.Parallel()
	same := tool.Annotations{ReadOnlyHint: new(false), DestructiveHint: new(true)}
	other := tool.Annotations{ReadOnlyHint: new(true)}
	cases := map[string]struct {
		tools []tool.Descriptor
		want  []v1alpha1.Tier
	}{
		"the same hints on every tool say nothing": {
			[]tool.Descriptor{{Name: "get_a", Annotations: same}, {Name: "list_b", Annotations: same}}, []v1alpha1.Tier{read, read},
		},
		"hints that differ say something": {
			[]tool.Descriptor{{Name: "get_a", Annotations: same}, {Name: "list_b", Annotations: other}}, []v1alpha1.Tier{reversibly, read},
		},
		"a single tool has no others to be the same as": {
			[]tool.Descriptor{{Name: "get_a", Annotations: same}}, []v1alpha1.Tier{reversibly},
		},
		"a shared first word is no verb of its own": {
			[]tool.Descriptor{{Name: "zork_view_page"}, {Name: "zork_check_page"}, {Name: "zork_delete"}}, []v1alpha1.Tier{read, read, irreversibly},
		},
		"an unshared first word may be a verb": {
			[]tool.Descriptor{{Name: "zork_view_page"}, {Name: "get_a"}, {Name: "get_b"}}, []v1alpha1.Tier{reversibly, read, read},
		},
		"a shared first word may be a noun": {
			[]tool.Descriptor{{Name: "render_view_a"}, {Name: "render_get_b"}, {Name: "render_set_c"}, {Name: "render_show_page"}}, []v1alpha1.Tier{read, read, reversibly, read},
		},
		"a shared first verb is none": {
			[]tool.Descriptor{{Name: "update_list"}, {Name: "update_view"}, {Name: "update_search"}}, []v1alpha1.Tier{reversibly, reversibly, reversibly},
		},
		"a verb with effects is never a prefix": {
			[]tool.Descriptor{{Name: "delete_view_a"}, {Name: "delete_list"}}, []v1alpha1.Tier{irreversibly, irreversibly},
		},
		"no tools": {nil, []v1alpha1.Tier{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := []v1alpha1.Tier{}
			for _, verdict := range Server(tc.tools, Options{}) {
				got = append(got, verdict.Tier)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tiers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchemasThatCannotBeReadWholeTakeReadAway(t *testing.T) {
	t.Parallel()
	selves := `"a":{"$ref":"#/$defs/A"},"b":{"$ref":"#/$defs/A"},"c":{"$ref":"#/$defs/A"},"d":{"$ref":"#/$defs/A"}`
	hostile := strings.Repeat(`\u0001`, 80)
	deep := strings.Repeat(`{"properties":{"a":`, 100) + `{}` + strings.Repeat(`}}`, 100)
	var wide strings.Builder
	for i := range maxNodes + 1 {
		fmt.Fprintf(&wide, `,"p%d":{}`, i)
	}
	for name, tc := range map[string]struct {
		schema string
		want   v1alpha1.Tier
	}{
		"invalid":            {`{"properties":`, reversibly},
		"too deep":           {deep, reversibly},
		"too wide":           {`{"properties":{` + wide.String()[1:] + `}}`, reversibly},
		"too large":          {`{"description":"` + strings.Repeat("x", maxSchema) + `"}`, reversibly},
		"too many actions":   {`{"properties":{"action":{"enum":["list"` + strings.Repeat(`,"get"`, maxValues) + `]}}}`, reversibly},
		"many values":        {`{"properties":{"colour":{"enum":["red"` + strings.Repeat(`,"blue"`, maxValues) + `]}}}`, read},
		"a hostile path":     {`{"properties":{"` + hostile + `":{"properties":{"action":{"enum":["delete` + hostile + `"]}}}}}`, irreversibly},
		"a wide recursion":   {`{"$defs":{"A":{"properties":{` + selves + `}}},"$ref":"#/$defs/A"}`, read},
		"recursive":          {`{"properties":{"a":{"$ref":"#"}}}`, read},
		"a circle of refs":   {`{"$defs":{"A":{"$ref":"#/$defs/A"}},"properties":{"a":{"$ref":"#/$defs/A"}}}`, read},
		"a ref to elsewhere": {`{"properties":{"a":{"$ref":"https://example.com/x"}}}`, read},
		"of a strange shape": {`{"properties":[1],"items":true,"anyOf":{"a":1}}`, read},
		"true":               {`true`, read},
		"an ordinary one":    {`{"properties":{"a":{"properties":{"b":{"type":"string"}}}}}`, read},
	} {
		got := verdictOn(tool.Descriptor{Name: "get_a", InputSchema: []byte(tc.schema)}, Options{})
		if got.Tier != tc.want {
			t.Errorf("%s: got %+v, want %s", name, got, tc.want)
		}
		mustBePlain(t, got.Reason)
	}
}

func TestTheWordTablesHoldSingleWords(t *testing.T) {
	t.Parallel()
	for i, table := range []set{
		readVerbs, readNouns, neverNouns, facts, irreversible, irreversibleNouns, weighty, reversible, nouns, mostlyNouns,
		stateful, states, joins, prepositions, headings, finals, fillers, storing, code, runners, deeds, doers, drafts,
		transient, ties, writings, posted, languages, shells, protocols, files, history, owned, keystrokes, parts,
		particles, frozen, proseLoss, proseIrreversible, proseEffects, openers, denials,
	} {
		for word := range table {
			if strings.ToLower(word) != word || !reflect.DeepEqual(tool.Words(word), []string{word}) {
				t.Errorf("table %d holds %q, which no name is split into", i, word)
			}
		}
	}
	for word := range reversible {
		if irreversible[word] {
			t.Errorf("%q is both reversible and irreversible", word)
		}
	}
	for word := range readVerbs {
		if isEffect(word) {
			t.Errorf("%q both reads and has effects", word)
		}
	}
	for _, table := range []set{nouns, irreversibleNouns, finals} {
		for word := range table {
			if !isEffect(word) || !isHomograph(word) {
				t.Errorf("%q is listed as a homograph of no verb", word)
			}
		}
	}
	for _, table := range []set{headings, neverNouns} {
		for word := range table {
			if !isRead(word) {
				t.Errorf("%q is listed as a read verb of a kind and is none", word)
			}
		}
	}
}

func FuzzTool(f *testing.F) {
	f.Add("get_users", "Lists users", `{"properties":{"action":{"enum":["list"]}}}`)
	f.Add("g\u0435t\x00", "\xff", `{"$ref":"#"}`)
	f.Add("HTTPDelete2x", "This tool permanently deletes", `[{"anyOf":[{"const":"x"}]}]`)
	f.Fuzz(func(t *testing.T, name, description, schema string) {
		d := tool.Descriptor{Name: name, Description: description, InputSchema: []byte(schema)}
		got := verdictOn(d, Options{})
		mustBePlain(t, got.Reason)
		if again := verdictOn(d, Options{}); again != got {
			t.Errorf("twice the same tool: %+v, then %+v", got, again)
		}
		bare := verdictOn(tool.Descriptor{Name: name}, Options{})
		if bare.Tier.StricterThan(got.Tier) {
			t.Errorf("text beside the name lowered %+v to %+v", bare, got)
		}
		if got.Tier == read && (got.flagged || got.Source != v1alpha1.TierSourceName) {
			t.Errorf("Read without proof in the name: %+v", got)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	schema := []byte(`{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"state":{"enum":["open","closed"]},"labels":{"type":"array","items":{"type":"string"}}}}`)
	for name, d := range map[string]tool.Descriptor{
		"read":       {Name: "list_open_tickets", Description: "Lists the open tickets of a project.", InputSchema: schema},
		"effect":     {Name: "ticket_delete", Description: "Deletes a ticket.", InputSchema: schema},
		"noEvidence": {Name: "frobnicate", Description: "Does things.", InputSchema: schema},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				verdictOn(d, Options{})
			}
		})
	}
}
