// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// send sends a call and fails unless want is in its answer: a refusal is an answer too, and cheaper.
func send(agents http.RoundTripper, to, body, want string) error {
	req, err := http.NewRequest(http.MethodPost, to+"/mcp", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer crane")
	req.Header.Set(sessionHeader, "s-1")
	resp, err := agents.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(answer), want) {
		return fmt.Errorf("HTTP %d, %w: %s", resp.StatusCode, err, answer)
	}
	return nil
}

// BenchmarkUnattended is a call with effects that needs no person: its receipt is on disk before it leaves, and it has a
// connection of its own.
func BenchmarkUnattended(b *testing.B) {
	r := newRig(b)
	r.promote()
	for b.Loop() {
		if err := send(http.DefaultTransport, r.front.URL, toolCall("update_invoice", `{"n":1}`), `"result":{"content":[]}`); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGated is what the gateway does for a call that waits for a person: it answers that one is asked already.
func BenchmarkGated(b *testing.B) {
	r := newRig(b)
	body := toolCall("delete_account", `{"n":1}`)
	if got := r.post(body); got.code() != codePending || len(r.requests()) != 1 {
		b.Fatalf("got %s", got.body)
	}
	for b.Loop() {
		if err := send(http.DefaultTransport, r.front.URL, body, codePending); err != nil {
			b.Fatal(err)
		}
	}
	if r.request().CurrentPhase() != v1alpha1.PhasePending {
		b.Error("the request moved on")
	}
}
