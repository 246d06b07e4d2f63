// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

func message(method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"m","method":%q}`, method)
}

func TestOtherMethodsAreGoverned(t *testing.T) {
	t.Parallel()
	stranger := team()
	stranger.Spec.Callers = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "somebody"}}
	member := team()
	member.Spec.Callers = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "somebody"}, {Kind: v1alpha1.SubjectServiceAccount, Namespace: "finance", Name: "gateway"}}
	denies := func(r *rig) { r.edit(func() { r.governed.Spec.OtherMethods = v1alpha1.OtherMethodsDeny }) }
	for name, tc := range map[string]struct {
		edit func(*rig)
		want string // the code of the refusal; "" passes
	}{
		"nothing is said":           {func(*rig) {}, ""},
		"the server is stopped":     {func(r *rig) { r.mode(v1alpha1.ModeStopped) }, "ServerStopped"},
		"all servers are stopped":   {func(r *rig) { r.govern(stopped()) }, "ServerStopped"},
		"stopped, though observing": {func(r *rig) { r.govern(stopped()); r.mode(v1alpha1.ModeObserve) }, "ServerStopped"},
		"read-only":                 {func(r *rig) { r.mode(v1alpha1.ModeReadOnly) }, ""},
		"other methods are denied":  {denies, "MethodDenied"},
		"denied, but observing":     {func(r *rig) { denies(r); r.mode(v1alpha1.ModeObserve) }, ""},
		"a caller that is named":    {func(r *rig) { r.govern(member) }, ""},
		"a caller that is not":      {func(r *rig) { r.govern(stranger) }, "CallerNotAllowed"},
		"the API silent":            {func(r *rig) { r.clock.Step(6 * time.Minute) }, "PolicyStale"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			tc.edit(r)
			var passed []string
			for _, method := range []string{"resources/read", "resources/subscribe", "prompts/get", "completion/complete", "tasks/get", "tasks/result", "vendor/run"} {
				body := message(method)
				got := r.post(body)
				if tc.want == "" {
					passed = append(passed, body)
					continue
				}
				if got.status != http.StatusOK || !strings.Contains(got.body, `"id":"m","error":{"code":-32010,"message":"Tidewaiter gateway: `) ||
					!strings.Contains(got.body, `"data":{"code":"`+tc.want+`"`) || strings.Contains(got.body, "somebody") {
					t.Errorf("%s: HTTP %d %s", method, got.status, got.body)
				}
			}
			if told := r.post(`{"jsonrpc":"2.0","method":"resources/read"}`); tc.want != "" && told.status != http.StatusForbidden {
				t.Errorf("a request without an id: HTTP %d", told.status)
			} else if tc.want == "" {
				passed = append(passed, `{"jsonrpc":"2.0","method":"resources/read"}`)
			}
			// Controls: what keeps a session alive passes whatever is said.
			for _, body := range []string{
				message("initialize"), message("server/discover"), message("ping"), message("tools/list"), message("resources/list"), message("prompts/list"),
				message("logging/setLevel"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`,
			} {
				passed = append(passed, body)
				if got := r.post(body); got.status >= 300 {
					t.Errorf("%s: HTTP %d %s", body, got.status, got.body)
				}
			}
			r.ran(passed...)
			if got := r.do(t.Context(), http.MethodDelete, ""); got.status != http.StatusOK && got.status != http.StatusAccepted {
				t.Errorf("the end of a session: HTTP %d %s", got.status, got.body)
			}
			observed := 0
			if name == "denied, but observing" {
				observed = 8
			}
			r.otherReceipts(tc.want, observed)
		})
	}
}

// otherReceipts fails unless each of the eight refused messages left a receipt and is counted, and as many others did that
// only passed because the server observes.
func (r *rig) otherReceipts(code string, wantObserved int) {
	r.t.Helper()
	refused, observed := 0, 0
	for _, line := range r.receiptLines() {
		switch {
		case line.Method == "":
		case line.Verdict == receipt.VerdictDeny && line.Code == code && line.Requester == agent && line.CallID != "" && line.ActionHash == "":
			refused++
		case line.Verdict == receipt.VerdictAllow && line.Observed != nil && line.Observed.Code == "MethodDenied":
			observed++
		default:
			r.t.Errorf("receipt %+v", line)
		}
	}
	want := 0
	if code != "" {
		want = 8
		if got := testutil.ToFloat64(r.gateway.Metrics.refusals.WithLabelValues(billing.Namespace, billing.Name, code)); got != 8 {
			r.t.Errorf("%v are counted, want 8", got)
		}
	}
	if refused != want || observed != wantObserved {
		r.t.Errorf("%d receipts of refusals, %d of what was observed, want %d and %d", refused, observed, want, wantObserved)
	}
}

func TestNoOtherMessagePassesThatCannotBeRefusedOnRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mode(v1alpha1.ModeStopped)
	if err := r.gateway.Receipts.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.post(message("prompts/get")); !strings.Contains(got.body, `"code":"ReceiptNotWritten"`) {
		t.Errorf("got %s", got.body)
	}
	r.edit(func() { r.governed = nil })
	if got := r.post(message("prompts/get")); got.status != http.StatusServiceUnavailable {
		t.Errorf("without a policy: HTTP %d", got.status)
	}
	r.nothingSent()
}
