// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// tamper starts another mutating webhook that comes after ours and edits what passes in a cast's namespace.
func tamper(t *testing.T, c *cast, edit func(*v1alpha1.ApprovalRequestStatus)) {
	t.Helper()
	var called atomic.Bool
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called.Store(true)
		var review admissionv1.AdmissionReview
		var request v1alpha1.ApprovalRequest
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		if err := json.Unmarshal(review.Request.Object.Raw, &request); err != nil {
			t.Error(err)
			return
		}
		edit(&request.Status)
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/status", "value": request.Status}})
		if err != nil {
			t.Error(err)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(other.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
	name := "zz-tamper-" + c.namespace // configurations are called in the order of their names
	plane.MustCreate(t, plane.Admin, "", `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: `+name+`}
webhooks:
- name: tamper.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "`+other.URL+`", caBundle: `+base64.StdEncoding.EncodeToString(ca)+`}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+c.namespace+`}}
  rules:
  - {apiGroups: [tidewaiter.dev], apiVersions: [v1alpha1], operations: [UPDATE], resources: [approvalrequests/status]}
`)
	t.Cleanup(func() {
		must(t, client.IgnoreNotFound(plane.Client(t, plane.Admin).Delete(context.Background(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	})
	probe := c.request(t, pending)
	until(t, "the other webhook is called", func(ctx context.Context) bool {
		_ = c.manager.Status().Patch(ctx, probe.DeepCopy(), merge(`{"status":`+expire+`}`), client.DryRunAll)
		return called.Load()
	})
}

func TestAnotherWebhookCannotTamperWithVotes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.ApprovalRequestStatus)
		want func(*testing.T, string, error)
	}{
		"does nothing": {func(*v1alpha1.ApprovalRequestStatus) {}, taken},
		"breaks the signature": {func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[len(s.Votes)-1].Signature = "AAAA" },
			func(t *testing.T, what string, err error) { declined(t, what, err, "signature") }},
		"takes the signature": {func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[len(s.Votes)-1].Signature = "" },
			func(t *testing.T, what string, err error) { declined(t, what, err, "not signed") }},
		"moves the time": {func(s *v1alpha1.ApprovalRequestStatus) {
			last := &s.Votes[len(s.Votes)-1]
			last.Time = metav1.NewTime(last.Time.Add(60e9))
		}, func(t *testing.T, what string, err error) { declined(t, what, err, "signature") }},
		"makes a no of it": {func(s *v1alpha1.ApprovalRequestStatus) {
			s.Votes[len(s.Votes)-1].Decision, s.Decision, s.Phase = v1alpha1.DecisionDenied, v1alpha1.DecisionDenied, v1alpha1.PhaseDenied
		}, func(t *testing.T, what string, err error) { declined(t, what, err, "signature") }},
		"changes a stored vote": {func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[0].Reason = "" },
			func(t *testing.T, what string, err error) { refused(t, what, requestsStatusPolicy, err) }},
		"gives it another reason": {func(s *v1alpha1.ApprovalRequestStatus) { s.Reason = "I said so" },
			func(t *testing.T, what string, err error) { declined(t, what, err, "rewrites votes") }},
		"renames it": {func(s *v1alpha1.ApprovalRequestStatus) { s.Votes[len(s.Votes)-1].Username = "somebody" },
			func(t *testing.T, what string, err error) { refused(t, what, requestsStatusPolicy, err) }},
		"lowers the phase": {func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = v1alpha1.PhasePending },
			func(t *testing.T, what string, err error) { refused(t, what, requestsStatusPolicy, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCast(t)
			request := c.request(t, []write{{"second", approve}}, twoOfTwo)
			tamper(t, c, func(s *v1alpha1.ApprovalRequestStatus) {
				if len(s.Votes) == 2 {
					tc.edit(s)
				}
			})
			tc.want(t, "a vote while another webhook "+name, c.write(t, request, write{"approver", approve}))
		})
	}
}
