// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

func TestWhatDoesNotEndACallIsReadOnlyIfAllReadItAlike(t *testing.T) {
	t.Parallel()
	working := wire.TaskState{ID: "t1", Status: "working"}
	for name, tc := range map[string]struct {
		result string
		want   *wire.Next
	}{
		"a state and questions":     {`{"resultType":"input_required","requestState":"s\u0031","inputRequests":{"a":{},"b":{}}}`, &wire.Next{State: "s1", HasState: true, Asks: []string{"a", "b"}}},
		"a state alone":             {`{"resultType":"input_required","requestState":""}`, &wire.Next{HasState: true}},
		"questions alone":           {`{"resultType":"input_required","inputRequests":{"a":{}},"isError":false}`, &wire.Next{Asks: []string{"a"}}},
		"neither":                   {`{"resultType":"input_required","inputRequests":{}}`, nil},
		"a state that is no text":   {`{"resultType":"input_required","requestState":7}`, nil},
		"questions of another type": {`{"resultType":"input_required","requestState":"s","inputRequests":[]}`, nil},
		"a state spelt otherwise":   {`{"resultType":"input_required","requestState":"s","request_state":"x"}`, nil},
		"a failure that asks":       {`{"resultType":"input_required","requestState":"s","isError":true}`, nil},
		"another type of result":    {`{"resultType":"later","requestState":"s"}`, nil},
		"a final result":            {`{"resultType":"complete","content":[]}`, nil},
		"a task of 2025-11-25":      {`{"task":{"taskId":"t1","status":"working","ttl":60000}}`, &wire.Next{Task: working}},
		"a task of 2026-07-28":      {`{"resultType":"task","taskId":"t1","status":"working","ttlMs":null}`, &wire.Next{Task: working}},
		"both at once":              {`{"resultType":"task","taskId":"t1","status":"working","task":{"taskId":"t2","status":"working"}}`, nil},
		"a task that also asks":     {`{"resultType":"input_required","requestState":"s","task":{"taskId":"t2","status":"working"}}`, nil},
		"a task without an id":      {`{"task":{"taskId":"","status":"working"}}`, nil},
		"an id that is no text":     {`{"task":{"taskId":5,"status":"working"}}`, nil},
		"a task without a status":   {`{"task":{"taskId":"t1"}}`, nil},
		"an id twice":               {`{"task":{"taskId":"t1","TaskId":"t2","status":"working"}}`, nil},
		"no object":                 {`[]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, found, err := wire.ScanAnswer(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":%s}`, tc.result))
			if err != nil || !found {
				t.Fatalf("found %t, error %v", found, err)
			}
			if diff := cmp.Diff(tc.want, answer.Next); diff != "" {
				t.Errorf("next (-want +got):\n%s", diff)
			}
			if answer.Complete && answer.Next != nil {
				t.Error("it ends the call and does not")
			}
		})
	}
}

func TestRoundsCarryOnlyWhatMCPLetsThem(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		members string
		want    wire.Round
		ok      bool
	}{
		"nothing":                  {``, wire.Round{}, true},
		"a state":                  {`,"requestState":"\u0073"`, wire.Round{State: "s", HasState: true}, true},
		"an empty state":           {`,"requestState":""`, wire.Round{HasState: true}, true},
		"answers":                  {`,"inputResponses":{"b":{},"a":{}}`, wire.Round{Answers: []string{"b", "a"}}, true},
		"no answer":                {`,"inputResponses":{}`, wire.Round{}, true},
		"a state of another type":  {`,"requestState":{"s":1}`, wire.Round{}, false},
		"a state that is null":     {`,"requestState":null`, wire.Round{}, false},
		"answers of another type":  {`,"inputResponses":["a"]`, wire.Round{}, false},
		"answers that are nothing": {`,"inputResponses":null`, wire.Round{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, refusal := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"` + tc.members + `}}`))
			if refusal != nil || !tc.ok {
				if (refusal == nil) != tc.ok {
					t.Errorf("got %v", refusal)
				}
				return
			}
			if diff := cmp.Diff(tc.want, m.Round()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTimeThatATaskIsToBeKept(t *testing.T) {
	t.Parallel()
	for task, want := range map[string]time.Duration{
		`{}`: 0, `null`: 0, `{"ttl":60000}`: time.Minute, `{"ttl":-1}`: 0, `{"ttl":1.5}`: 0, `{"ttl":"5"}`: 0, `{"ttl":1e3}`: 0, `{"ttl":null}`: 0,
		`{"ttl":99999999999999999999}`: 9223372036854 * time.Millisecond,
	} {
		m, refusal := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":` + task + `}}`))
		if refusal != nil {
			t.Fatal(refusal)
		}
		if got := m.TaskTTL(); got != want {
			t.Errorf("%s: %v, want %v", task, got, want)
		}
	}
}
