// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"
)

const (
	// idleFor is how long nothing must be under way: agents go on for a moment after a pod has begun to stop.
	idleFor = 2 * time.Second
	// idleEvery is the time between two looks.
	idleEvery = 100 * time.Millisecond
)

// AwaitIdle returns when nothing has been under way for a while but streams that agents listen on, or with the context's
// error. The server in the gateway's pod is stopped after that, so that it can answer what it was asked.
func (g *Gateway) AwaitIdle(ctx context.Context) error {
	ticker := g.Clock.NewTicker(idleEvery)
	defer ticker.Stop()
	var idle quiet
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
		if idle.lasts(g.Clock.Now(), g.callers.busyWith(reading, awaiting, telling)) {
			return nil
		}
	}
}

// quiet measures how long nothing was under way.
type quiet struct{ since time.Time }

// lasts takes down a look and tells whether it has been quiet for long enough.
func (q *quiet) lasts(now time.Time, busy bool) bool {
	if busy || q.since.IsZero() {
		q.since = now
		return false
	}
	return now.Sub(q.since) >= idleFor
}

// busyWith tells whether anything of these is under way.
func (c *callers) busyWith(what ...place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range what {
		if c.all[p] > 0 {
			return true
		}
	}
	return false
}
