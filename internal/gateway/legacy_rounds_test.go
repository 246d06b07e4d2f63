// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// begun has a call of the agent approved and sent; the server answers it as told.
func (a *legacyAgent) begun(s *script, answer string) {
	a.r.t.Helper()
	a.sends(callOf(1, ""))
	if got := a.answer(); got.code() != codePending {
		a.r.t.Fatalf("not asked: %s", got.body)
	}
	a.r.decide(v1alpha1.DecisionApproved)
	a.sends(callOf(1, ""))
	s.got(1)
	s.answers("1", answer)
	if got := a.answer(); got.code() != "" || !strings.Contains(got.body, answer) {
		a.r.t.Fatalf("the first answer: %s", got.body)
	}
}

func TestACallOfSeveralRoundsGoesOnOverStreams(t *testing.T) {
	t.Parallel()
	allow := func(r *rig) { r.govern(inputs(v1alpha1.InputAllow)) }
	for name, tc := range map[string]struct {
		before func(*rig)
		first  string // what the server answers first
		stream func(*rig, *script, *legacyAgent) *legacyAgent
		round  string
		want   string // the gateway's code; "" passes
	}{
		"the round": {nil, later, nil, callOf(2, goesOn), ""},
		"on another stream of the caller": {nil, later, func(r *rig, s *script, a *legacyAgent) *legacyAgent {
			a.leave()
			<-s.closed
			return r.listens()
		}, callOf(2, goesOn), ""},
		"answers that a rule allows":      {allow, asks, nil, callOf(2, answered), ""},
		"answers that nobody saw":         {nil, asks, nil, callOf(2, answered), codeUnseen},
		"another state":                   {nil, later, nil, callOf(2, `,"requestState":"s2"`), "RoundUnknown"},
		"an answer that nobody asked for": {allow, later, nil, callOf(2, answered), "InputNotAsked"},
		"the policy denies meanwhile":     {nil, later, func(r *rig, _ *script, a *legacyAgent) *legacyAgent { r.mode(v1alpha1.ModeStopped); return a }, callOf(2, goesOn), "ServerStopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			if tc.before != nil {
				tc.before(r)
			}
			a := r.listens()
			a.begun(s, tc.first)
			r.becomes(v1alpha1.PhaseExecuting)
			if tc.stream != nil {
				a = tc.stream(r, s, a)
			}
			a.sends(tc.round)
			if tc.want != "" {
				if got := a.answer(); got.anyCode() != tc.want || len(s.posted()) != 1 {
					t.Errorf("the round: %s, and the server got %d messages", got.body, len(s.posted()))
				}
				return
			}
			if got := s.got(2); got.body != tc.round || got.header.Get("X-Tenant") != "" {
				t.Errorf("the server got %+v", got)
			}
			a.sends(strings.Replace(tc.round, `"id":2`, `"id":3`, 1))
			if got := a.answer(); got.code() != "RoundUnknown" {
				t.Errorf("the round again, while it is under way: %s", got.body)
			}
			s.answers("2", `{"resultType":"complete","content":[]}`)
			if got := a.answer(); got.code() != "" || !strings.Contains(got.body, `"id":2`) {
				t.Errorf("the last answer: %s", got.body)
			}
			r.becomes(v1alpha1.PhaseSucceeded)
			if n := len(s.posted()); n != 2 {
				t.Errorf("the server got %d messages", n)
			}
		})
	}
}

func TestARoundWhoseStreamBreaksLeavesTheFateOfItsCallUnknown(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	a.begun(s, later)
	a.sends(callOf(2, goesOn))
	s.got(2)
	s.say("")
	r.becomes(v1alpha1.PhaseAmbiguous)
	b := r.listens()
	b.sends(callOf(3, goesOn))
	if got := b.answer(); got.code() != "RoundUnknown" || len(s.posted()) != 2 {
		t.Errorf("the round again: %s, and the server got %d messages", got.body, len(s.posted()))
	}
}

func TestOverStreamsNoCallRunsAsATask(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	// Nothing is learned there of what becomes of a task: a person has to find out.
	a.begun(s, `{"resultType":"task","taskId":"t1","status":"working"}`)
	r.becomes(v1alpha1.PhaseAmbiguous)
	a.sends(withID("2", toolCall("update_invoice", `{"n":2},"task":{}`)))
	if got := a.answer(); got.anyCode() != codeNoTask || len(s.posted()) != 1 {
		t.Errorf("a call as a task: %s, and the server got %d messages", got.body, len(s.posted()))
	}
}
