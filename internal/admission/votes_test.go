// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

func TestADecisionBecomesASignedVote(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	answer, after := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
	if !answer.Allowed {
		t.Fatal(answer.Result.Message)
	}
	given := after.Status.Votes[0]
	if err := p.keys.Verify(p.live, given); err != nil || given.Username != "ana" || given.UID != "id of ana" || given.Reason != "because" {
		t.Errorf("the vote is %+v (%v)", given, err)
	}
	if after.Status.Phase != v1alpha1.PhaseApproved || after.Status.Decision != v1alpha1.DecisionApproved || after.Status.Reason != "because" {
		t.Errorf("the request is %+v, want it Approved", after.Status)
	}
	if answer := p.check(t, "ana", after); !answer.Allowed {
		t.Error(answer.Result.Message)
	}
	want := []authorizationv1.SubjectAccessReviewSpec{{
		User: "ana", UID: "id of ana", Groups: []string{"finance"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"all"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "team-a", Verb: "approve", Group: "tidewaiter.dev",
			Resource: "governedservers", Subresource: "authority", Name: "billing"},
	}}
	if diff := cmp.Diff(want, p.asked); diff != "" {
		t.Errorf("what was asked about the writer (-want +got):\n%s", diff)
	}
}

// Whatever cannot be read or asked leaves no vote and no signature.
func TestWhatFailsRefuses(t *testing.T) {
	t.Parallel()
	broken := errors.New("the API server is away")
	for name, edit := range map[string]func(*polling){
		"the objects cannot be read":      func(p *polling) { p.read = broken },
		"nobody says who holds the verbs": func(p *polling) { p.review = broken },
		"the voting key is not there":     func(p *polling) { p.sign = broken },
		"the published keys are not":      func(p *polling) { p.publish = broken },
	} {
		p := newPolling(t, 1)
		_, honest := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
		edit(p)
		answer, _ := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
		if answer.Allowed || answer.Patch != nil || answer.Result.Code != http.StatusInternalServerError || !strings.Contains(answer.Result.Message, "try again") {
			t.Errorf("%s: %+v, want an error that says to try again", name, answer)
		}
		if p.publish != nil {
			if answer := p.check(t, "ana", honest); answer.Allowed || answer.Result.Code != http.StatusInternalServerError {
				t.Errorf("%s: the check answers %+v", name, answer)
			}
		}
	}
}

func TestTheStoredRequestMustBeTheOneThatIsWritten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.ApprovalRequest)
		want int32
	}{
		"it is":                     {func(*v1alpha1.ApprovalRequest) {}, http.StatusOK},
		"only its version moved on": {func(r *v1alpha1.ApprovalRequest) { r.ResourceVersion = "8" }, http.StatusConflict},
		"it moved on":               {func(r *v1alpha1.ApprovalRequest) { r.ResourceVersion, r.Status.Phase = "8", "Cancelled" }, http.StatusConflict},
		"it is another object":      {func(r *v1alpha1.ApprovalRequest) { r.UID, r.ResourceVersion = "r-2", "8" }, http.StatusForbidden},
		"it asks something else":    {func(r *v1alpha1.ApprovalRequest) { r.Spec.Arguments, r.ResourceVersion = "{}", "8" }, http.StatusForbidden},
		"its status is another":     {func(r *v1alpha1.ApprovalRequest) { r.Status.Reason = "x" }, http.StatusForbidden},
	} {
		p := newPolling(t, 1)
		written := p.live.DeepCopy()
		tc.edit(p.live)
		sent := written.DeepCopy()
		sent.Status.Decision = v1alpha1.DecisionDenied
		if answer := p.hooks.mutate(t.Context(), reviewOf(t, "ana", written, sent)); answer.Result.Code != tc.want || answer.Allowed != (tc.want == http.StatusOK) {
			t.Errorf("%s: %d %s, want %d", name, answer.Result.Code, answer.Result.Message, tc.want)
		}
	}
	p := newPolling(t, 1)
	written := p.live
	p.live = nil
	sent := written.DeepCopy()
	sent.Status.Decision = v1alpha1.DecisionDenied
	if answer := p.hooks.mutate(t.Context(), reviewOf(t, "ana", written, sent)); answer.Allowed || len(p.asked) != 0 {
		t.Errorf("it is gone: %+v with %d reviews, want a refusal without any", answer, len(p.asked))
	}
}

