// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// trusted returns a server with one tool that has three clean approvals, and its tool.
func trusted() (*v1alpha1.GovernedServer, v1alpha1.ToolStatus) {
	server := fixture.GovernedServer("default", "billing")
	server.UID = "server-uid"
	t := v1alpha1.ToolStatus{
		Name: "refund_invoice", Tier: v1alpha1.TierReversible, ClassifiedTier: v1alpha1.TierReversible, Source: v1alpha1.TierSourceName,
		Reason: `the word "refund" in the name`, Digest: fixture.Digest("a"),
	}
	server.Status.EndpointDigest = fixture.Digest("e")
	server.Status.Tools = []v1alpha1.ToolStatus{t}
	return &server, t
}

// approvedCall returns a request that persons approved and that succeeded at that minute.
func approvedCall(n int, arguments string, edits ...func(*v1alpha1.ApprovalRequest)) v1alpha1.ApprovalRequest {
	r := fixture.ApprovalRequest("default", "billing", n)
	at := time.Date(2026, 11, 1, 9, n, 0, 0, time.UTC)
	r.CreationTimestamp = metav1.NewTime(at.Add(-time.Minute))
	r.Spec.ServerRef.UID = "server-uid"
	r.Spec.Arguments = arguments
	finished := metav1.NewMicroTime(at)
	r.Status = v1alpha1.ApprovalRequestStatus{
		Phase:     v1alpha1.PhaseSucceeded,
		Execution: &v1alpha1.Execution{Outcome: v1alpha1.OutcomeSucceeded, FinishedAt: &finished},
		Votes:     []v1alpha1.Vote{{Username: "ana", Decision: v1alpha1.DecisionApproved}},
	}
	return *fixture.With(r, edits...)
}

func rangesOf(arguments ...string) map[string]string {
	server, t := trusted()
	var requests []v1alpha1.ApprovalRequest
	for i, text := range arguments {
		requests = append(requests, approvedCall(i, text))
	}
	found := map[string]string{}
	for _, a := range earn(server, t, requests).arguments {
		found[a.path] = fmt.Sprintf("%d: %s", a.calls, a.values)
	}
	return found
}

func TestRangesSayWhatTheCallsWereAbout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arguments []string
		want      map[string]string
	}{
		"numbers are a range by their exact value": {
			arguments: []string{`{"n":10}`, `{"n":9.5}`, `{"n":1e2}`, `{"n":9007199254740993}`},
			want:      map[string]string{"n": "4: 9.5 to 9007199254740993"},
		},
		"one number is no range": {
			arguments: []string{`{"n":1.10}`, `{"n":1.1}`},
			want:      map[string]string{"n": "2: 1.10"},
		},
		"few words that repeat are counted, the most frequent first": {
			arguments: []string{`{"c":"EUR"}`, `{"c":"USD"}`, `{"c":"EUR"}`, `{"c":"EUR"}`},
			want:      map[string]string{"c": `4: "EUR" (3), "USD" (1)`},
		},
		"words that hardly repeat are only how many": {
			arguments: []string{`{"c":"a"}`, `{"c":"b"}`, `{"c":"c"}`},
			want:      map[string]string{"c": "3: 3 different"},
		},
		"truth and nothing are words": {
			arguments: []string{`{"c":true}`, `{"c":true}`, `{"c":null}`, `{"c":true}`},
			want:      map[string]string{"c": "4: true (3), null (1)"},
		},
		"a word that looks like a number stays one": {
			arguments: []string{`{"c":"5"}`, `{"c":5}`},
			want:      map[string]string{"c": `2: 5; "5" (1)`},
		},
		"an argument that some calls lack": {
			arguments: []string{`{"a":1}`, `{"a":2,"force":true}`},
			want:      map[string]string{"a": "2: 1 to 2", "force": "1: true (1)"},
		},
		"members, elements, and how many": {
			arguments: []string{`{"o":{"k":1},"l":[{"id":1},{"id":5}]}`, `{"o":{"k":2},"l":[]}`},
			want:      map[string]string{"o.k": "2: 1 to 2", "l": "2: 0 to 2 elements", "l[].id": "1: 1 to 5"},
		},
		"what is hidden stays so": {
			arguments: []string{`{"token":"[hidden: secret, 9 bytes, sha256 abc]"}`, `{"token":"[hidden: secret, 7 bytes, sha256 abd]"}`},
			want:      map[string]string{"token": "2: 2 hidden"},
		},
		"a key cannot pass for a path, or move the cursor": {
			arguments: []string{`{"a.b":1,"c[]":2,"\u001b[2J":3}`},
			want:      map[string]string{`"a.b"`: "1: 1", `"c[]"`: "1: 2", `"\u001b[2J"`: "1: 3"},
		},
		"an empty object is said": {
			arguments: []string{`{"o":{}}`},
			want:      map[string]string{"o": "1: {} (1)"},
		},
		"no arguments": {arguments: []string{`{}`}, want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, rangesOf(tc.arguments...)); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyCleanApprovalsOfThisDefinitionAreShown(t *testing.T) {
	t.Parallel()
	clean := approvedCall(1, `{"n":1}`)
	for name, edit := range map[string]func(*v1alpha1.ApprovalRequest){
		"of another definition":               func(r *v1alpha1.ApprovalRequest) { r.Spec.ToolDigest = fixture.Digest("b") },
		"at another endpoint":                 func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = fixture.Digest("b") },
		"of an earlier server of that name":   func(r *v1alpha1.ApprovalRequest) { r.Spec.ServerRef.UID = "other" },
		"of another tool":                     func(r *v1alpha1.ApprovalRequest) { r.Spec.Tool = "void_invoice" },
		"still running":                       func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseExecuting },
		"failed":                              func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseFailed },
		"whose outcome a person had to find":  func(r *v1alpha1.ApprovalRequest) { r.Status.Resolution = &v1alpha1.Resolution{} },
		"without an outcome":                  func(r *v1alpha1.ApprovalRequest) { r.Status.Execution = nil },
		"that nobody approved":                func(r *v1alpha1.ApprovalRequest) { r.Status.Votes = nil },
		"that fewer approved than are needed": func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = 2 },
		"that somebody refused": func(r *v1alpha1.ApprovalRequest) {
			r.Status.Votes = append(slices.Clone(r.Status.Votes), v1alpha1.Vote{Username: "eli", Decision: v1alpha1.DecisionDenied})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, tool := trusted()
			e := earn(server, tool, []v1alpha1.ApprovalRequest{clean, approvedCall(2, `{"n":1000}`, edit)})
			if e.calls != 1 || e.arguments[0].values != "1" {
				t.Errorf("%d calls with %v, want the clean one alone", e.calls, e.arguments)
			}
		})
	}
}

