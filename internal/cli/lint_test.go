// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const soundPolicy = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: desk, namespace: shop}
spec:
  targets: [desk]
  rules:
  - name: cheap
    tools: [update_goods]
    when: args.amount <= 5
    decision: Allow
`

const deskDump = `[
  {"name":"update_goods","inputSchema":{"type":"object","properties":{"amount":{"type":"number"},"note":{"type":"string"}}}},
  {"name":"list_goods","inputSchema":{"type":"object"}}
]`

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lintText runs lint over text on standard input and returns what it says, without the counts at the end.
func lintText(t *testing.T, text string, flags ...string) (findings []string, code int) {
	t.Helper()
	stdout, stderr, code := offline(t, text, append([]string{"lint", "-"}, flags...)...)
	for line := range strings.Lines(stdout) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-:"); ok {
			findings = append(findings, rest)
		}
	}
	if code == exitUsage {
		t.Log(stderr)
	}
	return findings, code
}

func TestLintSaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	edit := strings.NewReplacer
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"a sound policy has nothing to mend": {soundPolicy, nil},
		"an unknown field, with the one that was meant": {
			edit("decision: Allow", "descision: Allow").Replace(soundPolicy), []string{
				"7:5: error: spec.rules[0].decision: Required value",
				`10:5: error: spec.rules[0].descision: there is no field "descision" here; did you mean decision?`,
			}},
		"an unknown field of metadata": {
			edit("namespace: shop", "namspace: shop").Replace(soundPolicy),
			[]string{`3:24: error: metadata.namspace: there is no field "namspace" here; did you mean namespace?`}},
		"a key that is there twice": {
			edit("    decision: Allow", "    decision: Deny\n    decision: Allow").Replace(soundPolicy),
			[]string{`11:5: error: spec.rules[0].decision: the key "decision" is there already, in line 10`}},
		"a merge key": {
			edit("    decision: Allow", "    <<: {decision: Allow}").Replace(soundPolicy),
			[]string{"10:5: error: spec.rules[0].<<: merge keys are not read: write the fields out"}},
		"a word that is none of an enum": {
			edit("Allow", "Alow").Replace(soundPolicy),
			[]string{`10:15: error: spec.rules[0].decision: Unsupported value: "Alow": supported values: "Allow", "RequireApproval", "Deny"`}},
		"a glob with a class": {
			edit("[update_goods]", `["get_["]`).Replace(soundPolicy),
			[]string{`8:13: error: spec.rules[0].tools[0]: Invalid value: "get_[": should match '^[^\[\]{}\\]+$'`}},
		"a rule of the schema": {
			edit("    decision: Allow", "    decision: Allow\n    approvals: {required: 2}").Replace(soundPolicy),
			[]string{"7:5: error: spec.rules[0]: Invalid value: approvals goes with the decision RequireApproval"}},
		"a verb that is not an approving one": {
			edit("decision: Allow", "decision: RequireApproval\n    approvals: {verb: get}").Replace(soundPolicy),
			[]string{`11:23: error: spec.rules[0].approvals.verb: Invalid value: "get": should match '^approve-[a-z0-9-]+$'`}},
		"a word that YAML reads as true": {
			edit("name: cheap", "name: yes").Replace(soundPolicy),
			[]string{`7:11: error: spec.rules[0].name: Invalid value: "boolean": must be of type string: "boolean"`}},
		"an expression that does not compile, at its place in the file": {
			edit("args.amount <= 5", "argz.amount <= 5").Replace(soundPolicy),
			[]string{"9:11: error: spec.rules[0].when: there is no variable argz; did you mean args?"}},
		"an expression in a block, at its place in the file": {
			edit("args.amount <= 5", "|\n      args.amount <= 5 &&\n        principal.user == \"x\"").Replace(soundPolicy),
			[]string{"11:19: error: spec.rules[0].when: principal has no field user"}},
		"another version of the API": {
			edit("v1alpha1", "v1beta1").Replace(soundPolicy),
			[]string{`1:13: error: apiVersion: there is no version "v1beta1" of tidewaiter.dev: only v1alpha1 is known`}},
		"a kind of another group by the same name": {
			edit("tidewaiter.dev", "tidewater.dev").Replace(soundPolicy),
			[]string{`1:13: error: apiVersion: a ToolPolicy is of tidewaiter.dev/v1alpha1, and this says "tidewater.dev/v1alpha1"`}},
		"a kind that is misspelt": {
			edit("ToolPolicy", "ToolPolcy").Replace(soundPolicy),
			[]string{`2:7: error: kind: tidewaiter.dev/v1alpha1 has no kind "ToolPolcy"; did you mean ToolPolicy?`}},
		"a policy without its first line": {
			edit("apiVersion: tidewaiter.dev/v1alpha1\n", "").Replace(soundPolicy),
			[]string{"1:1: error: an object of Kubernetes has apiVersion and kind; this has only one of them"}},
		"a document that is no object": {"- a\n- b\n", []string{"1:1: error: this is no object: a mapping with apiVersion and kind was expected"}},
		"an object that is there twice": {
			soundPolicy + "---\n" + soundPolicy,
			[]string{"14:18: error: metadata.name: this object is defined already, at -:3; what is applied last replaces it"}},
		"a baseline outside the operator's namespace": {
			edit("targets: [desk]", "namespaceSelector: {}").Replace(soundPolicy),
			[]string{"3:35: error: metadata.namespace: a policy with namespaceSelector counts in the operator's namespace only, tidewaiter-system (--operator-namespace)"}},
		"a baseline inside it": {edit("targets: [desk]", "namespaceSelector: {}", "namespace: shop", "namespace: tidewaiter-system").Replace(soundPolicy), nil},
		"an item of a List":    {"apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(edit("Allow", "Alow").Replace(soundPolicy), "\n", "\n  "), []string{`13:17: error: spec.rules[0].decision: Unsupported value: "Alow": supported values: "Allow", "RequireApproval", "Deny"`}},
		"another kind":         {"apiVersion: v1\nkind: ConfigMap\n", []string{`1:1: note: passed over: the kind is "ConfigMap"`}},
		"an endpoint that is none": {
			"apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: a}\nspec: {endpoint: {url: 'ftp://a'}}\n",
			[]string{`4:24: error: spec.endpoint.url: Invalid value: "ftp://a": url must be http:// or https:// with a host, and have no user, query or fragment`}},
		"a status, which nobody can write": {
			"apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: a}\nspec: {endpoint: {url: 'https://a'}}\nstatus: {tools: 7}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, code := lintText(t, tc.text)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if want := len(tc.want) > 0 && !strings.Contains(tc.want[0], "note"); want != (code == 1) || code > 1 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestLintComparesRulesWithTools(t *testing.T) {
	t.Parallel()
	tools := file(t, deskDump)
	for name, tc := range map[string]struct {
		old, new string
		want     []string
		wantCode int
	}{
		"a rule that fits": {"", "", nil, 0},
		"an argument that the tool does not have": {"args.amount", "args.amont",
			[]string{"9:16: error: spec.rules[0].when: args.amont: the tool has no argument amont; did you mean amount? (update_goods of desk)"}, 1},
		"a rule that matches no tool": {"update_goods", "buy_*", []string{"7:5: warning: spec.rules[0]: no tool of desk matches buy_*"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(soundPolicy, tc.old, tc.new, 1)
			got, code := lintText(t, text, "--tools", tools)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if code != tc.wantCode {
				t.Errorf("exit code %d, want %d", code, tc.wantCode)
			}
			wantStrict := 0
			if len(tc.want) > 0 {
				wantStrict = 1
			}
			if _, code := lintText(t, text, "--tools", tools, "--strict"); code != wantStrict {
				t.Errorf("with --strict exit code %d, want %d", code, wantStrict)
			}
			if got, code := lintText(t, text); len(got) > 0 || code != 0 {
				t.Errorf("without tools it says %v (%d)", got, code)
			}
		})
	}
}

