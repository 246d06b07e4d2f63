// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// earlier is a line as it was written before receipts had groups, rules and steps.
func earlier(body string) []byte {
	return fmt.Appendf(nil, "%s,\"hash\":%q}\n", body, digest([]byte(body)))
}

func TestAFileOfAnEarlierGatewayGoesOn(t *testing.T) {
	t.Parallel()
	o := options(t)
	first := earlier(`{"schema":"tidewaiter.dev/receipt/v1","seq":1,"prevHash":"` + genesis(o.Gateway, "c") + `","chain":"c","gateway":"` + o.Gateway + `","time":"2030-04-01T09:30:00Z","kind":"Opened"`)
	_, hash, _ := bytes.Cut(first, []byte(`"hash":"`))
	second := earlier(`{"schema":"tidewaiter.dev/receipt/v1","seq":2,"prevHash":"` + string(hash[:digestLength]) + `","chain":"c","gateway":"` + o.Gateway +
		`","time":"2030-04-01T09:30:00Z","kind":"Decision","callID":"1","tool":"x","verdict":"Deny","code":"ToolUnknown","gatedBy":"tier","requester":"bob","argumentsSize":2,"policyRevision":"r"`)
	if err := os.WriteFile(o.Path, append(first, second...), 0o600); err != nil {
		t.Fatal(err)
	}
	w := open(t, o)
	want := Receipt{
		Kind: KindDecision, Method: "prompts/get", Tool: "x", Verdict: VerdictDeny, Code: "RuleDenied", GatedBy: "ToolPolicy/a rule b", Rule: "ToolPolicy/a rule b",
		Controls: []string{"SOC2-CC6.1"}, Uncertain: "rule b: no such key", Observed: &Observed{VerdictDeny, "RuleDenied", "ToolPolicy/a rule b"},
		Steps: []Step{{"mode", "Enforce"}}, Requester: "bob", Groups: []string{"g"}, GroupsTotal: 7, Preview: "sha256:1",
	}
	appendAll(t, w, Sync, want)
	closeWriter(t, w)
	report, err := Verify(bytes.NewReader(readFile(t, o.Path)))
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("problems %v, error %v", report.Problems, err)
	}
	all := read(t, o.Path)
	if all[1].Code != "ToolUnknown" || all[1].Requester != "bob" {
		t.Errorf("the earlier line reads as %+v", all[1])
	}
	got := all[len(all)-1]
	want.Schema, want.Seq, want.PrevHash, want.Chain, want.Gateway, want.Time, want.Hash = got.Schema, got.Seq, got.PrevHash, "c", o.Gateway, day, got.Hash
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestListsAreBoundedWhateverIsInThem(t *testing.T) {
	t.Parallel()
	o := options(t)
	w := open(t, o)
	hostile := strings.Repeat("\u202e", 100_000)
	groups, steps, controls := make([]string, 1000), make([]Step, 1000), make([]string, 1000)
	for i := range groups {
		groups[i], controls[i], steps[i] = hostile, hostile, Step{fmt.Sprint(i, hostile), hostile}
	}
	appendAll(t, w, Sync,
		Receipt{Kind: KindDecision, Groups: groups, Steps: steps, Controls: controls, Observed: &Observed{VerdictDeny, hostile, hostile}, Uncertain: hostile, Rule: hostile, Method: hostile},
		Receipt{Kind: KindDecision, Groups: groups[:64], Steps: steps[:48]})
	closeWriter(t, w)
	all := read(t, o.Path)
	if got := all[1]; len(got.Groups) != 64 || got.GroupsTotal != 1000 || len(got.Steps) != 48 || len(got.Controls) != 16 {
		t.Errorf("%d of %d groups, %d steps, %d controls", len(got.Groups), got.GroupsTotal, len(got.Steps), len(got.Controls))
	}
	if got := all[1].Steps; !strings.HasPrefix(got[0].Source, "0") || got[24].Says != "953 steps are left out here" || !strings.HasPrefix(got[25].Source, "977") || !strings.HasPrefix(got[47].Source, "999") {
		t.Errorf("steps %.3s, %s, %.3s … %.3s", got[0].Source, got[24].Says, got[25].Source, got[47].Source)
	}
	if got := all[2]; len(got.Groups) != 64 || got.GroupsTotal != 0 || len(got.Steps) != 48 || !strings.HasPrefix(got.Steps[24].Source, "24") {
		t.Errorf("what fits was cut: %d of %d groups, %d steps", len(got.Groups), got.GroupsTotal, len(got.Steps))
	}
	if line := len(readFile(t, o.Path)); line > maxLine {
		t.Errorf("two hostile receipts have %d bytes", line)
	}
	if groups[0] != hostile || controls[0] != hostile || steps[0].Says != hostile {
		t.Error("a list of the caller's was changed")
	}
	if report, err := Verify(bytes.NewReader(readFile(t, o.Path))); err != nil || len(report.Problems) > 0 {
		t.Errorf("problems %v, error %v", report.Problems, err)
	}
}
