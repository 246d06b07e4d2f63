// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestPagesOfAListKeepTheirOrderAndTheirCursors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pages := map[string]string{
		"":    `"tools":[` + r.entries("hidden_tool", "update_invoice") + `],"nextCursor":"a=="`,
		"a==": `"tools":[` + r.entries("delete_account") + `],"nextCursor":"b\u0041"`,
		"bA":  `"tools":[` + r.entries("get_invoice") + `]`,
	}
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		var list struct{ Params struct{ Cursor string } }
		if err := json.NewDecoder(rq.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		answerWith("application/json", `{"jsonrpc":"2.0","id":"l","result":{`+pages[list.Params.Cursor]+`}}`)(w, rq)
	})
	var names []string
	cursor := ""
	for range pages {
		body := listCall
		if cursor != "" {
			body = fmt.Sprintf(`{"jsonrpc":"2.0","id":"l","method":"tools/list","params":{"cursor":%q}}`, cursor)
		}
		var page struct {
			Result struct {
				Tools      []struct{ Name string }
				NextCursor string
			}
		}
		got := r.post(body)
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatalf("%v: %s", err, got.body)
		}
		if len(page.Result.Tools) == 0 {
			t.Errorf("a page is empty: %s", got.body)
		}
		for _, tool := range page.Result.Tools {
			names = append(names, tool.Name)
		}
		cursor = page.Result.NextCursor
	}
	if diff := cmp.Diff([]string{"update_invoice", "delete_account", "get_invoice"}, names); diff != "" || cursor != "" {
		t.Errorf("cursor %q, tools (-want +got):\n%s", cursor, diff)
	}
}

// forgetful is a server of sessions; forget is its restart.
type forgetful struct {
	mu       sync.Mutex
	sessions map[string]bool
	calls    map[string]int // tools called, by session
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions = map[string]bool{}
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, rq *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, err := io.ReadAll(rq.Body)
	if err != nil {
		return
	}
	rq.Body = io.NopCloser(strings.NewReader(string(body)))
	session := rq.Header.Get(sessionHeader)
	switch {
	case strings.Contains(string(body), `"initialize"`):
		session = fmt.Sprint("s-", len(f.calls))
		f.sessions[session], f.calls[session] = true, 0
		w.Header().Set(sessionHeader, session)
	case !f.sessions[session]:
		answerStatus(http.StatusNotFound, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)(w, rq)
		return
	case strings.Contains(string(body), `tools/call`):
		f.calls[session]++
	}
	answerJSON(`{"content":[]}`)(w, rq)
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

func TestAfterARestartOfTheServerOneInitializeGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	f := &forgetful{sessions: map[string]bool{}, calls: map[string]int{}}
	r.upstream.answers(f.ServeHTTP)
	for _, body := range []string{toolCall("get_invoice", `{}`), toolCall("update_invoice", `{"n":1}`)} {
		old := r.post(initialize).header.Get(sessionHeader)
		if got := r.post(body, sessionHeader, old); got.status != http.StatusOK {
			t.Fatalf("HTTP %d: %s", got.status, got.body)
		}
		f.forget()
		r.upstream.CloseClientConnections()
		if got := r.post(body, sessionHeader, old); got.status != http.StatusNotFound || !strings.Contains(got.body, "Session not found") || got.header.Get("Retry-After") != "" {
			t.Errorf("after the restart: HTTP %d %s", got.status, got.body)
		}
		next := r.post(initialize).header.Get(sessionHeader)
		if got := r.post(body, sessionHeader, next); got.status != http.StatusOK || next == old {
			t.Errorf("after initialize: HTTP %d %s", got.status, got.body)
		}
		if f.calls[old] != 1 || f.calls[next] != 1 {
			t.Errorf("calls by session %v, want one in each", f.calls)
		}
	}
	r.edit(func() { r.governed = nil })
	if got := r.post(toolCall("get_invoice", `{}`), sessionHeader, "s-0"); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a gateway that is not ready: HTTP %d, Retry-After %q", got.status, got.header.Get("Retry-After"))
	}
}

