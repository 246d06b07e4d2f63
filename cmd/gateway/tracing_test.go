// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/collector"
)

func TestARunningGatewaySendsSpansOnlyIfItIsTold(t *testing.T) {
	for name, on := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			c := collector.StartHTTP(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
			namespace := plane.Namespace(t)
			url, _, _ := newCrane(t)
			govern(t, namespace, url)
			g := startGateway(t, options{
				servers: []string{namespace + "/crane"}, requester: "crew", votingRoots: []string{rootKey}, operatorNamespace: fixture.SystemNamespace, tracing: on,
				name: "gw", receipts: filepath.Join(t.TempDir(), "r.jsonl"), allow: []string{"127.0.0.0/8"}, maxStaleness: 5 * time.Minute, drain: time.Second,
				cluster: gatewayAccount(t, namespace), stdout: io.Discard,
			})
			g.until("it is ready", func() error { return g.ask("/readyz", http.StatusOK) })
			for _, tool := range []string{"get_box", "move_box"} {
				if resp, text := g.call(tool, ""); resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s %s", tool, resp.Status, text)
				}
			}
			g.stop()
			spans := c.Spans()
			if !on {
				if len(spans) != 0 {
					t.Errorf("spans %+v", spans)
				}
				return
			}
			read, sent, moved := spans["server tools/call get_box"], spans["client tools/call get_box"], spans["server tools/call move_box"]
			if read.Attributes["tidewaiter.decision"] != "Allow" || read.Failed || sent.ParentID != read.SpanID || sent.TraceID != read.TraceID {
				t.Errorf("a read: %+v, sent %+v", read, sent)
			}
			if a := moved.Attributes; a["tidewaiter.decision"] != "RequireApproval" || a["tidewaiter.code"] != "ApprovalPending" || a["tidewaiter.tier"] != "Reversible" ||
				!strings.HasPrefix(a["tidewaiter.request"], "crane-") || a["error.type"] != "tool_error" {
				t.Errorf("a call that waits for a person: %+v", moved)
			}
			if len(spans) != 3 {
				t.Errorf("spans %+v", spans)
			}
		})
	}
}

func TestAProtocolThatIsNotKnownStopsTheStart(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if err := serve(t.Context(), given(t, "--tracing")); err == nil || !strings.Contains(err.Error(), "http/json") {
		t.Errorf("error %v", err)
	}
}
