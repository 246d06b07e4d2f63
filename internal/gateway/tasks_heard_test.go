// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestOnlyTheAnswerAboutATaskSettlesItsCall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, answer string
		want           v1alpha1.Phase
	}{
		"a result":                       {"result", `{"jsonrpc":"2.0","id":9,"result":{"content":[]}}`, v1alpha1.PhaseSucceeded},
		"a result of another request":    {"result", `{"jsonrpc":"2.0","id":8,"result":{"content":[]}}`, v1alpha1.PhaseExecuting},
		"a state":                        {"get", `{"jsonrpc":"2.0","id":9,"result":{"taskId":"t1","status":"cancelled"}}`, v1alpha1.PhaseAmbiguous},
		"a state in another's answer":    {"get", `{"jsonrpc":"2.0","id":8,"result":{"taskId":"t1","status":"cancelled"}}`, v1alpha1.PhaseExecuting},
		"the state of another task":      {"get", `{"jsonrpc":"2.0","id":9,"result":{"taskId":"t2","status":"cancelled"}}`, v1alpha1.PhaseExecuting},
		"a result without any, an error": {"result", `{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"later"}}`, v1alpha1.PhaseExecuting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.tasked(taskOf2025)
			r.upstream.answers(answerWith("application/json", tc.answer))
			r.post(about(tc.method, ""))
			if got := r.request().CurrentPhase(); got != tc.want {
				t.Errorf("the request is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestARequestAboutATaskCarriesNothingOfTheAgentButTheMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasked(taskOf2025)
	for body, want := range map[string]string{about("get", ""): "", ping: "7"} {
		r.upstream.answers(answerJSON(`{"taskId":"t1","status":"working"}`))
		r.post(body, "X-Tenant", "7")
		seen := r.upstream.requests()
		if got := seen[len(seen)-1]; got.body != body || got.header.Get("X-Tenant") != want {
			t.Errorf("the server got %+v, want X-Tenant %q", got, want)
		}
	}
}

func TestASecondAnswerDoesNotEndTheTaskOfTheFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasking()
	body := callOf(1, asTask)
	r.post(body)
	r.decide(v1alpha1.DecisionApproved)
	r.upstream.answers(answerWith("text/event-stream",
		`data: {"jsonrpc":"2.0","id":1,"result":`+taskOf2025+"}\n\n"+`data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}`+"\n\n"))
	r.post(body)
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseExecuting {
		t.Errorf("the request is %s while the task runs", phase)
	}
	r.upstream.answers(answerJSON(`{"content":[],"isError":true}`))
	r.post(about("result", ""))
	if phase := r.request().CurrentPhase(); phase != v1alpha1.PhaseFailed {
		t.Errorf("once it has failed the request is %s", phase)
	}
}

func TestNobodyAnswersATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tasking()
	allow := rule(v1alpha1.EffectAllow, "*")
	allow.InputResponses = v1alpha1.InputAllow
	r.govern(team(allow))
	r.upstream.answers(answerJSON(taskOf2026))
	body, update := callOf(1, asTask), about("update", `,"inputResponses":{"confirm":{}}`)
	r.post(body)
	if got := r.post(update); got.anyCode() != "" {
		t.Errorf("while it runs: %s", got.body)
	}
	r.upstream.answers(answerJSON(`{"taskId":"t1","status":"completed","result":{"content":[]}}`))
	r.post(about("get", ""))
	if got := r.post(update); got.anyCode() != codeNoFlow {
		t.Errorf("once it has ended: %s", got.body)
	}
	r.ran(body, update, about("get", ""))
}
