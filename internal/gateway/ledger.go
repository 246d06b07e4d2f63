// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

// unseenFor is how long what was written of a request here counts without having come back by the watch.
const unseenFor = time.Minute

// opening is a request that is being created here, or was and may not have come back by the watch yet: it counts for the
// limits of its caller, so that many calls at once cannot all pass below them.
type opening struct {
	caller  snapshot.Caller
	tool    string
	action  string                    // its hash
	attempt int32                     // which request for the action it is, or a later one
	created *v1alpha1.ApprovalRequest // nil while it is being created
}

// settledRequest is a request as it is since its call ended here, and when that was.
type settledRequest struct {
	*v1alpha1.ApprovalRequest
	at time.Time
}

// cameBack tells whether the watch was faster than the answer to the creation, so that the request counts already.
func (o *opening) cameBack(snap *snapshot.Snapshot) bool {
	return slices.ContainsFunc(snap.SameAction(o.action), func(r *v1alpha1.ApprovalRequest) bool {
		return r.Spec.Attempt >= o.attempt && snapshot.CallerOf(r.Spec.Requester) == o.caller
	})
}

// reserve takes a place for one more request of a caller about a tool, or says which limit is against it. release gives
// the place back, and notes the request that was created; nil says that none was. It counts on the newest snapshot, not
// on that of the call: what one call saw come back, no other may count as not there yet. Calls of one action share one
// request, and so one place.
func (s *Server) reserve(caller snapshot.Caller, tool, action string, attempt int32) (release func(created *v1alpha1.ApprovalRequest), refusal *notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.Snapshot()
	if snap == nil {
		return nil, serverGone()
	}
	now := s.Clock.Now()
	s.openings = slices.DeleteFunc(s.openings, func(o *opening) bool {
		r := o.created
		return r != nil && (snap.Request(r.Spec.ActionHash, string(r.UID)) != nil || r.CreationTimestamp.Add(unseenFor).Before(now))
	})
	if slices.ContainsFunc(s.openings, func(o *opening) bool { return o.caller == caller && o.action == action }) {
		return func(*v1alpha1.ApprovalRequest) {}, nil
	}
	pending, creating := snap.Pending(caller), 0
	var known []*v1alpha1.ApprovalRequest
	for _, r := range snap.OfTool(tool) {
		if snapshot.CallerOf(r.Spec.Requester) == caller {
			known = append(known, r)
		}
	}
	for _, o := range s.openings {
		if o.caller != caller || o.cameBack(snap) {
			continue
		}
		pending++
		switch {
		case o.tool != tool:
		case o.created != nil:
			known = append(known, o.created)
		default:
			creating++
		}
	}
	limits := snap.Server.Spec.Approvals
	if limit, limited := approval.Limited(known, creating, limits.MaxPerHour, now); limited {
		return nil, limitedBy(limit, limits.MaxPerHour, now)
	}
	if pending >= int(limits.MaxPending) {
		return nil, &notice{code: "TooManyPending", retryAfter: 60, text: fmt.Sprintf(
			"%d calls already wait for a person, which is the limit. Wait until some are decided, then send this call again.", limits.MaxPending)}
	}
	place := &opening{caller: caller, tool: tool, action: action, attempt: attempt}
	s.openings = append(s.openings, place)
	return func(created *v1alpha1.ApprovalRequest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if place.created = created; created == nil {
			s.openings = slices.DeleteFunc(s.openings, func(o *opening) bool { return o == place })
		}
	}, nil
}

// noteEnded notes a request as it is now that its call has ended here. An agent that has its answer may send the same call
// again at once, before the watch brings what became of the first.
func (s *Server) noteEnded(request *v1alpha1.ApprovalRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap, now := s.Snapshot(), s.Clock.Now()
	s.endings = slices.DeleteFunc(s.endings, func(e settledRequest) bool {
		if snap == nil || e.at.Add(unseenFor).Before(now) {
			return true
		}
		shown := snap.Request(e.Spec.ActionHash, string(e.UID))
		return shown == nil || !newer(e.ApprovalRequest, shown)
	})
	s.endings = append(s.endings, settledRequest{request, now})
}

// sameAction returns the requests of an action that a snapshot shows, each as it is there or as its call ended here after
// that.
func (s *Server) sameAction(snap *snapshot.Snapshot, action string) []*v1alpha1.ApprovalRequest {
	same := slices.Clone(snap.SameAction(action))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.endings {
		if i := slices.IndexFunc(same, func(r *v1alpha1.ApprovalRequest) bool { return r.UID == e.UID }); i >= 0 && newer(e.ApprovalRequest, same[i]) {
			same[i] = e.ApprovalRequest
		}
	}
	return same
}

// limitedBy words that people are not asked again yet.
func limitedBy(limit approval.Limit, perHour int32, now time.Time) *notice {
	seconds := int((limit.Until.Sub(now) + time.Second - 1) / time.Second)
	again := limit.Until.UTC().Format(time.RFC3339)
	if limit.Denials > 0 {
		return &notice{code: "BackingOff", retryAfter: seconds, text: fmt.Sprintf(
			"people denied calls of this tool that you asked for, %d since one was last approved, so nobody is asked again before %s. Nothing was executed. Ask the people you work for how to go on.", limit.Denials, again)}
	}
	return &notice{code: "TooManyPerHour", retryAfter: seconds, text: fmt.Sprintf(
		"people were asked about this tool %d times within an hour, which is the limit. Nothing was executed. Nobody is asked again before %s.", perHour, again)}
}
