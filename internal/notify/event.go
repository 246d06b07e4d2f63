// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Event is what happened to a request: Opened, Expiring, or the phase that it entered.
type Event string

const (
	// EventOpened: the request was made and waits for a person.
	EventOpened Event = "Opened"
	// EventExpiring: half of the request's life is over, and it still waits.
	EventExpiring Event = "Expiring"
)

// occurrence is one event of a request.
type occurrence struct {
	event Event
	// at is when it happened; zero where the object does not tell.
	at time.Time
}

// happened returns all that has happened to a request, in order, as far as the object shows it. That a request went
// through Approved shows later too; that it was close to its expiry does not.
func happened(request *v1alpha1.ApprovalRequest, now time.Time) []occurrence {
	list := []occurrence{{EventOpened, request.CreationTimestamp.Time}}
	approved := occurrence{Event(v1alpha1.PhaseApproved), request.LastVote(v1alpha1.DecisionApproved)}
	switch phase := request.CurrentPhase(); phase {
	case v1alpha1.PhasePending:
		if half := halfLife(request); !now.Before(half) && now.Before(request.ExpiresAt()) {
			list = append(list, occurrence{EventExpiring, half})
		}
	case v1alpha1.PhaseApproved, v1alpha1.PhaseExecuting:
		list = append(list, approved)
	case v1alpha1.PhaseDenied:
		list = append(list, occurrence{Event(phase), request.LastVote(v1alpha1.DecisionDenied)})
	case v1alpha1.PhaseDismissed:
		list = append(list, occurrence{Event(phase), request.LastVote(v1alpha1.DecisionDismissed)})
	case v1alpha1.PhaseExpired:
		list = append(list, occurrence{Event(phase), request.ExpiresAt()})
	case v1alpha1.PhaseCancelled:
		list = append(list, occurrence{Event(phase), time.Time{}})
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseAmbiguous:
		list = append(list, approved, occurrence{Event(phase), finished(request)})
	}
	return list
}

// halfLife is when a request that still waits is about to expire.
func halfLife(request *v1alpha1.ApprovalRequest) time.Time {
	return request.CreationTimestamp.Add(time.Duration(request.Spec.TTLSeconds) * time.Second / 2)
}

// finished returns when the one call of a request ended, or a person said how it did; zero where nothing tells.
func finished(request *v1alpha1.ApprovalRequest) time.Time {
	resolution, execution := request.Status.Resolution, request.Status.Execution
	switch {
	case resolution != nil:
		return resolution.Time.Time
	case execution == nil:
		return time.Time{}
	case execution.FinishedAt != nil:
		return execution.FinishedAt.Time
	case execution.Deadline != nil:
		return execution.Deadline.Time
	default:
		return time.Time{}
	}
}

// notBefore is the earliest time at which something can have happened to a request.
func (o occurrence) notBefore(request *v1alpha1.ApprovalRequest) time.Time {
	if o.at.IsZero() {
		return request.CreationTimestamp.Time
	}
	return o.at
}
