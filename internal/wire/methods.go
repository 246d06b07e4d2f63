// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

// Method is what is known of an MCP method.
type Method struct {
	// Governed tells that the gateway judges its requests or filters its answers.
	Governed bool
	// Passes tells that a message of a client with this method passes in every mode and whoever calls: it keeps a session
	// alive, takes something away, or names what there is, and makes a server neither do nor tell anything else.
	Passes bool
	// NameParam is the member of params that an Mcp-Name header repeats, "" for none.
	NameParam string
}

// Lookup returns what is known of a method, by its exact name.
func Lookup(method string) (Method, bool) {
	m, ok := methods[method]
	return m, ok
}

// notifications begins the names of all messages that tell something and ask for nothing.
const notifications = "notifications/"

// Passes tells whether a message of a client passes in every mode and whoever calls. An answer to a request of the server
// does, and so does what only tells something, known or not; a request that is sent as if it only told something does
// not.
func (m *Message) Passes() bool {
	switch m.Kind {
	case Response:
		return true
	case Notification:
		return strings.HasPrefix(m.Method, notifications)
	default:
		return methods[m.Method].Passes
	}
}

// methods are those of the revisions 2025-03-26 to 2026-07-28; nothing changes it. What is not in it is not known, and
// does not pass in every mode.
var methods = map[string]Method{
	string(mcp.MethodToolsCall): {Governed: true, NameParam: "name"},
	string(mcp.MethodToolsList): {Governed: true, Passes: true}, // it is filtered, so it tells what may be called

	// A session, its streams and their end. Without them a client could not even learn that the server is stopped.
	string(mcp.MethodInitialize):          {Passes: true},
	string(mcp.MethodServerDiscover):      {Passes: true},
	string(mcp.MethodPing):                {Passes: true},
	string(mcp.MethodSetLogLevel):         {Passes: true}, // how much the server says of itself
	string(mcp.MethodSubscriptionsListen): {Passes: true}, // the stream of notifications, which name what changed

	// Names of what there is; reading it is another method.
	string(mcp.MethodResourcesList):          {Passes: true},
	string(mcp.MethodResourcesTemplatesList): {Passes: true},
	string(mcp.MethodPromptsList):            {Passes: true},
	string(mcp.MethodResourcesUnsubscribe):   {Passes: true}, // takes away only

	// These make a server read, compute, or go on with what it does, and tell it: they do not pass in every mode.
	string(mcp.MethodResourcesRead):      {NameParam: "uri"},
	string(mcp.MethodResourcesSubscribe): {},
	string(mcp.MethodPromptsGet):         {NameParam: "name"},
	string(mcp.MethodCompletionComplete): {},
	string(mcp.MethodTasksGet):           {NameParam: "taskId"},
	string(mcp.MethodTasksResult):        {NameParam: "taskId"},
	string(mcp.MethodTasksCancel):        {NameParam: "taskId"},
	MethodTasksUpdate:                    {NameParam: "taskId"},
	string(mcp.MethodTasksList):          {}, // it tells what other calls do

	// Requests of servers; from a client they ask for who knows what.
	string(mcp.MethodSamplingCreateMessage): {},
	string(mcp.MethodElicitationCreate):     {},
	string(mcp.MethodListRoots):             {},

	string(mcp.MethodNotificationInitialized):         {},
	string(mcp.MethodNotificationCancelled):           {},
	string(mcp.MethodNotificationProgress):            {},
	mcp.MethodNotificationRootsListChanged:            {},
	string(mcp.MethodNotificationMessage):             {},
	mcp.MethodNotificationToolsListChanged:            {},
	mcp.MethodNotificationResourcesListChanged:        {},
	mcp.MethodNotificationResourceUpdated:             {},
	mcp.MethodNotificationPromptsListChanged:          {},
	string(mcp.MethodNotificationElicitationComplete): {},
	mcp.MethodNotificationTasksStatus:                 {},
	MethodNotificationTasks:                           {},
	mcp.MethodNotificationSubscriptionsAcknowledged:   {},
}

// resemblesMethod tells whether a method that is not known might be taken for a known one.
func resemblesMethod(method string) bool {
	folded := strictjson.Fold(method)
	for name := range methods {
		if folded == strictjson.Fold(name) {
			return true
		}
	}
	return false
}
