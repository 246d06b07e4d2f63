// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// tally counts the valid votes of a stored request, as a gateway does.
func (c *cast) tally(t *testing.T, request v1alpha1.ApprovalRequest) vote.Tally {
	t.Helper()
	var published corev1.ConfigMap
	must(t, c.editor.Get(t.Context(), client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.VotingKeys}, &published))
	keys, err := vote.ParseKeys(published.Data, votes.Root)
	must(t, err)
	stored := c.stored(t, request)
	return keys.Count(&stored)
}

// words are what a test compares of a status: who said what, and what came of it.
type words struct {
	Phase    v1alpha1.Phase
	Decision v1alpha1.Decision
	Reason   string
	Votes    []string
}

func (c *cast) words(t *testing.T, request v1alpha1.ApprovalRequest) words {
	t.Helper()
	status := c.stored(t, request).Status
	w := words{Phase: status.Phase, Decision: status.Decision, Reason: status.Reason}
	for _, v := range status.Votes {
		w.Votes = append(w.Votes, strings.TrimSuffix(v.Username, "@"+c.namespace)+" "+string(v.Decision)+" "+v.Reason)
	}
	return w
}

func expect(t *testing.T, what string, want, got words) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func whoIs(t *testing.T, a actor) authenticationv1.UserInfo {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	must(t, a.Create(t.Context(), review))
	return review.Status.UserInfo
}

func TestTwoOfTwo(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending, twoOfTwo)
	expected := func(phase v1alpha1.Phase, decision v1alpha1.Decision, reason string, votes ...string) words {
		return words{phase, decision, reason, votes}
	}
	const first = "approver Approved checked with finance"
	taken(t, "the first yes", c.write(t, request, write{"approver", approve}))
	expect(t, "after the first yes", expected("Pending", "", "", first), c.words(t, request))
	declined(t, "the same person again", c.write(t, request, write{"approver", approve}), "counts once")
	declined(t, "the same person says not now", c.write(t, request, write{"approver", dismiss}), "deny it to take the yes back")
	expect(t, "after the same person again", expected("Pending", "", "", first), c.words(t, request))
	taken(t, "the second yes, without a reason", c.write(t, request, write{"second", `{"decision":"Approved"}`}))
	expect(t, "after the second yes", expected("Approved", "Approved", "", first, "second Approved "), c.words(t, request))
	if tally := c.tally(t, request); !tally.Approved(2) || len(tally.Void) != 0 {
		t.Errorf("the votes come to %+v, want two valid yes", tally)
	}
	declined(t, "a third yes", c.write(t, request, write{"both", `{"decision":"Approved","reason":"me too"}`}), "Approved", "second@")
	taken(t, "the first person takes it back", c.write(t, request, write{"approver", deny}))
	expect(t, "after it was taken back", expected("Denied", "Denied", "not this customer", first, "second Approved ", "approver Denied not this customer"), c.words(t, request))

	request = c.request(t, []write{{"approver", approve}}, twoOfTwo)
	taken(t, "a yes is taken back below the quorum", c.write(t, request, write{"approver", deny}))
	expect(t, "one no ends it", expected("Denied", "Denied", "not this customer", first, "approver Denied not this customer"), c.words(t, request))

	request = c.request(t, []write{{"approver", approve}}, twoOfTwo)
	taken(t, "not now of another person", c.write(t, request, write{"second", dismiss}))
	expect(t, "not now ends it", expected("Dismissed", "Dismissed", "", first, "second Dismissed "), c.words(t, request))
}

func TestAVoteIsStampedWithItsWriter(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	before := time.Now().Truncate(time.Second)
	request := c.request(t, approved)
	given := c.stored(t, request).Status.Votes[0]
	if me := whoIs(t, c.approver); given.Username != me.Username || given.UID != me.UID || given.Time.Time.Before(before) {
		t.Errorf("the vote is %+v, want it stamped for %s", given, me.Username)
	}
	if tally := c.tally(t, request); !tally.Approved(1) {
		t.Errorf("the vote is not valid: %+v", tally)
	}
	for name, patch := range map[string]string{
		"a vote in another's name": strings.Replace(junkVote, "somebody", c.username("second"), 1),
		"a decision with a vote":   `{"decision":"Approved","votes":[{"username":"` + c.username("second") + `","decision":"Approved","time":"2026-01-02T03:04:05Z"}]}`,
	} {
		declined(t, name, c.write(t, c.request(t, pending), write{"approver", patch}), "set status.decision")
	}

	settledBy := c.request(t, append(ambiguous[:3:3], write{"resolver", settle("Committed", c.username("owner"))}))
	resolution := c.stored(t, settledBy).Status
	if r := resolution.Resolution; resolution.Phase != v1alpha1.PhaseSucceeded || r.By != c.username("resolver") || r.Time.Time.Before(before) {
		t.Errorf("the request is %s by %+v, want it Succeeded, stamped with the resolver and the time", resolution.Phase, r)
	}
	failed := c.request(t, append(ambiguous[:3:3], write{"resolver", settle("NotExecuted", "")}))
	if phase := c.stored(t, failed).Status.Phase; phase != v1alpha1.PhaseFailed {
		t.Errorf("what was not executed is %s, want Failed", phase)
	}
}

