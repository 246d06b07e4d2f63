// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// refundRules ask two persons for larger refunds, and let one agent make small ones.
const refundRules = `apiVersion: tidewaiter.dev/v1alpha1
kind: ToolPolicy
metadata: {name: refunds}
spec:
  targets: [billing]
  rules:
  - name: large
    tools: ["refund_*"]
    when: args.amount > 100
    decision: RequireApproval
    approvals: {required: 2, verb: approve-finance}
    message: ask finance first
    controls: [SOC2-CC6.1]
  - name: small
    tools: [refund_invoice]
    subjects: [{kind: ServiceAccount, namespace: agents, name: bookkeeper}]
    decision: Allow
  - name: never
    tools: [send_invoice]
    subjects: [{kind: Group, name: interns}]
    decision: Deny
`

var revision = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// explained runs explain, with the revision made stable.
func (o *office) explained(t *testing.T, as *rest.Config, args ...string) result {
	t.Helper()
	got := o.run(t, as, append([]string{"explain"}, args...)...)
	got.Stdout = revision.ReplaceAllString(got.Stdout, "REVISION")
	return got
}

func TestExplainTellsAVerdictAndItsDerivation(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.apply(t, o.governor, refundRules)
	reader := o.reader(t)
	want := map[string]string{}
	got := map[string]string{}
	explain := func(name, text string, args ...string) {
		t.Helper()
		r := o.explained(t, reader, args...)
		if r.Exit != 0 || r.Stderr != "" {
			t.Errorf("%s: exit %d, %s", name, r.Exit, r.Stderr)
		}
		want[name], got[name] = text, r.Stdout
	}
	explain("yourself, a large refund", `Call:          refund_invoice on billing, by reader-NAMESPACE
Groups:        system:authenticated
Verdict:       RequireApproval (ApprovalRequired)
Tier:          Reversible: the verb "refund" can be undone
Decided by:    ToolPolicy/refunds rule large
Message:       ask finance first
Controls:      SOC2-CC6.1
To do:         2 approvals with approve and approve-finance on governedservers/billing: kubectl approve NAME, once it is asked
Policy:        REVISION
`, "billing", "refund_invoice", "--args", `{"amount":101}`)
	explain("an agent, a small refund", `Call:          refund_invoice on billing, by system:serviceaccount:agents:bookkeeper
Groups:        system:serviceaccounts, system:serviceaccounts:agents, system:authenticated
Verdict:       Allow (RuleAllowed)
Tier:          Reversible: the verb "refund" can be undone
Decided by:    ToolPolicy/refunds rule small
To do:         nothing: the call runs without a person
Policy:        REVISION
`, "billing", "refund_invoice", "--args", `{"amount":100}`, "--as", "agents/bookkeeper")
	explain("an agent, and nobody knows how much", `Call:          refund_invoice on billing, by system:serviceaccount:agents:bookkeeper
Groups:        system:serviceaccounts, system:serviceaccounts:agents, system:authenticated
Arguments:     not given, so not known
Verdict:       cannot tell without the arguments: from Allow to RequireApproval; what follows is the strictest
Tier:          Reversible: the verb "refund" can be undone
Decided by:    ToolPolicy/refunds rule large
Message:       ask finance first
Controls:      SOC2-CC6.1
Uncertain:     ToolPolicy/refunds rule large: depends on arguments that are not known
To do:         2 approvals with approve and approve-finance on governedservers/billing: kubectl approve NAME, once it is asked
Policy:        REVISION
`, "billing", "refund_invoice", "--as", "system:serviceaccount:agents:bookkeeper")
	explain("an intern", `Call:          send_invoice on billing, by ida
Groups:        interns
Arguments:     not given, so not known
Verdict:       Deny (RuleDenied)
Tier:          Irreversible: the verb "send" cannot be undone
Decided by:    ToolPolicy/refunds rule never
To do:         nobody can approve it; who may govern there can change ToolPolicy/refunds rule never
Policy:        REVISION
`, "billing", "send_invoice", "--as", "ida", "--as-group", "interns")
	explain("a tool that is not there", `Call:          drop_table on billing, by reader-NAMESPACE
Groups:        system:authenticated
Arguments:     not given, so not known
Verdict:       Deny (ToolUnknown)
To do:         look which tools the server lists: kubectl tidewaiter tools billing
Policy:        REVISION
`, "billing", "drop_table")
	for name, text := range got {
		summary, steps, found := strings.Cut(text, "Steps:         ")
		if !found || !strings.Contains(steps, "\n   1. ") {
			t.Errorf("%s: no steps in\n%s", name, text)
		}
		got[name] = summary
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanations (-want +got):\n%s", diff)
	}
}

