// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// harbour has the server cranes, which lists the tool lift, and what is kept of its definition.
func harbour(t *testing.T) []client.Object {
	t.Helper()
	d, err := tool.Parse([]byte(`{"name":"lift","inputSchema":{"type":"object","properties":{"weight":{"type":"number"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	server := fixture.GovernedServer("harbour", "cranes")
	if server.Status.EndpointDigest, err = tool.EndpointDigest(server.Spec.Endpoint); err != nil {
		t.Fatal(err)
	}
	server.Status.Tools = []v1alpha1.ToolStatus{{Name: "lift", Digest: d.Digest(), ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible}}
	var shelf definitions.Shelf
	shelf.Add(d.Canonical())
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: definitions.ConfigMapName("cranes")}, BinaryData: shelf.Kept.BinaryData()}
	return []client.Object{&server, kept}
}

// heavy is a policy of a namespace that denies heavy lifts.
func heavy(namespace, when string) v1alpha1.ToolPolicy {
	p := fixture.ToolPolicy(namespace, "heavy", "cranes")
	p.Spec.Tiers = nil
	p.Spec.Rules = []v1alpha1.Rule{{Name: "heavy", Tools: []string{"lift"}, When: when, Decision: v1alpha1.EffectDeny}}
	return p
}

// surveyor reads objects; reads counts how often a ConfigMap was read, and with broken that fails.
func surveyor(t *testing.T, reads *int, broken error, objects ...client.Object) *Surveyor {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	live := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
		*reads++
		if broken != nil {
			return broken
		}
		return c.Get(ctx, key, into, opts...)
	}})
	return New(api, live, policy.NewLibrary(), fixture.SystemNamespace)
}

func reasons(s *Survey) []string {
	var all []string
	for _, f := range s.Findings {
		all = append(all, f.Reason)
	}
	return all
}

func TestSchemasAreReadOnceAndOnlyForExpressions(t *testing.T) {
	t.Parallel()
	reads := 0
	y := surveyor(t, &reads, nil, harbour(t)...)
	for _, step := range []struct {
		when  string
		reads int
		want  []string
	}{
		{"", 0, nil},
		{"args.wieght > 5", 1, []string{v1alpha1.NotInForceTypeMismatch}},
		{"args.weight > 5", 1, nil},
	} {
		p := heavy("harbour", step.when)
		s, err := y.Of(t.Context(), policy.Parse(&p))
		if err != nil || reads != step.reads || !slices.Equal(reasons(s), step.want) {
			t.Errorf("with %q: %v, %v after %d reads, want %v after %d", step.when, err, reasons(s), reads, step.want, step.reads)
		}
	}
}

func TestASurveyThatCannotReadSaysSo(t *testing.T) {
	t.Parallel()
	reads, down := 0, errors.New("down")
	p := heavy("harbour", "args.weight > 5")
	if _, err := surveyor(t, &reads, down, harbour(t)...).Of(t.Context(), policy.Parse(&p)); !errors.Is(err, down) {
		t.Errorf("got %v, want %v", err, down)
	}
}

// What is only tried counts in the place of the version that is stored: else each promotion would meet itself.
func TestAPolicyCountsInThePlaceOfItsStoredVersion(t *testing.T) {
	t.Parallel()
	stored := heavy("harbour", "")
	stored.UID, stored.Generation = "u-1", 1
	stored.Spec.Tiers = []v1alpha1.TierOverride{{Tools: []string{"lift"}, Tier: v1alpha1.TierIrreversible, Reason: "it was heavy"}}
	tried := heavy("harbour", "")
	tried.Spec.Rules[0].Decision = v1alpha1.EffectAllow
	reads := 0
	for name, tc := range map[string]struct {
		stored []client.Object
		want   []string
	}{
		"alone":                               {nil, nil},
		"beside its stored version":           {[]client.Object{stored.DeepCopy()}, nil},
		"beside another that raises the tier": {[]client.Object{fixture.With(stored, func(p *v1alpha1.ToolPolicy) { p.Name = "other" })}, []string{v1alpha1.NotInForceIrreversible}},
	} {
		s, err := surveyor(t, &reads, nil, append(harbour(t), tc.stored...)...).Of(t.Context(), policy.Parse(&tried))
		if err != nil || !slices.Equal(reasons(s), tc.want) {
			t.Errorf("%s: %v, %v, want %v", name, err, reasons(s), tc.want)
		}
	}
}

func TestABaselineMeetsThePoliciesOfEveryNamespace(t *testing.T) {
	t.Parallel()
	raising := heavy("harbour", "")
	raising.Spec.Tiers = []v1alpha1.TierOverride{{Tools: []string{"lift"}, Tier: v1alpha1.TierIrreversible, Reason: "it is heavy"}}
	baseline := heavy(fixture.SystemNamespace, "")
	baseline.Name, baseline.Spec.Targets, baseline.Spec.NamespaceSelector = "fleet", nil, &metav1.LabelSelector{}
	baseline.Spec.Rules[0].Decision = v1alpha1.EffectAllow
	elsewhere := *baseline.DeepCopy()
	elsewhere.Namespace = "harbour"
	reads := 0
	y := surveyor(t, &reads, nil, append(harbour(t), &raising)...)
	s, err := y.Of(t.Context(), policy.Parse(&baseline))
	if err != nil || s.Misplaced || !slices.Equal(reasons(s), []string{v1alpha1.NotInForceIrreversible}) {
		t.Errorf("at home: %v, misplaced is %t, %v", err, s.Misplaced, reasons(s))
	}
	if s, err = y.Of(t.Context(), policy.Parse(&elsewhere)); err != nil || !s.Misplaced || len(s.Findings) > 0 {
		t.Errorf("elsewhere: %v, misplaced is %t, %v", err, s.Misplaced, reasons(s))
	}
}
