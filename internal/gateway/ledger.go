// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// unseenFor is how long a request that was opened here counts as pending without having come back by the watch.
const unseenFor = time.Minute

// ledger counts what one requester has pending, so that many calls at once cannot all pass below the limit. Server.mu
// guards it.
type ledger struct {
	// opening is how many requests are being created now.
	opening int
	// opened are the requests that were created here and may not have come back by the watch yet.
	opened map[string]*v1alpha1.ApprovalRequest
}

// reserve takes a place among the pending requests of a requester; false says that there is none. release gives it
// back, and notes the request that was created; nil says that none was. It counts on the newest snapshot, not on that
// of the call: what one call saw come back, no other may count as not there yet.
func (s *Server) reserve(requester string, limit int) (release func(created *v1alpha1.ApprovalRequest), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.Snapshot()
	if snap == nil {
		return nil, false
	}
	if s.ledgers == nil {
		s.ledgers = map[string]*ledger{}
	}
	l := s.ledgers[requester]
	if l == nil {
		l = &ledger{opened: map[string]*v1alpha1.ApprovalRequest{}}
		s.ledgers[requester] = l
	}
	pending := len(snap.Pending(requester)) + l.opening
	for name, r := range l.opened {
		seen := snap.Request(r.Spec.ActionHash, string(r.UID)) != nil
		if seen || r.CreationTimestamp.Add(unseenFor).Before(s.Clock.Now()) {
			delete(l.opened, name)
			continue
		}
		pending++
	}
	if pending >= limit {
		return nil, false
	}
	l.opening++
	return func(created *v1alpha1.ApprovalRequest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.opening--
		if created != nil {
			l.opened[created.Name] = created
		}
	}, true
}
