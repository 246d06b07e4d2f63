// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestAnAPIServerThatForbidsEverythingIsAskedAgain: one that has just started does, until it has read roles and bindings.
func TestAnAPIServerThatForbidsEverythingIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		reason metav1.StatusReason
		again  bool
	}{
		"it forbids everything":      {http.StatusForbidden, metav1.StatusReasonForbidden, true},
		"it does not know the token": {http.StatusUnauthorized, metav1.StatusReasonUnauthorized, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status, reason := tc.status, tc.reason
				if r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" {
					status, reason = http.StatusForbidden, metav1.StatusReasonForbidden
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(status), Reason: reason})
			}))
			t.Cleanup(api.Close)
			if _, err := whoIs(t.Context(), &rest.Config{Host: api.URL}, "token"); err == nil || errors.Is(err, ErrUnavailable) != tc.again {
				t.Errorf("asked again: %t, want %t: %v", errors.Is(err, ErrUnavailable), tc.again, err)
			}
		})
	}
}
