// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const deskPolicies = soundPolicy + `  - name: dear
    tools: [update_goods]
    when: args.amount > 9007199254740992
    decision: Deny
    message: Too dear.
`

const deskTest = `apiVersion: cli.tidewaiter.dev/v1alpha1
kind: PolicyTest
namespace: shop
policies: [policy.yaml]
servers:
- name: desk
  toolsFile: tools.json
cases:
- name: cheap goods are sold
  call: {tool: update_goods, args: {amount: 5}}
  expect: {verdict: Allow, rule: cheap}
- name: very dear ones are not, to the last digit
  call: {tool: update_goods, args: {amount: 9007199254740993}}
  expect: {verdict: Deny, rule: desk/dear, message: Too dear.}
`

// testFolder runs the test in a folder with the policy and the tools.
func testFolder(t *testing.T, test string, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir := folder(t, map[string]string{"policy.yaml": deskPolicies, "tools.json": deskDump, "policy_test.yaml": test})
	stdout, stderr, code = offline(t, "", append([]string{"test", dir}, flags...)...)
	return strings.ReplaceAll(stdout, dir, "DIR"), strings.ReplaceAll(stderr, dir, "DIR"), code
}

func TestPassingTestsPrintATable(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := testFolder(t, deskTest, "--min-coverage", "100")
	want := `RESULT   FILE                   TEST                                        VERDICT   BY
pass     DIR/policy_test.yaml   cheap goods are sold                        Allow     desk/cheap
pass     DIR/policy_test.yaml   very dear ones are not, to the last digit   Deny      desk/dear

POLICY   RULE    DECIDED
desk     cheap   1
desk     dear    1

