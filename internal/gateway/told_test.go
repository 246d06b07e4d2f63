// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

func TestNobodyIsAskedAboutADefinitionThatIsGone(t *testing.T) {
	t.Parallel()
	for name, learned := range map[string]bool{"the manager has learned of the new one": true, "nobody has": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice") // the gateway has asked the server at this very instant
			first := r.request().Name
			digest := r.redefine("update_invoice", learned)
			got := r.post(body)
			if !learned {
				r.ran(body)
				r.ended(first, v1alpha1.PhaseSucceeded, "")
				return
			}
			r.nothingSent()
			r.ended(first, v1alpha1.PhaseCancelled, v1alpha1.CancelToolChanged)
			var asked []string
			for _, request := range r.requests() {
				if request.Name != first {
					asked = append(asked, request.Spec.ToolDigest)
				}
			}
			if got.code() != codePending || len(asked) != 1 || asked[0] != digest {
				t.Errorf("code %q, asked about %q, want %q: %s", got.code(), asked, digest, got.body)
			}
		})
	}
}

func TestAListingThatTheManagerOvertakesCountsForNothing(t *testing.T) {
	t.Parallel()
	for name, overtaken := range map[string]int{
		"nothing happens meanwhile": 0, "the manager learns meanwhile": 1, "the manager learns all the time": math.MaxInt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			digest, asked := r.digest("update_invoice"), 0
			r.server.List = func(ctx context.Context, up endpoint.Upstream) ([]tool.Descriptor, error) {
				seen, err := r.list(ctx, up)
				if asked++; asked <= overtaken {
					digest = r.redefineAs("update_invoice", fmt.Sprint("changed for the time ", asked), true)
				}
				return seen, err
			}
			got := r.post(toolCall("update_invoice", `{"n":1}`))
			r.nothingSent()
			if overtaken > listings {
				if got.code() != codeUndefined || got.meta(t)["retryAfterSeconds"] == nil || len(r.requests()) > 0 || asked != listings {
					t.Errorf("asked %d times, %d requests, want a word to come again: %s", asked, len(r.requests()), got.body)
				}
				return
			}
			if got.code() != codePending || r.request().Spec.ToolDigest != digest || asked != overtaken+1 {
				t.Errorf("asked %d times; a person about %s, want %s: %s", asked, r.request().Spec.ToolDigest, digest, got.body)
			}
		})
	}
}

func TestARequestSaysWhyItsCallWasNotSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after func(*rig) // the claim
		code  string     // "" runs
		why   string
	}{
		"the manager learned of another definition": {func(r *rig) { r.redefine("delete_account", true) }, "PolicyChanged", "the tool changed just before the call was to leave (tier)"},
		"the endpoint moved":                        {(*rig).move, "ToolUnknown", "this tool cannot be called here"},
		"a rule asks for another verb": {func(r *rig) { r.govern(team(moreFor("delete_*"))) }, "PolicyChanged",
			"the policy changed just before the call was to leave (ToolPolicy/team rule needs)"},
		"a rule denies it":     {func(r *rig) { r.govern(team(rule(v1alpha1.EffectDeny, "delete_*"))) }, "RuleDenied", "the policy denies this call (ToolPolicy/team rule deny)"},
		"the server is gone":   {func(r *rig) { r.edit(func() { r.governed = nil }) }, "ServerGone", "the server is no longer governed"},
		"another tool changed": {func(r *rig) { r.redefine("update_invoice", true) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("delete_account")
			r.updates = func(o *v1alpha1.ApprovalRequest, update func() error) error {
				err := update()
				if o.Status.Phase == v1alpha1.PhaseExecuting {
					tc.after(r)
				}
				return err
			}
			if got := r.post(body); got.code() != tc.code {
				t.Errorf("code %q, want %q: %s", got.code(), tc.code, got.body)
			}
			e := r.request().Status.Execution
			if tc.code == "" {
				r.ran(body)
				if e.Message != "" {
					t.Errorf("it ran, and says %q", e.Message)
				}
				return
			}
			r.nothingSent()
			if e.Outcome != v1alpha1.OutcomeNotSent || !strings.HasPrefix(e.Message, tc.why) || strings.Contains(e.Message, "Send") {
				t.Errorf("%s: %q, want %q", e.Outcome, e.Message, tc.why)
			}
		})
	}
}

func TestAnApprovalThatWasUsedTellsHow(t *testing.T) {
	t.Parallel()
	outcome := func(phase v1alpha1.Phase, e v1alpha1.Execution) func(*rig) {
		return func(r *rig) {
			r.setStatus(func(s *v1alpha1.ApprovalRequestStatus) { s.Phase, s.Execution = phase, &e })
		}
	}
	for name, tc := range map[string]struct {
		live func(*rig)
		want string
		code string
		raw  bool // the alarm is for a database that was set back, and for nothing else
	}{
		"it succeeded":       {outcome(v1alpha1.PhaseSucceeded, v1alpha1.Execution{Outcome: v1alpha1.OutcomeSucceeded}), "which succeeded", "ApprovalUsed", false},
		"it failed":          {outcome(v1alpha1.PhaseFailed, v1alpha1.Execution{Outcome: v1alpha1.OutcomeToolError}), "which failed", "ApprovalUsed", false},
		"it was not sent":    {outcome(v1alpha1.PhaseFailed, v1alpha1.Execution{Outcome: v1alpha1.OutcomeNotSent, Message: "the tool changed"}), `which was not sent: \"the tool changed\"`, "ApprovalUsed", false},
		"it runs":            {executingNow, "is being used right now", codePending, false},
		"it was set back":    {func(*rig) {}, "set back to an older state", "ApprovalUsed", true},
		"nobody can tell it": {outcome(v1alpha1.PhaseAmbiguous, v1alpha1.Execution{Outcome: v1alpha1.OutcomeUnclear}), "nobody knows yet whether it took effect", codeAmbiguous, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			body := r.approved("update_invoice")
			r.usedBefore()
			before := r.server.Snapshot()
			tc.live(r)
			r.server.view.Swap(before) // the watch has not brought it yet
			got := r.post(body)
			text := got.body
			if got.code() != tc.code || !strings.Contains(text, tc.want) || strings.Contains(text, "people who run this server") != tc.raw {
				t.Errorf("code %q, want %q with %q: %s", got.code(), tc.code, tc.want, text)
			}
			r.nothingSent()
		})
	}
}

// moreFor is a rule that asks for another verb.
func moreFor(tools string) v1alpha1.Rule {
	r := needing("approve-finance")
	r.Tools = []string{tools}
	return r
}

func executingNow(r *rig) { r.setStatus(executingUntil(noon.Add(1 << 36))) }