func TestAnApproverCannotBendTheRules(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, []write{{"second", approve}}, twoOfTwo)
	text, err := json.Marshal(c.stored(t, request).Status.Votes)
	must(t, err)
	votesNow := string(text)
	with := func(votes string) string { return `{"decision":"Approved","votes":` + votes + `}` }
	for name, patch := range map[string]string{
		"another's vote is appended": with(strings.TrimSuffix(votesNow, "]") + `,{"username":"` + c.username("both") + `","decision":"Approved","time":"2026-01-02T03:04:05Z"}]`),
		"a vote is renamed":          with(strings.Replace(votesNow, c.username("second"), c.username("both"), 1)),
		"the votes are shortened":    with(`[]`),
		"the votes are gone":         with(`null`),
		"the phase is raised":        `{"decision":"Approved","phase":"Approved"}`,
	} {
		declined(t, name, c.write(t, request, write{"approver", patch}))
	}
	// What a client writes outside of status is dropped, and never signed.
	spec := `{"spec":{"requiredApprovals":1,"arguments":"{}","approveVerbs":["approve-nothing"]},"metadata":{"labels":{"team":"mine"}},"status":` + approve + `}`
	taken(t, "a vote with another spec beside it", c.approver.Status().Patch(t.Context(), request.DeepCopy(), merge(spec)))
	stored := c.stored(t, request)
	if diff := cmp.Diff(request.Spec, stored.Spec); diff != "" || stored.Labels["team"] != "" {
		t.Errorf("the request changed beside its status (-want +got):\n%s", diff)
	}
	if tally := c.tally(t, request); !tally.Approved(2) {
		t.Errorf("the votes come to %+v, want two valid yes for the stored spec", tally)
	}
	// Labels and annotations are for anybody who may write the object.
	taken(t, "an annotation", c.editor.Patch(t.Context(), request.DeepCopy(), merge(`{"metadata":{"annotations":{"ticket":"4711"}}}`)))
}

func TestNobodyDecidesTheirOwnRequest(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	for name, edit := range map[string]func(*v1alpha1.ApprovalRequest){
		"the requester":               func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.Username = c.username("approver") },
		"whom the requester acts for": func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.ActsFor = c.username("approver") },
	} {
		for _, patch := range []string{approve, deny, dismiss} {
			declined(t, name+" writes "+patch, c.write(t, c.request(t, pending, edit), write{"approver", patch}), "somebody else decides it")
		}
		taken(t, "somebody else than "+name, c.write(t, c.request(t, pending, edit), write{"second", approve}))
	}
	taken(t, "the same person on another's request", c.write(t, c.request(t, pending), write{"approver", approve}))
}

// It moves the webhook's clock, so it does not run beside other tests.
func TestAVoteAfterExpiryIsRefused(t *testing.T) {
	c := newCast(t)
	request, yes := c.request(t, pending), c.request(t, approved)
	ahead.Store(int64(time.Hour - 10*time.Second))
	taken(t, "in time", c.write(t, c.request(t, pending), write{"approver", approve}))
	ahead.Store(int64(time.Hour + time.Second))
	declined(t, "a yes after expiry", c.write(t, request, write{"approver", approve}), "expired at", "send its call again")
	declined(t, "a yes taken back after expiry", c.write(t, yes, write{"approver", deny}), "expired at")
	ahead.Store(0)
	taken(t, "the same with the clock set right", c.write(t, request, write{"approver", approve}))
}

func TestTheServerOfTheRequestMustBeThere(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request, unclear := c.request(t, pending), c.request(t, ambiguous)
	must(t, c.owner.Delete(t.Context(), c.server.DeepCopy()))
	declined(t, "the server is gone", c.write(t, request, write{"approver", approve}), "server billing", "gone")
	again := fixture.GovernedServer(c.namespace, "billing")
	must(t, c.owner.Create(t.Context(), &again))
	declined(t, "another server has its name", c.write(t, request, write{"approver", approve}), "server billing", "gone")
	taken(t, "what is unclear is settled all the same", c.write(t, unclear, write{"resolver", settle("Committed", "")}))
	c.server = again
	taken(t, "a request of the server that is there", c.write(t, c.request(t, pending), write{"approver", approve}))
}

// robot is a ServiceAccount with every verb that a person who decides has, by name.
func (c *cast) robot(t *testing.T, namespace, name string) actor {
	t.Helper()
	cfg := plane.ServiceAccount(t, namespace, name)
	plane.Grant(t, c.namespace, cfg, fixture.Rule("approvalrequests/status", "patch"), fixture.Authority("billing", "approve", "resolve"))
	return actor{Client: plane.Client(t, cfg), cfg: cfg}
}

func everything() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
}

