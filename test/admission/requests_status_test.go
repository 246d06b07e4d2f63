// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

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
	approver, second, resolver, both, payrollApprover, payrollGateway actor
	// requester is who the requests name, with every right there is.
	requester actor
	server    v1alpha1.GovernedServer
	made      atomic.Int64
}

func newCast(t *testing.T) *cast {
	t.Helper()
	w := newWorld(t)
	c := &cast{
		world:           w,
		approver:        person(t, w.namespace, "approver", fixture.Authority("billing", "approve")),
		second:          person(t, w.namespace, "second", fixture.Authority("billing", "approve")),
		resolver:        person(t, w.namespace, "resolver", fixture.Authority("billing", "resolve")),
		both:            person(t, w.namespace, "both", fixture.Authority("billing", "serve", "approve", "resolve")),
		payrollApprover: person(t, w.namespace, "payroll", fixture.Authority("payroll", "approve", "resolve")),
		payrollGateway:  account(t, w.namespace, "gateway-payroll", fixture.Rule("approvalrequests/status", "patch"), fixture.Authority("payroll", "serve")),
		requester: person(t, w.namespace, "requester",
			fixture.Authority("billing", "approve", "approve-irreversible", "resolve")),
		server: fixture.GovernedServer(w.namespace, "billing"),
	}
	must(t, w.owner.Create(t.Context(), &c.server))
	return c
}

func (c *cast) byName(name string) actor {
	return map[string]actor{
		"editor": c.editor, "owner": c.owner, "approver": c.approver, "second": c.second, "resolver": c.resolver, "both": c.both,
		"payroll approver": c.payrollApprover, "gateway": c.gateway, "payroll gateway": c.payrollGateway,
		"manager": c.manager, "requester": c.requester,
	}[name]
}

// username is what the API server calls an actor.
func (c *cast) username(name string) string { return name + "@" + c.namespace }

// write is a patch of status by somebody.
type write struct{ as, patch string }

func (c *cast) write(t *testing.T, request v1alpha1.ApprovalRequest, w write) error {
	return c.byName(w.as).Status().Patch(t.Context(), &request, merge(`{"status":`+w.patch+`}`))
}

// request makes a request and takes it through the writes.
func (c *cast) request(t *testing.T, story []write, edits ...func(*v1alpha1.ApprovalRequest)) v1alpha1.ApprovalRequest {
	t.Helper()
	request := fixture.ApprovalRequest(c.namespace, "billing", int(c.made.Add(1)))
	request.Spec.ServerRef.UID = string(c.server.UID)
	request.Spec.Requester.Username = c.username("requester")
	for _, edit := range edits {
		edit(&request)
	}
	must(t, c.gateway.Create(t.Context(), &request))
	for _, step := range story {
		if err := c.write(t, request, step); err != nil {
			t.Fatalf("%s writes %s: %v", step.as, step.patch, err)
		}
	}
	return request
}

// stored returns a request as it is now.
func (c *cast) stored(t *testing.T, request v1alpha1.ApprovalRequest) v1alpha1.ApprovalRequest {
	t.Helper()
	must(t, c.editor.Get(t.Context(), client.ObjectKeyFromObject(&request), &request))
	return request
}

// twoOfTwo asks for two approvals.
func twoOfTwo(r *v1alpha1.ApprovalRequest) { r.Spec.RequiredApprovals = 2 }

// The lives of requests up to the phase that they are called for.
var (
	pending   = []write{}
	approved  = []write{{"approver", approve}}
	denied    = []write{{"approver", deny}}
	executing = append(approved[:1:1], write{"gateway", claim})
	succeeded = append(executing[:2:2], write{"gateway", succeed})
	ambiguous = append(executing[:2:2], write{"manager", overdue})
	resolved  = append(ambiguous[:3:3], write{"resolver", settle("Committed", "")})
	cancelled = []write{{"gateway", cancel}}
	deniedNow = append(approved[:1:1], write{"approver", deny})
)

// outcome is what becomes of a write.
type outcome int

