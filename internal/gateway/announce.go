// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/policy"
)

// audience is who listens on a stream, and is told when other tools may be called than before.
type audience struct {
	principal expr.Principal
	// subscription is the raw id of the request that opened the stream, nil without one. On such a stream what the server
	// agreed to comes first, and every message names the id.
	subscription []byte
}

// listChanged tells a client to list the tools again.
func (a audience) listChanged() []byte {
	message := `{"jsonrpc":"2.0","method":"` + mcp.MethodNotificationToolsListChanged + `"`
	if a.subscription != nil {
		message += `,"params":{"_meta":{"` + mcp.MetaKeySubscriptionID + `":` + string(a.subscription) + `}}`
	}
	return eventOf([]byte(message + "}"))
}

// announcing returns a sink for the events of a stream that also tells its client when other tools may be called than
// before, between two events. stop has to be called before the stream is left.
func (s *Server) announcing(a audience, sink func([]byte) bool) (shared func([]byte) bool, stop func()) {
	var mu sync.Mutex
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	if a.subscription == nil {
		begin()
	}
	shared = func(event []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		ok := sink(event)
		if bytes.Contains(event, []byte("data:")) {
			begin()
		}
		return ok
	}
	stopped, ended := make(chan struct{}), make(chan struct{})
	revision, before := s.callable("", nil, a.principal)
	go func() {
		defer close(ended)
		select {
		case <-stopped:
			return
		case <-begun:
		}
		for {
			changed := s.Changed()
			var now []string
			if revision, now = s.callable(revision, before, a.principal); !slices.Equal(before, now) {
				before = now
				if !shared(a.listChanged()) {
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
