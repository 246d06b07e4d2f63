// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// MethodTasksUpdate answers what a task asks for, and MethodNotificationTasks tells of a task, in revisions where tasks
// are an extension.
const (
	MethodTasksUpdate       = "tasks/update"
	MethodNotificationTasks = "notifications/tasks"
)

// ofTasks begins the names of all methods about tasks.
const ofTasks = "tasks/"

// AboutTasks tells whether the message is a request about tasks.
func (m *Message) AboutTasks() bool { return strings.HasPrefix(m.Method, ofTasks) }

// FollowsTask tells whether the message is one of the requests by which MCP lets a caller follow one task of its own.
func (m *Message) FollowsTask() bool {
	switch m.Method {
	case string(mcp.MethodTasksGet), string(mcp.MethodTasksResult), string(mcp.MethodTasksCancel), MethodTasksUpdate:
		return true
	default:
		return false
	}
}

// TaskID returns the id of the task that a request is about, unescaped; "" without one.
func (m *Message) TaskID() string { return m.params.Get("taskId").Text() }

// HasInput tells whether a request about a task may answer what the task asks for.
func (m *Message) HasInput() bool {
	answers := m.params.Get("inputResponses")
	for range answers.Members() {
		return true
	}
	return !isOneOf(answers, strictjson.None, strictjson.Object)
}

// TaskState is what a server says of a task.
type TaskState struct {
	// ID and Status of the task, unescaped.
	ID, Status string
	// Result is what the call came to, nil where the server does not say it here.
	Result *Answer
}

// readTaskState reads the state of a task. ok is false for what is none, and for what two readers may read differently.
func readTaskState(task strictjson.Value) (state TaskState, ok bool) {
	id, status := task.Get("taskId"), task.Get("status")
	if id.Kind() != strictjson.String || status.Kind() != strictjson.String || id.Text() == "" || resemblesMember(task, "taskId", "status", "result") {
		return TaskState{}, false
	}
	state = TaskState{ID: id.Text(), Status: status.Text()}
	if result := task.Get("result"); result.Exists() {
		answer := readResult(result)
		state.Result = &answer
	}
	return state, true
}

// ScanTaskState reads the state of a task from a message of a server: from an answer, whose raw id it returns, or from a
// notification, which has none. found is false for every other message, and for what two readers may read differently.
func ScanTaskState(message []byte) (state TaskState, id []byte, found bool) {
	doc, err := strictjson.Scan(message)
	if err != nil || resemblesMember(doc, "id", "result", "error", "method", "params") {
		return TaskState{}, nil, false
	}
	if method := doc.Get("method"); method.Exists() {
		if !method.Is(MethodNotificationTasks) && !method.Is(mcp.MethodNotificationTasksStatus) {
			return TaskState{}, nil, false
		}
		state, found = readTaskState(doc.Get("params"))
		return state, nil, found
	}
	state, found = readTaskState(doc.Get("result"))
	return state, doc.Get("id").Raw(), found
}

// FilterTasks returns a server's message without those tasks of a list of tasks whose ids keep says to leave out; it is
// the message itself if none are, or if it has no such list. On an error nobody can tell what a client would read in it.
func FilterTasks(message []byte, keep func(id string) bool) ([]byte, error) {
	result, err := scanResponse(message)
	if err != nil {
		return nil, err
	}
	list := result.Get("tasks")
	if resemblesMember(result, "tasks") || !isOneOf(list, strictjson.None, strictjson.Array) {
		return nil, errors.New("read a list of tasks: result.tasks is not an array, or a member resembles it")
	}
	kept, dropped := []byte{'['}, false
	for task := range list.Elements() {
		id := task.Get("taskId")
		if id.Kind() != strictjson.String || resemblesMember(task, "taskId") {
			return nil, errors.New("read a list of tasks: a task has no taskId, or a member that resembles it")
		}
		if !keep(id.Text()) {
			dropped = true
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, task.Raw()...)
	}
	if !dropped {
		return message, nil
	}
	out := append([]byte(nil), message[:list.Start()]...)
	return append(append(append(out, kept...), ']'), message[list.End():]...), nil
}
