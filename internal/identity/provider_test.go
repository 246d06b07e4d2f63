// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

// with returns a copy of claims with changes; nil takes a claim away.
func with(claims map[string]any, changes map[string]any) map[string]any {
	changed := maps.Clone(claims)
	for name, value := range changes {
		if changed[name] = value; value == nil {
			delete(changed, name)
		}
	}
	return changed
}

// keysOf returns a key set that is asked for in memory, and counts how often.
func keysOf(signers ...login.Signer) (*keySet, *atomic.Int64) {
	var asked atomic.Int64
	return &keySet{fetch: func(ctx context.Context) ([]byte, error) {
		asked.Add(1)
		return login.KeySet(signers...), ctx.Err()
	}}, &asked
}

// now is when tests of pure rules take place.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func clockAt(at time.Time) *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(at)
}

// request is one with an Authorization header.
func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/shop/billing/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
