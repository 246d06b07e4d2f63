// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// Patches of status, each what one writer would send.
const (
	approve  = `{"decision":"Approved","reason":"checked with finance"}`
	deny     = `{"decision":"Denied","reason":"not this customer"}`
	dismiss  = `{"decision":"Dismissed"}`
	claim    = `{"phase":"Executing","execution":{"gateway":"gw-1","claim":"c1","startedAt":"2026-01-02T03:04:05.000000Z","deadline":"2026-01-02T03:09:05.000000Z"}}`
	succeed  = `{"phase":"Succeeded","execution":{"finishedAt":"2026-01-02T03:04:06.000000Z","outcome":"Succeeded"}}`
	fail     = `{"phase":"Failed","execution":{"finishedAt":"2026-01-02T03:04:06.000000Z","outcome":"NotSent"}}`
	unclear  = `{"phase":"Ambiguous","execution":{"outcome":"Unclear"}}`
	overdue  = `{"phase":"Ambiguous"}`
	cancel   = `{"phase":"Cancelled","cancellation":{"reason":"ToolChanged"}}`
	expire   = `{"phase":"Expired"}`
	counted  = `{"conditions":[{"type":"Accounted","status":"True","reason":"Counted","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`
	junkVote = `{"votes":[{"username":"somebody","decision":"Approved","time":"2026-01-02T03:04:05Z"}]}`
)

func to(phase string) string { return `{"phase":"` + phase + `"}` }

func settle(outcome, by string) string {
	return `{"resolution":{"outcome":"` + outcome + `","reason":"the ledger has it","by":"` + by + `","time":"2026-01-02T03:04:05Z"}}`
}

// cast is who writes the status of requests: each has every verb on the kinds but the manager and the gateways.
type cast struct {
	world
	approver, resolver, both, payrollApprover, payrollGateway actor
	// requester is who the requests name, with every right there is.
	requester actor
	made      atomic.Int64
}

func newCast(t *testing.T) *cast {
	t.Helper()
	w := newWorld(t)
	status := fixture.Rule("approvalrequests/status", "patch")
	return &cast{
		world:           w,
		approver:        person(t, w.namespace, "approver", fixture.Authority("billing", "approve")),
		resolver:        person(t, w.namespace, "resolver", fixture.Authority("billing", "resolve")),
		both:            account(t, w.namespace, "both", status, fixture.Authority("billing", "serve", "approve", "resolve")),
		payrollApprover: person(t, w.namespace, "payroll", fixture.Authority("payroll", "approve", "resolve")),
		payrollGateway:  account(t, w.namespace, "gateway-payroll", status, fixture.Authority("payroll", "serve")),
		requester: account(t, w.namespace, "agent", status,
			fixture.Authority("billing", "approve", "approve-irreversible", "resolve")),
	}
}

func (c *cast) byName(name string) actor {
	return map[string]actor{
		"editor": c.editor, "owner": c.owner, "approver": c.approver, "resolver": c.resolver, "both": c.both,
		"payroll approver": c.payrollApprover, "gateway": c.gateway, "payroll gateway": c.payrollGateway,
		"manager": c.manager, "requester": c.requester,
	}[name]
}

// username is what the API server calls an actor.
func (c *cast) username(name string) string {
	switch name {
	case "both":
		return "system:serviceaccount:" + c.namespace + ":both"
	case "requester":
		return "system:serviceaccount:" + c.namespace + ":agent"
	}
	return name + "@" + c.namespace
}

// write is a patch of status by somebody.
type write struct{ as, patch string }

func (c *cast) write(t *testing.T, request v1alpha1.ApprovalRequest, w write) error {
	return c.byName(w.as).Status().Patch(t.Context(), &request, merge(`{"status":`+w.patch+`}`))
}

// request makes a request and takes it through the writes.
func (c *cast) request(t *testing.T, story []write, verbs ...string) v1alpha1.ApprovalRequest {
	t.Helper()
	request := fixture.ApprovalRequest(c.namespace, "billing", int(c.made.Add(1)))
	request.Spec.Requester.Username = c.username("requester")
	if len(verbs) > 0 {
		request.Spec.ApproveVerbs = verbs
	}
	must(t, c.gateway.Create(t.Context(), &request))
	for _, step := range story {
		if err := c.write(t, request, step); err != nil {
			t.Fatalf("%s writes %s: %v", step.as, step.patch, err)
		}
	}
	return request
}