// A vote whose key was removed counts for nothing, here as at the gateways, and its person may vote again.
func TestAVoidVoteDoesNotCountTowardsTheQuorum(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 2)
	_, p.live = p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
	p.keys = vote.Keys{}
	other := ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", ed25519.SeedSize)))
	next := vote.Key{ID: vote.KeyID(other.Public().(ed25519.PublicKey)), Private: other}
	p.keys[next.ID] = vote.Published{Public: other.Public().(ed25519.PublicKey)}
	p.hooks.Key = func(context.Context) (vote.Key, error) { return next, nil }

	answer, after := p.ask(t, "ben", false, decide(v1alpha1.DecisionApproved))
	if diff := cmp.Diff([]string{"1 of 2 approvals; 1 more needed"}, answer.Warnings); diff != "" || after.Status.Phase != v1alpha1.PhasePending {
		t.Fatalf("after a void and a valid yes the request is %s; warnings (-want +got):\n%s", after.Status.Phase, diff)
	}
	p.live = after
	answer, after = p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
	if !answer.Allowed || after.Status.Phase != v1alpha1.PhaseApproved {
		t.Fatalf("the first person again: %+v", answer)
	}
	if answer := p.check(t, "ana", after); !answer.Allowed {
		t.Error(answer.Result.Message)
	}
}

// The clock of the API server and ours are two: a vote is never older than its request.
func TestAVoteIsNotOlderThanItsRequest(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	p.clock.SetTime(born.Add(-5 * time.Second))
	_, after := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
	if err := p.keys.Verify(p.live, after.Status.Votes[0]); err != nil {
		t.Error(err)
	}
}

// A key comes into use while a vote is being judged.
func TestAVoteIsNotOlderThanTheKeyThatSignsIt(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	p.hooks.Key = func(context.Context) (vote.Key, error) {
		now := p.clock.Now().Add(3 * time.Second)
		p.clock.SetTime(now)
		p.keys = vote.Keys{key.ID: {Public: p.keys[key.ID].Public, NotBefore: now.Truncate(time.Second)}}
		return key, nil
	}
	_, after := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved))
	if after == nil {
		t.Fatal("refused")
	}
	if answer := p.check(t, "ana", after); !answer.Allowed {
		t.Error(answer.Result.Message)
	}
}

func TestExpiryIsTheInstantOfExpiry(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	for at, want := range map[time.Duration]bool{-time.Nanosecond: true, 0: false, time.Hour: false} {
		p.clock.SetTime(p.live.ExpiresAt().Add(at))
		if answer, _ := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved)); answer.Allowed != want {
			t.Errorf("at expiry%+v: allowed %t, want %t", at, answer.Allowed, want)
		}
	}
}

func TestARequestWithoutVerbsIsDecidedByNobody(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	p.live.Spec.ApproveVerbs = nil
	if answer, _ := p.ask(t, "ana", false, decide(v1alpha1.DecisionApproved)); answer.Allowed {
		t.Error("a request that names no verb was decided")
	}
}

func TestWhatIsNotForTheWebhookIsAnsweredWithoutAVote(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	for name, tc := range map[string]struct {
		edit func(*admission.Request)
		want int32
	}{
		"another resource":  {func(r *admission.Request) { r.Resource.Resource = "governedservers" }, http.StatusBadRequest},
		"another group":     {func(r *admission.Request) { r.Resource.Group = "example.com" }, http.StatusBadRequest},
		"another version":   {func(r *admission.Request) { r.Resource.Version = "v1" }, http.StatusBadRequest},
		"the main resource": {func(r *admission.Request) { r.SubResource = "" }, http.StatusBadRequest},
		"a creation":        {func(r *admission.Request) { r.Operation = admissionv1.Create }, http.StatusBadRequest},
		"nobody":            {func(r *admission.Request) { r.UserInfo.Username = "" }, http.StatusBadRequest},
		"no stored object":  {func(r *admission.Request) { r.OldObject.Raw = nil }, http.StatusBadRequest},
		"no object":         {func(r *admission.Request) { r.Object.Raw = nil }, http.StatusBadRequest},
		"a million votes": {func(r *admission.Request) {
			r.Object.Raw = []byte(`{"status":{"decision":"Approved","votes":[` + strings.Repeat(`{},`, 1_000_000) + `{}]}}`)
		}, http.StatusBadRequest},
		"a name in capitals": {func(r *admission.Request) {
			r.Object.Raw = []byte(strings.ReplaceAll(string(r.Object.Raw), "decision", "Decision"))
		}, http.StatusForbidden},
		"nothing has changed": {func(r *admission.Request) { r.Object = r.OldObject }, http.StatusOK},
	} {
		sent := p.live.DeepCopy()
		sent.Status.Decision, sent.Status.Reason = v1alpha1.DecisionApproved, "because"
		req := reviewOf(t, "ana", p.live, sent)
		tc.edit(&req)
		for half, answer := range map[string]admission.Response{"mutate": p.hooks.mutate(t.Context(), req), "validate": p.hooks.validate(t.Context(), req)} {
			if answer.Result.Code != tc.want || answer.Patch != nil {
				t.Errorf("%s, %s: %d %s, want %d", name, half, answer.Result.Code, answer.Result.Message, tc.want)
			}
		}
	}
}

