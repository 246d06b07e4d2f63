// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

var made = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

type edit = func(*v1alpha1.ApprovalRequest)

func newRequest(edits ...edit) *v1alpha1.ApprovalRequest {
	return fixture.With(v1alpha1.ApprovalRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "cranes-0123-1", UID: "u", CreationTimestamp: metav1.NewTime(made)},
		Spec: v1alpha1.ApprovalRequestSpec{
			ServerRef: v1alpha1.ServerReference{Name: "cranes", UID: "s"}, Tool: "lift_box",
			Arguments: `{"box":"7","to":["quay","deck"]}`, ArgumentsSize: 32,
			BlastRadius:       v1alpha1.BlastRadius{Scope: v1alpha1.BlastBulk, Summary: "2 places in to", Evidence: []string{`to=["quay","deck"]`}},
			Requester:         v1alpha1.Requester{Username: "crew", Pod: "agent-0"},
			Tier:              v1alpha1.TierReversible,
			GatedBy:           "tier",
			RequiredApprovals: 1, ApproveVerbs: []string{v1alpha1.VerbApprove}, TTLSeconds: 3600, Attempt: 2,
		},
	}, edits...)
}

// at returns a session at an instant that prints to out.
func at(out io.Writer, now time.Time) *session {
	return &session{IOStreams: genericiooptions.IOStreams{Out: out, ErrOut: out}, clock: clocktesting.NewFakePassiveClock(now)}
}

func TestShow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request *v1alpha1.ApprovalRequest
		after   time.Duration
		want    string
	}{
		"everything": {
			request: newRequest(), after: 3 * time.Minute,
			want: `Request:       cranes-0123-1 in namespace harbour
Server:        cranes
Tool:          lift_box
Tier:          Reversible, gated by tier
Blast radius:  Bulk: 2 places in to
               to=["quay","deck"]
Requester:     crew, pod agent-0
Asked:         3m ago, expires in 57m, at 2031-02-03T05:05:06Z
Attempt:       2: the same action was asked before, and may have run
Arguments:     32 bytes
  {
    "box": "7",
    "to": [
      "quay",
      "deck"
    ]
  }

`,
		},
		"expired, and nothing of the arguments is there": {
			request: newRequest(func(r *v1alpha1.ApprovalRequest) {
				r.Spec.Arguments, r.Spec.ArgumentsSize, r.Spec.Attempt = "", 3<<20, 1
				r.Spec.BlastRadius = v1alpha1.BlastRadius{Scope: v1alpha1.BlastUnknown, Summary: "the arguments do not fit"}
				r.Spec.Requester.Pod = ""
			}), after: 2 * time.Hour,
			want: `Request:       cranes-0123-1 in namespace harbour
Server:        cranes
Tool:          lift_box
Tier:          Reversible, gated by tier
Blast radius:  Unknown: the arguments do not fit
Requester:     crew
Asked:         120m ago, expired at 2031-02-03T05:05:06Z
Arguments:     3145728 bytes, NOT SHOWN here

`,
		},
		"part of the arguments may be hidden": {
			request: newRequest(func(r *v1alpha1.ApprovalRequest) {
				r.Spec.Arguments, r.Spec.Attempt = "not JSON", 1
				r.Spec.BlastRadius = v1alpha1.BlastRadius{Scope: v1alpha1.BlastUnknown, Summary: "a value is hidden"}
			}),
			want: `Request:       cranes-0123-1 in namespace harbour
Server:        cranes
Tool:          lift_box
Tier:          Reversible, gated by tier
Blast radius:  Unknown: a value is hidden
Requester:     crew, pod agent-0
Asked:         0s ago, expires in 60m, at 2031-02-03T05:05:06Z
Arguments:     32 bytes, PERHAPS NOT ALL SHOWN here: see the blast radius
  not JSON

`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := at(&out, made.Add(tc.after)).show(tc.request); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// An agent that can move the cursor can have another action approved than the one that runs.
func TestNothingHiddenReachesTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = "x\x1b[2K\ry\u202ez\u2066\u200b\u2028\u009b\U000e0041\x7f\u3164\ufe0f\u2800\tTool:\n"
	hostile := newRequest(func(r *v1alpha1.ApprovalRequest) {
		r.Spec.Tool, r.Spec.GatedBy, r.Spec.Requester = evil, evil, v1alpha1.Requester{Username: evil, Pod: evil}
		r.Spec.BlastRadius = v1alpha1.BlastRadius{Scope: evil, Summary: evil, Evidence: []string{evil}}
		r.Spec.ServerRef.Name, r.Spec.Tier = evil, evil
		r.Spec.Arguments = "{\"a\u202eb\":\"\u200b\"}"
		r.Status.Reason = evil
		r.Status.Phase = v1alpha1.PhaseDenied
	})
	var out bytes.Buffer
	if err := at(&out, made).show(hostile); err != nil {
		t.Fatal(err)
	}
	text := out.String() + state(hostile)
	for _, r := range text {
		if r != '\n' && (!unicode.IsPrint(r) || strings.ContainsRune("\u3164\ufe0f\u2800", r)) {
			t.Errorf("%U reaches the terminal", r)
		}
	}
	var plain bytes.Buffer
	if err := at(&plain, made).show(newRequest(func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments = `{"a":"b"}` })); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(out.String(), "\n"), strings.Count(plain.String(), "\n"); got != want {
		t.Errorf("%d lines, want %d: a value began a line of its own", got, want)
	}
	if want := `x\u001b[2K\u000dy\u202ez\u2066\u200b\u2028\u009b\udb40\udc41\u007f\u3164\ufe0f\u2800\u0009Tool:\u000a`; !strings.Contains(text, "Tool:          "+want) {
		t.Errorf("what is hidden is not shown as such in\n%s", text)
	}
	if !strings.Contains(text, `"a\u202eb": "\u200b"`) {
		t.Errorf("what is hidden in the arguments is not shown as such in\n%s", text)
	}
}

