// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var loadKinds = sync.OnceValues(LoadKinds)

// sound is a policy with values in every style of YAML.
const sound = `# a comment
apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata:
  name: desk
  labels: {team: quay, example.org/x: z}
spec:
  targets: &t [desk]
  rules:
  - name: plain
    tools: ["*"]
    when: args.a > 1
    decision: Deny
  - name: literal
    tools: ["*"]
    when: |
      args.a > 1 &&
        args.b > 2
    decision: Deny
  - name: quoted
    tools: ["*"]
    when: '!has(args.a)'
    decision: Deny
  - name: folded
    tools: ["*"]
    when: >
      args.a > 1 &&
      args.b > 2
    decision: Deny
  - {name: escaped, tools: ["*"], when: "args.a == \"x\"", decision: Deny}
`

func one(t *testing.T, text string) *Document {
	t.Helper()
	documents, problems := Read([]byte(text))
	if len(documents) != 1 || len(problems) > 0 {
		t.Fatalf("read %d documents, problems %v", len(documents), problems)
	}
	return documents[0]
}

func TestAFieldHasItsPlace(t *testing.T) {
	t.Parallel()
	d := one(t, "# first\n---\n"+sound)
	for field, want := range map[string]Place{
		"":                               {4, 1},
		"kind":                           {5, 7},
		"metadata":                       {6, 1},
		"metadata.labels[example.org/x]": {8, 39},
		"spec.targets[0]":                {10, 16},
		"spec.rules[1]":                  {16, 5},
		"spec.rules[1].when":             {18, 11},
		"spec.rules[4].decision":         {32, 70},
		"spec.rules[1].message":          {16, 5}, // not there: the rule
		"spec.rules[9].when":             {11, 3}, // not there: the rules
		"spec.rules[x].when":             {11, 3},
		"spec.rules[1].when.deeper":      {18, 11},
	} {
		if got := d.Place(field); got != want {
			t.Errorf("%s stands at %v, want %v", field, got, want)
		}
	}
}

func TestAPlaceInsideATextIsToldWhereItIsSure(t *testing.T) {
	t.Parallel()
	d := one(t, sound)
	for field, tc := range map[string]struct {
		line, column int
		want         Place
		known        bool
	}{
		"spec.rules[0].when": {1, 6, Place{12, 16}, true},
		"spec.rules[1].when": {2, 8, Place{18, 14}, true},
		"spec.rules[2].when": {1, 6, Place{22, 17}, true},
		"spec.rules[3].when": {1, 20, Place{26, 11}, false}, // folded lines are one
		"spec.rules[4].when": {1, 11, Place{30, 41}, false}, // escapes move it
		"spec.rules[5].when": {1, 1, Place{9, 3}, false},
		"spec.rules[0].name": {7, 1, Place{10, 11}, false},
	} {
		if got, known := d.Inside(field, tc.line, tc.column); got != tc.want || known != tc.known {
			t.Errorf("%s %d:%d is at %v (%v), want %v (%v)", field, tc.line, tc.column, got, known, tc.want, tc.known)
		}
	}
}

func TestWhatIsReadHasTheDefaultsOfTheCluster(t *testing.T) {
	t.Parallel()
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	o, problems := kinds.Object(t.Context(), one(t, "apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: a}\nspec: {endpoint: {service: {name: s, port: 1}}}\n"))
	if len(problems) > 0 || o.Server == nil {
		t.Fatal(problems)
	}
	spec := o.Server.Spec
	if spec.Mode != "Enforce" || spec.Pinning != "Report" || spec.Approvals.Required.Reversible != 1 || spec.Autonomy.CleanApprovals != 3 || spec.Endpoint.Service.Path != "/mcp" {
		t.Errorf("got %+v", spec)
	}
}

func TestAliasesAreFollowed(t *testing.T) {
	t.Parallel()
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(sound, `tools: ["*"]`, "tools: *t", 1)
	if o, problems := kinds.Object(t.Context(), one(t, text)); len(problems) > 0 || o.Policy.Spec.Rules[0].Tools[0] != "desk" {
		t.Errorf("got %v", problems)
	}
	wrong := strings.Replace(text, "[desk]", "[desk, desk]", 1)
	if _, problems := kinds.Object(t.Context(), one(t, wrong)); len(problems) != 2 {
		t.Errorf("a mistake behind an anchor is one where it stands and one where it is used, got %v", problems)
	}
}

