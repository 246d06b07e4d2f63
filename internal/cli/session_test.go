// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// newSession returns a session on a fake API that holds the request, and the patches that it sends. Answer says how
// each one ends; nil is well.
func newSession(t *testing.T, request *v1alpha1.ApprovalRequest, answer func(try int, stored client.WithWatch) error) (*session, *[]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request).WithStatusSubresource(request).Build()
	var patches []string
	recording := interceptor.NewClient(stored, interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
			data, err := p.Data(o)
			if err != nil {
				return err
			}
			patches = append(patches, string(data))
			return answer(len(patches), stored)
		},
	})
	return &session{client: recording, namespace: request.Namespace, clock: clocktesting.NewFakePassiveClock(made)}, &patches
}

func (s *session) mustGet(t *testing.T) *v1alpha1.ApprovalRequest {
	t.Helper()
	request, err := s.get(t.Context(), "cranes-0123-1")
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// touch changes the stored request beside the person.
func touch(t *testing.T, stored client.WithWatch, edits ...edit) {
	t.Helper()
	var request v1alpha1.ApprovalRequest
	if err := stored.Get(t.Context(), client.ObjectKeyFromObject(newRequest()), &request); err != nil {
		t.Fatal(err)
	}
	request.Annotations = map[string]string{"touched": request.ResourceVersion}
	if err := stored.Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
	for _, edit := range edits {
		edit(&request)
	}
	if err := stored.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
}

func conflict() error {
	return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("approvalrequests").GroupResource(), "cranes-0123-1", errors.New("changed"))
}

// The API server has the last word on which object it is: the patch names it, and the version that was judged.
func TestAWriteNamesTheObjectAndItsVersion(t *testing.T) {
	t.Parallel()
	s, patches := newSession(t, newRequest(), func(try int, stored client.WithWatch) error {
		if try == 1 {
			touch(t, stored)
			return conflict()
		}
		return nil
	})
	first := s.mustGet(t)
	o := &decideOptions{session: s, decision: v1alpha1.DecisionApproved, reason: "fine"}
	if _, err := s.write(t.Context(), first, o.mayDecide, o.change); err != nil {
		t.Fatal(err)
	}
	second := s.mustGet(t)
	if first.ResourceVersion == second.ResourceVersion {
		t.Fatal("the version did not change: the test shows nothing")
	}
	patch := func(version string) string {
		data, err := json.Marshal([]patchOperation{
			{Op: "test", Path: "/metadata/uid", Value: "u"},
			{Op: "replace", Path: "/metadata/resourceVersion", Value: version},
			{Op: "add", Path: "/status/decision", Value: "Approved"},
			{Op: "add", Path: "/status/reason", Value: "fine"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	want := []string{patch(first.ResourceVersion), patch(second.ResourceVersion)}
	if diff := cmp.Diff(want, *patches); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

func TestAWriteGivesUp(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	denied := func(r *v1alpha1.ApprovalRequest) {
		r.Status.Phase, r.Status.Decision = v1alpha1.PhaseDenied, v1alpha1.DecisionDenied
	}
	for name, tc := range map[string]struct {
		answer      func(t *testing.T, stored client.WithWatch) error
		want        error
		wantText    string
		wantPatches int
	}{
		"on an error of the API server, without trying again": {
			answer: func(*testing.T, client.WithWatch) error { return broken }, want: broken, wantPatches: 1,
		},
		"when it was decided meanwhile": {
			answer: func(t *testing.T, stored client.WithWatch) error { touch(t, stored, denied); return conflict() },
			want:   errNotDone, wantText: "is Denied", wantPatches: 1,
		},
		"when it never stops changing": {
			answer: func(t *testing.T, stored client.WithWatch) error { touch(t, stored); return conflict() },
			want:   errNotDone, wantText: "try again", wantPatches: maxTries,
		},
		"when it is gone": {
			answer: func(t *testing.T, stored client.WithWatch) error {
				if err := stored.Delete(t.Context(), newRequest()); err != nil {
					t.Fatal(err)
				}
				return conflict()
			},
			want: errNotDone, wantText: "there is no ApprovalRequest", wantPatches: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, patches := newSession(t, newRequest(), func(_ int, stored client.WithWatch) error { return tc.answer(t, stored) })
			o := &decideOptions{session: s, decision: v1alpha1.DecisionApproved}
			_, err := s.write(t.Context(), s.mustGet(t), o.mayDecide, o.change)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("error %v, want %v with %q", err, tc.want, tc.wantText)
			}
			if len(*patches) != tc.wantPatches {
				t.Errorf("%d patches, want %d", len(*patches), tc.wantPatches)
			}
		})
	}
}