func TestLintReadsDirectories(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"a.yaml": soundPolicy, "deep/b.yml": strings.Replace(soundPolicy, "Allow", "Alow", 1), "README.md": "# {not YAML",
		"tools.json": deskDump[:len(deskDump)-1] + "]", "values.yaml": "replicas: 1\n", "kustomization.yaml": "kind: Kustomization\napiVersion: kustomize.config.k8s.io/v1beta1\n",
	})
	stdout, stderr, code := offline(t, "", "lint", dir)
	want := `DIR/deep/b.yml:3:18: warning: metadata.name: this object is defined already, at DIR/a.yaml:3; what is applied last replaces it
DIR/deep/b.yml:10:15: error: spec.rules[0].decision: Unsupported value: "Alow": supported values: "Allow", "RequireApproval", "Deny"
DIR/tools.json:1:1: error: this is no object: a mapping with apiVersion and kind was expected
5 files: 2 ToolPolicies, 0 GovernedServers: 2 errors, 1 warning
2 documents of other kinds passed over
the tools are not known (--tools or --live): rules were not compared with them
`
	if diff := cmp.Diff(want, strings.ReplaceAll(stdout, dir, "DIR")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if stderr != "error: 2 errors, 1 warning\n" || code != 1 {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestLintPrintsJSON(t *testing.T) {
	t.Parallel()
	stdout, _, code := offline(t, strings.Replace(soundPolicy, "Allow", "Alow", 1), "lint", "-o", "json", "-")
	var got lintReport
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	want := lintReport{
		APIVersion: viewVersion, Kind: "LintReport", Files: 1, Policies: 1, Errors: 1,
		Findings: []lintFinding{{"-", 10, 15, severityError, "ToolPolicy/shop/desk", "spec.rules[0].decision",
			`Unsupported value: "Alow": supported values: "Allow", "RequireApproval", "Deny"`}},
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 1 {
		t.Errorf("exit code %d, report (-want +got):\n%s", code, diff)
	}
	if stdout, _, code = offline(t, soundPolicy, "lint", "-o", "json", "-"); code != 0 || !strings.Contains(stdout, `"findings": []`) {
		t.Errorf("a sound policy gives %d and %s", code, stdout)
	}
}

func TestLintThatCannotRunExitsWithTwo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no file":               {},
		"a file that is gone":   {"/nonexistent/policy.yaml"},
		"an empty directory":    {t.TempDir()},
		"an unknown output":     {"-o", "xml", "-"},
		"tools from two places": {"--tools", "a.json", "--live", "-"},
		"tools that are gone":   {"--tools", "/nonexistent/tools.json", "-"},
		"tools that are none":   {"--tools", file(t, "{}"), "-"},
		"no cluster":            {"--live", "--kubeconfig", file(t, ""), "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := offline(t, soundPolicy, append([]string{"lint"}, args...)...)
			if code != exitUsage || !strings.HasPrefix(stderr, "error: ") {
				t.Errorf("exit code %d, %q", code, stderr)
			}
		})
	}
}