func TestCallsOfOneSessionWithTheSameIDKeepTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hold(45 * time.Second)
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		var message struct{ Params struct{ Name string } }
		if err := json.NewDecoder(rq.Body).Decode(&message); err != nil {
			t.Error(err)
		}
		answerWith("application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":%q}]}}`, message.Params.Name))(w, rq)
	})
	update := r.later(t.Context(), toolCall("update_invoice", `{}`), sessionHeader, "s")
	r.until("a request", func() bool { return len(r.requests()) == 1 })
	remove := r.later(t.Context(), toolCall("delete_account", `{}`), sessionHeader, "s")
	r.until("another", func() bool { return len(r.requests()) == 2 })
	if got := r.post(toolCall("get_invoice", `{}`), sessionHeader, "s"); !strings.Contains(got.body, "get_invoice") {
		t.Errorf("a read meanwhile: %s", got.body)
	}
	for _, request := range r.requests() {
		if request.Spec.Tool == "update_invoice" {
			r.decideOn(&request, v1alpha1.DecisionApproved, "alice")
		}
	}
	if got := <-update; !strings.Contains(got.body, `"text":"update_invoice"`) {
		t.Errorf("the approved one: %s", got.body)
	}
	r.clock.Step(46 * time.Second)
	if got := <-remove; got.code() != codePending {
		t.Errorf("the other: %s", got.body)
	}
	for _, sent := range r.upstream.requests() {
		if strings.Contains(sent.body, "delete_account") {
			t.Errorf("the server got %s", sent.body)
		}
	}
}

func TestAClientCancelsItsOwnCallWhileItIsHeld(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		who, session, id string
		ends             bool
	}{
		"its own":                 {"crane", "s", `1`, true},
		"another id":              {"crane", "s", `2`, false},
		"an id of another kind":   {"crane", "s", `"1"`, false},
		"another session":         {"crane", "z", `1`, false},
		"another caller":          {"winch", "s", `1`, false},
		"another, acting for one": {"crane for carol", "s", `1`, false},
		"without a session":       {"crane", "", `1`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.authenticated()
			r.hold(45 * time.Second)
			body := toolCall("update_invoice", `{"n":1}`)
			answer := r.later(t.Context(), body, "Authorization", "Bearer crane", sessionHeader, "s")
			r.held()
			headers := []string{"Authorization", "Bearer " + tc.who}
			if tc.session != "" {
				headers = append(headers, sessionHeader, tc.session)
			}
			r.post(cancelOf(tc.id), headers...)
			relayed := len(r.upstream.requests())
			if tc.ends {
				if got := <-answer; got.code() != "Cancelled" || relayed != 0 {
					t.Errorf("the call: %s, and %d messages for the server", got.body, relayed)
				}
				r.decide(v1alpha1.DecisionApproved)
				r.nothingSent()
				if got := r.post(body, "Authorization", "Bearer crane"); got.code() != "" {
					t.Errorf("sent again: %s", got.body)
				}
				r.ran(body)
				return
			}
			r.decide(v1alpha1.DecisionApproved)
			if got := <-answer; got.code() != "" || got.status != http.StatusOK {
				t.Errorf("the call: HTTP %d %s", got.status, got.body)
			}
		})
	}
}

func TestACancellationReachesTheServerOnceTheCallHasLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	arrived, end := make(chan struct{}), make(chan struct{})
	answer := answerJSON(`{"content":[]}`)
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		body, _ := io.ReadAll(rq.Body)
		rq.Body = io.NopCloser(strings.NewReader(string(body)))
		if strings.Contains(string(body), "tools/call") {
			close(arrived)
			<-end
		}
		answer(w, rq)
	})
	call := r.later(t.Context(), toolCall("update_invoice", `{"n":1}`), sessionHeader, "s")
	<-arrived
	for _, when := range []string{"while it runs", "once it is over"} {
		if got := r.post(cancelOf("1"), sessionHeader, "s"); got.status != http.StatusAccepted {
			t.Errorf("%s: HTTP %d", when, got.status)
		}
		seen := r.upstream.requests()
		if last := seen[len(seen)-1]; last.body != cancelOf("1") || last.header.Get(sessionHeader) != "s" {
			t.Errorf("%s: the server got %+v", when, last)
		}
		if when == "while it runs" {
			close(end)
			if got := <-call; got.code() != "" || got.status != http.StatusOK {
				t.Errorf("the call: HTTP %d %s", got.status, got.body)
			}
		}
	}
	r.until("no call is remembered", func() bool {
		r.server.waiting.mu.Lock()
		defer r.server.waiting.mu.Unlock()
		return len(r.server.waiting.calls) == 0
	})
}

func TestTheNegotiatedVersionIsOnEveryMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	const version = "Mcp-Protocol-Version"
	send := func(method, body, of string) got {
		return r.do(t.Context(), method, body, version, of, sessionHeader, "s")
	}
	all := []struct{ method, body string }{
		{http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, {http.MethodPost, ping}, {http.MethodPost, listCall},
		{http.MethodPost, toolCall("get_invoice", `{}`)}, {http.MethodPost, toolCall("update_invoice", `{}`)}, {http.MethodGet, ""}, {http.MethodDelete, ""},
	}
	for _, m := range all {
		if got := send(m.method, m.body, "1999-01-01"); got.status != http.StatusBadRequest {
			t.Errorf("%s %s of 1999: HTTP %d", m.method, m.body, got.status)
		}
	}
	r.nothingSent()
	for _, m := range all {
		send(m.method, m.body, "2025-06-18")
	}
	seen := r.upstream.requests()
	if len(seen) != len(all) {
		t.Fatalf("the server got %d of %d messages", len(seen), len(all))
	}
	for _, m := range seen {
		if got := m.header.Values(version); len(got) != 1 || got[0] != "2025-06-18" {
			t.Errorf("%s %s: version %q", m.method, m.body, got)
		}
	}
}

func TestAClientThatCanDoNothingIsAskedNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hold(45 * time.Second)
	if got := r.post(initialize); got.status != http.StatusOK {
		t.Fatalf("HTTP %d", got.status)
	}
	answer := r.later(t.Context(), toolCall("delete_account", `{}`), "Accept", "application/json")
	r.held()
	r.clock.Step(46 * time.Second)
	if got := <-answer; got.code() != codePending || strings.Contains(got.body, `"method"`) {
		t.Errorf("got %s", got.body)
	}
	if n := len(r.upstream.requests()); n != 1 {
		t.Errorf("the server got %d messages, want initialize alone", n)
	}
	r.decide(v1alpha1.DecisionApproved)
	if got := r.post(toolCall("delete_account", `{}`), "Accept", "application/json"); got.code() != "" {
		t.Errorf("approved by a person: %s", got.body)
	}
}

func TestAStreamIsToldOnceWhenAToolIsHidden(t *testing.T) {
	t.Parallel()
	const changed = `"method":"notifications/tools/list_changed"`
	listen := func(wants string) string {
		return `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":` + wants + `}}}`
	}
	for name, tc := range map[string]struct {
		method, body string
		told         string
	}{
		"by GET":                            {http.MethodGet, "", `{"jsonrpc":"2.0",` + changed + `}`},
		"by subscription":                   {http.MethodPost, listen("true"), changed + `,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`},
		"by one that does not ask for it":   {http.MethodPost, listen("false"), ""},
		"by one that asks for nothing else": {http.MethodPost, `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			next := make(chan string)
			r.upstream.answers(streaming(next))
			stream := make(chan got, 1)
			go func() { stream <- r.do(t.Context(), tc.method, tc.body) }()
			next <- ": open\n\n"
			r.underWay(listening, 1)
			next <- "data: {\"jsonrpc\":\"2.0\",\"method\":\"first\"}\n\n"
			followed := func() bool {
				r.server.mu.Lock()
				defer r.server.mu.Unlock()
				return r.server.changed != nil
			}
			seen := func(what string) {
				if tc.told != "" {
					r.until(what, followed)
				}
			}
			seen("the stream is followed")
			r.edit(nil) // what changes nothing is no news
			seen("what is no change was seen")
			r.govern(team(rule(v1alpha1.EffectDeny, "delete_*")))
			seen("the change was seen")
			next <- "data: {\"jsonrpc\":\"2.0\",\"method\":\"last\"}\n\n"
			if got := r.post(toolCall("delete_account", `{}`)); got.code() != "ToolUnknown" {
				t.Errorf("a call by the old list: %s", got.body)
			}
			close(next)
			got := <-stream
			if want := min(len(tc.told), 1); strings.Count(got.body, changed) != want || !strings.Contains(got.body, tc.told) || got.err != nil {
				t.Errorf("%v, the stream: %s", got.err, got.body)
			}
			if !strings.Contains(got.body, `"method":"last"`) || strings.Contains(strings.Split(got.body, `"method":"first"`)[0], changed) {
				t.Errorf("the stream: %s", got.body)
			}
		})
	}
}

func TestASubscriptionIsToldNothingBeforeTheServerAgreed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	next := make(chan string, 1)
	r.upstream.answers(streaming(next))
	next <- ": open\n\n"
	resp, err := http.Post(r.front.URL+"/mcp", "application/json", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if line, err := stream.ReadString('\n'); line != ": open\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	r.govern(team(rule(v1alpha1.EffectDeny, "delete_*")))
	next <- "data: {\"jsonrpc\":\"2.0\",\"method\":\"agreed\"}\n\n"
	var told string
	for !strings.Contains(told, "list_changed") {
		line, err := stream.ReadString('\n')
		if told += line; err != nil {
			t.Fatalf("%v after %q", err, told)
		}
	}
	close(next)
	if !strings.Contains(told, `"agreed"`) {
		t.Errorf("the stream: %s", told)
	}
}

func TestAStreamOfHTTPAndSSEIsToldWhenAToolIsHidden(t *testing.T) {
	t.Parallel()
	r, _ := newRealSSE(t)
	a := r.listens()
	r.until("the stream is followed", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.changed != nil
	})
	r.govern(team(rule(v1alpha1.EffectDeny, "delete_*")))
	if block := a.next(); !strings.Contains(block, "event: message\n") || !strings.Contains(block, "notifications/tools/list_changed") {
		t.Errorf("told %q", block)
	}
}
