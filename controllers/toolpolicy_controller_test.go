// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
)

// promotion asks for lift_box of the given servers to run unattended.
func promotion(targets ...string) *v1alpha1.ToolPolicy {
	return fixture.With(fixture.ToolPolicy("harbour", "promotion", targets...), func(p *v1alpha1.ToolPolicy) {
		p.UID, p.Generation = "policy-uid", 3
		p.Spec.Tiers = nil
		p.Spec.Autonomy = []v1alpha1.AutonomyRule{{Tool: "lift_box", Digest: liftBox().Digest, Mode: v1alpha1.ModeUnattended}}
	})
}

// withBox has a server listed, with a record of so many clean approvals.
func withBox(t *testing.T, approved int32) *v1alpha1.GovernedServer {
	t.Helper()
	return cranes(func(s *v1alpha1.GovernedServer) {
		endpoint := endpointOf(t, s)
		s.Status.EndpointDigest, s.Status.Tools = endpoint, []v1alpha1.ToolStatus{liftBox()}
		s.Status.Records = []v1alpha1.ToolRecord{{Tool: "lift_box", Digest: liftBox().Digest, EndpointDigest: endpoint, Approved: approved}}
	})
}

// judgeWith reconciles a policy beside other objects and returns how the API has it then.
func judgeWith(t *testing.T, faults interceptor.Funcs, p *v1alpha1.ToolPolicy, others ...client.Object) (*v1alpha1.ToolPolicy, ctrl.Result, error) {
	t.Helper()
	api := fake.NewClientBuilder().WithScheme(serverScheme(t)).WithObjects(append(others, p)...).WithStatusSubresource(&v1alpha1.ToolPolicy{}).Build()
	r := &ToolPolicyReconciler{
		Client: interceptor.NewClient(api, faults), Survey: survey.New(api, api, policy.NewLibrary(), fixture.SystemNamespace), OperatorNamespace: fixture.SystemNamespace,
	}
	var read, stored v1alpha1.ToolPolicy
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), &read); err != nil {
		t.Fatal(err)
	}
	result, err := r.Reconcile(t.Context(), &read)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), &stored); err != nil {
		t.Fatal(err)
	}
	return &stored, result, err
}

func TestAPolicySaysWhatOfItIsNotInForce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		targets  []string
		approved int32
		want     []v1alpha1.NotInForce
	}{
		"all of it in force": {[]string{"cranes"}, 3, nil},
		"a record that is too short": {[]string{"cranes"}, 2, []v1alpha1.NotInForce{
			{Server: "cranes", Field: "spec.autonomy[0]", Tool: "lift_box", Reason: v1alpha1.NotInForceRecord},
		}},
		"a server that is not there": {[]string{"cranes", "barges"}, 3, []v1alpha1.NotInForce{
			{Server: "barges", Field: "spec.targets", Reason: v1alpha1.NotInForceServerMissing},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, _, err := judgeWith(t, interceptor.Funcs{}, promotion(tc.targets...), withBox(t, tc.approved))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, stored.Status.NotInForce, cmpopts.IgnoreFields(v1alpha1.NotInForce{}, "Message")); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			wantStatus, wantReason := metav1.ConditionTrue, v1alpha1.ReasonInForce
			if len(tc.want) > 0 {
				wantStatus, wantReason = metav1.ConditionFalse, v1alpha1.ReasonPartlyInForce
			}
			c := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionEffective)
			if c == nil || c.Status != wantStatus || c.Reason != wantReason || c.ObservedGeneration != 3 {
				t.Errorf("condition Effective is %+v, want %s for %s", c, wantStatus, wantReason)
			}
			if stored.Status.ObservedGeneration != 3 {
				t.Errorf("observedGeneration is %d, want 3", stored.Status.ObservedGeneration)
			}
		})
	}
}

func TestAPolicyInASteadyStateIsNotWritten(t *testing.T) {
	t.Parallel()
	patches := 0
	faults := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		patches++
		return c.SubResource(sub).Patch(ctx, obj, p, opts...)
	}}
	stored, _, err := judgeWith(t, faults, promotion("cranes"), withBox(t, 3))
	if err != nil || patches != 1 {
		t.Fatalf("first: %v after %d patches, want 1", err, patches)
	}
	stored.ResourceVersion = ""
	if _, _, err := judgeWith(t, faults, stored, withBox(t, 3)); err != nil || patches != 1 {
		t.Errorf("again: %v after %d patches, want no more", err, patches)
	}
}

// A lost race is no failure: the newer version comes by the watch. Everything else is tried again.
func TestAPolicyThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	policies := v1alpha1.GroupVersion.WithResource("toolpolicies").GroupResource()
	down := errors.New("connection refused")
	for name, tc := range map[string]struct {
		fault error
		want  error
	}{
		"changed meanwhile": {apierrors.NewConflict(policies, "promotion", nil), nil},
		"deleted meanwhile": {apierrors.NewNotFound(policies, "promotion"), nil},
		"an API that fails": {down, down},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, result, err := judgeWith(t, interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					return tc.fault
				},
			}, promotion("cranes"), withBox(t, 3))
			if !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			if again := result.RequeueAfter > 0; again != (tc.want == nil) {
				t.Errorf("looks again after %s", result.RequeueAfter)
			}
		})
	}
}
