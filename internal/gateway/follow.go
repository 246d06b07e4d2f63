// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"time"
)

// followEvery is the time between two looks at the calls that went on after their answer.
const followEvery = time.Second

// Follow ends the calls that went on after their answer and that nothing more is heard of, and records what became of
// those that have ended, until ctx ends. What has not ended by then has an unknown outcome: the manager says so at the
// deadline of a request, and the receipts after a restart.
func (g *Gateway) Follow(ctx context.Context) error {
	ticker := g.Clock.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
			g.follow(ctx)
		}
	}
}

// follow takes one look.
func (g *Gateway) follow(ctx context.Context) {
	for _, server := range g.Servers {
		for _, overdue := range server.flows.Overdue(g.Clock.Now()) {
			server.conclude(overdue.Flow, overdue.Ending, nil)
		}
		server.recordLate(ctx)
	}
}

// recordLate makes one try to record each outcome that was learned late. Where the API takes none it leaves the rest for
// the next look.
func (s *Server) recordLate(ctx context.Context) {
	s.mu.Lock()
	late := slices.Clone(s.late)
	s.mu.Unlock()
	for _, f := range late {
		within, cancel := context.WithTimeout(ctx, promptly)
		stored := f.store(within)
		cancel()
		if !stored && f.overFor(s.Clock.Now()) < outcomePatience {
			return
		}
		s.mu.Lock()
		s.late = slices.DeleteFunc(s.late, func(other *fate) bool { return other == f })
		s.mu.Unlock()
	}
}
