// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// unseen labels the namespaces whose writes the webhook does not see.
const unseen = "test.tidewaiter.dev/without-webhook"

var looksAway sync.Mutex

// withoutWebhook takes a cast's namespace out of the webhook's sight, as if its configurations had been deleted.
func withoutWebhook(t *testing.T, c *cast) {
	t.Helper()
	ctx, named := t.Context(), client.ObjectKey{Name: v1alpha1.WebhookConfiguration}
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: unseen, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	looksAway.Lock()
	defer looksAway.Unlock()
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	must(t, admin(t).Get(ctx, named, &mutating))
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].NamespaceSelector = selector
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	must(t, admin(t).Get(ctx, named, &validating))
	for i := range validating.Webhooks {
		validating.Webhooks[i].NamespaceSelector = selector
	}
	must(t, admin(t).Update(ctx, &mutating))
	must(t, admin(t).Update(ctx, &validating))
	must(t, admin(t).Patch(ctx, namespaceObject(c.namespace), merge(`{"metadata":{"labels":{"`+unseen+`":""}}}`)))
	probe := c.request(t, pending)
	until(t, "the webhook does not see the namespace", func(ctx context.Context) bool {
		decided := c.approver.Status().Patch(ctx, probe.DeepCopy(), merge(`{"status":`+approve+`}`), client.DryRunAll)
		voted := c.approver.Status().Patch(ctx, probe.DeepCopy(), merge(`{"status":`+c.vote("approver", "Approved", "Approved")+`}`), client.DryRunAll)
		return fixture.RefusedBy(decided, requestsStatusPolicy) && voted == nil
	})
}

// votesOf writes a list of votes, each "person says decision".
func (c *cast) votesOf(votes ...string) string {
	all := make([]string, len(votes))
	for i, vote := range votes {
		person, decision, _ := strings.Cut(vote, " says ")
		all[i] = fmt.Sprintf(`{"username":%q,"decision":%q,"time":"2026-01-02T03:04:05Z"}`, c.username(person), decision)
	}
	return `"votes":[` + strings.Join(all, ",") + `]`
}

// vote is what somebody writes who does the webhook's work by hand: without a signature, which is all they can do.
func (c *cast) vote(person, decision, phase string) string {
	return `{` + c.votesOf(person+" says "+decision) + `,"decision":"` + decision + `","phase":"` + phase + `"}`
}