// The lives of requests up to the phase that they are called for.
var (
	pending   = []write{}
	said      = []write{{"approver", approve}}
	approved  = append(said[:1:1], write{"manager", to("Approved")})
	denied    = []write{{"approver", deny}, {"manager", to("Denied")}}
	executing = append(approved[:2:2], write{"gateway", claim})
	succeeded = append(executing[:3:3], write{"gateway", succeed})
	ambiguous = append(executing[:3:3], write{"manager", overdue})
	cancelled = []write{{"gateway", cancel}}
	deniedNow = append(approved[:2:2], write{"approver", deny})
)

// outcome is what becomes of a write.
type outcome int

const (
	forbidden outcome = iota // by the admission policy
	unfit                    // by the CRD's table of phases
	fine
)

func TestWhoWritesWhatOfARequest(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	by := c.username
	for _, tc := range []struct {
		name  string
		story []write
		write write
		want  outcome
	}{
		{"the approver approves", pending, write{"approver", approve}, fine},
		{"the approver denies", pending, write{"approver", deny}, fine},
		{"the approver dismisses", pending, write{"approver", dismiss}, fine},
		{"the editor approves", pending, write{"editor", approve}, forbidden},
		{"the editor denies", pending, write{"editor", deny}, forbidden},
		{"the owner, who governs and promotes, approves", pending, write{"owner", approve}, forbidden},
		{"the approver of another server approves", pending, write{"payroll approver", approve}, forbidden},
		{"the gateway approves", pending, write{"gateway", approve}, forbidden},
		{"the manager approves", pending, write{"manager", approve}, forbidden},
		{"the requester approves with the verb", pending, write{"requester", approve}, forbidden},
		{"the requester denies with the verb", pending, write{"requester", deny}, forbidden},
		{"who serves and approves approves", pending, write{"both", approve}, fine},

		{"a yes is taken back before the manager saw it", said, write{"approver", deny}, fine},
		{"a yes is taken back before it is executed", approved, write{"approver", deny}, fine},
		{"the editor takes a yes back", approved, write{"editor", deny}, forbidden},
		{"a yes becomes not now", approved, write{"approver", dismiss}, forbidden},
		{"a yes is cleared", said, write{"approver", `{"decision":null,"reason":null}`}, forbidden},
		{"a yes is cleared after it counted", approved, write{"approver", `{"decision":null,"reason":null}`}, forbidden},
		{"a no becomes a yes", denied, write{"approver", approve}, forbidden},
		{"a no becomes a yes before the manager saw it", []write{{"approver", deny}}, write{"approver", approve}, forbidden},
		{"a no after the call began", executing, write{"approver", deny}, forbidden},
		{"a no after the end", succeeded, write{"approver", deny}, forbidden},
		{"a yes after it was cancelled", cancelled, write{"approver", approve}, forbidden},
		{"the same yes again", approved, write{"editor", approve}, fine},
		{"another reason for a yes", approved, write{"approver", `{"reason":"because"}`}, forbidden},
		{"a reason without a decision", pending, write{"approver", `{"reason":"because"}`}, forbidden},

		{"a yes and its phase", pending, write{"approver", `{"decision":"Approved","phase":"Approved"}`}, forbidden},
		{"a yes and a condition", pending, write{"approver", `{"decision":"Approved",` + counted[1:]}, forbidden},
		{"a yes and a vote", pending, write{"approver", `{"decision":"Approved",` + junkVote[1:]}, forbidden},
		{"a no to one's own cancellation, both rights", pending, write{"both", `{"decision":"Denied",` + cancel[1:]}, forbidden},
		{"a no in the claim, both rights", approved, write{"both", `{"decision":"Denied",` + claim[1:]}, forbidden},
		{"a yes and a resolution, both rights", pending, write{"both", `{"decision":"Approved",` + settle("Committed", by("both"))[1:]}, forbidden},
		{"the status is emptied", said, write{"editor", `{"decision":null,"phase":null,"reason":null}`}, forbidden},
		{"nothing changes", said, write{"editor", `{}`}, fine},

		{"a junk vote by the editor", pending, write{"editor", junkVote}, forbidden},
		{"a junk vote by the approver", pending, write{"approver", junkVote}, forbidden},
		{"a junk vote by the manager", pending, write{"manager", junkVote}, forbidden},
		{"the phase by the editor", pending, write{"editor", to("Approved")}, forbidden},
		{"the phase by the approver", pending, write{"approver", to("Approved")}, forbidden},
		{"the phase by the approver after a yes", said, write{"approver", to("Approved")}, forbidden},
		{"the phase by the gateway after a yes", said, write{"gateway", to("Approved")}, forbidden},
		{"the phase by the manager without a decision", pending, write{"manager", to("Approved")}, forbidden},
		{"the phase by the manager after a yes", said, write{"manager", to("Approved")}, fine},
		{"another phase by the manager than decided", said, write{"manager", to("Denied")}, forbidden},
		{"the phase by the manager after a late no", deniedNow, write{"manager", to("Denied")}, fine},
		{"a phase out of turn", pending, write{"manager", to("Succeeded")}, unfit},
		{"back to pending", denied, write{"manager", to("Pending")}, unfit},

		{"the manager lets it expire", pending, write{"manager", expire}, fine},
		{"the manager lets an approval expire", approved, write{"manager", expire}, fine},
		{"the gateway lets it expire", pending, write{"gateway", expire}, forbidden},
		{"the approver lets it expire", approved, write{"approver", expire}, forbidden},
		{"the gateway cancels", pending, write{"gateway", cancel}, fine},
		{"the gateway cancels an approved one", approved, write{"gateway", cancel}, fine},
		{"the manager cancels", approved, write{"manager", cancel}, fine},
		{"the editor cancels", pending, write{"editor", cancel}, forbidden},
		{"another server's gateway cancels", pending, write{"payroll gateway", cancel}, forbidden},
		{"cancelled without a reason", pending, write{"gateway", to("Cancelled")}, forbidden},
		{"a cancellation without the phase", pending, write{"gateway", `{"cancellation":{"reason":"Withdrawn"}}`}, forbidden},
		{"another reason of a cancellation", cancelled, write{"gateway", `{"cancellation":{"reason":"Withdrawn"}}`}, forbidden},
		{"the gateway cancels a no away", []write{{"approver", deny}}, write{"gateway", cancel}, forbidden},
		{"the gateway cancels a late no away", deniedNow, write{"gateway", cancel}, forbidden},

		{"the gateway claims", approved, write{"gateway", claim}, fine},
		{"who serves and approves claims", approved, write{"both", claim}, fine},
		{"the gateway claims what nobody approved", pending, write{"gateway", claim}, unfit},
		{"the gateway claims what was denied late", deniedNow, write{"gateway", claim}, forbidden},
		{"the gateway claims without a claim", approved, write{"gateway", to("Executing")}, forbidden},
		{"another server's gateway claims", approved, write{"payroll gateway", claim}, forbidden},
		{"the manager claims", approved, write{"manager", claim}, forbidden},
		{"the approver claims", approved, write{"approver", claim}, forbidden},
		{"an execution without the phase", approved, write{"gateway", `{"execution":{"claim":"c0"}}`}, forbidden},
		{"a second claim", executing, write{"gateway", `{"execution":{"claim":"c2"}}`}, forbidden},
		{"a second claim at the end", executing, write{"gateway", `{"phase":"Succeeded","execution":{"claim":"c2","outcome":"Succeeded"}}`}, forbidden},
		{"another start at the end", executing, write{"gateway", `{"phase":"Failed","execution":{"startedAt":"2026-01-02T03:05:05.000000Z"}}`}, forbidden},
		{"a longer deadline", executing, write{"gateway", `{"execution":{"deadline":"2026-01-03T03:05:05.000000Z"}}`}, forbidden},
		{"another deadline at the end", executing, write{"gateway", `{"phase":"Ambiguous","execution":{"deadline":"2026-01-03T03:05:05.000000Z"}}`}, forbidden},
		{"another gateway at the end", executing, write{"gateway", `{"phase":"Failed","execution":{"gateway":"gw-2"}}`}, forbidden},
		{"the execution is taken away", executing, write{"gateway", `{"phase":"Failed","execution":null}`}, forbidden},
		{"the gateway reports success", executing, write{"gateway", succeed}, fine},
		{"the gateway reports failure", executing, write{"gateway", fail}, fine},
		{"the gateway does not know", executing, write{"gateway", unclear}, fine},
		{"the gateway ends it without an outcome", executing, write{"gateway", to("Succeeded")}, forbidden},
		{"another server's gateway reports success", executing, write{"payroll gateway", succeed}, forbidden},
		{"the editor reports failure", executing, write{"editor", fail}, forbidden},
		{"the manager reports success", executing, write{"manager", succeed}, forbidden},
		{"the manager sees the deadline pass", executing, write{"manager", overdue}, fine},
		{"the resolver says it is unclear", executing, write{"resolver", overdue}, forbidden},
		{"another outcome after the end", succeeded, write{"gateway", `{"execution":{"outcome":"ToolError"}}`}, forbidden},
		{"another end after the end", succeeded, write{"gateway", to("Failed")}, unfit},
		{"a late answer of the same claim", ambiguous, write{"gateway", succeed}, fine},
		{"a late answer of another claim", ambiguous, write{"gateway", `{"phase":"Succeeded","execution":{"claim":"c2"}}`}, forbidden},
		{"a late answer by another server's gateway", ambiguous, write{"payroll gateway", succeed}, forbidden},

		{"the resolver settles it", ambiguous, write{"resolver", settle("Committed", by("resolver"))}, fine},
		{"the approver settles it", ambiguous, write{"approver", settle("Committed", by("approver"))}, forbidden},
		{"the gateway settles it", ambiguous, write{"gateway", settle("Committed", "gw")}, forbidden},
		{"the manager settles it", ambiguous, write{"manager", settle("Committed", "m")}, forbidden},
		{"the resolver of another server settles it", ambiguous, write{"payroll approver", settle("Committed", by("payroll"))}, forbidden},
		{"the requester settles it with the verb", ambiguous, write{"requester", settle("NotExecuted", by("requester"))}, forbidden},
		{"the resolver gives no reason", ambiguous,
			write{"resolver", strings.Replace(settle("NotExecuted", by("resolver")), "the ledger has it", "  ", 1)}, unfit},
		{"the resolver settles it in another name", ambiguous, write{"resolver", settle("Committed", by("owner"))}, forbidden},
		{"the resolver settles it with its phase", ambiguous, write{"resolver", `{"phase":"Succeeded",` + settle("Committed", by("resolver"))[1:]}, forbidden},
		{"who serves and resolves settles it with a late answer", ambiguous,
			write{"both", succeed[:len(succeed)-1] + "," + settle("Committed", by("both"))[1:]}, forbidden},
		{"the resolver settles what still runs", executing, write{"resolver", settle("NotExecuted", by("resolver"))}, forbidden},
		{"the resolver settles what nobody asked", pending, write{"resolver", settle("Committed", by("resolver"))}, forbidden},
		{"a resolution is changed", append(ambiguous[:4:4], write{"resolver", settle("Committed", by("resolver"))}),
			write{"resolver", settle("NotExecuted", by("resolver"))}, forbidden},
		{"a resolution is taken back", append(ambiguous[:4:4], write{"resolver", settle("Committed", by("resolver"))}),
			write{"resolver", `{"resolution":null}`}, forbidden},
		{"the manager follows a resolution", append(ambiguous[:4:4], write{"resolver", settle("Committed", by("resolver"))}),
			write{"manager", to("Succeeded")}, fine},
		{"the manager follows the other resolution", append(ambiguous[:4:4], write{"resolver", settle("NotExecuted", by("resolver"))}),
			write{"manager", to("Failed")}, fine},
		{"the manager ends it otherwise than resolved", append(ambiguous[:4:4], write{"resolver", settle("NotExecuted", by("resolver"))}),
			write{"manager", to("Succeeded")}, forbidden},
		{"the manager ends it without a resolution", ambiguous, write{"manager", to("Failed")}, forbidden},

		{"the manager counts it", succeeded, write{"manager", counted}, fine},
		{"the gateway counts it", succeeded, write{"gateway", counted}, forbidden},
		{"the editor counts it", denied, write{"editor", counted}, forbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			request := c.request(t, tc.story)
			err := c.write(t, request, tc.write)
			switch tc.want {
			case fine:
				taken(t, tc.write.patch, err)
			case unfit:
				invalid(t, tc.write.patch, err)
			default:
				refused(t, tc.write.patch, requestsStatusPolicy, err)
			}
		})
	}
}

