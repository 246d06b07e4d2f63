// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

func TestRequestsAboutTasksNameOneTaskForEveryParser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, params string
		id             string
		input, refused bool
	}{
		"a task":                        {"tasks/get", `{"taskId":"t\u0031"}`, "t1", false, false},
		"no task":                       {"tasks/get", `{}`, "", false, false},
		"a task that is no text":        {"tasks/get", `{"taskId":7}`, "", false, false},
		"answers":                       {"tasks/update", `{"taskId":"t","inputResponses":{"a":{}}}`, "t", true, false},
		"no answer":                     {"tasks/update", `{"taskId":"t","inputResponses":{}}`, "t", false, false},
		"answers of another type":       {"tasks/update", `{"taskId":"t","inputResponses":null}`, "t", true, false},
		"a second task in another case": {"tasks/cancel", `{"taskId":"t","TaskID":"u"}`, "", false, true},
		"a task with an escape":         {"tasks/cancel", `{"task\u0049d":"u"}`, "", false, true},
		"answers in another case":       {"tasks/update", `{"taskId":"t","inputresponses":{}}`, "", false, true},
		"the same of another method":    {"vendor/get", `{"taskId":"t","TaskID":"u"}`, "t", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, refusal := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + tc.method + `","params":` + tc.params + `}`))
			if (refusal != nil) != tc.refused {
				t.Fatalf("refused: %v", refusal)
			}
			if refusal == nil && (m.TaskID() != tc.id || m.HasInput() != tc.input) {
				t.Errorf("task %q, input %t", m.TaskID(), m.HasInput())
			}
		})
	}
}

func TestTheStateOfATaskIsReadFromAnswersAndNotifications(t *testing.T) {
	t.Parallel()
	working := wire.TaskState{ID: "t", Status: "working"}
	for name, tc := range map[string]struct {
		message string
		want    wire.TaskState
		id      string
		found   bool
	}{
		"an answer":                  {`{"jsonrpc":"2.0","id":7,"result":{"taskId":"t","status":"working"}}`, working, "7", true},
		"a notification of 2025":     {`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"working"}}`, working, "", true},
		"a notification of 2026":     {`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"working"}}`, working, "", true},
		"one with its result":        {`{"jsonrpc":"2.0","id":7,"result":{"taskId":"t","status":"completed","result":{"isError":true}}}`, wire.TaskState{ID: "t", Status: "completed", Result: &wire.Answer{IsError: true, Complete: true}}, "7", true},
		"a result of a call":         {`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`, wire.TaskState{}, "7", false},
		"another notification":       {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"taskId":"t","status":"working"}}`, wire.TaskState{}, "", false},
		"a status in another case":   {`{"jsonrpc":"2.0","id":7,"result":{"taskId":"t","status":"working","Status":"completed"}}`, wire.TaskState{}, "7", false},
		"a result in another case":   {`{"jsonrpc":"2.0","id":7,"result":{"taskId":"t","status":"completed","Result":{}}}`, wire.TaskState{}, "7", false},
		"an envelope with two faces": {`{"jsonrpc":"2.0","id":7,"result":{},"Result":{"taskId":"t","status":"working"}}`, wire.TaskState{}, "", false},
		"no message":                 {`{"result":`, wire.TaskState{}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, id, found := wire.ScanTaskState([]byte(tc.message))
			if diff := cmp.Diff(tc.want, got); diff != "" || string(id) != tc.id || found != tc.found {
				t.Errorf("id %q, found %t (-want +got):\n%s", id, found, diff)
			}
		})
	}
}

func TestListsOfTasksAreFilteredOrWithheld(t *testing.T) {
	t.Parallel()
	keep := func(id string) bool { return id != "theirs" }
	for name, tc := range map[string]struct {
		message, want string
		refused       bool
	}{
		"one of others":       {`{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"mine"}, {"taskId":"their\u0073"},{"taskId":"mine2"}],"nextCursor":"c"}}`, `{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"mine"},{"taskId":"mine2"}],"nextCursor":"c"}}`, false},
		"none of others":      {`{"jsonrpc":"2.0","id":1,"result":{"tasks":[ {"taskId":"mine"} ]}}`, `{"jsonrpc":"2.0","id":1,"result":{"tasks":[ {"taskId":"mine"} ]}}`, false},
		"no list":             {`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, false},
		"an error":            {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}`, false},
		"a second list":       {`{"jsonrpc":"2.0","id":1,"result":{"tasks":[],"Tasks":[{"taskId":"theirs"}]}}`, "", true},
		"a second id":         {`{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"mine","TaskId":"theirs"}]}}`, "", true},
		"a task without one":  {`{"jsonrpc":"2.0","id":1,"result":{"tasks":[{}]}}`, "", true},
		"a list that is none": {`{"jsonrpc":"2.0","id":1,"result":{"tasks":{"taskId":"theirs"}}}`, "", true},
		"nothing to read":     {`{"jsonrpc":"2.0","id":1,"result":{"tasks":[`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.FilterTasks([]byte(tc.message), keep)
			if string(got) != tc.want || (err != nil) != tc.refused {
				t.Errorf("%v: %s", err, got)
			}
		})
	}
}

// FuzzTasks has every message of a server that passes be one in which encoding/json, which folds the case of names,
// finds no task that was to be left out.
func FuzzTasks(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"a"},{"taskId":"theirs","status":"working"}]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"Tasks":[{"taskId":"theirs"}],"tasks":[]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"taskId":"theirs","status":"completed","result":{"isError":true}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"theirs","status":"failed"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"a":{}}}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		var loose struct {
			Result struct {
				Tasks        []struct{ TaskID string }
				TaskID       string
				Status       string
				RequestState *string
			}
		}
		if state, id, found := wire.ScanTaskState(message); found && id != nil {
			if err := json.Unmarshal(message, &loose); err != nil || loose.Result.TaskID != state.ID || loose.Result.Status != state.Status {
				t.Errorf("read as %+v, by another as %+v, %v", state, loose, err)
			}
		}
		if answer, found, err := wire.ScanAnswer(message); err == nil && found && answer.Next != nil && answer.Next.HasState {
			if err := json.Unmarshal(message, &loose); err != nil || loose.Result.RequestState == nil || *loose.Result.RequestState != answer.Next.State {
				t.Errorf("state %q, by another %+v, %v", answer.Next.State, loose, err)
			}
		}
		out, err := wire.FilterTasks(slices.Clone(message), func(id string) bool { return id != "theirs" })
		if err != nil {
			return
		}
		loose.Result.Tasks = nil
		if err := json.Unmarshal(out, &loose); err != nil {
			return
		}
		for _, task := range loose.Result.Tasks {
			if task.TaskID == "theirs" {
				t.Errorf("a task of others is left in %s", out)
			}
		}
	})
}
