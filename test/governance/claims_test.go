// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

func TestAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tellAtOnce)
	faults := &claimFaults{}
	d := w.openDoor("gw", throughAPI(faults.wrap))
	for i, tc := range []struct {
		fault func(*http.Request, http.RoundTripper) (*http.Response, error)
		want  string
		runs  int
	}{
		{func(r *http.Request, next http.RoundTripper) (*http.Response, error) { // won, but nobody hears of it
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			return nil, errors.New("connection reset by peer")
		}, "", 1},
		{func(*http.Request, http.RoundTripper) (*http.Response, error) { // lost on its way
			return nil, errors.New("connection reset by peer")
		}, "ApprovalUnavailable", 1},
	} {
		arguments := fmt.Sprintf(`{"invoiceId":"a","note":"n%d"}`, i)
		d.call("update_invoice", arguments)
		r := w.approve()
		d.sees(r, v1alpha1.PhaseApproved)
		faults.once(tc.fault)
		got := d.call("update_invoice", arguments)
		if got.code() != tc.want {
			t.Errorf("%d: code %q, want %q: %s", i, got.code(), tc.want, got.raw)
		}
		w.executions("update_invoice", tc.runs)
		if tc.want != "" { // the approval is still good for one use
			d.used("update_invoice", arguments)
			w.executions("update_invoice", tc.runs+1)
		}
	}
}

// claimFaults stands between a gateway and the API and does something else with the next write of a status.
type claimFaults struct {
	mu   sync.Mutex
	next func(*http.Request, http.RoundTripper) (*http.Response, error)
}

func (f *claimFaults) once(fault func(*http.Request, http.RoundTripper) (*http.Response, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = fault
}

func (f *claimFaults) wrap(inner http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/status") {
			f.mu.Lock()
			fault := f.next
			f.next = nil
			f.mu.Unlock()
			if fault != nil {
				return fault(r, inner)
			}
		}
		return inner.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wantReceipts checks the chain of a stopped gateway, and that it does not hold a secret.
func (d *door) wantReceipts(secret string) receipt.Report {
	d.w.t.Helper()
	text := readFile(d.w.t, d.path)
	report, err := receipt.Verify(strings.NewReader(text))
	if err != nil || len(report.Problems) > 0 {
		d.w.t.Errorf("receipts of %s: %v %v", d.name, err, report.Problems)
	}
	if strings.Contains(text, secret) {
		d.w.t.Errorf("receipts of %s hold a secret", d.name)
	}
	return report
}
