// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// Case 88: what a version means that nobody here knows cannot be judged.
func TestAnUnknownProtocolVersionIsNotForwarded(t *testing.T) {
	t.Parallel()
	const id = `{"jsonrpc":"2.0","id":301,`
	for name, tc := range map[string]struct{ method, body, wantStart string }{
		"a message":                {http.MethodPost, id + `"method":"server/discover"}`, id + `"error":{"code":-32022,`},
		"a call":                   {http.MethodPost, id + `"method":"tools/call","params":{"name":"get_invoice"}}`, id + `"error":{"code":-32022,`},
		"a notification":           {http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,`},
		"a stream to listen to":    {http.MethodGet, "", `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,`},
		"the end of a session":     {http.MethodDelete, "", `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,`},
		"a message that is broken": {http.MethodPost, `{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			got := r.do(t.Context(), tc.method, tc.body, protocolVersion, "1999-01-01")
			if got.status != http.StatusBadRequest || !strings.HasPrefix(got.body, tc.wantStart) {
				t.Errorf("got HTTP %d %s, want 400 %s", got.status, got.body, tc.wantStart)
			}
			r.nothingSent()
			if tc.body == "{" {
				return
			}
			known := r.do(t.Context(), tc.method, tc.body, protocolVersion, "2025-11-25")
			seen := r.upstream.requests()
			if known.status >= http.StatusBadRequest || len(seen) != 1 || seen[0].header.Get(protocolVersion) != "2025-11-25" {
				t.Errorf("a version that is known: HTTP %d %s; the server got %+v", known.status, known.body, seen)
			}
		})
	}
}

const protocolVersion = "Mcp-Protocol-Version"