// Whatever is in a file, lint says in a line or two what is wrong, and soon.
func TestLintEndsHostileFilesQuickly(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		refs := strings.Repeat("*"+string(c-1)+",", 10)
		bomb += string(c) + ": &" + string(c) + " [" + refs[:len(refs)-1] + "]\n"
	}
	for name, text := range map[string]string{
		"a bomb of aliases":        bomb,
		"an alias that holds it":   "a: &a [*a]\n",
		"deep nesting":             strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deeper nesting":           strings.Repeat("[", 1_000_000),
		"deep indentation":         strings.Repeat("a:\n", 1) + deepMapping(3000),
		"a file of ten megabytes":  strings.Repeat("# filler\n", 10<<20/9),
		"no text":                  "\x7fELF\x00\x01\x02",
		"half a character":         "a: \xe2\x82",
		"many keys":                "spec:\n" + strings.Repeat("  x: 1\n", 100_000),
		"many documents":           strings.Repeat("---\na: 1\n", 50_000),
		"a line of three megabyte": "a: " + strings.Repeat("x", 3<<20),
		"an unclosed quote":        "a: \"" + strings.Repeat("x\n", 1000),
		"a tag of YAML":            "!!python/object:os.system {a: 1}",
		"a template":               "metadata:\n  name: {{ .Values.name }}\n",
		"a large expression":       strings.Replace(soundPolicy, "args.amount <= 5", "'"+strings.Repeat("(", 2000)+"'", 1),
		"an escape sequence":       "a: 1\n\"\\x1b[31m\": 2\nkind: \"\\x1b[2J\"\napiVersion: v1\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			stdout, stderr, code := offline(t, text, "lint", "-")
			// The longest takes five seconds under the race detector; what grows with the square takes minutes.
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if code > 1 || strings.Contains(stdout+stderr, "goroutine") || strings.Contains(stdout, "\x1b") {
				t.Errorf("exit code %d: %.500s %.500s", code, stdout, stderr)
			}
			for line := range strings.Lines(stdout) {
				if len(line) > 1000 {
					t.Errorf("a line of %d bytes: %.200s", len(line), line)
				}
			}
		})
	}
}

func deepMapping(levels int) string {
	var text strings.Builder
	for i := range levels {
		text.WriteString(strings.Repeat(" ", i+1) + "a:\n")
	}
	return text.String()
}
