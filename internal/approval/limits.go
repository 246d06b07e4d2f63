// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"slices"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// rateWindow is what maxPerHour counts in.
	rateWindow = time.Hour
	// firstBackOff is the wait after one denial; it doubles with each further one, up to maxBackOff.
	firstBackOff = time.Minute
	maxBackOff   = time.Hour
)

// Limit says why a requester may not open another request for a tool now. The zero value says that it may.
type Limit struct {
	// Denials in a row keep it back; 0 says that the number of requests within an hour does.
	Denials int
	// Until is the first instant at which it may, if nothing else happens.
	Until time.Time
}

// Limited tells whether a requester may open another request for a tool: known are all its requests for that tool, in
// any order, opening is how many more are being opened right now, and perHour is the limit. It is pure. One who has
// opened and been denied nothing is never limited.
func Limited(known []*v1alpha1.ApprovalRequest, opening int, perHour int32, now time.Time) (limit Limit, limited bool) {
	if denials, until := backOff(known, now); now.Before(until) {
		return Limit{Denials: denials, Until: until}, true
	}
	allowed := int(max(perHour, 1))
	var opened []time.Time
	for _, r := range known {
		if at := r.CreationTimestamp.Time; now.Before(at.Add(rateWindow)) {
			opened = append(opened, at)
		}
	}
	for range opening {
		opened = append(opened, now)
	}
	if len(opened) < allowed {
		return Limit{}, false
	}
	// A place is free once all but allowed-1 of them are out of the window.
	slices.SortFunc(opened, time.Time.Compare)
	return Limit{Until: opened[len(opened)-allowed].Add(rateWindow)}, true
}

// backOff returns how many requests were denied since one was last approved, and until when the requester waits for it.
func backOff(known []*v1alpha1.ApprovalRequest, now time.Time) (denials int, until time.Time) {
	var approved, denied time.Time
	for _, r := range known {
		if at := approvedAt(r); at.After(approved) {
			approved = at
		}
	}
	for _, r := range known {
		at := deniedAt(r, now)
		if at.IsZero() || at.Before(approved) {
			continue
		}
		denials++
		if at.After(denied) {
			denied = at
		}
	}
	if denials == 0 {
		return 0, time.Time{}
	}
	wait := maxBackOff
	if doublings := denials - 1; doublings < 6 { // the sixth would pass an hour
		wait = firstBackOff << doublings
	}
	return denials, denied.Add(wait)
}

// approvedAt returns when a request got the approval that it was used on; zero if it was not used. A yes that never came
// to anything ends no row of denials.
func approvedAt(r *v1alpha1.ApprovalRequest) time.Time {
	switch r.CurrentPhase() {
	case v1alpha1.PhaseExecuting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseAmbiguous:
		return r.LastVote(v1alpha1.DecisionApproved)
	default:
		return time.Time{}
	}
}

// deniedAt returns when a request was denied; zero if it was not. Votes are taken as they stand, so they are held to the
// life of the request: none of them can keep a requester back for longer than a denial that is given now.
func deniedAt(r *v1alpha1.ApprovalRequest, now time.Time) time.Time {
	at := r.LastVote(v1alpha1.DecisionDenied)
	if at.IsZero() && r.CurrentPhase() != v1alpha1.PhaseDenied {
		return time.Time{}
	}
	if at.Before(r.CreationTimestamp.Time) {
		at = r.CreationTimestamp.Time
	}
	if at.After(now) {
		at = now
	}
	return at
}