const (
	forbidden outcome = iota // by the admission policy
	refusal                  // by the webhook of votes
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
		{"the editor approves", pending, write{"editor", approve}, refusal},
		{"the editor denies", pending, write{"editor", deny}, refusal},
		{"the owner, who governs and promotes, approves", pending, write{"owner", approve}, refusal},
		{"the approver of another server approves", pending, write{"payroll approver", approve}, refusal},
		{"the gateway approves", pending, write{"gateway", approve}, refusal},
		{"the manager approves", pending, write{"manager", approve}, refusal},
		{"the requester approves with the verb", pending, write{"requester", approve}, refusal},
		{"the requester denies with the verb", pending, write{"requester", deny}, refusal},
		{"who serves and approves approves", pending, write{"both", approve}, fine},

		{"a yes is taken back before it is executed", approved, write{"approver", deny}, fine},
		{"another person says no to a yes", approved, write{"second", deny}, fine},
		{"the editor takes a yes back", approved, write{"editor", deny}, refusal},
		{"a yes becomes not now", approved, write{"approver", dismiss}, refusal},
		{"a yes is cleared", approved, write{"approver", `{"decision":null,"reason":null}`}, refusal},
		{"a no becomes a yes", denied, write{"approver", approve}, refusal},
		{"a no becomes another person's yes", denied, write{"second", approve}, refusal},
		{"not now becomes a yes", []write{{"approver", dismiss}}, write{"approver", approve}, refusal},
		{"a no after the call began", executing, write{"approver", deny}, refusal},
		{"a no after the end", succeeded, write{"approver", deny}, refusal},
		{"a yes after it was cancelled", cancelled, write{"approver", approve}, refusal},
		{"the same yes again", approved, write{"editor", approve}, fine},
		{"another reason for a yes", approved, write{"approver", `{"reason":"because"}`}, refusal},
		{"a reason without a decision", pending, write{"approver", `{"reason":"because"}`}, refusal},
		{"a decision that there is not", pending, write{"approver", `{"decision":"Maybe"}`}, refusal},

		{"a yes and its phase", pending, write{"approver", `{"decision":"Approved","phase":"Approved"}`}, refusal},
		{"a yes and a condition", pending, write{"approver", `{"decision":"Approved",` + counted[1:]}, refusal},
		{"a yes and a vote", pending, write{"approver", `{"decision":"Approved",` + junkVote[1:]}, refusal},
		{"a no to one's own cancellation, both rights", pending, write{"both", `{"decision":"Denied",` + cancel[1:]}, refusal},
		{"a no in the claim, both rights", approved, write{"both", `{"decision":"Denied",` + claim[1:]}, refusal},
		{"a yes and a resolution, both rights", pending, write{"both", `{"decision":"Approved",` + settle("Committed", by("both"))[1:]}, refusal},
		{"the status is emptied", approved, write{"editor", `{"decision":null,"phase":null,"reason":null}`}, refusal},
		{"the votes are emptied", approved, write{"approver", `{"votes":null}`}, refusal},
		{"nothing changes", approved, write{"editor", `{}`}, fine},

		{"a junk vote by the editor", pending, write{"editor", junkVote}, refusal},
		{"a junk vote by the approver", pending, write{"approver", junkVote}, refusal},
		{"a junk vote by the manager", pending, write{"manager", junkVote}, refusal},
		{"the phase by the editor", pending, write{"editor", to("Approved")}, refusal},
		{"the phase by the approver", pending, write{"approver", to("Approved")}, refusal},
		{"the phase by the approver after a yes", approved, write{"approver", to("Denied")}, refusal},
		{"the phase by the gateway after a yes", approved, write{"gateway", to("Denied")}, refusal},
		{"the phase by the manager without a decision", pending, write{"manager", to("Approved")}, refusal},
		{"another phase by the manager than decided", approved, write{"manager", to("Denied")}, refusal},
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
		{"the gateway cancels a no away", denied, write{"gateway", cancel}, unfit},
		{"the gateway cancels a late no away", deniedNow, write{"gateway", cancel}, unfit},

		{"the gateway claims", approved, write{"gateway", claim}, fine},
		{"who serves and approves claims", approved, write{"both", claim}, fine},
		{"the gateway claims what nobody approved", pending, write{"gateway", claim}, unfit},
		{"the gateway claims what was denied late", deniedNow, write{"gateway", claim}, unfit},
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
		{"the resolver settles it without a name and a time", ambiguous, write{"resolver", `{"resolution":{"outcome":"NotExecuted","reason":"asked the bank"}}`}, fine},
		{"the approver settles it", ambiguous, write{"approver", settle("Committed", by("approver"))}, refusal},
		{"the gateway settles it", ambiguous, write{"gateway", settle("Committed", "gw")}, refusal},
		{"the manager settles it", ambiguous, write{"manager", settle("Committed", "m")}, refusal},
		{"the resolver of another server settles it", ambiguous, write{"payroll approver", settle("Committed", by("payroll"))}, refusal},
		{"the requester settles it with the verb", ambiguous, write{"requester", settle("NotExecuted", by("requester"))}, refusal},
		{"the resolver gives no reason", ambiguous,
			write{"resolver", strings.Replace(settle("NotExecuted", by("resolver")), "the ledger has it", "  ", 1)}, refusal},
		{"the resolver settles it in another name", ambiguous, write{"resolver", settle("Committed", by("owner"))}, fine},
		{"the resolver settles it with its phase", ambiguous, write{"resolver", `{"phase":"Succeeded",` + settle("Committed", by("resolver"))[1:]}, refusal},
		{"the resolver finds out something else", ambiguous, write{"resolver", settle("Perhaps", by("resolver"))}, refusal},
		{"the resolver writes the phase alone", ambiguous, write{"resolver", to("Failed")}, refusal},
		{"who serves and resolves settles it with a late answer", ambiguous,
			write{"both", succeed[:len(succeed)-1] + "," + settle("Committed", by("both"))[1:]}, refusal},
		{"the resolver settles what still runs", executing, write{"resolver", settle("NotExecuted", by("resolver"))}, refusal},
		{"the resolver settles what nobody asked", pending, write{"resolver", settle("Committed", by("resolver"))}, refusal},
		{"a resolution is changed", resolved, write{"resolver", settle("NotExecuted", by("resolver"))}, refusal},
		{"a resolution is taken back", resolved, write{"resolver", `{"resolution":null}`}, refusal},
		{"the manager ends it without a resolution", ambiguous, write{"manager", to("Failed")}, refusal},

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
			case refusal:
				declined(t, tc.write.patch, err)
			case unfit:
				invalid(t, tc.write.patch, err)
			default:
				refused(t, tc.write.patch, requestsStatusPolicy, err)
			}
		})
	}
}
