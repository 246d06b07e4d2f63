// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// opened is when the requests of these tests were made; they live for an hour.
var opened = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func request(edits ...func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
	base := fixture.ApprovalRequest("shop", "billing", 1)
	base.UID, base.CreationTimestamp = "0b1c", metav1.NewTime(opened)
	return fixture.With(base, edits...)
}

func in(phase v1alpha1.Phase) func(*v1alpha1.ApprovalRequest) {
	return func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = phase }
}

func voted(decision v1alpha1.Decision, after time.Duration) func(*v1alpha1.ApprovalRequest) {
	return func(r *v1alpha1.ApprovalRequest) {
		r.Status.Votes = append(r.Status.Votes, v1alpha1.Vote{Username: "ana", Decision: decision, Time: metav1.NewTime(opened.Add(after))})
	}
}

func executed(finished, deadline time.Duration) func(*v1alpha1.ApprovalRequest) {
	instant := func(after time.Duration) *metav1.MicroTime {
		if after == 0 {
			return nil
		}
		return &metav1.MicroTime{Time: opened.Add(after)}
	}
	return func(r *v1alpha1.ApprovalRequest) {
		r.Status.Execution = &v1alpha1.Execution{FinishedAt: instant(finished), Deadline: instant(deadline)}
	}
}

func TestWhatHappenedToARequestIsReadFromIt(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	type list []occurrence
	at := func(event Event, after time.Duration) occurrence { return occurrence{event, opened.Add(after)} }
	start := at(EventOpened, 0)
	for name, tc := range map[string]struct {
		request *v1alpha1.ApprovalRequest
		after   time.Duration
		want    list
	}{
		"no phase reads as Pending":                        {request(), minute, list{start}},
		"a moment before its half-life":                    {request(in("Pending")), 30*minute - 1, list{start}},
		"at its half-life":                                 {request(in("Pending")), 30 * minute, list{start, at(EventExpiring, 30*minute)}},
		"a moment before its expiry":                       {request(in("Pending")), 60*minute - 1, list{start, at(EventExpiring, 30*minute)}},
		"at its expiry nobody can decide any more":         {request(in("Pending")), 60 * minute, list{start}},
		"approved by two, past its half-life":              {request(in("Approved"), voted("Approved", 2*minute), voted("Approved", minute)), 40 * minute, list{start, at("Approved", 2*minute)}},
		"approved without votes":                           {request(in("Approved")), minute, list{start, {"Approved", time.Time{}}}},
		"denied after a yes":                               {request(in("Denied"), voted("Approved", minute), voted("Denied", 2*minute)), minute, list{start, at("Denied", 2*minute)}},
		"dismissed":                                        {request(in("Dismissed"), voted("Dismissed", minute)), minute, list{start, at("Dismissed", minute)}},
		"expired":                                          {request(in("Expired")), 61 * minute, list{start, at("Expired", 60*minute)}},
		"cancelled, and nothing tells when":                {request(in("Cancelled")), minute, list{start, {"Cancelled", time.Time{}}}},
		"executing is no event of its own":                 {request(in("Executing"), voted("Approved", minute)), minute, list{start, at("Approved", minute)}},
		"succeeded":                                        {request(in("Succeeded"), voted("Approved", minute), executed(3*minute, 9*minute)), 4 * minute, list{start, at("Approved", minute), at("Succeeded", 3*minute)}},
		"failed":                                           {request(in("Failed"), voted("Approved", minute), executed(3*minute, 9*minute)), 4 * minute, list{start, at("Approved", minute), at("Failed", 3*minute)}},
		"ambiguous by its deadline":                        {request(in("Ambiguous"), voted("Approved", minute), executed(0, 9*minute)), 10 * minute, list{start, at("Approved", minute), at("Ambiguous", 9*minute)}},
		"ambiguous, and nothing tells since when":          {request(in("Ambiguous"), voted("Approved", minute), executed(0, 0)), 10 * minute, list{start, at("Approved", minute), {"Ambiguous", time.Time{}}}},
		"ended without an execution":                       {request(in("Failed"), voted("Approved", minute)), 10 * minute, list{start, at("Approved", minute), {"Failed", time.Time{}}}},
		"settled by a person, whose finding came the last": {request(in("Failed"), voted("Approved", minute), executed(3*minute, 9*minute), settled(20*minute)), 21 * minute, list{start, at("Approved", minute), at("Failed", 20*minute)}},
		"a phase of a version to come":                     {request(in("Paused")), minute, list{start}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := list(happened(tc.request, opened.Add(tc.after)))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(occurrence{})); diff != "" {
				t.Errorf("happened (-want +got):\n%s", diff)
			}
		})
	}
}

func settled(after time.Duration) func(*v1alpha1.ApprovalRequest) {
	return func(r *v1alpha1.ApprovalRequest) {
		r.Status.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionNotExecuted, Time: metav1.NewTime(opened.Add(after))}
	}
}

