// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// newBriefing returns what is known of a request of a tool with two clean approvals of three, for ana, who may decide.
func newBriefing(edits ...func(*briefing)) briefing {
	request := newRequest(func(r *v1alpha1.ApprovalRequest) {
		r.Spec.ToolDigest, r.Spec.EndpointDigest, r.Spec.Attempt = fixture.Digest("a"), fixture.Digest("e"), 1
	})
	earlier := newRequest(votes("ben", "Approved"), func(r *v1alpha1.ApprovalRequest) {
		r.Name, r.UID, r.CreationTimestamp = "cranes-0aaa-1", "before", metav1.NewTime(made.Add(-25*time.Hour))
		r.Spec.ToolDigest, r.Spec.EndpointDigest, r.Spec.Arguments = fixture.Digest("a"), fixture.Digest("e"), `{"box":"6","to":["quay"],"fast":true}`
		r.Status.Phase = v1alpha1.PhaseSucceeded
	})
	server := fixture.GovernedServer("harbour", "cranes")
	server.UID = "s"
	server.Spec.Autonomy.CleanApprovals = 3
	server.Status = v1alpha1.GovernedServerStatus{
		EndpointDigest: fixture.Digest("e"),
		Tools: []v1alpha1.ToolStatus{{
			Name: "lift_box", Digest: fixture.Digest("a"), ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible,
			Source: v1alpha1.TierSourceName, Reason: `the verb "lift" has an effect`,
		}},
		Records: []v1alpha1.ToolRecord{{
			Tool: "lift_box", Digest: fixture.Digest("a"), EndpointDigest: fixture.Digest("e"), Approved: 2, Failed: 1, Autonomy: v1alpha1.AutonomyNone,
		}},
	}
	b := briefing{
		request: request, earlier: earlier, server: &server, now: made.Add(3 * time.Minute), me: authenticationv1.UserInfo{Username: "ana"},
		answers: allowed(true, voteAttributes("harbour"), authorityAttributes(client.ObjectKey{Namespace: "harbour", Name: "cranes"}, "approve")),
	}
	for _, edit := range edits {
		edit(&b)
	}
	return b
}

// allowed answers each question alike.
func allowed(yes bool, questions ...authorizationv1.ResourceAttributes) []authorizationv1.SelfSubjectAccessReview {
	var answers []authorizationv1.SelfSubjectAccessReview
	for i := range questions {
		answers = append(answers, authorizationv1.SelfSubjectAccessReview{
			Spec:   authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &questions[i]},
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: yes},
		})
	}
	return answers
}

// pledge promotes the tool in a policy.
func pledge(b *briefing) {
	b.policies.objects = []v1alpha1.ToolPolicy{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "pledge"},
		Spec: v1alpha1.ToolPolicySpec{
			Targets:  []string{"cranes"},
			Autonomy: []v1alpha1.AutonomyRule{{Tool: "lift_box", Digest: fixture.Digest("a"), Mode: v1alpha1.ModeUnattended}},
		},
	}}
}