// What the policies hold when the webhook does not run at all. The most that anybody can write then is a vote of their
// own that nobody has signed, and gateways count signed votes only.
func TestBeneathTheWebhook(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	withoutWebhook(t, c)
	yes := c.vote("approver", "Approved", "Approved")
	half := `{` + c.votesOf("approver says Approved") + `}`
	var (
		one  = []write{{"approver", half}}
		said = []write{{"approver", yes}}
		amb  = append(said[:1:1], write{"gateway", claim}, write{"gateway", unclear})
	)
	settled := func(outcome, by, phase string) string {
		return `{"phase":"` + phase + `",` + settle(outcome, c.username(by))[1:]
	}
	for _, tc := range []struct {
		name  string
		story []write
		write write
		edits func(*v1alpha1.ApprovalRequest)
		want  outcome
	}{
		{"a decision without a vote", pending, write{"approver", approve}, nil, forbidden},
		{"a denial without a vote", said, write{"approver", deny}, nil, forbidden},
		{"a phase without a vote", pending, write{"approver", to("Approved")}, nil, forbidden},
		{"a phase without a vote by the manager", pending, write{"manager", to("Denied")}, nil, forbidden},
		{"a reason alone", pending, write{"approver", `{"reason":"because"}`}, nil, forbidden},
		{"a decision is emptied", said, write{"approver", `{"decision":null}`}, nil, forbidden},
		{"an unsigned vote in one's own name", pending, write{"approver", yes}, nil, fine},
		{"an unsigned no in one's own name", pending, write{"approver", c.vote("approver", "Denied", "Denied")}, nil, fine},
		{"an unsigned not now", pending, write{"approver", c.vote("approver", "Dismissed", "Dismissed")}, nil, fine},
		{"a vote in another's name", pending, write{"approver", c.vote("second", "Approved", "Approved")}, nil, forbidden},
		{"a vote with another's uid", pending, write{"approver", strings.Replace(yes, `"time"`, `"uid":"u-1","time"`, 1)}, nil, forbidden},
		{"a vote without the verb", pending, write{"editor", c.vote("editor", "Approved", "Approved")}, nil, forbidden},
		{"a vote of another server's approver", pending, write{"payroll approver", c.vote("payroll", "Approved", "Approved")}, nil, forbidden},
		{"a vote of the requester", pending, write{"requester", c.vote("requester", "Approved", "Approved")}, nil, forbidden},
		{"a vote of whom the requester acts for", pending, write{"approver", yes},
			func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.ActsFor = c.username("approver") }, forbidden},
		{"the decision is not the vote's", pending, write{"approver", strings.Replace(yes, `"decision":"Approved","phase"`, `"decision":"Denied","phase"`, 1)}, nil, forbidden},
		{"the phase is not the vote's", pending, write{"approver", c.vote("approver", "Denied", "Approved")}, nil, forbidden},
		{"a vote and no phase", pending, write{"approver", `{` + c.votesOf("approver says Denied") + `}`}, nil, forbidden},
		{"a vote in the write of an execution, both rights", said, write{"both", `{"decision":"Denied",` + c.votesOf("approver says Approved", "both says Denied") + "," + claim[1:]}, nil, forbidden},
		{"a vote and a condition", pending, write{"approver", counted[:len(counted)-1] + "," + yes[1:]}, nil, forbidden},
		{"a vote on what has ended", append(said[:1:1], write{"approver", `{"decision":"Denied","phase":"Denied",` + c.votesOf("approver says Approved", "approver says Denied") + `}`}),
			write{"second", `{` + c.votesOf("approver says Approved", "approver says Denied", "second says Approved") + `}`}, nil, forbidden},

		{"one yes of two", pending, write{"approver", half}, twoOfTwo, fine},
		{"one yes of two decides", pending, write{"approver", yes}, twoOfTwo, forbidden},
		{"one yes of two with its decision", pending, write{"approver", `{"decision":"Approved",` + half[1:]}, twoOfTwo, forbidden},
		{"one yes of two leaves its reason", pending, write{"approver", `{"reason":"because",` + half[1:]}, twoOfTwo, forbidden},
		{"the second yes of two", one, write{"second", `{"decision":"Approved","phase":"Approved",` + c.votesOf("approver says Approved", "second says Approved") + `}`}, twoOfTwo, fine},
		{"the same person's second yes of two", one, write{"approver", `{"decision":"Approved","phase":"Approved",` +
			strings.Replace(c.votesOf("approver says Approved", "approver says Approved"), "03:04:05Z\"}]", "03:04:06Z\"}]", 1) + `}`}, twoOfTwo, forbidden},
		{"two votes at once", pending, write{"approver", `{"decision":"Approved","phase":"Approved",` + c.votesOf("approver says Approved", "second says Approved") + `}`}, twoOfTwo, forbidden},
		{"the second yes in place of the first", one, write{"second", `{` + c.votesOf("second says Approved") + `}`}, twoOfTwo, forbidden},
		{"the second yes renames the first", one, write{"second", `{"decision":"Approved","phase":"Approved",` + c.votesOf("both says Approved", "second says Approved") + `}`}, twoOfTwo, forbidden},
		{"the first yes is doubled", one, write{"approver", `{` + c.votesOf("approver says Approved", "approver says Approved") + `}`}, twoOfTwo, forbidden},
		{"the votes are emptied", one, write{"approver", `{"votes":null}`}, twoOfTwo, forbidden},

		{"a resolution with its phase", amb, write{"resolver", settled("Committed", "resolver", "Succeeded")}, nil, fine},
		{"the other resolution with its phase", amb, write{"resolver", settled("NotExecuted", "resolver", "Failed")}, nil, fine},
		{"a resolution with the other phase", amb, write{"resolver", settled("NotExecuted", "resolver", "Succeeded")}, nil, forbidden},
		{"a resolution without its phase", amb, write{"resolver", settle("Committed", c.username("resolver"))}, nil, forbidden},
		{"a resolution in another's name", amb, write{"resolver", settled("Committed", "second", "Succeeded")}, nil, forbidden},
		{"a resolution without the verb", amb, write{"approver", settled("Committed", "approver", "Succeeded")}, nil, forbidden},
		{"a resolution by the requester", amb, write{"requester", settled("NotExecuted", "requester", "Failed")}, nil, forbidden},
		{"a resolution by whom the requester acts for", amb, write{"resolver", settled("NotExecuted", "resolver", "Failed")},
			func(r *v1alpha1.ApprovalRequest) { r.Spec.Requester.ActsFor = c.username("resolver") }, forbidden},
		{"a resolution and a late answer, both rights", amb, write{"both", `{"execution":{"outcome":"Succeeded"},` + settled("Committed", "both", "Succeeded")[1:]}, nil, forbidden},
		{"the manager ends what is unclear", amb, write{"manager", to("Failed")}, nil, forbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			edits := []func(*v1alpha1.ApprovalRequest){func(*v1alpha1.ApprovalRequest) {}}
			if tc.edits != nil {
				edits[0] = tc.edits
			}
			err := c.write(t, c.request(t, tc.story, edits...), tc.write)
			if tc.want == fine {
				taken(t, tc.write.patch, err)
			} else {
				refused(t, tc.write.patch, requestsStatusPolicy, err)
			}
		})
	}
}