// The gateway masks, and this page says that something is masked: the two must speak of the same marks.
func TestWhatTheGatewayHidesIsSaid(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`{"box":"7"}`:                      "Arguments:     11 bytes\n",
		`{"box":"7","password":"hunter2"}`: "1 PART HIDDEN: its length and digest stand in its place\n",
		`{"password":"hunter2","note":"` + strings.Repeat("a", 300) + `"}`: "2 PARTS HIDDEN: their length and digest stand in their place\n",
	} {
		masked, err := action.Mask([]byte(arguments))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		request := newRequest(func(r *v1alpha1.ApprovalRequest) {
			r.Spec.Arguments, r.Spec.ArgumentsSize = masked.Text, int64(len(arguments))
		})
		if err := at(&out, made).show(request); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said in\n%s", want, out.String())
		}
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	for phase, want := range map[v1alpha1.Phase]string{
		"":                       "r is Pending until 2031-02-03T05:05:06Z",
		v1alpha1.PhasePending:    "r is Pending until 2031-02-03T05:05:06Z",
		v1alpha1.PhaseApproved:   "r is Approved: it runs once, if the agent waits or sends the call again by 2031-02-03T05:05:06Z",
		v1alpha1.PhaseDenied:     "r is Denied: the same action is refused until 2031-02-03T05:05:06Z",
		v1alpha1.PhaseDismissed:  "r is Dismissed: the agent may ask again",
		v1alpha1.PhaseExpired:    "r is Expired since 2031-02-03T05:05:06Z: the agent has to ask again",
		v1alpha1.PhaseCancelled:  "r is Cancelled (no reason given): the agent has to ask again",
		v1alpha1.PhaseExecuting:  "r is Executing: the approval was used, and the call was sent",
		v1alpha1.PhaseSucceeded:  "r is Succeeded: the approval was used, and the call took effect",
		v1alpha1.PhaseFailed:     "r is Failed: the approval was used, and the call did not take effect or the tool reported an error",
		v1alpha1.PhaseAmbiguous:  "r is Ambiguous: the approval was used, and nobody knows whether the call took effect; settle it with kubectl tidewaiter resolve",
		v1alpha1.Phase("Parked"): `r is in the phase "Parked", which this kubectl-tidewaiter does not know`,
	} {
		got := state(newRequest(func(r *v1alpha1.ApprovalRequest) { r.Name, r.Status.Phase = "r", phase }))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}

