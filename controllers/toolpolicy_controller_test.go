// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/survey"
	"github.com/tidewaiter/tidewaiter/internal/tool"
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

// withDefinition returns a server that lists one tool with a schema, and the ConfigMap that keeps its definition.
func withDefinition(t *testing.T, namespace, name string) (*v1alpha1.GovernedServer, *corev1.ConfigMap) {
	t.Helper()
	d, err := tool.Parse([]byte(`{"name":"refund","inputSchema":{"type":"object","properties":{"amount":{"type":"number"},"to":{"type":"string"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	server := fixture.GovernedServer(namespace, name)
	server.Status.EndpointDigest = endpointOf(t, &server)
	server.Status.Tools = []v1alpha1.ToolStatus{{
		Name: "refund", Digest: d.Digest(), ClassifiedTier: v1alpha1.TierReversible, Tier: v1alpha1.TierReversible, Source: v1alpha1.TierSourceName,
	}}
	var shelf definitions.Shelf
	shelf.Add(d.Canonical())
	return &server, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: definitions.ConfigMapName(name), Labels: map[string]string{v1alpha1.ServerLabel: name}},
		BinaryData: shelf.Kept.BinaryData(),
	}
}

// ruled is a policy of the namespace harbour with one rule of the tool refund.
func ruled(when string, edits ...func(*v1alpha1.ToolPolicy)) *v1alpha1.ToolPolicy {
	return fixture.With(fixture.ToolPolicy("harbour", "ruled", "billing"), append([]func(*v1alpha1.ToolPolicy){func(p *v1alpha1.ToolPolicy) {
		p.UID, p.Generation, p.Spec.Tiers = "ruled-uid", 2, nil
		p.Spec.Rules = []v1alpha1.Rule{{Name: "large", Tools: []string{"refund"}, When: when, Decision: v1alpha1.EffectDeny}}
	}}, edits...)...)
}

func TestAPolicyIsAcceptedUnlessItHasToBeEdited(t *testing.T) {
	t.Parallel()
	server, kept := withDefinition(t, "harbour", "billing")
	baseline := func(p *v1alpha1.ToolPolicy) {
		p.Spec.Targets, p.Spec.NamespaceSelector = nil, &metav1.LabelSelector{}
	}
	home := func(p *v1alpha1.ToolPolicy) { p.Namespace = fixture.SystemNamespace }
	for name, tc := range map[string]struct {
		policy  *v1alpha1.ToolPolicy
		others  []client.Object
		reason  string
		message string
	}{
		"it fits the tool":    {ruled("args.amount > 5"), []client.Object{server, kept}, v1alpha1.ReasonAccepted, ""},
		"it does not compile": {ruled("args.amount >"), nil, v1alpha1.ReasonInvalid, "spec.rules[0].when 1:"},
		"two expressions do not compile": {ruled("args.amount >", func(p *v1alpha1.ToolPolicy) {
			p.Spec.Rules = append(p.Spec.Rules, v1alpha1.Rule{Name: "b", Tools: []string{"b"}, When: "("})
		}), nil, v1alpha1.ReasonInvalid, ", and 2 more"},
		"an argument is misspelt":              {ruled("args.amont > 5"), []client.Object{server, kept}, v1alpha1.ReasonInvalid, "did you mean amount?"},
		"a text is compared with a number":     {ruled("args.to > 5"), []client.Object{server, kept}, v1alpha1.ReasonInvalid, "spec.rules[0].when 1:"},
		"what is kept is not known":            {ruled("args.amont > 5"), []client.Object{server}, v1alpha1.ReasonAccepted, ""},
		"an empty cluster":                     {ruled("args.amont > 5"), nil, v1alpha1.ReasonAccepted, ""},
		"a baseline elsewhere":                 {ruled("true", baseline), []client.Object{server, kept}, v1alpha1.ReasonWrongNamespace, "operator's namespace only"},
		"a baseline at home":                   {ruled("args.amount > 5", baseline, home), []client.Object{server, kept}, v1alpha1.ReasonAccepted, ""},
		"a baseline at home that does not fit": {ruled("args.amont > 5", baseline, home), []client.Object{server, kept}, v1alpha1.ReasonInvalid, "(refund of harbour/billing)"},
		"a policy of another version was as it is now": {ruled("args.amount > 5", func(p *v1alpha1.ToolPolicy) {
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInvalid}}
		}), []client.Object{server, kept}, v1alpha1.ReasonAccepted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var others []client.Object
			for _, o := range tc.others {
				others = append(others, o.DeepCopyObject().(client.Object))
			}
			stored, _, err := judgeWith(t, interceptor.Funcs{}, tc.policy, others...)
			if err != nil {
				t.Fatal(err)
			}
			good := metav1.ConditionTrue
			if tc.reason != v1alpha1.ReasonAccepted {
				good = metav1.ConditionFalse
			}
			for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
				c := meta.FindStatusCondition(stored.Status.Conditions, kind)
				if c == nil || c.Status != good || c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) || c.ObservedGeneration != 2 {
					t.Errorf("condition %s is %+v, want %s for %s with %q", kind, c, good, tc.reason, tc.message)
				}
			}
			// kstatus: Stalled and True is failed; False without it is in progress for ever.
			stalled := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionStalled)
			if want := good == metav1.ConditionFalse; want != (stalled != nil) || want && (stalled.Status != metav1.ConditionTrue || stalled.Reason != tc.reason) {
				t.Errorf("condition Stalled is %+v", stalled)
			}
		})
	}
}

func TestWhatARuleCannotDoIsALineOfTheStatus(t *testing.T) {
	t.Parallel()
	server, kept := withDefinition(t, "harbour", "billing")
	p := ruled("args.amont > 5", func(p *v1alpha1.ToolPolicy) {
		all := v1alpha1.Rule{Name: "all", Tools: []string{"*"}, Decision: v1alpha1.EffectDeny}
		late := v1alpha1.Rule{Name: "late", Tools: []string{"refund"}, Decision: v1alpha1.EffectAllow}
		p.Spec.Rules = append(p.Spec.Rules, all, late)
	})
	stored, _, err := judgeWith(t, interceptor.Funcs{}, p, server, kept)
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.NotInForce{
		{Field: "spec.rules[0].when", Tool: "[refund]", Reason: v1alpha1.NotInForceTypeMismatch},
		{Field: "spec.rules[2]", Tool: "[refund]", Reason: v1alpha1.NotInForceUnreachable},
	}
	if diff := cmp.Diff(want, stored.Status.NotInForce, cmpopts.IgnoreFields(v1alpha1.NotInForce{}, "Message")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// The lines of a baseline are those of the first servers by name, in whatever order they came, and no more than there is
// room for; a server in a namespace that it does not select has none.
func TestABaselineSaysWhatItIsOnAllServers(t *testing.T) {
	t.Parallel()
	var servers []client.Object
	for i := range 300 {
		server, _ := withDefinition(t, fmt.Sprintf("team-%03d", 299-i), "billing")
		server.Status.NamespaceLabels = map[string]string{"stage": "live"}
		if i%3 == 0 {
			server.Status.NamespaceLabels = map[string]string{"stage": "test"}
		}
		servers = append(servers, server)
	}
	p := ruled("true", func(p *v1alpha1.ToolPolicy) {
		p.Namespace, p.Spec.Targets = fixture.SystemNamespace, nil
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "live"}}
		p.Spec.Pins = []v1alpha1.Pin{{Tool: "refund", Digest: fixture.Digest("0")}, {Tool: "absent", Digest: fixture.Digest("0")}}
	})
	stored, _, err := judgeWith(t, interceptor.Funcs{}, p, servers...)
	if err != nil {
		t.Fatal(err)
	}
	lines := stored.Status.NotInForce
	if len(lines) != 256 || lines[0].Server != "team-000/billing" || lines[2].Server != "team-001/billing" || lines[4].Server != "team-003/billing" {
		t.Errorf("%d lines, from %+v on", len(lines), lines[:min(len(lines), 5)])
	}
	c := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionEffective)
	if c == nil || !strings.HasSuffix(c.Message, "(and 399 more)") {
		t.Errorf("condition Effective is %+v, want 399 more", c)
	}
}

func TestAChangeWakesThePoliciesThatItMattersTo(t *testing.T) {
	t.Parallel()
	named := func(namespace, name string, edit func(*v1alpha1.ToolPolicySpec)) *v1alpha1.ToolPolicy {
		return fixture.With(fixture.ToolPolicy(namespace, name, "billing"), func(p *v1alpha1.ToolPolicy) {
			if edit != nil {
				edit(&p.Spec)
			}
		})
	}
	selecting := func(s *v1alpha1.ToolPolicySpec) { s.Targets, s.NamespaceSelector = nil, &metav1.LabelSelector{} }
	own, other := named("harbour", "own", nil), named("harbour", "other", func(s *v1alpha1.ToolPolicySpec) { s.Targets = []string{"ships"} })
	baseline, misplaced := named(fixture.SystemNamespace, "fleet", selecting), named("harbour", "misplaced", selecting)
	api := fake.NewClientBuilder().WithScheme(serverScheme(t)).WithObjects(own, other, baseline, misplaced, named("team", "far", nil)).Build()
	r := &ToolPolicyReconciler{Client: api, OperatorNamespace: fixture.SystemNamespace}
	server := fixture.GovernedServer("harbour", "billing")
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "x", Labels: map[string]string{v1alpha1.ServerLabel: "billing"}}}
	for name, tc := range map[string]struct {
		woken []v1alpha1.ToolPolicy
		want  []string
	}{
		"a server":                     {r.ofServer(t.Context(), &server), []string{"own", "fleet"}},
		"what is kept of it":           {r.ofDefinitions(t.Context(), kept), []string{"own", "fleet"}},
		"another ConfigMap":            {r.ofDefinitions(t.Context(), &corev1.ConfigMap{}), nil},
		"a policy beside it":           {r.besides(t.Context(), other), []string{"other", "fleet"}},
		"a baseline":                   {r.besides(t.Context(), baseline), []string{"own", "other", "fleet", "misplaced", "far"}},
		"a baseline that is misplaced": {r.besides(t.Context(), misplaced), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var names []string
			for _, p := range tc.woken {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(tc.want, names, cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}
