// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// needing is a rule that asks for a verb besides the tier's.
func needing(verb string) v1alpha1.Rule {
	r := rule(v1alpha1.EffectRequireApproval, "update_*")
	r.Name, r.Approvals = "needs", &v1alpha1.RuleApprovals{Verb: verb}
	return r
}

func TestACallIsJudgedByThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	denied := rule(v1alpha1.EffectDeny, "update_*")
	for name, tc := range map[string]struct {
		before, after []v1alpha1.ToolPolicy
		want          string // the code of the answer; "" runs
		text          string // in the answer
		phase         v1alpha1.Phase
		reason        v1alpha1.CancellationReason
	}{
		"nothing changed":        {nil, nil, "", "", v1alpha1.PhaseSucceeded, ""},
		"a rule denies it":       {nil, []v1alpha1.ToolPolicy{team(denied)}, "RuleDenied", "(ToolPolicy/team rule deny)", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"a baseline denies it":   {nil, []v1alpha1.ToolPolicy{baseline(denied)}, "RuleDenied", "(ToolPolicy/tidewaiter-system/fleet rule deny)", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"a rule allows it":       {nil, []v1alpha1.ToolPolicy{team(rule(v1alpha1.EffectAllow, "update_*"))}, "", "", v1alpha1.PhaseSucceeded, ""},
		"a rule asks for a verb": {nil, []v1alpha1.ToolPolicy{team(needing("approve-finance"))}, codePending, "(ToolPolicy/team rule needs) and asks for more than it did", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"another verb is asked":  {[]v1alpha1.ToolPolicy{team(needing("approve-legal"))}, []v1alpha1.ToolPolicy{team(needing("approve-finance"))}, codePending, "asks for more than it did", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"the verb is gone":       {[]v1alpha1.ToolPolicy{team(needing("approve-finance"))}, nil, "", "", v1alpha1.PhaseSucceeded, ""},
		"two have to approve": {nil, []v1alpha1.ToolPolicy{team(v1alpha1.Rule{Name: "two", Tools: []string{"*"}, Decision: v1alpha1.EffectRequireApproval, Approvals: &v1alpha1.RuleApprovals{Required: 2}})},
			codePending, "(ToolPolicy/team rule two)", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"the rule says it otherwise": {[]v1alpha1.ToolPolicy{team(needing("approve-finance"))}, []v1alpha1.ToolPolicy{team(rule(v1alpha1.EffectRequireApproval, "get_*"), needing("approve-finance"))}, "", "", v1alpha1.PhaseSucceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(tc.before...)
			body := r.approved("update_invoice")
			name := r.request().Name
			r.govern(tc.after...)
			got := r.post(body)
			if got.code() != tc.want || !strings.Contains(got.body, tc.text) {
				t.Errorf("code %q, want %q with %q: %s", got.code(), tc.want, tc.text, got.body)
			}
			if tc.want == "" {
				r.ran(body)
			} else {
				r.nothingSent()
			}
			if tc.phase == v1alpha1.PhaseCancelled && !strings.Contains(got.body, name) {
				t.Errorf("the caller is not told which request: %s", got.body)
			}
			r.ended(name, tc.phase, tc.reason)
		})
	}
}

// ended fails unless a request has ended in this way.
func (r *rig) ended(name string, phase v1alpha1.Phase, why v1alpha1.CancellationReason) {
	r.t.Helper()
	for _, request := range r.requests() {
		var reason v1alpha1.CancellationReason
		if request.Status.Cancellation != nil {
			reason = request.Status.Cancellation.Reason
		}
		if request.Name == name && (request.CurrentPhase() != phase || reason != why) {
			r.t.Errorf("the request is %s (%s), want %s (%s)", request.CurrentPhase(), reason, phase, why)
		}
	}
}

func TestAHeldCallIsJudgedByThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after  v1alpha1.ToolPolicy
		yes    bool // a person approves behind the change
		want   string
		text   string
		phase  v1alpha1.Phase
		reason v1alpha1.CancellationReason
	}{
		"nothing that concerns it":  {team(rule(v1alpha1.EffectDeny, "delete_*")), true, "", "", v1alpha1.PhaseSucceeded, ""},
		"a rule denies it":          {team(rule(v1alpha1.EffectDeny, "update_*")), false, "RuleDenied", "(ToolPolicy/team rule deny)", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"a rule allows it":          {team(rule(v1alpha1.EffectAllow, "update_*")), false, "", "", v1alpha1.PhaseCancelled, v1alpha1.CancelWithdrawn},
		"a rule asks for more":      {team(needing("approve-finance")), true, codePending, "(ToolPolicy/team rule needs) and asks for more", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"a rule cannot be judged":   {team(when(rule(v1alpha1.EffectDeny, "update_*"), "args.m > 1")), false, "RuleUncertain", "args.m", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
		"a baseline stops the rest": {stopped(), false, "ServerStopped", "(ToolPolicy/tidewaiter-system/fleet spec.mode)", v1alpha1.PhaseCancelled, v1alpha1.CancelPolicyChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.hold(20 * time.Second)
			body := toolCall("update_invoice", `{"n":1}`)
			answers := r.later(t.Context(), body)
			r.held()
			request := r.request()
			r.govern(tc.after)
			if tc.yes {
				r.decideOn(request, v1alpha1.DecisionApproved, "alice")
			}
			if tc.want == codePending {
				r.until("another request", func() bool { return len(r.requests()) == 2 })
				r.held()
				r.clock.Step(20 * time.Second)
			}
			got := <-answers
			if got.code() != tc.want || !strings.Contains(got.body, tc.text) || tc.want != "" && !strings.Contains(got.body, request.Name) {
				t.Errorf("code %q, want %q with %q and the request: %s", got.code(), tc.want, tc.text, got.body)
			}
			if tc.want == "" {
				r.ran(body)
			} else {
				r.nothingSent()
			}
			r.ended(request.Name, tc.phase, tc.reason)
		})
	}
}

// stopped is a baseline that stops every server.
func stopped() v1alpha1.ToolPolicy {
	p := baseline()
	p.Spec.Mode = v1alpha1.BaselineStopped
	return p
}

func TestTheLastLookSeesARuleThatChanged(t *testing.T) {
	t.Parallel()
	denied := rule(v1alpha1.EffectDeny, "update_*")
	for name, tc := range map[string]struct {
		before, after v1alpha1.ToolPolicy
		approved      bool
		want, rule    string
	}{
		"denied after the claim":                   {team(), team(denied), true, "RuleDenied", "ToolPolicy/team rule deny"},
		"a verb more after the claim":              {team(), team(needing("approve-finance")), true, "PolicyChanged", "ToolPolicy/team rule needs"},
		"nothing new after the claim":              {team(), team(rule(v1alpha1.EffectDeny, "delete_*")), true, "", ""},
		"allowed after the claim":                  {team(), team(rule(v1alpha1.EffectAllow, "update_*")), true, "", ""},
		"the rule that allowed is gone":            {team(rule(v1alpha1.EffectAllow, "update_*")), team(), false, "PolicyChanged", "tier"},
		"the rule that allowed asks for arguments": {team(rule(v1alpha1.EffectAllow, "update_*")), team(when(rule(v1alpha1.EffectAllow, "update_*"), "args.n > 1")), false, "PolicyChanged", "tier"},
		"the rule that allowed still allows":       {team(rule(v1alpha1.EffectAllow, "update_*")), team(when(rule(v1alpha1.EffectAllow, "update_*"), "args.n == 1")), false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(tc.before)
			body := toolCall("update_invoice", `{"n":1}`)
			if tc.approved {
				body = r.approved("update_invoice")
				r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
					err := update()
					if o.Status.Phase == v1alpha1.PhaseExecuting {
						r.govern(tc.after)
					}
					return err
				}
			} else {
				r.receiptClock(func() { r.govern(tc.after) })
			}
			got := r.post(body)
			if got.code() != tc.want {
				t.Errorf("code %q, want %q: %s", got.code(), tc.want, got.body)
			}
			if tc.want == "" {
				r.ran(body)
				return
			}
			r.nothingSent()
			if named := got.meta(t)["rule"]; named != tc.rule {
				t.Errorf("it names %v, want %q", named, tc.rule)
			}
		})
	}
}