// votes gives a request votes, in the order of their writing: a name, and what it said.
func votes(said ...string) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		for i := 0; i < len(said); i += 2 {
			r.Status.Votes = append(r.Status.Votes, v1alpha1.Vote{
				Username: said[i], Decision: v1alpha1.Decision(said[i+1]), Time: metav1.NewTime(made.Add(time.Minute)),
			})
		}
	}
}

func TestStateSaysWhoDecidedWhat(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request *v1alpha1.ApprovalRequest
		want    string
	}{
		"one of two": {
			newRequest(votes("ana", "Approved"), func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = 2 }),
			"cranes-0123-1 has 1 of 2 approvals, given by ana: it needs 1 more by 2031-02-03T05:05:06Z",
		},
		"two of two": {
			newRequest(votes("ana", "Approved", "ben", "Approved"), func(r *v1alpha1.ApprovalRequest) { r.Status.Phase, r.Status.Reason = v1alpha1.PhaseApproved, "checked" }),
			"cranes-0123-1 is Approved by ana and ben (checked): it runs once, if the agent waits or sends the call again by 2031-02-03T05:05:06Z",
		},
		"taken back by another": {
			newRequest(votes("ana", "Approved", "ben", "Denied"), func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseDenied }),
			"cranes-0123-1 is Denied by ben, after the approval by ana: the same action is refused until 2031-02-03T05:05:06Z",
		},
		"taken back by the same": {
			newRequest(votes("ana", "Approved", "ana", "Denied"), func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseDenied }),
			"cranes-0123-1 is Denied by ana: the same action is refused until 2031-02-03T05:05:06Z",
		},
		"not sent": {
			newRequest(votes("ana", "Approved"), func(r *v1alpha1.ApprovalRequest) {
				r.Status.Phase = v1alpha1.PhaseFailed
				r.Status.Execution = &v1alpha1.Execution{Outcome: v1alpha1.OutcomeNotSent, Message: "the tool changed\x1b[2K (tier)"}
			}),
			`cranes-0123-1 is Failed: the approval by ana was used, and the call was not sent: the tool changed\u001b[2K (tier)`,
		},
		"not sent, and nobody says why": {
			newRequest(votes("ana", "Approved"), func(r *v1alpha1.ApprovalRequest) {
				r.Status.Phase, r.Status.Execution = v1alpha1.PhaseFailed, &v1alpha1.Execution{Outcome: v1alpha1.OutcomeNotSent}
			}),
			"cranes-0123-1 is Failed: the approval by ana was used, and the call was not sent",
		},
		"settled": {
			newRequest(votes("ana", "Approved"), func(r *v1alpha1.ApprovalRequest) {
				r.Status.Phase = v1alpha1.PhaseFailed
				r.Status.Resolution = &v1alpha1.Resolution{Outcome: v1alpha1.ResolutionNotExecuted, By: "ben", Reason: "no box\x1b[2K moved"}
			}),
			`cranes-0123-1 is Failed: the approval by ana was used, and the call did not take effect or the tool reported an error; so said ben (no box\u001b[2K moved)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, state(tc.request)); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMayDecide(t *testing.T) {
	t.Parallel()
	const (
		yes, no, dismiss = v1alpha1.DecisionApproved, v1alpha1.DecisionDenied, v1alpha1.DecisionDismissed
	)
	for phase, want := range map[v1alpha1.Phase][]v1alpha1.Decision{
		"":                      {yes, no, dismiss},
		v1alpha1.PhasePending:   {yes, no, dismiss},
		v1alpha1.PhaseApproved:  {no},
		v1alpha1.PhaseDenied:    nil,
		v1alpha1.PhaseDismissed: nil,
		v1alpha1.PhaseExecuting: nil,
		v1alpha1.PhaseExpired:   nil,
		v1alpha1.PhaseCancelled: nil,
		v1alpha1.PhaseAmbiguous: nil,
		"Parked":                nil,
	} {
		var got []v1alpha1.Decision
		for _, decision := range []v1alpha1.Decision{yes, no, dismiss} {
			o := &decideOptions{decision: decision}
			if o.mayDecide(newRequest(func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = phase })) == nil {
				got = append(got, decision)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", phase, diff)
		}
	}
}