2 passed, 0 failed; 2 of 2 rules reached (100.0%)
`
	if squeeze(stdout) != squeeze(want) || stderr != "" || code != 0 {
		t.Errorf("exit code %d, %s, output (-want +got):\n%s", code, stderr, cmp.Diff(squeeze(want), squeeze(stdout)))
	}
}

// squeeze makes one space of several: columns are as wide as names of temporary directories.
func squeeze(text string) string {
	for strings.Contains(text, "  ") {
		text = strings.ReplaceAll(text, "  ", " ")
	}
	return text
}

func TestAFailureSaysWhatWasWantedAndHowTheVerdictCameAbout(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := testFolder(t, strings.Replace(deskTest, "{verdict: Allow, rule: cheap}", "{verdict: Deny, rule: dear, required: 1, verbs: [approve], uncertain: true}", 1))
	for _, want := range []string{
		"FAIL DIR/policy_test.yaml: cheap goods are sold\n",
		`  verdict: want "Deny", got "Allow"`, `  rule: want "dear", got "desk/cheap"`, "  required: want 1, got 0\n", `  verbs: want ["approve"], got []`,
		"  uncertain: want true, got false", "  how the verdict came about:\n", "ToolPolicy/desk rule cheap", "1 passed, 1 failed",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, stdout)
		}
	}
	if code != 1 || stderr != "error: 1 test of 2 failed\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestEachPartOfAVerdictIsCompared(t *testing.T) {
	t.Parallel()
	for expect, right := range map[string]bool{
		"{verdict: Deny}": true, "{verdict: Allow}": false,
		"{reason: RuleDenied}": true, "{reason: ReadTool}": false,
		"{rule: dear}": true, "{rule: desk/dear}": true, `{rule: ""}`: false, "{rule: ear}": false, "{rule: cheap}": false,
		"{tier: Reversible}": true, "{tier: Read}": false,
		"{required: 0}": true, "{required: 1}": false,
		"{verbs: []}": true, "{verbs: [approve]}": false,
		"{message: Too dear.}": true, `{message: ""}`: false,
		"{controls: []}": true, "{controls: [A]}": false,
		"{uncertain: false}": true, "{uncertain: true}": false,
		`{observed: ""}`:                false, // no verdict
		"{preview: {tool: list_goods}}": false,
	} {
		t.Run(expect, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := testFolder(t, strings.Replace(deskTest, "{verdict: Deny, rule: desk/dear, message: Too dear.}", expect, 1))
			if right != (code == 0) {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

func TestARuleThatNoTestReachesIsListed(t *testing.T) {
	t.Parallel()
	test, _, _ := strings.Cut(deskTest, "- name: very dear")
	stdout, stderr, code := testFolder(t, test, "--min-coverage", "50.1")
	if !strings.Contains(squeeze(stdout), "desk dear never: no test reaches it\n") || !strings.Contains(stdout, "1 of 2 rules reached (50.0%)") {
		t.Errorf("the output does not say so:\n%s", stdout)
	}
	if code != 1 || stderr != "error: 50.0% of the rules were reached, less than 50.1%\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if _, stderr, code = testFolder(t, test, "--min-coverage", "50"); code != 0 {
		t.Errorf("half is not enough where half is asked for: %d, %s", code, stderr)
	}
}

func TestJUnitIsWellFormedWhateverTheNames(t *testing.T) {
	t.Parallel()
	test := strings.Replace(strings.Replace(deskTest, "cheap goods are sold", `"<a> & \"b\" \u0001]]>"`, 1), "rule: cheap", "rule: dear", 1)
	stdout, _, code := testFolder(t, test, "-o", "junit")
	var report junitReport
	if err := xml.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	if code != 1 || report.Tests != 2 || report.Failures != 1 || len(report.Suites) != 1 || len(report.Suites[0].Cases) != 2 {
		t.Errorf("exit code %d: %+v", code, report)
	}
	first := report.Suites[0].Cases[0]
	if !strings.HasPrefix(first.Name, `<a> & "b" `) || first.Failure == nil || !strings.Contains(first.Failure.Text, "how the verdict came about") {
		t.Errorf("got %+v", first)
	}
}

func TestTheReportIsTheSameAgain(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"policy.yaml": deskPolicies, "tools.json": deskDump, "policy_test.yaml": deskTest})
	first, _, code := offline(t, "", "test", "-o", "json", dir)
	again, _, _ := offline(t, "", "test", "-o", "json", dir, dir)
	if code != 0 || first != again {
		t.Errorf("exit code %d, (-first +again):\n%s", code, cmp.Diff(first, again))
	}
	var report testReport
	if err := json.Unmarshal([]byte(first), &report); err != nil || report.Passed != 2 || report.Coverage.Percent != 100 {
		t.Errorf("%v: %+v", err, report)
	}
}

func TestATestThatCannotBeReadRunsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ old, new, want string }{
		"an unknown field":               {"expect: {verdict: Allow", "expect: {verdikt: Allow", `cases[0].expect.verdikt: there is no field "verdikt" here; did you mean verdict?`},
		"an unknown verdict":             {"verdict: Allow", "verdict: Alow", "cases[0].expect.verdict: Unsupported value"},
		"no expectation":                 {"{verdict: Allow, rule: cheap}", "{}", "should have at least 1 properties"},
		"two cases of one name":          {"very dear ones are not, to the last digit", "cheap goods are sold", "cases[1]: Duplicate value"},
		"a policy that is gone":          {"[policy.yaml]", "[policies.yaml]", "policies[0]: open DIR/policies.yaml: no such file"},
		"a file without a policy":        {"[policy.yaml]", "[tools.json]", "policies[0]: there is no ToolPolicy in DIR/tools.json"},
		"tools that are gone":            {"toolsFile: tools.json", "toolsFile: t.json", "servers[0].toolsFile: open DIR/t.json"},
		"tools that are none":            {"toolsFile: tools.json", "toolsFile: policy.yaml", "servers[0].toolsFile: read tools"},
		"no tools":                       {"toolsFile: tools.json", "namespaceLabels: {}", "set exactly one of tools and toolsFile"},
		"a record of an unknown tool":    {"toolsFile: tools.json", "toolsFile: tools.json\n  records: [{tool: gone}]", `servers[0].records[0].tool: the server has no tool "gone"`},
		"a promotion of an unknown tool": {"toolsFile: tools.json", "toolsFile: tools.json\n  promote: [gone]", `servers[0].promote[0]: the server has no tool "gone"`},
		"a change of an unknown tool":    {"toolsFile: tools.json", "toolsFile: tools.json\n  changed: [gone]", `servers[0].changed[0]: the server has no tool "gone"`},
		"a spec that is none":            {"toolsFile: tools.json", "toolsFile: tools.json\n  spec: {mode: Enforc}", `8:16: error: spec.mode: Unsupported value: "Enforc"`},
		"an unknown field of a spec":     {"toolsFile: tools.json", "toolsFile: tools.json\n  spec: {mod: Enforce}", `8:10: error: spec.mod: there is no field "mod" here; did you mean mode?`},
		"another server":                 {"  call: {tool: update_goods, args: {amount: 5}}", "  server: shop\n  call: {tool: update_goods}", `cases[0].server: there is no server "shop" in this file`},
		"an unclear word":                {"{amount: 5}", "{amount: yes}", "cases[0].call.args.amount: some readers of YAML take this word for true or false"},
		"a number of YAML alone":         {"{amount: 5}", "{amount: 0x10}", "cases[0].call.args.amount: this number cannot be written so in JSON"},
		"two callers":                    {"  call: {tool: update_goods, args: {amount: 5}}", "  as: {username: a, serviceAccount: b/c}\n  call: {tool: update_goods}", "set exactly one of username and serviceAccount"},
		"another kind":                   {"kind: PolicyTest", "kind: PolicyTests", "kind: Unsupported value"},
		"a key that is there twice":      {"namespace: shop", "namespace: shop\nnamespace: shop", `the key "namespace" is there already`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := testFolder(t, strings.Replace(deskTest, tc.old, tc.new, 1))
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, "nothing was run") || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit code %d, output %q, want %q in\n%s", code, stdout, tc.want, stderr)
			}
		})
	}
}

func TestAPolicyThatCannotBeUsedRunsNothing(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"policy.yaml": strings.Replace(deskPolicies, "args.amount <= 5", "argz.amount <= 5", 1), "tools.json": deskDump, "policy_test.yaml": deskTest})
	_, stderr, code := offline(t, "", "test", dir)
	if code != exitUsage || !strings.Contains(stderr, "policy.yaml:9:11: error: spec.rules[0].when: there is no variable argz") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestAServerIsAsTheManagerWouldKnowIt(t *testing.T) {
	t.Parallel()
	server := func(fields string) string {
		return strings.Replace(deskTest, "toolsFile: tools.json", "toolsFile: tools.json\n"+fields, 1)
	}
	for name, tc := range map[string]struct{ server, expect string }{
		"Observe lets a denied call pass":                  {"  spec: {mode: Observe}", "{verdict: Allow, observed: Deny, rule: dear}"},
		"ReadOnly refuses it first":                        {"  spec: {mode: ReadOnly}", `{verdict: Deny, reason: ServerReadOnly, rule: ""}`},
		"minimumTier raises":                               {"  spec: {classification: {minimumTier: Irreversible}}", "{tier: Irreversible}"},
		"Enforce refuses a definition that nobody accepts": {"  spec: {pinning: Enforce}\n  changed: [update_goods]", "{verdict: Deny, reason: DefinitionNotAccepted}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(server(tc.server), "{verdict: Deny, rule: desk/dear, message: Too dear.}", tc.expect, 1)
			text = strings.Replace(text, "{verdict: Allow, rule: cheap}", "{required: 0}", 1)
			stdout, stderr, code := testFolder(t, text)
			if strings.Contains(stdout, "FAIL DIR/policy_test.yaml: very dear") || code == exitUsage {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

func FuzzPolicyTestFile(f *testing.F) {
	f.Add(deskTest)
	f.Add("apiVersion: cli.tidewaiter.dev/v1alpha1\nkind: PolicyTest\npolicies: [x]\nservers: [{name: a, tools: [{name: b}]}]\ncases: [{name: c, call: {tool: b}, expect: {required: 1}}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := folder(t, map[string]string{"policy.yaml": deskPolicies, "tools.json": deskDump, "policy_test.yaml": text})
		if _, _, code := offline(t, "", "test", dir); code < 0 || code > exitUsage {
			t.Errorf("exit code %d", code)
		}
	})
}
