// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestWhatIsSeenOfAServerShowsInItsConditions(t *testing.T) {
	t.Parallel()
	unauthorized := &fault{reason: v1alpha1.ReasonUnauthorized, message: "The server refuses the credentials with HTTP status 401"}
	stale := listed(getBox())
	stale.fault = unauthorized
	gappy := listed(getBox())
	gappy.last.gaps = []string{"the server lists more than 1000 tools"}
	ok := "True/Accepted"
	for name, tc := range map[string]struct {
		seen seen
		want map[string]string
	}{
		"nothing yet":             {seen{}, map[string]string{"Reachable": "Unknown/NotListedYet", "Classified": "Unknown/NotListedYet", "PolicyAccepted": ok, "Ready": "Unknown/NotListedYet"}},
		"listed":                  {listed(getBox()), map[string]string{"Reachable": "True/Listed", "Classified": "True/Classified", "PinsMatch": "True/Pinned", "PolicyAccepted": ok, "Ready": "True/Ready"}},
		"listed without tools":    {listed(), map[string]string{"Reachable": "True/Listed", "Classified": "True/Classified", "PinsMatch": "True/Pinned", "PolicyAccepted": ok, "Ready": "True/Ready"}},
		"never reached":           {seen{fault: unauthorized}, map[string]string{"Reachable": "False/Unauthorized", "Classified": "Unknown/NotListedYet", "PolicyAccepted": ok, "Ready": "False/Unauthorized"}},
		"reached before, not now": {stale, map[string]string{"Reachable": "False/Unauthorized", "Classified": "False/Stale", "PinsMatch": "True/Pinned", "PolicyAccepted": ok, "Ready": "False/Stale"}},
		"more than is kept":       {gappy, map[string]string{"Reachable": "True/Listed", "Classified": "False/Truncated", "PinsMatch": "True/Pinned", "PolicyAccepted": ok, "Ready": "False/Truncated"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newDock(t, interceptor.Funcs{}, cranes()).see(t, tc.seen)
			if diff := cmp.Diff(tc.want, states(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUnreachableServerKeepsItsToolsAndIsToldOnce(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes())
	good := d.see(t, listed(getBox(), liftBox()))
	if diff := cmp.Diff([]string{"Normal FirstContact"}, d.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	d.clock.Step(time.Hour)
	failing := listed(getBox(), liftBox())
	failing.fault = &fault{reason: v1alpha1.ReasonUnauthorized, message: "The server refuses the credentials with HTTP status 401"}
	bad := d.see(t, failing)
	if diff := cmp.Diff(good.Status.Tools, bad.Status.Tools); diff != "" || !good.Status.LastChanged.Equal(bad.Status.LastChanged) {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	for range 5 { // it goes on failing
		d.clock.Step(time.Hour)
		d.see(t, failing)
	}
	if diff := cmp.Diff([]string{"Warning Unauthorized"}, d.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	d.see(t, listed(getBox(), liftBox()))
	if diff := cmp.Diff([]string{"Normal Listed"}, d.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestARestartedManagerChangesNothingUntilItHasListed(t *testing.T) {
	t.Parallel()
	before := newDock(t, interceptor.Funcs{}, cranes()).see(t, listed(getBox(), liftBox()))
	d := newDock(t, interceptor.Funcs{}, before)
	d.clock.Step(time.Hour)
	for range 3 {
		if _, err := d.reconcile(t); err != nil {
			t.Fatal(err)
		}
	}
	d.see(t, listed(getBox(), liftBox()))
	if n := d.patches.Load(); n != 0 {
		t.Errorf("%d writes, want none; status is now %+v", n, d.stored(t).Status)
	}
	d.see(t, listed(getBox()))
	if n := d.patches.Load(); n != 1 {
		t.Errorf("%d writes after a change, want 1", n)
	}
}

func TestAnotherEndpointDropsWhatCameFromTheOldOne(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes(), newRequest(ended(v1alpha1.PhaseDenied, "")), newRequest(clean, withUID("b"), func(r *v1alpha1.ApprovalRequest) {
		r.Spec.EndpointDigest = endpointOf(t, cranes())
	}))
	good := d.see(t, listed(liftBox()))
	if r := good.Status.Records[0]; r.Approved != 1 || r.Denied != 1 {
		t.Fatalf("got %+v", r)
	}
	d.told()
	d.edit(t, func(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "https://staging.example/mcp" })
	if _, err := d.reconcile(t); err != nil {
		t.Fatal(err)
	}
	got := d.stored(t)
	if got.Status.Tools != nil || got.Status.Server != nil || got.Status.Counts != nil || got.Status.LastChanged != nil {
		t.Errorf("kept %+v", got.Status)
	}
	if want := endpointOf(t, got); got.Status.EndpointDigest != want || got.Status.EndpointDigest == good.Status.EndpointDigest {
		t.Errorf("endpointDigest is %s, want %s", got.Status.EndpointDigest, want)
	}
	if r := got.Status.Records[0]; r.Approved != 0 || r.Denied != 1 || r.EndpointDigest != got.Status.EndpointDigest || r.Autonomy != v1alpha1.AutonomyDisqualified {
		t.Errorf("record is %+v", r)
	}
	if s := states(got); s["Ready"] != "Unknown/NotListedYet" {
		t.Errorf("conditions are %v", s)
	}
	d.see(t, listed(liftBox()))
	if diff := cmp.Diff([]string{"Normal FirstContact"}, d.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestTrustIsEarnedPromotedAndLost(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes())
	d.see(t, listed(liftBox()))
	d.told()
	ask := func(uid string, e edit) {
		t.Helper()
		request := newRequest(e, withUID(uid), func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = endpointOf(t, cranes()) })
		if err := d.api.Create(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	stands := func(want v1alpha1.Autonomy, wantEvents ...string) {
		t.Helper()
		for range 3 { // count, release, and once more for nothing
			if _, err := d.reconcile(t); err != nil {
				t.Fatal(err)
			}
		}
		got := d.stored(t).Status.Records
		if len(got) != 1 || got[0].Autonomy != want || got[0].Accounted != nil {
			t.Errorf("records are %+v, want %s", got, want)
		}
		if diff := cmp.Diff(wantEvents, d.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	ask("1", clean)
	ask("2", clean)
	stands(v1alpha1.AutonomyNone)
	ask("3", clean)
	stands(v1alpha1.AutonomyEligible, "Normal Eligible")
	ask("4", clean)
	stands(v1alpha1.AutonomyEligible)

	promotion := &v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "trust"},
		Spec: v1alpha1.ToolPolicySpec{Targets: []string{"cranes"}, Autonomy: []v1alpha1.AutonomyRule{
			{Tool: "lift_box", Digest: "sha256:t", Mode: v1alpha1.ModeUnattended}}},
	}
	if err := d.api.Create(t.Context(), promotion); err != nil {
		t.Fatal(err)
	}
	stands(v1alpha1.AutonomyUnattended, "Normal Unattended")
	ask("5", ended(v1alpha1.PhaseAmbiguous, v1alpha1.OutcomeUnclear))
	stands(v1alpha1.AutonomyNone, "Warning Revoked")
	var open v1alpha1.ApprovalRequest
	if err := d.api.Get(t.Context(), types.NamespacedName{Namespace: "harbour", Name: "cranes-5"}, &open); err != nil {
		t.Fatal(err)
	}
	open.Status.Phase = v1alpha1.PhaseFailed
	if err := d.api.Status().Update(t.Context(), &open); err != nil {
		t.Fatal(err)
	}
	stands(v1alpha1.AutonomyUnattended, "Normal Unattended")
	ask("6", ended(v1alpha1.PhaseDenied, ""))
	stands(v1alpha1.AutonomyDisqualified, "Warning Revoked")

	d.see(t, listed()) // the tool is left out of one list,
	stands(v1alpha1.AutonomyDisqualified, "Normal ToolsChanged")
	d.see(t, listed(liftBox(func(s *v1alpha1.ToolStatus) { s.Digest = "sha256:t2" }))) // and comes back, changed
	stands(v1alpha1.AutonomyDisqualified, "Warning ToolsChanged")
	if r := d.stored(t).Status.Records[0]; r.Approved != 0 || r.Denied != 1 {
		t.Errorf("record is %+v", r)
	}
}

func TestAnIrreversibleToolEarnsNothing(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes())
	for i := range 10 {
		request := newRequest(clean, withUID(fmt.Sprint(i)), func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = endpointOf(t, cranes()) })
		if err := d.api.Create(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	got := d.see(t, listed(liftBox(func(s *v1alpha1.ToolStatus) {
		s.ClassifiedTier, s.Tier = v1alpha1.TierIrreversible, v1alpha1.TierIrreversible
	})))
	if r := got.Status.Records[0]; r.Approved != 10 || r.Autonomy != v1alpha1.AutonomyForbidden {
		t.Errorf("record is %+v", r)
	}
	for _, e := range d.told() {
		if e == "Normal Eligible" {
			t.Error("an Irreversible tool is offered")
		}
	}
}

func TestRequestsOfAnotherServerOfTheSameNameDoNotCount(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes(func(s *v1alpha1.GovernedServer) { s.UID = "recreated" }), newRequest(clean), newRequest(ended(v1alpha1.PhaseDenied, ""), withUID("d")))
	if got := d.see(t, listed(liftBox())); got.Status.Records != nil {
		t.Errorf("records are %+v", got.Status.Records)
	}
}

func TestOverridesShowInTheEffectiveTierAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	raise := &v1alpha1.ToolPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "careful"},
		Spec: v1alpha1.ToolPolicySpec{Targets: []string{"cranes"}, Tiers: []v1alpha1.TierOverride{
			{Tools: []string{"lift_*"}, Tier: v1alpha1.TierIrreversible, Reason: "boxes break"}}},
	}
	d := newDock(t, interceptor.Funcs{}, cranes(), raise)
	got := d.see(t, listed(getBox(), liftBox()))
	want := liftBox(func(s *v1alpha1.ToolStatus) {
		s.Tier, s.Source, s.Reason = v1alpha1.TierIrreversible, v1alpha1.TierSourceOverride, "boxes break"
	})
	if diff := cmp.Diff([]v1alpha1.ToolStatus{getBox(), want}, got.Status.Tools); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&v1alpha1.TierCounts{Read: 1, Irreversible: 1}, got.Status.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	restarted := newDock(t, interceptor.Funcs{}, got) // and the policy is gone
	if _, err := restarted.reconcile(t); err != nil {
		t.Fatal(err)
	}
	after := restarted.stored(t).Status.Tools[1]
	if after.Tier != v1alpha1.TierReversible || after.Source != v1alpha1.TierSourceName {
		t.Errorf("got %+v, want what the classifier said", after)
	}
}

func TestARejectedPolicyIsNamed(t *testing.T) {
	t.Parallel()
	rules := []v1alpha1.Rule{{Name: "r", Tools: []string{"*"}, When: "args.", Decision: v1alpha1.EffectDeny}}
	for name, tc := range map[string]struct {
		namespace string
		spec      v1alpha1.ToolPolicySpec
		named     string // in the message; "" for a policy that does not concern the server
	}{
		"one of the team":              {"harbour", v1alpha1.ToolPolicySpec{Targets: []string{"cranes"}, Rules: rules}, "ToolPolicy broken"},
		"one for another server":       {"harbour", v1alpha1.ToolPolicySpec{Targets: []string{"gates"}, Rules: rules}, ""},
		"a baseline":                   {fixture.SystemNamespace, v1alpha1.ToolPolicySpec{NamespaceSelector: &metav1.LabelSelector{}, Rules: rules}, "ToolPolicy " + fixture.SystemNamespace + "/broken"},
		"a baseline that is sound":     {fixture.SystemNamespace, v1alpha1.ToolPolicySpec{NamespaceSelector: &metav1.LabelSelector{}, Mode: v1alpha1.BaselineReadOnly}, ""},
		"a baseline in no right place": {"harbour", v1alpha1.ToolPolicySpec{NamespaceSelector: &metav1.LabelSelector{}, Rules: rules}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := &v1alpha1.ToolPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: "broken"}, Spec: tc.spec}
			got := newDock(t, interceptor.Funcs{}, cranes(), broken).see(t, listed(getBox()))
			want := "True/Accepted"
			if tc.named != "" {
				want = "False/PolicyRejected"
			}
			message := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionPolicyAccepted).Message
			if s := states(got); s["PolicyAccepted"] != want || !strings.HasSuffix(message, tc.named) || tc.named != "" && s["Ready"] != want {
				t.Errorf("conditions are %v, want %s and %q: %s", s, want, tc.named, message)
			}
		})
	}
}

func TestALongListStaysSmallInStatus(t *testing.T) {
	t.Parallel()
	var tools []v1alpha1.ToolStatus
	for i := range 1000 {
		tools = append(tools, liftBox(func(s *v1alpha1.ToolStatus) {
			s.Name = fmt.Sprintf("%04d%s", i, strings.Repeat("\"", 124))
			s.Reason = strings.Repeat("r", 512)
		}))
	}
	got := newDock(t, interceptor.Funcs{}, cranes()).see(t, listed(tools...))
	size := 0
	for i := range got.Status.Tools {
		size += jsonSize(&got.Status.Tools[i])
	}
	if size > maxToolBytes || size < maxToolBytes*9/10 || states(got)["Classified"] != "False/Truncated" {
		t.Errorf("%d tools of %d bytes, conditions %v", len(got.Status.Tools), size, states(got))
	}
}

func TestALostRaceIsNotRetriedHotAndAFaultIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err       error
		wantAfter time.Duration
		wantErr   bool
	}{
		"conflict": {err: apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("governedservers").GroupResource(), "cranes", nil), wantAfter: conflictDelay},
		"deleted":  {err: apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("governedservers").GroupResource(), "cranes"), wantAfter: conflictDelay},
		"fault":    {err: errors.New("etcd is away"), wantErr: true},
	} {
		d := newDock(t, interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return tc.err
		}}, cranes())
		result, err := d.reconcile(t)
		if result.RequeueAfter != tc.wantAfter || (err != nil) != tc.wantErr || tc.wantErr && !errors.Is(err, tc.err) {
			t.Errorf("%s: got %v, %v", name, result, err)
		}
		if told := d.told(); told != nil {
			t.Errorf("%s: told %v of what was not saved", name, told)
		}
	}
}

func TestADeletedServerIsForgotten(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes())
	d.see(t, listed(getBox()))
	if err := d.api.Delete(t.Context(), cranes()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.reconcile(t); err != nil || len(d.listings.entries) != 0 {
		t.Errorf("%v, still %d listed", err, len(d.listings.entries))
	}
}

func TestARotatedSecretMakesAnotherOrder(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "token", Labels: map[string]string{v1alpha1.ServerLabel: "cranes"}}}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "harbour", Name: "other", Labels: map[string]string{v1alpha1.ServerLabel: "ships"}}}
	d := newDock(t, interceptor.Funcs{}, cranes(), secret, other)
	d.see(t, listed(getBox()))
	version := func() string { return d.listings.entries[cranesKey].order.version }
	touch := func(s *corev1.Secret) {
		s.Data = map[string][]byte{"t": []byte("new")}
		if err := d.api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if _, err := d.reconcile(t); err != nil {
			t.Fatal(err)
		}
	}
	before := version()
	touch(other)
	if version() != before {
		t.Error("a Secret of another server matters")
	}
	touch(secret)
	if version() == before || d.listings.entries[cranesKey].seen.last != nil {
		t.Error("a rotated Secret does not matter")
	}
}
