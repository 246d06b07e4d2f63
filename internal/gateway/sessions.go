// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"k8s.io/utils/lru"

	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// sessionHeader names an MCP session.
const sessionHeader = mcp.HeaderSessionID

// sessions remembers whose the MCP sessions of a server are. One that is not known, after a restart say, is left to the
// server, and belongs from then on to the first caller that the server lets use it. The zero value knows none.
type sessions struct {
	mu     sync.Mutex
	owners *lru.Cache // snapshot.Caller by keyOf
}

// maxKey is what a session may have for an id of which no digest is made, in bytes: less than a digest has, so that none
// is taken for the other.
const maxKey = 63

// keyOf returns what stands for the id of a session, however long the server makes it.
func keyOf(id string) string {
	if len(id) <= maxKey {
		return id
	}
	digest := sha256.Sum256([]byte(id))
	return hex.EncodeToString(digest[:])
}

// mayUse tells whether a caller may name a session.
func (s *sessions) mayUse(id string, caller snapshot.Caller) bool {
	if id == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil {
		return true
	}
	owner, known := s.owners.Get(keyOf(id))
	return !known || owner == caller
}

// note learns from an answer of the server whose a session is, and keeps so many; forgotten is told of each that is
// given up for it. The first owner stays.
func (s *sessions) note(resp *http.Response, caller snapshot.Caller, keep int, forgotten func()) {
	id := resp.Header.Get(sessionHeader)
	if id == "" && resp.StatusCode < http.StatusBadRequest {
		id = resp.Request.Header.Get(sessionHeader)
	}
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil {
		s.owners = lru.NewWithEvictionFunc(keep, func(lru.Key, any) { forgotten() })
	}
	key := keyOf(id)
	if _, known := s.owners.Get(key); !known {
		s.owners.Add(key, caller)
	}
}

// foreignSession answers as a server does that does not know the session: the client opens one of its own.
func foreignSession() *wire.Refusal {
	return &wire.Refusal{Status: http.StatusNotFound, Code: -32001, Message: speaker + "no such session"}
}
