// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// FuzzReview sends the handler arbitrary objects as what is stored and what was sent. There is always an answer and
// never a panic, and if anything is signed it is one new vote of the writer on what is stored.
func FuzzReview(f *testing.F) {
	seed := newPolling(f, 2)
	stored := func(edit func(*v1alpha1.ApprovalRequestStatus)) string {
		request := seed.live.DeepCopy()
		edit(&request.Status)
		text, err := json.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		return string(text)
	}
	plain := stored(func(*v1alpha1.ApprovalRequestStatus) {})
	yes := stored(decide(v1alpha1.DecisionApproved))
	f.Add("/mutate", "status", plain, yes, true, false)
	f.Add("/mutate", "status", plain, yes, true, true)
	f.Add("/mutate", "status", plain, stored(decide(v1alpha1.DecisionDenied)), true, false)
	f.Add("/mutate", "status", yes, plain, true, false)
	f.Add("/validate", "status", plain, yes, true, false)
	f.Add("/hint", "", plain, yes, false, false)
	f.Add("/mutate", "status", stored(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase = "Ambiguous" }), stored(func(s *v1alpha1.ApprovalRequestStatus) {
		s.Phase, s.Resolution = "Ambiguous", &v1alpha1.Resolution{Outcome: "Committed", Reason: "x"}
	}), true, false)
	for _, odd := range []string{
		`null`, `{}`, `[]`, `7`, `{"status":null}`, `{"status":[]}`, `{"status":{"votes":null}}`, `{"status":{"votes":[null]}}`,
		`{"status":{"votes":{}}}`, `{"status":{"decision":{}}}`, `{"status":{"decision":"Approved"}}`, `{"spec":null,"status":{"decision":"Denied"}}`,
		`{"status":{"decision":"Approved","votes":[{"username":"ana","decision":"Approved"}]}}`, `{"metadata":{"creationTimestamp":"x"}}`,
		`{"status":` + strings.Repeat(`{"a":`, 2000) + `1` + strings.Repeat(`}`, 2000) + `}`, `{"status":{"votes":[` + strings.Repeat(`{},`, 3000) + `{}]}}`,
	} {
		f.Add("/mutate", "status", plain, odd, true, false)
		f.Add("/validate", "status", plain, odd, true, false)
		f.Add("/mutate", "status", odd, yes, false, false)
		f.Add("/validate", "status", odd, yes, false, false)
		f.Add("/hint", "", plain, odd, true, false)
	}
	f.Fuzz(func(t *testing.T, path, subresource, old, sent string, agrees, dryRun bool) {
		if !slices.Contains([]string{"/mutate", "/validate", "/hint"}, path) || !json.Valid([]byte(old)) || !json.Valid([]byte(sent)) {
			t.Skip("the API server sends JSON to the paths that it was given")
		}
		p := newPolling(t, 2)
		if before, err := decode([]byte(old)); agrees && err == nil {
			p.live = before // get past the comparison with what is stored
			p.server.UID = "s-1"
		}
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
				"uid": "review", "operation": "UPDATE", "subResource": subresource, "dryRun": dryRun, "userInfo": map[string]any{"username": "ana"},
				"resource": map[string]any{"group": "tidewaiter.dev", "version": "v1alpha1", "resource": "approvalrequests"},
				"object":   json.RawMessage(sent), "oldObject": json.RawMessage(old),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", path, strings.NewReader(string(raw)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		Handler(p.hooks, &Policies{Survey: nothing}, &Pods{}).ServeHTTP(w, r)
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil || answer.Response.Result == nil {
			t.Fatalf("the answer is %s (%v)", w.Body, err)
		}
		if strings.Contains(answer.Response.Result.Message, "panic") {
			t.Fatal(answer.Response.Result.Message)
		}
		if err := onlyOneVote(t, p, path, sent, dryRun, answer.Response); err != nil {
			t.Errorf("%v: %s", err, w.Body)
		}
	})
}

// onlyOneVote returns an error if an answer gives more than one new vote of ana, valid for what is stored.
func onlyOneVote(t *testing.T, p *polling, path, sent string, dryRun bool, answer *admissionv1.AdmissionResponse) error {
	if len(answer.Patch) == 0 {
		return nil
	}
	if path != "/mutate" || !answer.Allowed {
		return fmt.Errorf("%s answers a patch, allowed %t", path, answer.Allowed)
	}
	before, err := decode([]byte(sent))
	if err != nil {
		return err
	}
	votes := patched(t, before, answer.Patch).Status.Votes
	was := p.live.Status.Votes
	if slices.Equal(votes, was) {
		return nil // a resolution
	}
	if len(votes) != len(was)+1 || !slices.Equal(votes[:len(was)], was) {
		return fmt.Errorf("the votes %+v became %+v", was, votes)
	}
	given := votes[len(was)]
	if dryRun {
		if given.Signature != "" {
			return fmt.Errorf("a dry run is signed")
		}
		return nil
	}
	if given.Username != "ana" {
		return fmt.Errorf("the vote is %s's", given.Username)
	}
	return p.keys.Verify(p.live, given)
}