func TestJSONKeepsNumbersAndRefusesWhatIsUnclear(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 9007199254740993":          `9007199254740993`,
		"a: 1.10":                      `1.10`,
		"a: -0.5e-300":                 `-0.5e-300`,
		"a: '1'":                       `"1"`,
		"a: true":                      `true`,
		"a: ~":                         `null`,
		"a: 'yes'":                     `"yes"`,
		"a: [1, {b: \"x\\ny\"}]":       `[1,{"b":"x\ny"}]`,
		"a: 2026-01-02":                `"2026-01-02"`,
		"a: &x {b: 1}":                 `{"b":1}`,
		"a: yes":                       "2:4: a: some readers of YAML take this word for true or false: write true or false, or put it in quotes",
		"a: {b: [0x10]}":               "2:9: a.b[0]: this number cannot be written so in JSON: write it with decimal digits, or in quotes if it is a text",
		"a: 012":                       "2:4: a: this number cannot be written so in JSON: write it with decimal digits, or in quotes if it is a text",
		"a: 1_000":                     "2:4: a: this number cannot be written so in JSON: write it with decimal digits, or in quotes if it is a text",
		"b: 1 # no a, and no problem:": "",
	} {
		raw, wrong := one(t, "c: 1\n"+text+"\n").JSON("a")
		got := string(raw)
		if wrong != nil {
			got = strings.Join([]string{place(wrong.Place), wrong.Field, wrong.Message}, ": ")
		}
		if got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
}

func place(p Place) string { return string(rune('0'+p.Line)) + ":" + string(rune('0'+p.Column)) }

func TestBlankDocumentsAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n\n", "# nothing\n", "---\n---\n", "--- # a\n# b\n---\n", "~\n", "---\nnull\n"} {
		if documents, problems := Read([]byte(text)); len(documents) > 0 || len(problems) > 0 {
			t.Errorf("%q gives %d documents and %v", text, len(documents), problems)
		}
	}
}

func TestEachDocumentThatCannotBeReadIsOneProblem(t *testing.T) {
	t.Parallel()
	_, problems := Read([]byte("a: 1\n---\na: [\n---\na: 1\n...\nb: 2\n--- a: 1\n---\n{{x}}: 1\n"))
	var got []int
	for _, p := range problems {
		got = append(got, p.Line)
	}
	if diff := cmp.Diff([]int{3, 5, 8, 10}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%v", diff, problems)
	}
}

func TestALineThatOnlyYAMLSeesIsRefused(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"\r", "\u0085", "\u2028", "\u2029"} {
		_, problems := Read([]byte("a: 1\nb: 2 # harmless" + mark + "c: 3\n"))
		if len(problems) != 1 || problems[0].Place != (Place{2, 16}) {
			t.Errorf("%q gives %v", mark, problems)
		}
	}
	if documents, problems := Read([]byte("a: 1\r\nb: 2\r\n")); len(documents) != 1 || len(problems) > 0 {
		t.Errorf("the line ends of Windows give %v", problems)
	}
}

func TestAFileHasBounds(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"the file is larger than 4194304 bytes":    strings.Repeat("# filler\n", MaxBytes/9+1),
		"the file has more than 2000 documents":    strings.Repeat("---\na: 1\n", maxDocuments+1),
		"the document has more than 200000 values": "a: [" + strings.Repeat("1,", maxNodes) + "1]\n",
	} {
		documents, problems := Read([]byte(text))
		if len(documents) > 0 || len(problems) != 1 || !strings.HasPrefix(problems[0].Message, want) {
			t.Errorf("read %d documents, problems %v, want %q", len(documents), problems, want)
		}
	}
	if documents, problems := Read([]byte(strings.Repeat("---\na: 1\n", maxDocuments-1))); len(documents) != maxDocuments-1 || len(problems) > 0 {
		t.Errorf("within the bounds: %d documents, problems %v", len(documents), problems)
	}
}

func FuzzRead(f *testing.F) {
	kinds, err := loadKinds()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sound)
	f.Add("apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: a}\nspec: {endpoint: {url: 'https://a'}}\n---\na: &a [*a]\n")
	f.Add("apiVersion: v1\nkind: List\nitems: [{kind: ToolPolicy, apiVersion: tidewaiter.dev/v1alpha1, spec: {rules: [{}]}}]\n")
	f.Add("? a\n: 1\n? [b]\n: 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		documents, problems := Read([]byte(text))
		lines := strings.Count(text, "\n") + 1
		for _, d := range documents {
			o, wrong := kinds.Object(t.Context(), d)
			problems = append(problems, wrong...)
			if o.Policy != nil {
				d.Inside("spec.rules[0].when", 1, 1)
			}
			if _, wrong := d.JSON("spec"); wrong != nil {
				problems = append(problems, *wrong)
			}
		}
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Message == "" || strings.ContainsAny(p.Message+p.Field, "\n\x1b") {
				t.Errorf("a problem is at %d:%d of %d lines: %q %q", p.Line, p.Column, lines, p.Field, p.Message)
			}
		}
	})
}
