// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestTheAddressForMessagesIsTheGateways(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		begins func(own string) string
		want   int
	}{
		"a path": {func(string) string { return "event: endpoint\r\ndata: /message?sessionId=theirs\r\n\r\n" }, http.StatusOK},
		"a relative path": {func(string) string {
			return ": hello\n\nretry: 5\n\nevent: endpoint\ndata: message?sessionId=theirs\n\n"
		}, http.StatusOK},
		"an address":   {func(own string) string { return "event: endpoint\ndata: " + own + "/message?sessionId=theirs\n\n" }, http.StatusOK},
		"another host": {func(string) string { return "event: endpoint\ndata: http://127.0.0.1:1/message\n\n" }, http.StatusBadGateway},
		"another name": {func(own string) string {
			return "event: endpoint\ndata: " + strings.Replace(own, "127.0.0.1", "localhost", 1) + "/m\n\n"
		}, http.StatusBadGateway},
		"a message first":    {func(string) string { return "data: {}\n\nevent: endpoint\ndata: /message\n\n" }, http.StatusBadGateway},
		"an event in pieces": {func(string) string { return "event: endpoint\n\ndata: /message\n\n" }, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newScript(t)
			s.begins = tc.begins(r.upstream.URL)
			a, got := r.opens("X-Tenant", "7", "Authorization", "Bearer x")
			if a == nil {
				if got.status != tc.want {
					t.Fatalf("HTTP %d %s, want %d", got.status, got.body, tc.want)
				}
				return
			}
			if tc.want != http.StatusOK {
				t.Fatal("the stream is open")
			}
			if !strings.HasPrefix(a.path, "/mcp?sessionId=") || strings.Contains(a.path, "theirs") {
				t.Errorf("the agent is sent to %q", a.path)
			}
			a.sends(ping)
			got1, opened := s.got(1), r.upstream.requests()[0]
			if got1.target != "/message?sessionId=theirs" || got1.body != ping || got1.header.Get("X-Configured") != "yes" || got1.header.Get("X-Tenant") != "7" || got1.header.Get("Authorization") != "" {
				t.Errorf("the server got %+v", got1)
			}
			if opened.target != "/sse" || opened.header.Get("X-Configured") != "yes" || opened.header.Get("Authorization") != "" {
				t.Errorf("the stream was opened by %+v", opened)
			}
			s.answers("1", "{}")
			if got := a.next(); got != "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n" {
				t.Errorf("answer: %q", got)
			}
		})
	}
}

func TestWhatIsNoStreamIsToldAsItIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   int
	}{
		"credentials are refused": {answerStatus(http.StatusUnauthorized, "text/plain", "no"), http.StatusUnauthorized},
		"another path":            {answerStatus(http.StatusNotFound, "text/plain", "no"), http.StatusNotFound},
		"a page":                  {answerWith("text/html", "<html>"), http.StatusBadGateway},
		"an empty stream":         {answerWith("text/event-stream", ""), http.StatusBadGateway},
	} {
		r, _ := newScript(t)
		r.upstream.answers(tc.answer)
		if a, got := r.opens(); a != nil || got.status != tc.want {
			t.Errorf("%s: HTTP %d %s, want %d", name, got.status, got.body, tc.want)
		}
		r.until("no stream is counted", func() bool {
			r.server.legacy.mu.Lock()
			defer r.server.legacy.mu.Unlock()
			return len(r.server.legacy.open) == 0
		})
	}
}

func TestAnAgentThatPostsFirstIsToldOfTheTransport(t *testing.T) {
	t.Parallel()
	r, _ := newScript(t)
	if got := r.post(ping); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET" {
		t.Errorf("a POST without a stream: HTTP %d %s", got.status, got.body)
	}
	if got := r.do(t.Context(), http.MethodDelete, ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("a DELETE: HTTP %d", got.status)
	}
	r.nothingSent()
}