func TestADecisionNeedsAllVerbsOfTheRequest(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	verbs := []string{"approve", "approve-irreversible", "approve-finance", "approve-legal"}
	for missing := range len(verbs) + 1 {
		var held []string
		for i, verb := range verbs {
			if i != missing {
				held = append(held, verb)
			}
		}
		who := person(t, c.namespace, fmt.Sprintf("all-but-%d", missing), fixture.Authority("billing", held...))
		for count := 1; count <= len(verbs); count++ {
			request := c.request(t, pending, verbs[:count]...)
			err := who.Status().Patch(t.Context(), &request, merge(`{"status":`+approve+`}`))
			if what := fmt.Sprintf("%v asked, %v held", verbs[:count], held); missing < count {
				refused(t, what, requestsStatusPolicy, err)
			} else {
				taken(t, what, err)
			}
		}
	}
}

// A manager that was given a person's verbs still leaves a trace of the word before it acts on it.
func TestAWordIsWrittenAloneWhoeverWritesIt(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	plane.Grant(t, c.namespace, c.manager.cfg, fixture.Authority("billing", "approve", "resolve"))
	const manager = "system:serviceaccount:" + fixture.SystemNamespace + ":" + v1alpha1.ManagerServiceAccount
	settled := settle("Committed", manager)
	for _, tc := range []struct {
		story       []write
		alone, more string
	}{
		{ambiguous, settled, `{"phase":"Succeeded",` + settled[1:]},
		{ambiguous, settled, counted[:len(counted)-1] + "," + settled[1:]},
		{pending, approve, counted[:len(counted)-1] + "," + approve[1:]},
		{pending, approve, cancel[:len(cancel)-1] + "," + approve[1:]},
	} {
		refused(t, tc.more, requestsStatusPolicy, c.write(t, c.request(t, tc.story), write{"manager", tc.more}))
		taken(t, tc.alone, c.write(t, c.request(t, tc.story), write{"manager", tc.alone}))
	}
}

