// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Round is what a tools/call carries besides the call itself when it goes on with one before it.
type Round struct {
	// State is the requestState, unescaped; HasState tells whether there is one.
	State    string
	HasState bool
	// Answers are the names of inputResponses, unescaped, in their order.
	Answers []string
}

// Round returns what a tools/call that goes on carries; Parse refused what is not of the type that MCP gives it.
func (m *Message) Round() (round Round) {
	state, answers := m.params.Get("requestState"), m.params.Get("inputResponses")
	for name := range answers.Members() {
		round.Answers = append(round.Answers, name.Text())
	}
	round.State, round.HasState = state.Text(), state.Exists()
	return round
}

// TaskTTL returns how long a tools/call asks for its task to be kept, 0 where it does not say.
func (m *Message) TaskTTL() time.Duration { return milliseconds(m.params.Get("task").Get("ttl")) }

// milliseconds reads a whole number of milliseconds, 0 for what is none; what is longer than a duration can be is cut.
func milliseconds(v strictjson.Value) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	if v.Kind() != strictjson.Number {
		return 0
	}
	n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
	if err != nil && !strings.ContainsAny(string(v.Raw()), ".eE-") {
		n = most
	}
	return time.Duration(min(max(n, 0), most)) * time.Millisecond
}

// Next is what a result says that does not end its call: the server asks for another round, or runs the call as a task.
type Next struct {
	// State is the requestState that the next round has to repeat, unescaped; HasState tells whether there is one.
	State    string
	HasState bool
	// Asks are the names of inputRequests, unescaped, in their order.
	Asks []string
	// Task is the task that runs the call; its ID is "" where the server asks for another round.
	Task TaskState
}

// readNext returns what a result that does not end its call says, nil where it ends it or nobody can tell.
func readNext(result strictjson.Value) *Next {
	if result.Kind() != strictjson.Object || IsError(result) ||
		resemblesMember(result, "isError", "resultType", "task", "inputRequests", "requestState", "taskId", "status") {
		return nil
	}
	kind, task := result.Get("resultType"), result.Get("task")
	switch {
	case kind.Is("input_required") && !task.Exists():
		return readInputRequired(result)
	case kind.Is("task") && !task.Exists():
		task = result
	case !isOneOf(kind, strictjson.None) && !kind.Is("complete") || task.Kind() != strictjson.Object:
		return nil
	}
	state, ok := readTaskState(task)
	if !ok {
		return nil
	}
	return &Next{Task: state}
}

// readInputRequired reads a request for another round. One that names nothing by which the round can be told from a new
// call is none.
func readInputRequired(result strictjson.Value) *Next {
	state, asks := result.Get("requestState"), result.Get("inputRequests")
	if !isOneOf(state, strictjson.None, strictjson.String) || !isOneOf(asks, strictjson.None, strictjson.Object) {
		return nil
	}
	next := &Next{State: state.Text(), HasState: state.Exists()}
	for name := range asks.Members() {
		next.Asks = append(next.Asks, name.Text())
	}
	if !next.HasState && len(next.Asks) == 0 {
		return nil
	}
	return next
}
