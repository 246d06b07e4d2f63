// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/mark3labs/mcp-go/mcp"

// Method is what is known of an MCP method.
type Method struct {
	// Governed tells that the gateway judges its requests or filters its answers.
	Governed bool
	// NameParam is the member of params that an Mcp-Name header repeats, "" for none.
	NameParam string
}

// Lookup returns what is known of a method, by its exact name.
func Lookup(method string) (Method, bool) {
	m, ok := methods[method]
	return m, ok
}

// methods are those of the revisions 2025-03-26 to 2026-07-28; nothing changes it.
var methods = map[string]Method{
	string(mcp.MethodToolsCall): {Governed: true, NameParam: "name"},
	string(mcp.MethodToolsList): {Governed: true},

	string(mcp.MethodInitialize):             {},
	string(mcp.MethodServerDiscover):         {},
	string(mcp.MethodSubscriptionsListen):    {},
	string(mcp.MethodPing):                   {},
	string(mcp.MethodResourcesList):          {},
	string(mcp.MethodResourcesTemplatesList): {},
	string(mcp.MethodResourcesRead):          {NameParam: "uri"},
	string(mcp.MethodResourcesSubscribe):     {},
	string(mcp.MethodResourcesUnsubscribe):   {},
	string(mcp.MethodPromptsList):            {},
	string(mcp.MethodPromptsGet):             {NameParam: "name"},
	string(mcp.MethodCompletionComplete):     {},
	string(mcp.MethodSetLogLevel):            {},

	string(mcp.MethodTasksGet):    {NameParam: "taskId"},
	string(mcp.MethodTasksResult): {NameParam: "taskId"},
	string(mcp.MethodTasksCancel): {NameParam: "taskId"},
	"tasks/update":                {NameParam: "taskId"},
	string(mcp.MethodTasksList):   {},

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
	mcp.MethodNotificationSubscriptionsAcknowledged:   {},
}

// resemblesMethod tells whether a method that is not known might be taken for a known one.
func resemblesMethod(method string) bool {
	folded := fold(method)
	for name := range methods {
		if folded == fold(name) {
			return true
		}
	}
	return false
}
