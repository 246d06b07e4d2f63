// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// made is when the requests of these tests were created; they live for an hour.
var made = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

type edit = func(*v1alpha1.ApprovalRequest)

func newRequest(edits ...edit) *v1alpha1.ApprovalRequest {
	return fixture.With(v1alpha1.ApprovalRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "harbour", Name: "cranes-0123", UID: "request-uid", CreationTimestamp: metav1.NewTime(made),
		},
		Spec: v1alpha1.ApprovalRequestSpec{
			ServerRef:         v1alpha1.ServerReference{Name: "cranes", UID: "server-uid"},
			EndpointDigest:    "sha256:e",
			Tool:              "lift_box",
			ToolDigest:        "sha256:t",
			Arguments:         `{"box":"7"}`,
			ActionHash:        "sha256:a",
			BlastRadius:       v1alpha1.BlastRadius{Scope: v1alpha1.BlastSingle, Summary: `scoped to box="7"`},
			Requester:         v1alpha1.Requester{Username: "crew"},
			Tier:              v1alpha1.TierReversible,
			GatedBy:           "tier",
			RequiredApprovals: 1,
			ApproveVerbs:      []string{v1alpha1.VerbApprove},
			TTLSeconds:        3600,
			Attempt:           1,
		},
	}, edits...)
}

func inPhase(p v1alpha1.Phase) edit { return func(r *v1alpha1.ApprovalRequest) { r.Status.Phase = p } }

func decided(d v1alpha1.Decision) edit {
	return func(r *v1alpha1.ApprovalRequest) { r.Status.Decision = d }
}

func resolved(o v1alpha1.ResolutionOutcome) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		r.Status.Resolution = &v1alpha1.Resolution{Outcome: o, Reason: "looked", By: "ana", Time: metav1.NewTime(made)}
	}
}

func executing(deadline time.Duration) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		at := metav1.NewMicroTime(made.Add(deadline))
		r.Status.Execution = &v1alpha1.Execution{Claim: "c", Deadline: &at}
	}
}

func finished(after time.Duration) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		at := metav1.NewMicroTime(made.Add(after))
		r.Status.Execution = &v1alpha1.Execution{Claim: "c", FinishedAt: &at}
	}
}

func accounted(after time.Duration) edit {
	return func(r *v1alpha1.ApprovalRequest) {
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAccounted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCounted,
			LastTransitionTime: metav1.NewTime(made.Add(after)),
		})
	}
}