// Wildcards on the kinds are not wildcards on everything, which nothing but the threat model can forbid.
func TestAWildcardOnTheKindsHoldsNoAuthority(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending)
	refused(t, "a wildcard on the kinds", requestsStatusPolicy, c.write(t, request, write{"editor", approve}))

	all := plane.User(t, "all@"+c.namespace)
	plane.Grant(t, c.namespace, all, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	err := plane.Client(t, all).Status().Patch(t.Context(), &request, merge(`{"status":`+approve+`}`))
	taken(t, "a wildcard on all resources of the group, authority included", err)
}

func TestWithoutPatchOnStatusRBACRefuses(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending)
	verbOnly := account(t, c.namespace, "verb-only", fixture.Authority("billing", "approve"))
	err := verbOnly.Status().Patch(t.Context(), request.DeepCopy(), merge(`{"status":`+approve+`}`))
	if !apierrors.IsForbidden(err) || fixture.RefusedBy(err, requestsStatusPolicy) {
		t.Errorf("the verb without patch on status: %v, want it refused by RBAC", err)
	}
	patcher := account(t, c.namespace, "patcher", fixture.Authority("billing", "approve"), fixture.Rule("approvalrequests/status", "patch"))
	taken(t, "the verb and patch on status",
		patcher.Status().Patch(t.Context(), request.DeepCopy(), merge(`{"status":`+approve+`}`)))
}
