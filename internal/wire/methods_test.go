// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"testing"
)

func TestOnlyWhatKeepsASessionAliveOrNamesWhatThereIsPasses(t *testing.T) {
	t.Parallel()
	request := func(method string) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method) }
	notification := func(method string) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method) }
	for name, tc := range map[string]struct {
		body string
		want bool
	}{
		"initialize":                         {request("initialize"), true},
		"server/discover":                    {request("server/discover"), true},
		"ping":                               {request("ping"), true},
		"tools/list":                         {request("tools/list"), true},
		"resources/list":                     {request("resources/list"), true},
		"resources/templates/list":           {request("resources/templates/list"), true},
		"prompts/list":                       {request("prompts/list"), true},
		"logging/setLevel":                   {request("logging/setLevel"), true},
		"subscriptions/listen":               {request("subscriptions/listen"), true},
		"resources/unsubscribe":              {request("resources/unsubscribe"), true},
		"a known notification":               {notification("notifications/initialized"), true},
		"a notification that nobody knows":   {notification("notifications/vendor"), true},
		"an answer to the server":            {`{"jsonrpc":"2.0","id":1,"result":{}}`, true},
		"an error for the server":            {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, true},
		"resources/read":                     {request("resources/read"), false},
		"resources/subscribe":                {request("resources/subscribe"), false},
		"prompts/get":                        {request("prompts/get"), false},
		"completion/complete":                {request("completion/complete"), false},
		"tasks/get":                          {request("tasks/get"), false},
		"tasks/list":                         {request("tasks/list"), false},
		"tasks/update":                       {request("tasks/update"), false},
		"tasks/result":                       {request("tasks/result"), false},
		"tasks/cancel":                       {request("tasks/cancel"), false},
		"a request of servers":               {request("sampling/createMessage"), false},
		"a method that nobody knows":         {request("vendor/run"), false},
		"a notification with an id":          {request("notifications/initialized"), false},
		"a request without an id":            {notification("resources/read"), false},
		"a method that nobody knows, told":   {notification("vendor/run"), false},
		"a list that is told":                {notification("resources/list"), false},
		"a name that begins like a harmless": {request("ping/run"), false},
		"a name that begins like a telling":  {notification("notificationsx/run"), false},
		"tools/call, which is judged by itself": {
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, false},
	} {
		m, refusal := Parse([]byte(tc.body))
		if refusal != nil {
			t.Errorf("%s: %v", name, refusal)
			continue
		}
		if got := m.Passes(); got != tc.want {
			t.Errorf("%s: passes %v, want %v", name, got, tc.want)
		}
	}
	if (&Message{}).Passes() {
		t.Error("no message at all passes")
	}
}
