// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"sync"

	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// listChanged tells a client to list the tools again.
const listChanged = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"

// announcing returns a sink for the events of a stream that also tells its client when other tools may be called than
// before, between two events. stop has to be called before the stream is left.
func (s *Server) announcing(principal expr.Principal, sink func([]byte) bool) (shared func([]byte) bool, stop func()) {
	var mu sync.Mutex
	shared = func(event []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		return sink(event)
	}
	stopped, ended := make(chan struct{}), make(chan struct{})
	revision, before := s.callable("", nil, principal)
	go func() {
		defer close(ended)
		for {
			changed := s.Changed()
			var now []string
			if revision, now = s.callable(revision, before, principal); !slices.Equal(before, now) {
				before = now
				if !shared([]byte(listChanged)) {
					return
				}
			}
			select {
			case <-stopped:
				return
			case <-changed:
			}
		}
	}()
	return shared, func() {
		close(stopped)
		<-ended
	}
}

// callable returns the revision of the policy, and the tools that a caller can call with some arguments: those that it
// could before where the revision is the same.
func (s *Server) callable(revision string, before []string, principal expr.Principal) (now string, names []string) {
	snap := s.Snapshot()
	switch {
	case snap == nil:
		return "", nil
	case snap.Policy.Revision == revision:
		return revision, before
	}
	for _, t := range snap.Server.Status.Tools {
		if _, loosest := snap.Policy.Range(t.Name, principal); loosest != policy.Deny {
			names = append(names, t.Name)
		}
	}
	return snap.Policy.Revision, names
}
