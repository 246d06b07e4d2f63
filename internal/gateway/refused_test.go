// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestEveryMessageThatIsRefusedCounts(t *testing.T) {
	t.Parallel()
	signed := []string{"Authorization", "Bearer crane"}
	for name, tc := range map[string]struct {
		body    string
		headers []string
		want    string // the reason; "" for a message that passes
		status  int
	}{
		"control":                   {ping, signed, "", http.StatusOK},
		"a Host of somebody else":   {ping, append([]string{"Host", "evil.example"}, signed...), "ForeignOrigin", http.StatusForbidden},
		"an Origin of another":      {ping, append([]string{"Origin", "https://evil.example"}, signed...), "ForeignOrigin", http.StatusForbidden},
		"nobody's":                  {ping, nil, "Unauthenticated", http.StatusUnauthorized},
		"a header given twice":      {ping, append([]string{"Mcp-Method", "ping", "Mcp-Method", "ping"}, signed...), "Malformed", http.StatusBadRequest},
		"a body that is encoded":    {ping, append([]string{"Content-Encoding", "gzip"}, signed...), "Malformed", http.StatusUnsupportedMediaType},
		"a body that is too large":  {strings.Repeat(" ", 4<<20+1), signed, "MessageTooLarge", http.StatusRequestEntityTooLarge},
		"a body that does not read": {"{", signed, "Malformed", http.StatusBadRequest},
		"a header against the body": {ping, append([]string{"Mcp-Method", "tools/list"}, signed...), "Malformed", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.authenticated()
			if got := r.post(tc.body, tc.headers...); got.status != tc.status {
				t.Errorf("HTTP %d %s, want %d", got.status, got.body, tc.status)
			}
			want := map[string]float64{}
			if tc.want != "" {
				want[tc.want] = 1
			}
			got := map[string]float64{}
			for _, reason := range []string{"ForeignOrigin", "ForeignSession", "Malformed", "MessageTooLarge", "Unauthenticated"} {
				if n := testutil.ToFloat64(r.gateway.Metrics.refusals.WithLabelValues(billing.Namespace, billing.Name, reason)); n > 0 {
					got[reason] = n
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyFillsTheLogByTokensThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	var lines atomic.Int64
	logger := funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})
	r.front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		r.gateway.ServeHTTP(w, rq.WithContext(log.IntoContext(rq.Context(), logger)))
	})
	for _, step := range []struct {
		who   string
		after time.Duration
		want  int64
	}{
		{who: "expired"}, // what the caller did wrong is the caller's to know
		{who: "down", want: 1}, {who: "down", want: 1}, {who: "down", after: sayEvery - 1, want: 1},
		{who: "down", after: 1, want: 2}, {who: "down", want: 2},
	} {
		r.clock.Step(step.after)
		if got := r.as(step.who, ping); got.status < http.StatusBadRequest {
			t.Errorf("HTTP %d %s", got.status, got.body)
		}
		if got := lines.Load(); got != step.want {
			t.Errorf("%d lines, want %d: %+v", got, step.want, step)
		}
	}
}
