// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// request returns the request about a key.
func request(uid, key string, phase v1alpha1.Phase, outcome v1alpha1.ExecutionOutcome) v1alpha1.ApprovalRequest {
	r := fixture.ApprovalRequest(namespace, depot, 1)
	r.UID, r.Name, r.Spec.Tool, r.Spec.Arguments = types.UID(uid), uid, toolGated, `{"key":"`+key+`"}`
	r.Status.Phase = phase
	if phase == v1alpha1.PhaseSucceeded || phase == v1alpha1.PhaseFailed || phase == v1alpha1.PhaseAmbiguous {
		r.Status.Execution = &v1alpha1.Execution{Gateway: "gw-a", Claim: "c", Outcome: outcome}
	}
	return r
}

func decided(seq uint64, call, uid, hash string) receipt.Receipt {
	return receipt.Receipt{Seq: seq, Kind: receipt.KindDecision, CallID: call, Verdict: receipt.VerdictAllow, Tier: "Reversible", RequestUID: uid, ActionHash: hash}
}

func outcome(seq uint64, call, what string) receipt.Receipt {
	return receipt.Receipt{Seq: seq, Kind: receipt.KindOutcome, CallID: call, Outcome: what}
}

// honest is what a soak leaves in which all is as it must be: a call that was approved and ran, one that ran unattended, a
// denial, and one that was sent as the gateway was killed.
func honest() evidence {
	return evidence{
		keys: map[string]string{"h1": "k1", "h2": "k2", "h3": "k3", "h4": "k4"},
		told: []told{
			{Trace: "t1", Tool: toolGated, Key: "k1", Answer: executed, Code: "success"},
			{Trace: "t2", Tool: toolUnattended, Key: "k2", Answer: executed, Code: "success"},
			{Trace: "t3", Tool: toolGated, Key: "k3", Answer: refused, Code: "ApprovalDenied"},
			{Trace: "t4", Tool: toolGated, Key: "k4", Answer: nothing, Code: "no answer"},
		},
		executions: []execution{{"t1", toolGated, "k1"}, {"t2", toolUnattended, "k2"}, {"t4", toolGated, "k4"}},
		requests: []v1alpha1.ApprovalRequest{
			request("u1", "k1", v1alpha1.PhaseSucceeded, v1alpha1.OutcomeSucceeded),
			request("u3", "k3", v1alpha1.PhaseDenied, ""),
			request("u4", "k4", v1alpha1.PhaseAmbiguous, ""),
		},
		records: map[string][]v1alpha1.ToolRecord{depot: {{Tool: toolGated, Approved: 1, Denied: 1, Ambiguous: 1}}},
		receipts: map[string][]receipt.Receipt{"gw-a": {
			{Seq: 1, Kind: receipt.KindOpened}, decided(2, "c4", "u4", "h4"),
			{Seq: 3, Kind: receipt.KindOpened},
			decided(4, "c1", "u1", "h1"), outcome(5, "c1", "Succeeded"), decided(6, "c2", "", "h2"), outcome(7, "c2", "Succeeded"),
		}},
	}
}

func TestEveryLieOfASoakIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lie  func(*evidence)
		want string // "" for no mismatch
	}{
		"none": {func(*evidence) {}, ""},
		"what was sent as the gateway was killed may not have arrived": {func(e *evidence) { e.executions = e.executions[:2] }, ""},
		"a read ran twice": {func(e *evidence) {
			e.told = append(e.told, told{Trace: "t5", Tool: toolRead, Key: "k5", Answer: executed})
			e.executions = append(e.executions, execution{"t5", toolRead, "k5"}, execution{"t5", toolRead, "k5"})
		}, ""},
		"a read ran three times": {func(e *evidence) {
			e.told = append(e.told, told{Trace: "t5", Tool: toolRead, Key: "k5", Answer: executed})
			e.executions = append(e.executions, execution{"t5", toolRead, "k5"}, execution{"t5", toolRead, "k5"}, execution{"t5", toolRead, "k5"})
		}, "executed it 3 times"},
		"one message ran twice": {func(e *evidence) { e.executions = append(e.executions, e.executions[0]) }, "2 times"},
		"one approval ran twice, by two messages": {func(e *evidence) {
			e.told = append(e.told, told{Trace: "t9", Tool: toolGated, Key: "k1"})
			e.executions = append(e.executions, execution{"t9", toolGated, "k1"})
		}, "k1 was executed 2 times"},
		"a success that never ran":              {func(e *evidence) { e.executions = e.executions[1:] }, "executed it 0 times"},
		"a refusal that ran":                    {func(e *evidence) { e.executions = append(e.executions, execution{"t3", toolGated, "k3"}) }, "executed it 1 times"},
		"a call that nobody sent":               {func(e *evidence) { e.executions = append(e.executions, execution{"t9", toolGated, "k9"}) }, "no agent sent"},
		"the server ran something else":         {func(e *evidence) { e.executions[0].Key = "k2" }, "for a message about"},
		"a request that never ends":             {func(e *evidence) { e.requests[1].Status.Phase = v1alpha1.PhaseApproved }, "still Approved"},
		"a request is used twice":               {func(e *evidence) { e.receipts["gw-b"] = []receipt.Receipt{decided(1, "c9", "u1", "h1")} }, "was used 2 times"},
		"an execution without a verdict before": {func(e *evidence) { e.receipts["gw-a"] = e.receipts["gw-a"][:3] }, "no receipt let it leave"},
		"a receipt without a request":           {func(e *evidence) { e.requests = e.requests[1:] }, "nowhere else"},
		"an outcome that was never written":     {func(e *evidence) { e.receipts["gw-a"] = e.receipts["gw-a"][:6] }, "has no outcome"},
		"an outcome that was not written for long": {func(e *evidence) {
			for i := range e.receipts["gw-a"] {
				e.receipts["gw-a"][i].Time = time.Unix(0, 0).Add(time.Duration(i) * time.Minute)
			}
			e.receipts["gw-a"] = slices.Insert(e.receipts["gw-a"], 2, receipt.Receipt{Seq: 9, Kind: receipt.KindDecision, Time: time.Unix(119, 0)})
		}, "receipt 2 of gw-a has no outcome"},
		"an effect that nobody knows of, again": {func(e *evidence) {
			e.receipts["gw-a"][6].Outcome, e.receipts["gw-a"][6].ActionHash = "Unclear", "h2"
			e.receipts["gw-a"] = append(e.receipts["gw-a"], decided(8, "c8", "", "h2"), outcome(9, "c8", "NotSent"))
			e.receipts["gw-a"][7].Time = time.Unix(0, 0)
		}, "receipt 8 of gw-a let k2 leave again"},
		"an effect that nobody knows of, again after a restart": {func(e *evidence) {
			opened := receipt.Receipt{Kind: receipt.KindOpened}
			e.receipts["gw-a"] = append(e.receipts["gw-a"][:6], opened, decided(8, "c8", "", "h2"), outcome(9, "c8", "NotSent"))
			e.receipts["gw-a"][7].Time = time.Unix(0, 0)
		}, "receipt 8 of gw-a let k2 leave again"},
		"an effect that nobody knows of, after a person's word": {func(e *evidence) {
			e.receipts["gw-a"][6].Outcome, e.receipts["gw-a"][6].ActionHash = "Unclear", "h2"
			e.receipts["gw-a"] = append(e.receipts["gw-a"], decided(8, "c8", "u8", "h2"), outcome(9, "c8", "NotSent"), decided(10, "c10", "", "h2"), outcome(11, "c10", "NotSent"))
			e.receipts["gw-a"][9].Time = time.Unix(0, 0)
			e.requests = append(e.requests, request("u8", "k2", v1alpha1.PhaseFailed, v1alpha1.OutcomeNotSent))
		}, ""},
		"records without a request":  {func(e *evidence) { e.records[vault] = []v1alpha1.ToolRecord{{Tool: toolGated, Approved: 1}} }, "vault update_shelf has 1 approved"},
		"request and receipt differ": {func(e *evidence) { e.receipts["gw-a"][4].Outcome = "Unclear" }, "and its receipt Unclear"},
		"nothing was sent, and it ran": {func(e *evidence) {
			e.receipts["gw-a"][4].Outcome = "NotSent"
			e.requests[0] = request("u1", "k1", v1alpha1.PhaseFailed, v1alpha1.OutcomeNotSent)
		}, "k1 was executed 1 times"},
		"another gateway sent it":             {func(e *evidence) { e.requests[0].Status.Execution.Gateway = "gw-b" }, "claimed by gw-b"},
		"the records count once too often":    {func(e *evidence) { e.records[depot][0].Approved++ }, "2 approved"},
		"the records forget a denial":         {func(e *evidence) { e.records[depot][0].Denied = 0 }, "0 denied"},
		"the records let nothing go":          {func(e *evidence) { e.records[depot][0].Accounted = []string{"u1"} }, "holds 1 requests"},
		"a broken chain":                      {func(e *evidence) { e.faults = []string{"line 3: Altered"} }, "Altered"},
		"an answer of another call":           {func(e *evidence) { e.told[3].Code = foreign }, "answer of another call"},
		"an unattended call that nobody sent": {func(e *evidence) { e.keys = nil }, "no agent sent"},
		"a denied request that was executed":  {func(e *evidence) { e.receipts["gw-a"][1].RequestUID = "u3" }, "is Denied, and was executed"},
		"an effect that no receipt let leave": {func(e *evidence) { e.receipts["gw-a"][1].Verdict = receipt.VerdictDeny }, "k4 was executed 1 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := honest()
			tc.lie(&e)
			found := strings.Join(account(e).mismatches, "\n")
			if (tc.want == "") != (found == "") || !strings.Contains(found, tc.want) {
				t.Errorf("found %q, want %q", found, tc.want)
			}
		})
	}
}

func TestAnAgentUnderstandsWhatItIsTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		text   string
		answer answer
		code   string
		task   string
	}{
		"a result":               {200, `{"id":7,"result":{"content":[]}}`, executed, "success", ""},
		"a result as events":     {200, "event: message\ndata: {\"method\":\"notifications/progress\"}\n\nevent: message\ndata: {\"id\":7,\"result\":{}}\n\n", executed, "success", ""},
		"an error of a tool":     {200, `{"id":7,"result":{"isError":true}}`, executed, "tool error", ""},
		"a refusal":              {200, `{"id":7,"result":{"isError":true,"_meta":{"tidewaiter.dev/decision":{"code":"ApprovalPending"}}}}`, refused, "ApprovalPending", ""},
		"nobody knows":           {200, `{"id":7,"result":{"isError":true,"_meta":{"tidewaiter.dev/decision":{"code":"OutcomeUnknown"}}}}`, nothing, "OutcomeUnknown", ""},
		"a task":                 {200, `{"id":7,"result":{"task":{"taskId":"t1","status":"working"}}}`, nothing, "task", "t1"},
		"a refused task":         {200, `{"id":7,"error":{"code":-32010,"message":"x","data":{"code":"ApprovalPending"}}}`, refused, "ApprovalPending", ""},
		"a task of unknown fate": {200, `{"id":7,"error":{"code":-32010,"message":"x","data":{"code":"OutcomeUnknown"}}}`, nothing, "OutcomeUnknown", ""},
		"not ready":              {503, `{"id":7,"error":{"message":"x"}}`, refused, "HTTP 503", ""},
		"an error":               {502, `{"id":7,"error":{"message":"x"}}`, nothing, "HTTP 502", ""},
		"half an answer":         {200, `{"id":7,"res`, nothing, "HTTP 200, unreadable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if answer, code, task := understand(tc.status, []byte(tc.text)); answer != tc.answer || code != tc.code || task != tc.task {
				t.Errorf("%v %q %q, want %v %q %q", answer, code, task, tc.answer, tc.code, tc.task)
			}
		})
	}
}