func (b briefing) text(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	p := newPage(false)
	b.write(p)
	if err := p.print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestABriefingTellsAllThatADecisionNeeds(t *testing.T) {
	t.Parallel()
	want := `Request:       cranes-0123-1 in namespace harbour
Server:        cranes
Tool:          lift_box
Tier:          Reversible, gated by tier
Blast radius:  Bulk: 2 places in to
               to=["quay","deck"]
Requester:     crew, for olga, pod agent-0
Why:           the verb "lift" has an effect (Name)
Asked:         3m ago, expires in 57m, at 2031-02-03T05:05:06Z
Approvals:     1 of 2 by ben
State:         cranes-0123-1 has 1 of 2 approvals, given by ben: it needs 1 more by 2031-02-03T05:05:06Z
Votes:         ben said Approved 2m ago
Takes:         approve on governedservers/cranes
You:           ana; you may decide
Record:        2 approved and succeeded, 1 failed, 0 denied, 0 of unknown outcome; autonomy None
A yes:         the call runs once, if the agent waits or sends it again by 2031-02-03T05:05:06Z
               if it succeeds, this is the third clean approval of 3: ToolPolicy/pledge spec.autonomy[0] then lets lift_box run unattended, and nobody is asked any more
A no:          deny refuses the same action until 2031-02-03T05:05:06Z, and takes autonomy from lift_box for good
               dismiss refuses it this time: the agent may ask again, and the tool keeps its record
Last time:     cranes-0aaa-1, 25h ago, approved by ben, Succeeded
               somebody else asked then: crew
Difference:    ~ other, + new, - gone
  ~ /box: "6" -> "7"
  + /to/1: "deck"
  - /fast: true
Arguments:     32 bytes
  {
    "box": "7",
    "to": [
      "quay",
      "deck"
    ]
  }
Decide:        kubectl approve cranes-0123-1 -n harbour --reason TEXT
               kubectl deny cranes-0123-1 -n harbour --reason TEXT

`
	b := newBriefing(pledge, func(b *briefing) {
		votes("ben", "Approved")(b.request)
		b.request.Spec.RequiredApprovals, b.request.Spec.Requester.ActsFor = 2, "olga"
	})
	if diff := cmp.Diff(want, b.text(t)); diff != "" {
		t.Errorf("briefing (-want +got):\n%s", diff)
	}
}

func TestABriefingSaysWhatAYesSetsOff(t *testing.T) {
	t.Parallel()
	record := func(edit func(*v1alpha1.ToolRecord)) func(*briefing) {
		return func(b *briefing) { edit(&b.server.Status.Records[0]) }
	}
	for name, tc := range map[string]struct {
		edits []func(*briefing)
		want  string
	}{
		"the last approval that a promotion waits for": {
			[]func(*briefing){pledge}, "this is the third clean approval of 3: ToolPolicy/pledge spec.autonomy[0] then lets lift_box run unattended",
		},
		"the last one, without a promotion": {nil, "this is the third clean approval of 3: the tool is Eligible then"},
		"one of several": {
			[]func(*briefing){pledge, record(func(r *v1alpha1.ToolRecord) { r.Approved = 0 })},
			"this is the first clean approval of the 3 that the tool needs before it can be promoted",
		},
		"a record of another definition": {
			[]func(*briefing){pledge, record(func(r *v1alpha1.ToolRecord) { r.Digest = fixture.Digest("b") })},
			"this is the first clean approval of the 3 that the tool needs before it can be promoted",
		},
		"no record": {[]func(*briefing){func(b *briefing) { b.server.Status.Records = nil }}, "this is the first clean approval of the 3"},
		"a tool that is Eligible already": {
			[]func(*briefing){record(func(r *v1alpha1.ToolRecord) { r.Approved = 5 })}, "the tool is Eligible already, with 5 clean approvals",
		},
		"a denial before": {
			[]func(*briefing){pledge, record(func(r *v1alpha1.ToolRecord) { r.Denied = 1 })}, "it earns nothing: a person denied a call of this tool",
		},
		"an unknown outcome before": {
			[]func(*briefing){pledge, record(func(r *v1alpha1.ToolRecord) { r.Ambiguous = 1 })}, "it earns nothing until the calls of unknown outcome are settled",
		},
		"an Irreversible tool": {
			[]func(*briefing){pledge, func(b *briefing) { b.server.Status.Tools[0].ClassifiedTier = v1alpha1.TierIrreversible }},
			"it earns nothing: an Irreversible tool never runs without a person",
		},
		"the first of two approvals": {
			[]func(*briefing){func(b *briefing) { b.request.Spec.RequiredApprovals = 2 }}, "yours is approval 1 of 2; the call does not run before all are given",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := newBriefing(tc.edits...).text(t); !strings.Contains(text, tc.want) {
				t.Errorf("%q is not said in\n%s", tc.want, text)
			}
		})
	}
}