func TestServiceAccountsDecideOnlyWhereTheyMay(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	robots := plane.Namespace(t)
	own, named, wild := c.robot(t, c.namespace, "own"), c.robot(t, robots, "named"), c.robot(t, robots, "wild")
	plane.Grant(t, c.namespace, wild.cfg, everything())
	boss := plane.User(t, "boss@"+c.namespace)
	plane.Grant(t, c.namespace, boss, everything())

	decides := func(a actor) error {
		return a.Status().Patch(t.Context(), new(c.request(t, pending)), merge(`{"status":`+approve+`}`))
	}
	settles := func(a actor) error {
		return a.Status().Patch(t.Context(), new(c.request(t, ambiguous)), merge(`{"status":`+settle("Committed", "")+`}`))
	}
	for name, does := range map[string]func(actor) error{"decides": decides, "settles": settles} {
		declined(t, "a ServiceAccount "+name+" where none may", does(named), "allowServiceAccounts")
		taken(t, "a person with a wildcard "+name, does(actor{Client: plane.Client(t, boss)}))
	}
	must(t, c.owner.Patch(t.Context(), c.server.DeepCopy(), merge(`{"spec":{"approvals":{"allowServiceAccounts":true}}}`)))
	for name, does := range map[string]func(actor) error{"decides": decides, "settles": settles} {
		taken(t, "a ServiceAccount of another namespace "+name, does(named))
		declined(t, "a ServiceAccount of the request's namespace "+name, does(own), "its own namespace")
		declined(t, "a ServiceAccount with a wildcard "+name, does(wild), "wildcard", "[billing]")
	}
	taken(t, "a person", decides(c.approver))
}

// Admission sees whom somebody impersonates, and not who does it: the vote is that user's. The role edit, which
// Kubernetes ships, may impersonate the ServiceAccounts of its namespace; so may whoever makes their tokens. That is
// why a ServiceAccount votes only where the server says so, and never in its own namespace.
func TestAnImpersonatedVoteIsTheImpersonatedUsers(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	robots := plane.Namespace(t)
	c.robot(t, robots, "bot")
	impersonator := plane.User(t, "impersonator@"+c.namespace)
	plane.GrantClusterRole(t, robots, impersonator, "system:aggregate-to-edit")
	name := "impersonates-" + c.namespace
	must(t, admin(t).Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"},
		ResourceNames: []string{c.username("approver"), c.username("requester"), c.username("editor")},
	}}}))
	must(t, admin(t).Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "impersonator@" + c.namespace}},
	}))
	as := func(username string) error {
		cfg := rest.CopyConfig(impersonator)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: username}
		request := c.request(t, pending)
		err := plane.Client(t, cfg).Status().Patch(t.Context(), &request, merge(`{"status":`+approve+`}`))
		if err == nil && request.Status.Votes[0].Username != username {
			t.Errorf("the vote is %s's, want it to be %s's", request.Status.Votes[0].Username, username)
		}
		return err
	}
	until(t, "the impersonator may impersonate", func(ctx context.Context) bool {
		cfg := rest.CopyConfig(impersonator)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: c.username("editor")}
		return plane.Client(t, cfg).Create(ctx, &authenticationv1.SelfSubjectReview{}) == nil
	})
	taken(t, "as one who may", as(c.username("approver")))
	declined(t, "as one who may not", as(c.username("editor")), "verb approve")
	declined(t, "as the requester", as(c.username("requester")), "somebody else")
	if err := as(c.username("second")); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "webhook") {
		t.Errorf("as somebody whom one may not impersonate: %v, want it refused by RBAC", err)
	}
	bot := "system:serviceaccount:" + robots + ":bot"
	declined(t, "as a ServiceAccount where none may vote", as(bot), "ServiceAccount")
	must(t, c.owner.Patch(t.Context(), c.server.DeepCopy(), merge(`{"spec":{"approvals":{"allowServiceAccounts":true}}}`)))
	taken(t, "as a ServiceAccount where some may vote", as(bot))
}

func TestVotesThatRaceAllCount(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	const voters = 8
	request := c.request(t, pending, func(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = voters })
	var all sync.WaitGroup
	for i := range voters {
		who := person(t, c.namespace, fmt.Sprintf("voter-%d", i), fixture.Authority("billing", "approve"))
		for range 2 { // each person twice: the second yes is refused, or loses the race and is refused then
			all.Go(func() {
				err := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("approvalrequests").GroupResource(), request.Name, nil)
				for retry := error(err); apierrors.IsConflict(retry); {
					retry = who.Status().Patch(t.Context(), request.DeepCopy(), merge(`{"status":{"decision":"Approved"}}`))
				}
			})
		}
	}
	all.Wait()
	stored := c.stored(t, request)
	if tally := c.tally(t, request); stored.Status.Phase != v1alpha1.PhaseApproved || len(stored.Status.Votes) != voters || !tally.Approved(voters) {
		t.Errorf("%s with %d votes, %+v; want Approved by each of %d persons once", stored.Status.Phase, len(stored.Status.Votes), tally, voters)
	}
}