// Which ServiceAccounts the policies keep from voting when the webhook does not.
func TestServiceAccountsBeneathTheWebhook(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	withoutWebhook(t, c)
	robots := plane.Namespace(t)
	own, named, wild := c.robot(t, c.namespace, "own"), c.robot(t, robots, "named"), c.robot(t, robots, "wild")
	plane.Grant(t, c.namespace, wild.cfg, everything())
	vote := func(namespace, name string) string {
		return strings.ReplaceAll(c.vote("robot", "Denied", "Denied"), c.username("robot"), "system:serviceaccount:"+namespace+":"+name)
	}
	uid := func(a actor, patch string) string {
		return strings.Replace(patch, `"time"`, `"uid":"`+whoIs(t, a).UID+`","time"`, 1)
	}
	try := func(a actor, patch string) error {
		return a.Status().Patch(t.Context(), new(c.request(t, pending)), merge(`{"status":`+uid(a, patch)+`}`))
	}
	refused(t, "of the request's namespace", requestsStatusPolicy, try(own, vote(c.namespace, "own")))
	refused(t, "by a wildcard", requestsStatusPolicy, try(wild, vote(robots, "wild")))
	taken(t, "of another namespace, with the verb by name", try(named, vote(robots, "named")))
}

// The manager's role holds serve to be able to give it on. It claims nothing with it.
func TestTheManagerDoesNotServe(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	plane.Grant(t, c.namespace, c.manager.cfg, fixture.Authority("billing", "serve"))
	refused(t, "the manager claims", requestsStatusPolicy, c.write(t, c.request(t, approved), write{"manager", claim}))
	taken(t, "the gateway claims", c.write(t, c.request(t, approved), write{"gateway", claim}))
	refused(t, "the manager reports success", requestsStatusPolicy, c.write(t, c.request(t, executing), write{"manager", succeed}))
	taken(t, "the gateway reports success", c.write(t, c.request(t, executing), write{"gateway", succeed}))
}

// One account may hold two rights. It uses them in two writes: what is decided stands for itself.
func TestAWordIsWrittenAloneWhoeverWritesIt(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	withoutWebhook(t, c)
	plane.Grant(t, c.namespace, c.manager.cfg, fixture.Authority("billing", "approve", "resolve"))
	me := whoIs(t, c.manager)
	stamp := func(patch string) string {
		return strings.Replace(strings.ReplaceAll(patch, c.username("manager"), me.Username), `"time"`, `"uid":"`+me.UID+`","time"`, 1)
	}
	yes := stamp(c.vote("manager", "Approved", "Approved"))
	settled := `{"phase":"Succeeded",` + settle("Committed", me.Username)[1:]
	unclear := []write{{"approver", c.vote("approver", "Approved", "Approved")}, {"gateway", claim}, {"manager", overdue}}
	for _, tc := range []struct {
		story       []write
		alone, more string
	}{
		{unclear, settled, counted[:len(counted)-1] + "," + settled[1:]},
		{pending, yes, counted[:len(counted)-1] + "," + yes[1:]},
		{pending, yes, `{"cancellation":{"reason":"Withdrawn"},` + yes[1:]},
	} {
		refused(t, tc.more, requestsStatusPolicy, c.write(t, c.request(t, tc.story), write{"manager", tc.more}))
		taken(t, tc.alone, c.write(t, c.request(t, tc.story), write{"manager", tc.alone}))
	}
}