func TestEventsPassByteForByteAndAreFilteredWhereTheyMustBe(t *testing.T) {
	t.Parallel()
	const list = `{"jsonrpc":"2.0","id":1,"result":{"tools":[TOOLS]}}`
	r, s := newScript(t)
	r.govern(team(rule(v1alpha1.EffectDeny, "delete_*")))
	var entries, kept []string
	for _, d := range r.listed {
		entries = append(entries, string(d.Raw))
		if d.Name != "delete_account" {
			kept = append(kept, d.Name)
		}
	}
	tools := strings.Join(entries, ",")
	const asks = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	read := toolCall("get_invoice", `{}`)
	for name, tc := range map[string]struct {
		request string
		events  []string
		want    []string // blocks; "TOOLS" for one with the list that is left
	}{
		"a notification in pieces, with CRLF": {"", []string{"id: 7\r\neve", "nt: message\r", "\ndata: {\"jsonrpc\":\"2.0\",\r\nda", "ta: \"method\":\"notifications/x\"}\r\n", "\r\n"}, []string{"id: 7\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"notifications/x\"}\r\n\r\n"}},
		"a comment and a retry":               {"", []string{": alive\n\nretry: 10\n\n"}, []string{": alive\n\n", "retry: 10\n\n"}},
		"a request of the server":             {"", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n"}, []string{"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n"}},
		"the answer to a ping":                {ping, []string{"id: 1\ndata:{\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\n"}, []string{"id: 1\ndata:{\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\n"}},
		"the answer to a read":                {read, []string{"event: message\nid: 1\ndata: {\"id\":1,\"result\":{\"x\":1e400}}\n\n"}, []string{"event: message\nid: 1\ndata: {\"id\":1,\"result\":{\"x\":1e400}}\n\n"}},
		"a forged word of the gateway":        {read, []string{"data: {\"id\":1,\"result\":{\"_meta\":{\"tidewaiter.dev/decision\":1}}}\n\n"}, []string{"data: {\"id\":1,\"result\":{\"_meta\":{}}}\n\n"}},
		"a list":                              {asks, []string{"\ufeff", "event: message\r\n: comment\r\ndata: " + strings.Replace(strings.Replace(list, "TOOLS", tools, 1), `,"id"`, ",\r\ndata: \"id\"", 1) + "\r\n\r\n"}, []string{"TOOLS"}},
		"a list that nobody asked for":        {"", []string{"data: " + strings.Replace(list, "TOOLS", tools, 1) + "\n\n"}, nil},
		"a list in a message without id":      {"", []string{"data: " + strings.Replace(strings.Replace(list, "TOOLS", tools, 1), `"id":1`, `"id":null`, 1) + "\n\n"}, []string{"TOOLS"}},
		"a list that cannot be read":          {asks, []string{"data: " + strings.Replace(list, "TOOLS", tools+","+tools, 1) + "\n\n"}, []string{"withheld"}},
		"a list with a twin":                  {asks, []string{"data: {\"id\":1,\"result\":{\"tools\":[]},\"result\":{\"tools\":[" + tools + "]}}\n\n"}, []string{"withheld"}},
		"an answer that nobody asked for":     {"", []string{"data: {\"id\":1,\"result\":{\"content\":[]}}\n\n"}, nil},
		"an answer that is a request too":     {"", []string{"data: {\"id\":1,\"method\":\"ping\",\"result\":{\"content\":[]}}\n\n"}, nil},
		"a batch":                             {"", []string{"data: [{\"id\":1,\"result\":{}}]\n\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := r, s
			a := r.listens()
			defer a.leave()
			<-s.opened
			before := len(s.posted())
			if tc.request != "" {
				a.sends(tc.request)
				s.got(before + 1)
			}
			for _, event := range tc.events {
				s.say(event)
			}
			s.say("data: {\"method\":\"notifications/end\"}\n\n")
			var got []string
			for block := a.next(); !strings.Contains(block, "notifications/end"); block = a.next() {
				switch {
				case strings.Contains(block, "is withheld"):
					block = "withheld"
				case strings.Contains(block, "tidewaiter.dev/behaviour"):
					for _, d := range r.listed {
						if has := strings.Contains(block, `"`+d.Name+`"`); has == (d.Name == "delete_account") {
							t.Errorf("%s in the list: %t", d.Name, has)
						}
					}
					block = "TOOLS"
				}
				got = append(got, block)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			a.leave()
			<-s.closed
		})
	}
	if len(kept) != 2 {
		t.Errorf("kept %v", kept)
	}
}

func TestTwoRequestsWithOneIDAreNotUnderWayAtOnce(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.hold(45e9)
	a := r.listens()
	a.sends(toolCall("update_invoice", `{"n":1}`)) // held
	r.held()
	for _, body := range []string{toolCall("get_invoice", `{}`), ping, toolCall("update_invoice", `{"n":1}`)} {
		if got := a.post(body); got.status != http.StatusBadRequest || !strings.Contains(got.body, `"id":null`) {
			t.Errorf("a second with the same id: HTTP %d %s", got.status, got.body)
		}
	}
	r.nothingPosted(s)
	a.sends(withID(`"1"`, toolCall("get_invoice", `{}`))) // a text is another id
	s.got(1)
	// The server cannot answer for the call that is held.
	s.answers("1", `{"content":[{"type":"text","text":"done"}]}`)
	s.answers(`"\u0031"`, `{"content":[]}`)
	if got := a.answer(); !strings.Contains(got.body, `"id":"\u0031"`) {
		t.Errorf("the text: %s", got.body)
	}
	r.decide(v1alpha1.DecisionApproved)
	s.got(2)
	s.answers("1", `{"content":[]}`)
	if got := a.answer(); got.body != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
		t.Errorf("the held call: %s", got.body)
	}
	a.sends(ping) // the id is free again
	s.got(3)
}

// nothingPosted fails if a message has reached the server.
func (r *rig) nothingPosted(s *script) {
	r.t.Helper()
	if got := s.posted(); len(got) > 0 {
		r.t.Errorf("the server got %+v", got)
	}
}

func TestOnlyWhoOpenedAStreamPostsToIt(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.authenticated()
	if a, got := r.opens(); a != nil || got.status != http.StatusUnauthorized {
		t.Errorf("a stream for nobody: HTTP %d", got.status)
	}
	crane := r.listens("Authorization", "Bearer crane")
	for _, who := range []string{"Bearer gull", "Bearer crane for alice"} {
		if got := r.postTo(crane.path, ping, "Authorization", who); got.status != http.StatusNotFound || !strings.Contains(got.body, "-32001") {
			t.Errorf("%s posts to crane's stream: HTTP %d %s", who, got.status, got.body)
		}
	}
	if got := r.postTo(crane.path, ping); got.status != http.StatusUnauthorized {
		t.Errorf("nobody posts: HTTP %d", got.status)
	}
	if got := r.postTo("/mcp?sessionId=theirs", ping, "Authorization", "Bearer crane"); got.status != http.StatusNotFound {
		t.Errorf("to the server's own session: HTTP %d", got.status)
	}
	r.nothingPosted(s)
	crane.sends(ping)
	s.got(1)
}

func TestRefusalsHaveTheIDOfTheirRequest(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.edit(func() { r.governed.Spec.OtherMethods = v1alpha1.OtherMethodsDeny })
	r.govern(team(rule(v1alpha1.EffectDeny, "delete_*")))
	a := r.listens()
	for id, body := range map[string]string{
		`"a"`:              toolCall("delete_account", `{}`),
		"0":                toolCall("update_invoice", `{}`),
		"9007199254740993": toolCall("no_such_tool", `{}`),
		"7":                `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}`,
	} {
		a.sends(withID(id, body))
		if got := a.answer(); !strings.HasPrefix(got.body, `{"jsonrpc":"2.0","id":`+id+`,`) || !strings.Contains(got.body, speaker) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	for _, header := range []string{"Mcp-Param-Amount", "Mcp-Name"} {
		if got := a.post(toolCall("get_invoice", `{"n":1}`), header, "2"); got.status == http.StatusAccepted {
			if answer := a.answer(); !strings.Contains(answer.body, `"id":1,"error"`) {
				t.Errorf("%s that differs: %s", header, answer.body)
			}
		} else if got.status != http.StatusBadRequest {
			t.Errorf("%s that differs: HTTP %d %s", header, got.status, got.body)
		}
	}
	r.nothingPosted(s)
	if got := a.post(`{"jsonrpc":"2.0","method":"prompts/get"}`); got.status != http.StatusForbidden {
		t.Errorf("what has no id: HTTP %d %s", got.status, got.body)
	}
	if got := a.post("{"); got.status != http.StatusBadRequest {
		t.Errorf("no JSON: HTTP %d", got.status)
	}
	a.sends(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	s.got(1)
}

func TestRequestsOfAStreamAreBounded(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	a := r.listens()
	for i := range maxLegacyRequests {
		a.sends(withID(fmt.Sprint(i), ping))
	}
	if got := a.post(withID("999", ping)); got.status != http.StatusTooManyRequests {
		t.Errorf("one more request: HTTP %d", got.status)
	}
	s.answers("0", "{}")
	a.answer()
	a.sends(withID("999", ping))
}

func TestOverHTTPAndSSEACallerTakesTheSamePlaces(t *testing.T) {
	t.Parallel()
	r, s := newScript(t)
	r.gateway.Limits.CallerStreams, r.gateway.Limits.CallerCalls = 1, 2
	a := r.listens()
	_, refused := r.opens()
	r.limitedBy(refused, http.StatusTooManyRequests, codeTooManyStreams, "null", 1)
	r.hold(45e9)
	a.sends(withID("1", ping))
	a.sends(withID("2", toolCall("update_invoice", `{"n":1}`)))
	r.underWay(awaiting, 2)
	r.limitedBy(a.post(withID("3", ping)), http.StatusTooManyRequests, codeTooManyCalls, "3", 1)
	r.limitedBy(a.post(withID("4", toolCall("get_invoice", `{}`))), http.StatusTooManyRequests, codeTooManyCalls, "4", 1)
	a.sends(cancelOf("2")) // what ends a call is taken
	r.underWay(awaiting, 1)
	a.sends(withID("5", toolCall("get_invoice", `{}`)))
	s.got(2)
	s.answers("5", `{"content":[]}`)
	a.answer()
	r.underWay(awaiting, 1)
	a.sends(withID("6", ping))
	s.got(3)
	s.answers("1", "{}")
	a.answer()
	r.underWay(awaiting, 1)
	a.leave() // one is not answered
	r.underWay(awaiting, 0)
	r.underWay(listening, 0)
	r.listens()
}

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"x"}}`
}

func TestAnEndpointOnAnotherTransportGoesNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.upstream.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "event: endpoint\ndata: http://10.1.2.3/message\n\ndata: {\"method\":\"notifications/x\"}\n\n")
	})
	if got := r.do(t.Context(), http.MethodGet, ""); got.body != "data: {\"method\":\"notifications/x\"}\n\n" {
		t.Errorf("the stream says %q", got.body)
	}
}