// The principal of the call is only named: nobody is acted as, and whoever reads needs no more than to read.
func TestExplainActsAsNobody(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.apply(t, o.governor, refundRules)
	reader := o.reader(t)
	if got := o.explained(t, reader, "billing", "refund_invoice", "--as", "eve", "--as-group", "system:masters"); got.Exit != 0 || !strings.Contains(got.Stdout, "by eve\nGroups:        system:masters\n") {
		t.Errorf("as eve: %+v", got)
	}
	// The control: other verbs do act as her, and the reader may not.
	if got := o.run(t, reader, "tools", "billing", "--as", "eve"); got.Exit != 1 || !strings.Contains(got.Stderr, "cannot impersonate") {
		t.Errorf("tools as eve: %+v", got)
	}
	stranger := plane.User(t, "stranger-"+o.namespace)
	if got := o.explained(t, stranger, "billing", "refund_invoice", "--as", "owner-"+o.namespace); got.Exit != 2 || got.Stdout != "" {
		t.Errorf("a stranger as the owner: %+v", got)
	}
}

func TestExplainReadsArgumentsAndPrintsData(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.apply(t, o.governor, refundRules)
	reader := o.reader(t)
	file := filepath.Join(t.TempDir(), "call.json")
	if err := os.WriteFile(file, []byte("{\"amount\": 101}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "yaml"} {
		got := o.explained(t, reader, "billing", "refund_invoice", "--args", "@"+file, "-o", format)
		if got.Exit != 0 || !strings.Contains(got.Stdout, "ToolPolicy/refunds rule large") {
			t.Errorf("%s: %+v", format, got)
		}
	}
	var data struct {
		Kind           string
		ArgumentsKnown bool
		Verdict        struct {
			Verdict, Code     string
			RequiredApprovals int
			ApproveVerbs      []string
		}
		Steps []struct{ Source, Says string }
	}
	got := o.explained(t, reader, "billing", "refund_invoice", "--args", "@"+file, "-o", "json")
	if err := json.Unmarshal([]byte(got.Stdout), &data); err != nil || data.Kind != "Explanation" || !data.ArgumentsKnown ||
		data.Verdict.RequiredApprovals != 2 || len(data.Verdict.ApproveVerbs) != 2 || len(data.Steps) == 0 {
		t.Errorf("%v: %+v", err, data)
	}
	for text, want := range map[string]string{
		`{"amount":1,"amount":2}`: "error: --args cannot be read: ",
		`[1]`:                     "error: --args is no JSON object\n",
		"@" + file + "-not":       "error: open ",
		"":                        "error: --args cannot be read: ",
	} {
		if got := o.explained(t, reader, "billing", "refund_invoice", "--args", text); got.Exit != 2 || !strings.HasPrefix(got.Stderr, want) {
			t.Errorf("--args %q: %+v", text, got)
		}
	}
	if got := o.explained(t, reader, "billing", "refund_invoice", "--as-group", "interns"); got.Exit != 2 || !strings.HasPrefix(got.Stderr, "error: --as-group goes with --as\n") {
		t.Errorf("a group of nobody: %+v", got)
	}
}