func TestNextStep(t *testing.T) {
	t.Parallel()
	const ttl, nano, day = time.Hour, time.Nanosecond, requestRetention
	for name, tc := range map[string]struct {
		request    *v1alpha1.ApprovalRequest
		serverGone bool
		void       v1alpha1.CancellationReason
		after      time.Duration // since it was made
		want       step
	}{
		"a new request waits for exactly its expiry": {
			request: newRequest(), after: 10 * time.Minute, want: step{wait: 50 * time.Minute},
		},
		"an approved one waits for exactly its expiry": {
			request: newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), after: time.Minute, want: step{wait: 59 * time.Minute},
		},
		"a decision without its phase is not the manager's to judge": {
			request: newRequest(decided(v1alpha1.DecisionApproved)), want: step{wait: ttl},
		},
		"nor is one that is no": {
			request: newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionDenied)), want: step{wait: ttl},
		},
		"nor does one keep a request from its expiry": {
			request: newRequest(decided(v1alpha1.DecisionApproved)), after: ttl, want: step{phase: v1alpha1.PhaseExpired, wait: day},
		},
		"a moment before its expiry it is not expired": {
			request: newRequest(inPhase(v1alpha1.PhasePending)), after: ttl - nano, want: step{wait: nano},
		},
		"at its expiry it is expired": {
			request: newRequest(inPhase(v1alpha1.PhasePending)), after: ttl, want: step{phase: v1alpha1.PhaseExpired, wait: day},
		},
		"an approval that nobody used expires": {
			request: newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), after: ttl,
			want: step{phase: v1alpha1.PhaseExpired, wait: day},
		},
		"an open request ends with its server": {
			request: newRequest(), serverGone: true,
			want: step{phase: v1alpha1.PhaseCancelled, cancellation: v1alpha1.CancelServerGone},
		},
		"an approval ends with its server": {
			request: newRequest(inPhase(v1alpha1.PhaseApproved), decided(v1alpha1.DecisionApproved)), serverGone: true,
			want: step{phase: v1alpha1.PhaseCancelled, cancellation: v1alpha1.CancelServerGone},
		},
		"an open request ends with the definition that it is about": {
			request: newRequest(), void: v1alpha1.CancelToolChanged,
			want: step{phase: v1alpha1.PhaseCancelled, cancellation: v1alpha1.CancelToolChanged},
		},
		"one that has expired is expired all the same": {
			request: newRequest(), void: v1alpha1.CancelToolChanged, after: ttl, want: step{phase: v1alpha1.PhaseExpired, wait: day},
		},
		"a call that runs does not end with its definition": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(5*time.Minute)), void: v1alpha1.CancelToolChanged, after: time.Minute,
			want: step{wait: 4 * time.Minute},
		},
		"a denial stays whatever becomes of the tool": {
			request: newRequest(inPhase(v1alpha1.PhaseDenied)), void: v1alpha1.CancelToolChanged, after: 100 * day, want: step{},
		},
		"a call that runs does not end with its server": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(5*time.Minute)), serverGone: true, after: time.Minute,
			want: step{wait: 4 * time.Minute},
		},
		"a call that runs has until its deadline, also beyond the expiry": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(ttl+time.Minute)), after: ttl, want: step{wait: time.Minute},
		},
		"at its deadline it is Ambiguous": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(5*time.Minute)), after: 5 * time.Minute,
			want: step{phase: v1alpha1.PhaseAmbiguous},
		},
		"without a deadline it has until the expiry": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting)), after: ttl, want: step{phase: v1alpha1.PhaseAmbiguous},
		},
		"a deadline that no gateway of ours sets ends with the last that one could set": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(9*365*day)), after: ttl, want: step{wait: maxCallTimeout},
		},
		"what a gateway writes keeps nothing executing for ever": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(9*365*day)), after: ttl + maxCallTimeout,
			want: step{phase: v1alpha1.PhaseAmbiguous},
		},
		"nor a request that has ended": {
			request: newRequest(inPhase(v1alpha1.PhaseSucceeded), finished(9*365*day), accounted(3*ttl)), after: 3*ttl + day,
			want: step{remove: true},
		},
		"Ambiguous stays for ever without a resolution": {
			request: newRequest(inPhase(v1alpha1.PhaseAmbiguous), executing(time.Minute), accounted(time.Minute)), after: 1000 * day, want: step{},
		},
		"Ambiguous stays also when its server is gone": {
			request: newRequest(inPhase(v1alpha1.PhaseAmbiguous)), serverGone: true, after: 1000 * day, want: step{},
		},
		"a resolution without its phase is not the manager's to judge": {
			request: newRequest(inPhase(v1alpha1.PhaseAmbiguous), resolved(v1alpha1.ResolutionCommitted)), after: 3 * day, want: step{},
		},
		"a resolution of what is not Ambiguous does nothing": {
			request: newRequest(inPhase(v1alpha1.PhaseExecuting), executing(time.Minute), resolved(v1alpha1.ResolutionCommitted)),
			want:    step{wait: time.Minute},
		},
		"expired, kept": {
			request: newRequest(inPhase(v1alpha1.PhaseExpired)), after: ttl + day - nano, want: step{wait: nano},
		},
		"expired, removed": {
			request: newRequest(inPhase(v1alpha1.PhaseExpired)), after: ttl + day, want: step{remove: true},
		},
		"cancelled and dismissed need no account": {
			request: newRequest(inPhase(v1alpha1.PhaseCancelled)), after: ttl + day, want: step{remove: true},
		},
		"dismissed, removed": {
			request: newRequest(inPhase(v1alpha1.PhaseDismissed)), after: ttl + day, want: step{remove: true},
		},
		"denied, kept for a day after its expiry": {
			request: newRequest(inPhase(v1alpha1.PhaseDenied), accounted(time.Minute)), after: day, want: step{wait: ttl},
		},
		"denied and counted, removed": {
			request: newRequest(inPhase(v1alpha1.PhaseDenied), accounted(time.Minute)), after: ttl + day, want: step{remove: true},
		},
		"denied and not counted, kept": {
			request: newRequest(inPhase(v1alpha1.PhaseDenied)), after: 100 * day, want: step{},
		},
		"succeeded and not counted, kept": {
			request: newRequest(inPhase(v1alpha1.PhaseSucceeded), finished(time.Minute)), after: 100 * day, want: step{},
		},
		"failed and not counted, kept": {
			request: newRequest(inPhase(v1alpha1.PhaseFailed), finished(time.Minute)), after: 100 * day, want: step{},
		},
		"counted says False, kept": {
			request: newRequest(inPhase(v1alpha1.PhaseFailed), finished(time.Minute), func(r *v1alpha1.ApprovalRequest) {
				meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccounted, Status: metav1.ConditionFalse})
			}), after: 100 * day, want: step{},
		},
		"not counted, but the server is gone, removed": {
			request: newRequest(inPhase(v1alpha1.PhaseSucceeded), finished(time.Minute)), serverGone: true,
			after: time.Minute + day, want: step{remove: true},
		},
		"succeeded and counted, kept for a day after its end": {
			request: newRequest(inPhase(v1alpha1.PhaseSucceeded), finished(2*ttl), accounted(2*ttl)), after: 2*ttl + day - nano, want: step{wait: nano},
		},
		"succeeded and counted, removed": {
			request: newRequest(inPhase(v1alpha1.PhaseSucceeded), finished(2*ttl), accounted(2*ttl)), after: 2*ttl + day, want: step{remove: true},
		},
		"settled by a person long after its end, kept for a day after it was counted": {
			request: newRequest(inPhase(v1alpha1.PhaseSucceeded), executing(time.Minute), resolved(v1alpha1.ResolutionCommitted), accounted(9*day)),
			after:   10*day - nano, want: step{wait: nano},
		},
		"settled by a person, the server gone, removed": {
			request:    newRequest(inPhase(v1alpha1.PhaseFailed), executing(time.Minute), resolved(v1alpha1.ResolutionNotExecuted)),
			serverGone: true, after: time.Minute + day, want: step{remove: true},
		},
		"a phase of a later version is left alone": {
			request: newRequest(inPhase("Paused")), after: 100 * day, want: step{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			void := tc.void
			if tc.serverGone {
				void = v1alpha1.CancelServerGone
			}
			got := nextStep(tc.request, void, made.Add(tc.after))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(step{})); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
		})
	}
}