func TestABriefingSaysWhatStandsAgainstADecision(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*briefing)
		want string
	}{
		"the person lacks the verb": {
			func(b *briefing) { b.answers[1].Status.Allowed = false }, "You:           ana; you may not decide: you lack approve\n",
		},
		"the person lacks everything": {
			func(b *briefing) { b.answers[0].Status.Allowed, b.answers[1].Status.Allowed = false, false },
			"you lack patch on approvalrequests/status and approve\n",
		},
		"the person asks": {func(b *briefing) { b.me.Username = "crew" }, "crew; you may not decide: nobody decides what they ask for\n"},
		"it is asked for the person": {
			func(b *briefing) { b.request.Spec.Requester.ActsFor = "ana" }, "ana; you may not decide: nobody decides what they ask for\n",
		},
		"the tool has changed": {
			func(b *briefing) { b.server.Status.Tools[0].Digest = fixture.Digest("b") }, "the tool's definition has changed since this was asked",
		},
		"the tool is gone":         {func(b *briefing) { b.server.Status.Tools = nil }, "the server does not list this tool any more"},
		"the server was made anew": {func(b *briefing) { b.server.UID = "other" }, "the server was made anew since this was asked"},
		"another definition then":  {func(b *briefing) { b.earlier.Spec.ToolDigest = "x" }, "the tool had another definition then"},
		"no earlier call":          {func(b *briefing) { b.earlier = nil }, "no other approved call of this tool is on record here"},
		"the same as then": {
			func(b *briefing) { b.earlier.Spec.Arguments = b.request.Spec.Arguments }, "none: the arguments are the same, as far as they are shown",
		},
		"what could not be read": {
			func(b *briefing) { b.server, b.unread = nil, []string{"the server (forbidden)"} }, "Not read:      the server (forbidden)\n",
		},
		"it ran": {
			func(b *briefing) { b.request.Status.Phase = v1alpha1.PhaseSucceeded }, "You:           ana; nothing is left to decide\n",
		},
		"it runs now": {
			func(b *briefing) { b.request.Status.Phase = v1alpha1.PhaseExecuting }, "You:           ana; nothing is left to decide\n",
		},
		"it has expired, and the person lacks the verb": {
			func(b *briefing) {
				b.request.Status.Phase, b.answers[1].Status.Allowed = v1alpha1.PhaseExpired, false
			}, "You:           ana; nothing is left to decide\n",
		},
		"the person has approved": {
			func(b *briefing) {
				b.request.Spec.RequiredApprovals = 2
				votes("ana", "Approved")(b.request)
			}, "You:           ana; you have approved; somebody else must, too; you may still deny\n",
		},
		"somebody else has approved": {
			func(b *briefing) {
				b.request.Spec.RequiredApprovals = 2
				votes("ben", "Approved")(b.request)
			}, "You:           ana; you may decide\n",
		},
		"it is approved": {
			func(b *briefing) { b.request.Status.Phase = v1alpha1.PhaseApproved }, "You:           ana; you may take the approval back\n",
		},
		"nobody knows whether it ran, and the person asked": {
			func(b *briefing) { b.request.Status.Phase, b.me.Username = v1alpha1.PhaseAmbiguous, "crew" }, "crew; you may not settle it: nobody decides what they ask for\n",
		},
		"nobody knows whether it ran, and the person may say": {
			func(b *briefing) { b.request.Status.Phase = v1alpha1.PhaseAmbiguous }, "You:           ana; you may settle it\n",
		},
		"nobody knows whether it ran": {
			func(b *briefing) { b.request.Status.Phase = v1alpha1.PhaseAmbiguous },
			"Settle it:     kubectl tidewaiter resolve cranes-0123-1 -n harbour (--committed | --not-executed) --reason TEXT\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := newBriefing(tc.edit).text(t); !strings.Contains(text, tc.want) {
				t.Errorf("%q is not said in\n%s", tc.want, text)
			}
		})
	}
}

func TestTheLastApprovedCallIsOfTheSameToolAndServer(t *testing.T) {
	t.Parallel()
	asked := newRequest()
	at := func(name string, age time.Duration, edits ...edit) v1alpha1.ApprovalRequest {
		r := newRequest(append([]edit{func(r *v1alpha1.ApprovalRequest) {
			r.Name, r.UID, r.CreationTimestamp = name, asked.UID+"-"+"x", metav1.NewTime(made.Add(-age))
			r.Status.Phase = v1alpha1.PhaseSucceeded
		}}, edits...)...)
		return *r
	}
	all := []v1alpha1.ApprovalRequest{
		at("older", time.Hour), at("last", time.Minute), *asked,
		at("denied", 0, func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = v1alpha1.PhaseDenied }),
		at("another tool", 0, func(r *v1alpha1.ApprovalRequest) { r.Spec.Tool = "drop_box" }),
		at("another server", 0, func(r *v1alpha1.ApprovalRequest) { r.Spec.ServerRef.UID = "t" }),
	}
	if got := lastApproved(asked, all); got == nil || got.Name != "last" {
		t.Errorf("got %+v", got)
	}
	if got := lastApproved(asked, all[2:]); got != nil {
		t.Errorf("got %s, want none", got.Name)
	}
}

func TestOrdinal(t *testing.T) {
	t.Parallel()
	for n, want := range map[int32]string{1: "first", 3: "third", 10: "tenth", 11: "11th", 12: "12th", 21: "21st", 22: "22nd", 103: "103rd", 111: "111th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
