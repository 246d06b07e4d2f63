// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/mark3labs/mcp-go/mcp"

// Direction is who sends a method.
type Direction int

// Directions; the zero Direction is none.
const (
	ToServer Direction = iota + 1
	ToClient
	BothWays
)

// Method is what is known of an MCP method.
type Method struct {
	// Direction is who sends it.
	Direction Direction
	// Notification tells that it is sent without an id.
	Notification bool
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
	string(mcp.MethodToolsCall): {Direction: ToServer, Governed: true, NameParam: "name"},
	string(mcp.MethodToolsList): {Direction: ToServer, Governed: true},

	string(mcp.MethodInitialize):             {Direction: ToServer},
	string(mcp.MethodServerDiscover):         {Direction: ToServer},
	string(mcp.MethodSubscriptionsListen):    {Direction: ToServer},
	string(mcp.MethodPing):                   {Direction: BothWays},
	string(mcp.MethodResourcesList):          {Direction: ToServer},
	string(mcp.MethodResourcesTemplatesList): {Direction: ToServer},
	string(mcp.MethodResourcesRead):          {Direction: ToServer, NameParam: "uri"},
	string(mcp.MethodResourcesSubscribe):     {Direction: ToServer},
	string(mcp.MethodResourcesUnsubscribe):   {Direction: ToServer},
	string(mcp.MethodPromptsList):            {Direction: ToServer},
	string(mcp.MethodPromptsGet):             {Direction: ToServer, NameParam: "name"},
	string(mcp.MethodCompletionComplete):     {Direction: ToServer},
	string(mcp.MethodSetLogLevel):            {Direction: ToServer},

	// Tasks go both ways in 2025-11-25 and to the server in the extension of 2026-07-28.
	string(mcp.MethodTasksGet):    {Direction: BothWays, NameParam: "taskId"},
	string(mcp.MethodTasksResult): {Direction: BothWays, NameParam: "taskId"},
	string(mcp.MethodTasksCancel): {Direction: BothWays, NameParam: "taskId"},
	"tasks/update":                {Direction: ToServer, NameParam: "taskId"},
	string(mcp.MethodTasksList):   {Direction: BothWays},

	string(mcp.MethodSamplingCreateMessage): {Direction: ToClient},
	string(mcp.MethodElicitationCreate):     {Direction: ToClient},
	string(mcp.MethodListRoots):             {Direction: ToClient},

	string(mcp.MethodNotificationInitialized):         {Direction: ToServer, Notification: true},
	string(mcp.MethodNotificationCancelled):           {Direction: BothWays, Notification: true},
	string(mcp.MethodNotificationProgress):            {Direction: BothWays, Notification: true},
	mcp.MethodNotificationRootsListChanged:            {Direction: ToServer, Notification: true},
	string(mcp.MethodNotificationMessage):             {Direction: ToClient, Notification: true},
	mcp.MethodNotificationToolsListChanged:            {Direction: ToClient, Notification: true},
	mcp.MethodNotificationResourcesListChanged:        {Direction: ToClient, Notification: true},
	mcp.MethodNotificationResourceUpdated:             {Direction: ToClient, Notification: true},
	mcp.MethodNotificationPromptsListChanged:          {Direction: ToClient, Notification: true},
	string(mcp.MethodNotificationElicitationComplete): {Direction: ToClient, Notification: true},
	mcp.MethodNotificationTasksStatus:                 {Direction: BothWays, Notification: true},
	mcp.MethodNotificationSubscriptionsAcknowledged:   {Direction: ToClient, Notification: true},
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