func TestThePeriodAndThePersonsAreThoseOfTheCalls(t *testing.T) {
	t.Parallel()
	server, tool := trusted()
	two := func(r *v1alpha1.ApprovalRequest) {
		r.Spec.RequiredApprovals = 2
		r.Status.Votes = append(slices.Clone(r.Status.Votes), v1alpha1.Vote{Username: "eli\x1b[1A", Decision: v1alpha1.DecisionApproved})
	}
	text, err := describeEarned(server, tool, earn(server, tool, []v1alpha1.ApprovalRequest{
		approvedCall(30, `{"n":3}`), approvedCall(7, `{"n":1}`, two), approvedCall(12, ``),
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := `Tool:         refund_invoice of billing, Reversible
Definition:   sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
Record:       0 clean approvals (1 needed), 0 failed, 0 denied
Stored:       3 of these calls, from 2026-11-01T09:07:00Z to 2026-11-01T09:30:00Z
Approved by:  ana (3), eli\u001b[1A (1)
What was said yes to; the promotion is not bound to it:
  ARGUMENT   CALLS   VALUES
  n          2       1 to 3
  the arguments of 1 calls are not stored

`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// An agent chooses the arguments, and so the names in them: neither their number nor their characters get through.
func TestWhatEarnedItIsBoundedAndPlain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		server, tool := trusted()
		var requests []v1alpha1.ApprovalRequest
		for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
			members := rapid.MapOfN(rapid.String(), rapid.String(), 0, 60).Draw(t, "members")
			requests = append(requests, approvedCall(i, jsonObject(members)))
		}
		text, err := describeEarned(server, tool, earn(server, tool, requests))
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(text, "\n"); lines > maxRanges+10 {
			t.Errorf("%d lines", lines)
		}
		for _, r := range text {
			if r < ' ' && r != '\n' || r == 0x7f || r == 0x202e {
				t.Errorf("%q is in the text", r)
			}
		}
		slices.Reverse(requests)
		again, err := describeEarned(server, tool, earn(server, tool, requests))
		if err != nil || again != text {
			t.Errorf("the order of the requests shows: %v\n%s", err, cmp.Diff(text, again))
		}
	})
}

func TestManyArgumentsAreCountedToTheLast(t *testing.T) {
	t.Parallel()
	members := map[string]string{}
	for i := range 100 {
		members[fmt.Sprintf("k%02d", i)] = "v"
	}
	server, tool := trusted()
	e := earn(server, tool, []v1alpha1.ApprovalRequest{approvedCall(1, jsonObject(members))})
	if len(e.arguments) != maxRanges || e.more != 100-maxRanges || e.arguments[0].path != "k00" {
		t.Errorf("%d arguments from %v, and %d more", len(e.arguments), e.arguments[:1], e.more)
	}
}

func jsonObject(members map[string]string) string {
	var out bytes.Buffer
	out.WriteString("{")
	for key, value := range members {
		if out.Len() > 1 {
			out.WriteString(",")
		}
		fmt.Fprintf(&out, "%s:%s", jsonText(key), jsonText(value))
	}
	out.WriteString("}")
	return out.String()
}

func jsonText(text string) string {
	var out strings.Builder
	out.WriteString(`"`)
	for _, r := range text {
		if r < ' ' || r == '"' || r == '\\' {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	out.WriteString(`"`)
	return out.String()
}
