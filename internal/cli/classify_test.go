// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

const deskTools = `{"tools":[
  {"name":"fetch_case","description":"Fetches a case","inputSchema":{"type":"object"}},
  {"name":"close_case","inputSchema":{"type":"object","properties":{"purge":{"type":"boolean"}}}},
  {"name":"open_case","inputSchema":{"type":"object"}},
  {"name":"frob","inputSchema":{"type":"object"}},
  {"name":"wipe_cases\u202e","inputSchema":{"type":"object"}}
]}`

const shopLines = `{"server":"shop","name":"list_goods","inputSchema":{"type":"object"}}
{"server":"shop","name":"find_goods","inputSchema":{"type":"object"}}
{"server":"shop","name":"sell_goods","inputSchema":{"type":"object"}}
{"server":"desk","name":"sell_goods","inputSchema":{"type":"object"}}
{"server":"desk","name":"peek","inputSchema":{"type":"object"}}
`

const shopLabels = `{"server":"shop","name":"list_goods","tier":"read","confidence":"high"}
{"server":"shop","name":"find_goods","tier":"reversible","confidence":"high"}
{"server":"shop","name":"sell_goods","tier":"irreversible","confidence":"high"}

{"server":"desk","name":"sell_goods","tier":"reversible","confidence":"high"}
{"server":"desk","name":"peek","tier":"reversible","confidence":"low"}
{"server":"desk","name":"gone","tier":"read"}
`

// run executes classify on a standard input and returns what it printed, digests replaced by a star.
func run(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	cmd := newProgram("kubectl-tidewaiter", &session{IOStreams: streams, clock: clock.RealClock{}})
	cmd.SetArgs(append([]string{"classify"}, args...))
	err = cmd.ExecuteContext(t.Context())
	digests := regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	return digests.ReplaceAllString(out.String(), "sha256:*"), errOut.String(), err
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClassifyPrintsATable(t *testing.T) {
	t.Parallel()
	stdout, stderr, err := run(t, deskTools, "-f", "-")
	if err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	want := `NAME                 TIER           SOURCE   REASON                                                                                                                                      DIGEST
fetch_case           Read           Name     The word "fetch" in the name reads, and no other word of the name has effects                                                               sha256:*
close_case           Irreversible   Schema   The parameter "purge" is a switch that makes the effect final                                                                               sha256:*
open_case            Reversible     Name     The word "open" in the name changes something                                                                                               sha256:*
frob                 Reversible     Name     No word of the name "frob" is known to read or to have effects                                                                              sha256:*
"wipe_cases\u202e"   Reversible     Name     The name "wipe_cases\u202e" holds the character U+202E at byte 10, which can be mistaken or overlooked, so that no word of it is evidence   sha256:*
`
	if diff := cmp.Diff(want, stdout); diff != "" {
		t.Errorf("stdout (-want +got):\n%s", diff)
	}
}

func TestClassifyPrintsJSON(t *testing.T) {
	t.Parallel()
	lines := `{"server":"shop","name":"list_goods","inputSchema":{"type":"object"}}
{"name":"frob<>","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}
`
	stdout, stderr, err := run(t, "", "-f", file(t, lines), "-o", "json", "--minimum-tier", "Read", "--trust-read-only-hint")
	if err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	want := `[
  {
    "server": "shop",
    "name": "list_goods",
    "tier": "Read",
    "source": "Name",
    "reason": "The word \"list\" in the name reads, and no other word of the name has effects",
    "digest": "sha256:*"
  },
  {
    "server": "",
    "name": "frob<>",
    "tier": "Read",
    "source": "Annotation",
    "reason": "The trusted annotation readOnlyHint is true, and no word of the name has effects",
    "digest": "sha256:*"
  }
]
`
	if diff := cmp.Diff(want, stdout); diff != "" {
		t.Errorf("stdout (-want +got):\n%s", diff)
	}
}

func TestClassifyComparesWithLabels(t *testing.T) {
	t.Parallel()
	want := `EXPECTED       READ   REVERSIBLE   IRREVERSIBLE   RECOGNISED
read           1      0            0              100.0%
reversible     1      0            1              0.0%
irreversible   0      0            1              100.0%

High confidence: read recognised 100.0% of 1, irreversible recognised 100.0% of 1, reversible raised 50.0% of 2.
Low confidence, left out above, a trend only (tools: 1): read recognised 0.0% of 0, irreversible recognised 0.0% of 0, reversible raised 0.0% of 1.
Labels without a tool: 1. Tools without a label: 1.
Tools that came out less strict than expected: 2
  shop   find_goods   expected Reversible   came out Read   high confidence   The word "find" in the name reads, and no other word of the name has effects
  desk   peek         expected Reversible   came out Read   low confidence    The word "peek" in the name reads, and no other word of the name has effects
`
	args := []string{"-f", "-", "--expect", file(t, shopLabels), "--min-irreversible", "100", "--max-raised", "40"}
	tools := shopLines + `{"server":"shop","name":"extra","inputSchema":{"type":"object"}}`
	stdout, _, err := run(t, tools, args...)
	_, report, _ := strings.Cut(stdout, "\n\n")
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	mustMiss(t, err, "tools with effects that came out Read: 1, and none may", "reversible raised: 50.0%, and at most 40.0% may be")

	stdout, stderr, err := run(t, tools, append(args, "-o", "json")...)
	if !strings.HasPrefix(stdout, "[\n") || !strings.HasSuffix(stdout, "]\n") {
		t.Errorf("with -o json the standard output is no longer one array: %s", stdout)
	}
	if diff := cmp.Diff(want, stderr); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
	mustMiss(t, err, "tools with effects that came out Read: 1, and none may", "reversible raised: 50.0%, and at most 40.0% may be")
}

// mustMiss fails unless the error names exactly these goals, none of them meaning no error.
func mustMiss(t *testing.T, err error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	missed, ok := errors.AsType[goalsNotMetError](err)
	if !ok {
		t.Errorf("got error %v, want goals not met", err)
		return
	}
	if diff := cmp.Diff(want, []string(missed)); diff != "" {
		t.Errorf("missed goals (-want +got):\n%s", diff)
	}
	if exitCode(err) != 1 || !strings.Contains(err.Error(), want[0]) {
		t.Errorf("exit code %d with %q", exitCode(err), err)
	}
}

func TestClassifyGoals(t *testing.T) {
	t.Parallel()
	const tools = `[{"name":"list_a","inputSchema":{}},{"name":"frob_b","inputSchema":{}},{"name":"set_c","inputSchema":{}},{"name":"send_d","inputSchema":{}},{"name":"find_e","inputSchema":{}}]`
	label := func(name, tier, confidence string) string {
		return `{"server":"any","name":"` + name + `","tier":"` + tier + `","confidence":"` + confidence + "\"}\n"
	}
	honest := label("list_a", "read", "high") + label("frob_b", "read", "high") + label("set_c", "irreversible", "high") + label("send_d", "Reversible", "high")
	cases := map[string]struct {
		labels string
		goals  []string
		want   []string
	}{
		"no goals":                          {honest, nil, nil},
		"read just enough":                  {honest, []string{"--min-read", "50"}, nil},
		"too little read":                   {honest, []string{"--min-read", "50.1"}, []string{"read recognised: 50.0%, and at least 50.1% must be"}},
		"no irreversible asked for":         {honest, []string{"--min-irreversible", "0"}, nil},
		"too little irreversible":           {honest, []string{"--min-irreversible", "1"}, []string{"irreversible recognised: 0.0%, and at least 1.0% must be"}},
		"raised as much as allowed":         {honest, []string{"--max-raised", "100"}, nil},
		"too much raised":                   {honest, []string{"--max-raised", "99"}, []string{"reversible raised: 100.0%, and at most 99.0% may be"}},
		"an effect that came out Read":      {honest + label("find_e", "reversible", "high"), nil, []string{"tools with effects that came out Read: 1, and none may"}},
		"a worse one that came out Read":    {honest + label("find_e", "irreversible", ""), nil, []string{"tools with effects that came out Read: 1, and none may"}},
		"one of low confidence is no proof": {honest + label("find_e", "reversible", "low"), nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"-f", "-", "--expect", file(t, tc.labels)}, tc.goals...)
			_, _, err := run(t, tools, args...)
			mustMiss(t, err, tc.want...)
		})
	}
}

func TestClassifySaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	tools := file(t, shopLines)
	cases := map[string]struct {
		args     []string
		wantExit int
		want     string
	}{
		"no file":                {nil, 2, "no file is given: name one with -f, or - for standard input"},
		"an absent file":         {[]string{"-f", filepath.Join(t.TempDir(), "absent")}, 1, "no such file"},
		"no list":                {[]string{"-f", file(t, "nothing")}, 1, "line 1 (byte 1): not valid JSON"},
		"an unknown output":      {[]string{"-f", tools, "-o", "yaml"}, 2, `the output "yaml" is neither table nor json`},
		"an unknown tier":        {[]string{"-f", tools, "--minimum-tier", "read"}, 2, `the minimum tier "read" is none of`},
		"goals without labels":   {[]string{"-f", tools, "--min-read", "1"}, 2, "need --expect"},
		"no percentage":          {[]string{"-f", tools, "--expect", file(t, shopLabels), "--max-raised", "101"}, 2, "101 is not a percentage"},
		"not a number":           {[]string{"-f", tools, "--expect", file(t, shopLabels), "--min-read", "NaN"}, 2, "NaN is not a percentage"},
		"one input for two":      {[]string{"-f", "-", "--expect", "-"}, 2, "cannot both come from standard input"},
		"an unknown label":       {[]string{"-f", tools, "--expect", file(t, "\n"+`{"name":"a","tier":"safe"}`)}, 1, `line 2: the tier "safe" is none of`},
		"an unknown confidence":  {[]string{"-f", tools, "--expect", file(t, `{"name":"a","tier":"read","confidence":"some"}`)}, 1, `the confidence "some" is neither`},
		"a nameless label":       {[]string{"-f", tools, "--expect", file(t, `{"tier":"read"}`)}, 1, `the label has no "name"`},
		"labels that are none":   {[]string{"-f", tools, "--expect", file(t, "[")}, 1, "line 1: "},
		"labels of other tools":  {[]string{"-f", tools, "--expect", file(t, `{"server":"x","name":"y","tier":"read"}`)}, 1, "no label of"},
		"no labels":              {[]string{"-f", tools, "--expect", file(t, "")}, 1, "no label of"},
		"an argument besides -f": {[]string{"-f", tools, "more"}, 2, "the file goes behind -f"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := run(t, "", tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
			if exitCode(err) != tc.wantExit {
				t.Errorf("exit code %d, want %d", exitCode(err), tc.wantExit)
			}
		})
	}
}
