// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// moves has the server at another endpoint.
func (r *rig) moves() {
	r.edit(func() { r.governed.Spec.Endpoint.URL = r.upstream.URL + "/other" })
	up := r.server.upstream.Load().own()
	up.URL = r.upstream.URL + "/other"
	r.server.Dial(&up, r.server.Snapshot().EndpointDigest)
}

// What goes on with a call that people let through needs that they still would: as a round of it, and as an answer to its
// task.
func TestWhatGoesOnWithACallMeetsThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	phase := func(phase v1alpha1.Phase) func(*rig) {
		return func(r *rig) {
			request := r.request()
			request.Status.Phase = phase
			if err := r.api.Status().Update(r.t.Context(), request); err != nil {
				r.t.Fatal(err)
			}
			r.edit(nil)
		}
	}
	for name, tc := range map[string]struct {
		meanwhile       func(*rig)
		asRound, asTask string // the gateway's codes; "" passes
	}{
		"nothing happened": {func(*rig) {}, "", ""},
		"the tool is redefined": {func(r *rig) {
			r.redefine("update_invoice", false)
			r.server.learn(r.server.dials(), r.listed, true)
		}, codeNoRound, codeNoFlow},
		"the server has another endpoint": {(*rig).moves, codeNoRound, codeNoFlow},
		"the policy asks for more":        {func(r *rig) { r.edit(func() { r.governed.Spec.Approvals.Required.Reversible = 2 }) }, "PolicyChanged", "PolicyChanged"},
		"a voting key is removed":         {func(r *rig) { r.mu.Lock(); r.keys = published(); r.mu.Unlock() }, "VotesVoid", "VotesVoid"},
		"the server is read-only":         {func(r *rig) { r.mode(v1alpha1.ModeReadOnly) }, "ServerReadOnly", codeUnseen},
		"the time of the call is up": {func(r *rig) {
			r.clock.Step(time.Minute)
			r.server.Prove(r.clock.Now())
			r.gateway.follow(r.t.Context())
		}, codeNoRound, codeNoFlow},
		"it counts as lost":                {phase(v1alpha1.PhaseAmbiguous), codeNoRound, codeNoFlow},
		"people found that it did not run": {phase(v1alpha1.PhaseFailed), codeNoRound, codeNoFlow},
	} {
		t.Run("a round, "+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(inputs(v1alpha1.InputAllow))
			r.begun(asks)
			tc.meanwhile(r)
			r.goesOnWith(callOf(1, ""), callOf(2, answered), tc.asRound)
		})
		t.Run("an answer to a task, "+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.govern(inputs(v1alpha1.InputAllow))
			r.tasked(taskOf2026)
			tc.meanwhile(r)
			r.goesOnWith(callOf(1, asTask), about("update", `,"inputResponses":{"confirm":{"action":"accept"}}`), tc.asTask)
		})
	}
}

// goesOnWith sends a message that goes on with a call, and looks whether it passed as it should.
func (r *rig) goesOnWith(call, message, want string) {
	r.t.Helper()
	if got := r.post(message); got.anyCode() != want {
		r.t.Errorf("code %q, want %q: %s", got.anyCode(), want, got.body)
	}
	if want == "" {
		r.ran(call, message)
		return
	}
	r.ran(call)
}

// The gateway looks once a second whose time is up; a round does not get through in between.
func TestNoRoundGoesOnWithACallWhoseTimeIsUp(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{time.Minute - time.Nanosecond: "", time.Minute: codeNoRound} {
		r := newRig(t)
		r.begun(later)
		r.clock.Step(after)
		r.server.Prove(r.clock.Now())
		r.goesOnWith(callOf(1, ""), callOf(2, goesOn), want)
	}
}

func TestAnAnswerToATaskIsOneInWhateverMethod(t *testing.T) {
	t.Parallel()
	const answers = `,"inputResponses":{"confirm":{"action":"accept"}}`
	for method, members := range map[string]string{"get": "", "result": "", "cancel": "", "input_response": "", "list": ""} {
		for _, more := range []string{"", answers} {
			r := newRig(t)
			r.tasked(taskOf2026)
			message, want := about(method, members+more), ""
			if more != "" {
				want = codeUnseen
			}
			r.goesOnWith(callOf(1, asTask), message, want)
		}
	}
	r := newRig(t)
	r.tasked(taskOf2026)
	r.goesOnWith(callOf(1, asTask), strings.Replace(about("input_response", answers), "t1", "t2", 1), codeNoFlow)
}

// A task of one's own is no way to what the server may not be asked for.
func TestAnOwnTaskOpensNoOtherMethod(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{"get": "", "result": "", "cancel": "", "update": "", "list": "MethodDenied", "run": "MethodDenied"} {
		r := newRig(t)
		r.tasked(taskOf2025)
		r.edit(func() { r.governed.Spec.OtherMethods = v1alpha1.OtherMethodsDeny })
		r.goesOnWith(callOf(1, asTask), about(method, ""), want)
	}
}