func TestTheBodyIsAsDocumented(t *testing.T) {
	t.Parallel()
	got, err := compose(request(), occurrence{EventOpened, opened})
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "version": 1,
  "id": "0b1c.Opened",
  "event": "Opened",
  "time": "2026-11-30T12:00:00Z",
  "request": {
    "namespace": "shop",
    "name": "billing-00000000000000000001-1",
    "uid": "0b1c",
    "phase": "Pending",
    "server": "billing",
    "tool": "refund_invoice",
    "tier": "Reversible",
    "gatedBy": "tier",
    "blastRadius": {
      "scope": "Single",
      "summary": "scoped to invoice=\"inv_17\""
    },
    "requester": "system:serviceaccount:agents:bookkeeper",
    "requiredApprovals": 1,
    "createdAt": "2026-11-30T12:00:00Z",
    "expiresAt": "2026-11-30T13:00:00Z"
  },
  "commands": {
    "describe": "kubectl tidewaiter describe billing-00000000000000000001-1 -n shop",
    "approve": "kubectl approve billing-00000000000000000001-1 -n shop",
    "deny": "kubectl deny billing-00000000000000000001-1 -n shop"
  }
}`
	if diff := cmp.Diff(want, indent(t, got.body)); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.id != "0b1c.Opened" || got.request.String() != "shop/billing-00000000000000000001-1" {
		t.Errorf("compose = %+v", got)
	}
}

func indent(t *testing.T, body []byte) string {
	t.Helper()
	var value json.RawMessage = body
	out, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func read(t *testing.T, n notification) body {
	t.Helper()
	var got body
	if err := json.Unmarshal(n.body, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTheCommandsAreThoseThatLeadOn(t *testing.T) {
	t.Parallel()
	const target = "billing-00000000000000000001-1 -n shop"
	describe := "kubectl tidewaiter describe " + target
	for phase, want := range map[v1alpha1.Phase]commands{
		v1alpha1.PhasePending:   {Describe: describe, Approve: "kubectl approve " + target, Deny: "kubectl deny " + target},
		v1alpha1.PhaseApproved:  {Describe: describe, Deny: "kubectl deny " + target},
		v1alpha1.PhaseAmbiguous: {Describe: describe, Resolve: "kubectl tidewaiter resolve " + target + " (--committed | --not-executed) --reason TEXT"},
		v1alpha1.PhaseDenied:    {Describe: describe},
		v1alpha1.PhaseSucceeded: {Describe: describe},
	} {
		n, err := compose(request(in(phase)), occurrence{Event(phase), opened})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read(t, n).Commands); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}

func TestTextsOfAgentsAndServersCannotHideAnything(t *testing.T) {
	t.Parallel()
	n, err := compose(request(in(v1alpha1.PhaseCancelled), func(r *v1alpha1.ApprovalRequest) {
		r.Spec.Tool = "get\u202etpircs"
		r.Spec.BlastRadius.Summary = "one\u200b\x1b[2Jline\nand é"
		r.Spec.Requester.Username, r.Spec.Requester.ActsFor = "a\u2066na", "bo\u200db"
		r.Status.Cancellation = &v1alpha1.Cancellation{Reason: v1alpha1.CancelToolChanged}
	}), occurrence{event: Event(v1alpha1.PhaseCancelled)})
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, n)
	if got.Time != nil {
		t.Errorf("time is %v where nothing tells it", got.Time)
	}
	want := []string{`get\u202etpircs`, `one\u200b\u001b[2Jline\u000aand é`, `a\u2066na`, `bo\u200db`, "ToolChanged"}
	texts := []string{got.Request.Tool, got.Request.BlastRadius.Summary, got.Request.Requester, got.Request.ActsFor, string(got.Request.Cancellation)}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

func TestThoseWhoDecideAreToldOfThePreview(t *testing.T) {
	t.Parallel()
	const counter = "count_rows"
	for name, tc := range map[string]struct {
		event Event
		made  *v1alpha1.Preview
		want  *preview
	}{
		"none":                 {EventOpened, nil, nil},
		"an answer":            {EventOpened, &v1alpha1.Preview{Tool: counter, Result: "matches 40,213 rows"}, &preview{Tool: counter, Result: "matches 40,213 rows"}},
		"it is to expire soon": {EventExpiring, &v1alpha1.Preview{Tool: counter, Result: "2 rows"}, &preview{Tool: counter, Result: "2 rows"}},
		"it is decided":        {Event(v1alpha1.PhaseApproved), &v1alpha1.Preview{Tool: counter, Result: "2 rows"}, nil},
		"a failure":            {EventOpened, &v1alpha1.Preview{Tool: counter, Failure: "the server does not answer in time"}, &preview{Tool: counter, Failure: "the server does not answer in time"}},
		"what fits":            {EventOpened, &v1alpha1.Preview{Tool: counter, Result: strings.Repeat("x", 256)}, &preview{Tool: counter, Result: strings.Repeat("x", 256)}},
		"what does not":        {EventOpened, &v1alpha1.Preview{Tool: counter, Result: strings.Repeat("x", 257)}, &preview{Tool: counter, Result: strings.Repeat("x", 253) + "…"}},
		"hostile letters":      {EventOpened, &v1alpha1.Preview{Tool: counter, Result: "2\u202e\x1b[2J"}, &preview{Tool: counter, Result: `2\u202e\u001b[2J`}},
		"many escapes":         {EventOpened, &v1alpha1.Preview{Tool: counter, Result: strings.Repeat("\u200b", 600)}, &preview{Tool: counter, Result: strings.Repeat(`\u200b`, 42) + `\…`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := compose(request(func(r *v1alpha1.ApprovalRequest) { r.Spec.Preview = tc.made }), occurrence{tc.event, opened})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, read(t, n).Request.Preview); diff != "" {
				t.Errorf("preview (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheArgumentsAreNotSent(t *testing.T) {
	t.Parallel()
	n, err := compose(request(func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments = `{"note":"for your eyes only"}` }), occurrence{EventOpened, opened})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(n.body); !json.Valid(n.body) || strings.Contains(got, "eyes") || !strings.Contains(got, "inv_17") {
		t.Errorf("body is %s", got)
	}
}
