// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

const examplePolicies = "../../docs/examples/policies"

// domains are those that docs/policy.md has a policy for.
var domains = []string{
	"payments", "devops", "security-operations", "healthcare", "legal", "hr", "insurance", "e-commerce", "public-services",
}

// offline runs a verb that needs no cluster.
func offline(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	cmd := newProgram("kubectl-tidewaiter", &session{IOStreams: streams, clock: clock.RealClock{}})
	cmd.SetArgs(args)
	code = execute(t.Context(), cmd, streams)
	return out.String(), errOut.String(), code
}

func TestTheTestsOfTheExamplesPassAndReachEveryRule(t *testing.T) {
	t.Parallel()
	if stdout, stderr, code := offline(t, "", "test", "--min-coverage", "100", examplePolicies); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func TestTheExamplesNeedNoMending(t *testing.T) {
	t.Parallel()
	if stdout, stderr, code := offline(t, "", "lint", "--strict", examplePolicies); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	folders, err := filepath.Glob(filepath.Join(examplePolicies, "*", "tools.json"))
	if err != nil || len(folders) != len(domains)+1 {
		t.Fatalf("found the tools of %d examples (%v), not of the domains and the baseline", len(folders), err)
	}
	for _, tools := range folders {
		if stdout, stderr, code := offline(t, "", "lint", "--strict", "--tools", tools, filepath.Dir(tools)); code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", tools, code, stdout, stderr)
		}
	}
}

func TestEachDomainHasCasesOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, domain := range domains {
		stdout, stderr, code := offline(t, "", "test", "-o", "json", filepath.Join(examplePolicies, domain))
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", domain, code, stderr)
			continue
		}
		var report testReport
		if err := json.Unmarshal([]byte(stdout), &report); err != nil {
			t.Fatal(err)
		}
		verdicts := map[string]bool{}
		for _, test := range report.Tests {
			verdicts[test.Verdict] = true
		}
		for _, verdict := range []string{"Allow", "RequireApproval", "Deny"} {
			if !verdicts[verdict] {
				t.Errorf("%s has no case with the verdict %s", domain, verdict)
			}
		}
		text := readText(t, filepath.Join(examplePolicies, domain, "policy_test.yaml"))
		if !strings.Contains(text, "uncertain: true") {
			t.Errorf("%s has no case that is uncertain", domain)
		}
	}
}

func TestThePageShowsThePoliciesAsTheyAre(t *testing.T) {
	t.Parallel()
	page := readText(t, "../../docs/policy.md")
	files := []string{"baseline/policy.yaml", "baseline/switch.yaml"}
	for _, domain := range domains {
		files = append(files, domain+"/policy.yaml")
	}
	for _, file := range files {
		shown := "[" + file + "](examples/policies/" + file + "):\n\n```yaml\n" + readText(t, filepath.Join(examplePolicies, file)) + "```\n"
		if !strings.Contains(page, shown) {
			t.Errorf("docs/policy.md does not show %s as it is, behind a link to it", file)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