func TestMetricsCountWhatBecameOfVotes(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 2)
	vote := func(who string, at time.Duration, dryRun bool, decision v1alpha1.Decision) {
		p.clock.SetTime(born.Add(at))
		if _, after := p.ask(t, who, dryRun, decide(decision)); after != nil && !dryRun {
			p.check(t, who, after)
			p.live = after
		}
	}
	vote("ana", time.Second, true, v1alpha1.DecisionApproved)
	vote("ana", time.Second, false, v1alpha1.DecisionApproved)
	vote("ana", time.Second, false, v1alpha1.DecisionApproved)
	vote("ben", 2*time.Second, false, v1alpha1.DecisionApproved)
	vote("ben", 40*time.Second, false, v1alpha1.DecisionDenied)
	want := `
# HELP tidewaiter_votes_total Votes by outcome: Approved, Denied, Dismissed, or Refused with the reason; and resolutions: Committed, NotExecuted.
# TYPE tidewaiter_votes_total counter
tidewaiter_votes_total{namespace="team-a",outcome="Approved",reason="",server="billing"} 2
tidewaiter_votes_total{namespace="team-a",outcome="Denied",reason="",server="billing"} 1
tidewaiter_votes_total{namespace="team-a",outcome="Refused",reason="SecondYes",server="billing"} 1
`
	if err := testutil.GatherAndCompare(p.metrics, strings.NewReader(want), "tidewaiter_votes_total"); err != nil {
		t.Error(err)
	}
	// One of the two decisions came within three seconds: what to alert on.
	took := histogram(t, p.metrics, "tidewaiter_decision_duration_seconds")
	if took.GetSampleCount() != 2 || took.GetBucket()[1].GetUpperBound() != 3 || took.GetBucket()[1].GetCumulativeCount() != 1 {
		t.Errorf("time to a decision: %v", took)
	}
}

// histogram returns the only series of a histogram.
func histogram(t *testing.T, from prometheus.Gatherer, name string) *dto.Histogram {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name && len(family.GetMetric()) == 1 {
			return family.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatalf("no single series %s", name)
	return nil
}

func TestTheHintIsForWhoLosesWords(t *testing.T) {
	t.Parallel()
	p := newPolling(t, 1)
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.ApprovalRequest)
		want bool
	}{
		"a label":                {func(r *v1alpha1.ApprovalRequest) { r.Labels = map[string]string{"a": "b"} }, false},
		"no status":              {func(r *v1alpha1.ApprovalRequest) { r.Status = v1alpha1.ApprovalRequestStatus{} }, false},
		"a decision":             {func(r *v1alpha1.ApprovalRequest) { r.Status.Decision = "Approved" }, true},
		"a phase":                {func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = "Denied" }, true},
		"a resolution":           {func(r *v1alpha1.ApprovalRequest) { r.Status.Resolution = &v1alpha1.Resolution{} }, true},
		"a phase nobody says":    {func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = "Expired" }, false},
		"an object without spec": {func(r *v1alpha1.ApprovalRequest) { r.Spec = v1alpha1.ApprovalRequestSpec{} }, false},
		"a reason":               {func(r *v1alpha1.ApprovalRequest) { r.Status.Reason = "why" }, true},
	} {
		sent := p.live.DeepCopy()
		tc.edit(sent)
		req := reviewOf(t, "ana", p.live, sent)
		req.SubResource = ""
		if answer := hint(t.Context(), req); !answer.Allowed || (len(answer.Warnings) > 0) != tc.want {
			t.Errorf("%s: %+v, want it allowed, with a warning: %t", name, answer, tc.want)
		}
		req.Object.Raw = []byte("{")
		if answer := hint(t.Context(), req); !answer.Allowed || len(answer.Warnings) > 0 {
			t.Errorf("%s, broken: %+v, want it allowed", name, answer)
		}
	}
}
