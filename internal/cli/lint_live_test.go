// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestLintCountsTheBaselinesThatItMayRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		forbidden bool
		want      []string
		warning   string
	}{
		"they may be read": {false, []string{"mine", "system/floor"}, ""},
		"they may not":     {true, []string{"mine"}, "Warning: baselines are not counted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			floor, misplaced, team := baseline("system", "floor", nil), baseline("ledger", "misplaced", nil), pins("team", "pay", "1")
			team.Namespace = "system"
			stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&floor, &misplaced, &team).Build()
			var errOut bytes.Buffer
			o := &lintOptions{session: &session{operatorNamespace: "system", client: interceptor.NewClient(stored, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					where := (&client.ListOptions{}).ApplyOptions(opts)
					if tc.forbidden && where.Namespace == "system" {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "toolpolicies"}, "", nil)
					}
					return c.List(ctx, list, opts...)
				},
			})}}
			o.ErrOut = &errOut
			known, err := o.liveTools(t.Context(), policySet{"system", []v1alpha1.ToolPolicy{pins("mine", "pay", "1")}})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range known.set.objects {
				names = append(names, nameOf(&p))
			}
			slices.Sort(names)
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
			if got := errOut.String(); !strings.HasPrefix(got, tc.warning) || tc.warning == "" && got != "" {
				t.Errorf("said %q, want %q", got, tc.warning)
			}
		})
	}
}
