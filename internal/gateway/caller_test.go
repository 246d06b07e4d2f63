// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

const publicURL = "https://gateway.example.com"

// authenticated has every request of the rig proven: the bearer token "NAME" is that of NAME, "NAME for USER" that of
// NAME who acts for USER, "down" that of nobody knows whom. It returns the audiences that tokens were checked for.
func (r *rig) authenticated() *atomic.Pointer[[]string] {
	var audiences atomic.Pointer[[]string]
	r.gateway.Everybody, r.gateway.Loopback = "", false
	r.gateway.Metadata = &identity.Metadata{PublicURL: publicURL, Servers: []types.NamespacedName{billing}, AuthorizationServers: []string{"https://login.example.com"}}
	r.gateway.Audiences = []string{"extra"}
	r.gateway.Authenticate = func(_ context.Context, rq *http.Request, wanted []string) (identity.Caller, error) {
		audiences.Store(&wanted)
		token, ok := strings.CutPrefix(rq.Header.Get("Authorization"), "Bearer ")
		switch {
		case !ok:
			return identity.Caller{}, identity.ErrNoToken
		case token == "down":
			return identity.Caller{}, fmt.Errorf("%w: no answer", identity.ErrUnavailable)
		case token == "expired":
			return identity.Caller{}, fmt.Errorf("%w: it has expired", identity.ErrInvalidToken)
		}
		name, user, _ := strings.Cut(token, " for ")
		return identity.Caller{Username: name, ActsFor: user, Groups: []string{"agents"}, Pod: name + "-0"}, nil
	}
	return &audiences
}

// as sends a call in somebody's name.
func (r *rig) as(who, body string) got { return r.post(body, "Authorization", "Bearer "+who) }

func TestNothingIsReadBeforeItIsKnownWhoCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	audiences := r.authenticated()
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for name, tc := range map[string]struct {
			headers   []string
			status    int
			challenge string
		}{
			"no token":        {nil, http.StatusUnauthorized, `resource_metadata="` + publicURL + `/.well-known/oauth-protected-resource/mcp"`},
			"a bad token":     {[]string{"Authorization", "Bearer expired"}, http.StatusUnauthorized, `error="invalid_token"`},
			"a proxy's word":  {[]string{"X-User", "crane", "X-Forwarded-User", "crane", "Impersonate-User", "crane", "Remote-User", "crane", "Cookie", "token=crane"}, http.StatusUnauthorized, "Bearer"},
			"nobody can tell": {[]string{"Authorization", "Bearer down"}, http.StatusServiceUnavailable, ""},
		} {
			// The message is malformed: who is not known does not learn even that.
			body := ""
			if method == http.MethodPost {
				body = "{"
			}
			got := r.do(t.Context(), method, body, tc.headers...)
			if got.status != tc.status || !strings.Contains(got.header.Get("WWW-Authenticate"), tc.challenge) {
				t.Errorf("%s %s: HTTP %d %q, want %d %q", method, name, got.status, got.header.Get("WWW-Authenticate"), tc.status, tc.challenge)
			}
		}
	}
	r.nothingSent()
	if got := r.as("crane", "{"); got.status != http.StatusBadRequest {
		t.Errorf("malformed, in a name: HTTP %d", got.status)
	}
	if got := r.as("crane", toolCall("get_invoice", `{}`)); got.status != http.StatusOK || got.code() != "" {
		t.Errorf("a read, in a name: HTTP %d %s", got.status, got.body)
	}
	want := []string{publicURL + "/finance/billing/mcp", publicURL + "/mcp", "extra"}
	if diff := cmp.Diff(want, *audiences.Load()); diff != "" {
		t.Errorf("audiences (-want +got):\n%s", diff)
	}
	r.gateway.Servers[billing2] = &Server{Key: billing2}
	if got := read(r.open(t.Context(), http.MethodPost, "/finance/billing/mcp", ping, "Authorization", "Bearer crane")); got.status != http.StatusOK {
		t.Errorf("one of two servers: HTTP %d", got.status)
	}
	if diff := cmp.Diff([]string{want[0], "extra"}, *audiences.Load()); diff != "" {
		t.Errorf("audiences of one of two servers (-want +got):\n%s", diff)
	}
}

func TestOnlyLoopbackHasOneRequesterForAll(t *testing.T) {
	t.Parallel()
	for _, loopback := range []bool{true, false} {
		r := newRig(t)
		r.authenticated()
		r.gateway.Everybody, r.gateway.Loopback = agent, loopback
		if got := r.post(ping); (got.status == http.StatusOK) != loopback {
			t.Errorf("loopback %v: HTTP %d", loopback, got.status)
		}
	}
}

func TestWhereToGetATokenIsSaidToEverybody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	for path, want := range map[string]int{
		identity.MetadataPath: 200, identity.MetadataPath + "/finance/billing/mcp": 200,
		identity.MetadataPath + "/finance/other/mcp": 404, identity.MetadataPath + "x": 404,
	} {
		got := read(r.open(t.Context(), http.MethodGet, path, ""))
		if got.status != want || want == 200 && !strings.Contains(got.body, `"resource":"`+publicURL+`/finance/billing/mcp"`) {
			t.Errorf("%s: HTTP %d %s", path, got.status, got.body)
		}
	}
	r.nothingSent()
}

func TestHostsAndOriginsOfAPublicListener(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.gateway.Origins = []string{"https://console.example.com"}
	for name, tc := range map[string]struct {
		headers []string
		want    int
	}{
		"the public host":              {[]string{"Host", "gateway.example.com"}, 200},
		"with its port":                {[]string{"Host", "gateway.example.com:443"}, 200},
		"spelt in capitals":            {[]string{"Host", "Gateway.Example.com"}, 200},
		"loopback":                     {[]string{"Host", "127.0.0.1:8080"}, 200},
		"another port":                 {[]string{"Host", "gateway.example.com:8443"}, 403},
		"another host":                 {[]string{"Host", "evil.example"}, 403},
		"a host that begins so":        {[]string{"Host", "gateway.example.com.evil.example"}, 403},
		"the public origin":            {[]string{"Host", "gateway.example.com", "Origin", publicURL}, 200},
		"a listed origin":              {[]string{"Host", "gateway.example.com", "Origin", "https://console.example.com"}, 200},
		"a listed origin in the clear": {[]string{"Host", "gateway.example.com", "Origin", "http://console.example.com"}, 403},
		"the public host in the clear": {[]string{"Host", "gateway.example.com", "Origin", "http://gateway.example.com"}, 403},
		"a foreign origin":             {[]string{"Host", "gateway.example.com", "Origin", "https://evil.example"}, 403},
		"no origin":                    {[]string{"Host", "gateway.example.com", "Origin", "null"}, 403},
		"two":                          {[]string{"Host", "gateway.example.com", "Origin", publicURL, "Origin", publicURL}, 403},
		"a page of the listener's own machine, which is not the agent's": {[]string{"Host", "127.0.0.1", "Origin", "http://localhost:3000"}, 403},
	} {
		if got := r.post(ping, append(tc.headers, "Authorization", "Bearer crane")...); got.status != tc.want {
			t.Errorf("%s: HTTP %d, want %d", name, got.status, tc.want)
		}
	}
}

func TestNoServerGetsWhatSaysWhoTheAgentIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.promote()
	secret := []string{
		"Authorization", "Bearer crane", "Cookie", "s=crane", "Proxy-Authorization", "crane", "X-User", "crane", "X_User", "crane", "Remote-User", "crane",
		"X-Forwarded-User", "crane", "X-Forwarded-Email", "crane", "Impersonate-User", "crane", "Impersonate-Group", "crane", "X-Remote-Extra-Scopes", "crane", "X-Auth-Request-User", "crane",
	}
	bodies := []string{ping, toolCall("get_invoice", `{}`), toolCall("update_invoice", `{}`)}
	for _, body := range bodies {
		if got := r.post(body, secret...); got.status != http.StatusOK || got.code() != "" {
			t.Errorf("HTTP %d %s", got.status, got.body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if got := r.do(t.Context(), method, "", secret...); got.status != http.StatusOK && got.status != http.StatusAccepted {
			t.Errorf("%s: HTTP %d", method, got.status)
		}
	}
	body := toolCall("delete_account", `{}`)
	r.post(body, secret...)
	r.decide(v1alpha1.DecisionApproved)
	if got := r.post(body, secret...); got.code() != "" {
		t.Errorf("approved: %s", got.body)
	}
	seen := r.upstream.requests()
	if len(seen) != 6 {
		t.Fatalf("the server got %d requests, want 6", len(seen))
	}
	for _, s := range seen {
		if strings.Contains(fmt.Sprint(s.header), "crane") {
			t.Errorf("%s %s got %v", s.method, s.body, s.header)
		}
	}
}

func TestACallBelongsToItsCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	body := toolCall("delete_account", `{"n":1}`)
	callers := []string{"crane", "crane for carol", "crane for dan", "winch", "carol"}
	for _, who := range callers {
		if got := r.as(who, body); got.code() != codePending {
			t.Fatalf("%s: %s", who, got.body)
		}
	}
	requests := map[string]*v1alpha1.ApprovalRequest{}
	for _, request := range r.requests() {
		who := request.Spec.Requester.Username
		if user := request.Spec.Requester.ActsFor; user != "" {
			who += " for " + user
		}
		requests[who] = &request
	}
	if len(requests) != len(callers) {
		t.Fatalf("%d requests for %d callers", len(requests), len(callers))
	}
	want := v1alpha1.Requester{Username: "crane", ActsFor: "carol", Groups: []string{"agents"}, Pod: "crane-0"}
	if diff := cmp.Diff(want, requests["crane for carol"].Spec.Requester); diff != "" {
		t.Errorf("requester (-want +got):\n%s", diff)
	}
	r.decideOn(requests["crane for carol"], v1alpha1.DecisionApproved, "alice")
	r.decideOn(requests["winch"], v1alpha1.DecisionDenied, "alice")
	for who, code := range map[string]string{"crane": codePending, "crane for dan": codePending, "carol": codePending, "winch": "ApprovalDenied", "winch for carol": codePending} {
		if got := r.as(who, body); got.code() != code {
			t.Errorf("%s: code %q, want %q", who, got.code(), code)
		}
	}
	r.nothingSent()
	if got := r.as("crane for carol", body); got.code() != "" {
		t.Errorf("the caller of the approval: %s", got.body)
	}
	r.ran(body)
	for _, line := range r.receiptLines() {
		if line.Outcome != "" && (line.Requester != "crane" || line.ActsFor != "carol") {
			t.Errorf("the receipt of the outcome is for %q, who acts for %q", line.Requester, line.ActsFor)
		}
	}
}

func TestWhoTheRequesterActsForDoesNotApprove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	body := toolCall("delete_account", `{"n":1}`)
	r.as("crane for carol", body)
	r.decideOn(r.request(), v1alpha1.DecisionApproved, "carol")
	if got := r.as("crane for carol", body); got.code() != codePending || !strings.Contains(got.body, "was cancelled") {
		t.Errorf("got %s", got.body)
	}
	r.nothingSent()
}

func TestNobodysRequestEndsByAnothersCall(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rig){
		"the tool changed": func(r *rig) { r.redefine("update_invoice", true); r.clock.Step(2 * time.Second) },
		"the tool is gone": func(r *rig) { r.edit(func() { r.governed.Status.Tools = nil }) },
	} {
		r := newRig(t)
		r.authenticated()
		body := toolCall("update_invoice", `{"n":1}`)
		callers := []string{"crane", "crane for carol", "winch"}
		for _, who := range callers {
			if got := r.as(who, body); got.code() != codePending {
				t.Errorf("%s: %s got %s", name, who, got.body)
			}
		}
		change(r)
		r.as("crane", body)
		if n := len(r.requests()); n < len(callers) {
			t.Errorf("%s: %d requests", name, n)
		}
		for _, request := range r.requests() {
			own := snapshot.CallerOf(request.Spec.Requester) == snapshot.Caller{Username: "crane"}
			before := request.CreationTimestamp.Time.Equal(noon)
			if cancelled := request.CurrentPhase() == v1alpha1.PhaseCancelled; cancelled != (own && before) {
				t.Errorf("%s: the request of %+v is %s", name, request.Spec.Requester, request.CurrentPhase())
			}
		}
		r.nothingSent()
	}
}

func TestARequesterIsKeptAsARequestCanHoldIt(t *testing.T) {
	t.Parallel()
	var groups []string
	for i := range 70 {
		groups = append(groups, fmt.Sprint("group-", i))
	}
	long := slices.Insert(slices.Clone(groups), 1, strings.Repeat("g", 257))
	name := strings.Repeat("a", 256)
	got := requesterOf(identity.Caller{Username: name, ActsFor: name, Groups: long, Pod: strings.Repeat("p", 254)})
	if diff := cmp.Diff(v1alpha1.Requester{Username: name, ActsFor: name, Groups: groups[:64]}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(long) != 71 || long[1] != strings.Repeat("g", 257) {
		t.Error("the caller, which others share, was changed")
	}
}

func TestASessionBelongsToWhoOpenedIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		switch rq.Header.Get(sessionHeader) {
		case "":
			w.Header().Set(sessionHeader, "s-1")
		case "unknown":
			http.Error(w, "no session", http.StatusNotFound)
			return
		}
		answerJSON(`{}`)(w, rq)
	})
	const open = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
	if got := r.as("crane", open); got.header.Get(sessionHeader) != "s-1" {
		t.Fatalf("not opened: HTTP %d %s", got.status, got.body)
	}
	r.as("winch", open) // the server gives another the same: it stays the first one's
	use := func(who, session, method, body string) int {
		return r.do(t.Context(), method, body, "Authorization", "Bearer "+who, sessionHeader, session).status
	}
	for _, tc := range []struct {
		who, session string
		want         int
	}{
		{"crane", "s-1", 200}, {"winch", "s-1", 404}, {"crane for carol", "s-1", 404},
		// One from before a restart belongs to who uses it first, if the server knows it.
		{"winch", "old", 200}, {"crane", "old", 404}, {"winch", "old", 200},
		{"crane", "unknown", 404}, {"winch", "unknown", 404},
	} {
		before := len(r.upstream.requests())
		for method, body := range map[string]string{http.MethodPost: toolCall("get_invoice", `{}`), http.MethodGet: "", http.MethodDelete: ""} {
			got := use(tc.who, tc.session, method, body)
			if (got == 404) != (tc.want == 404) {
				t.Errorf("%s by %s in %s: HTTP %d, want %d", method, tc.who, tc.session, got, tc.want)
			}
		}
		if passed := len(r.upstream.requests()) > before; passed != (tc.want == 200 || tc.session == "unknown") {
			t.Errorf("%s in %s: passed %v", tc.who, tc.session, passed)
		}
	}
}

func TestSessionsAreForgottenBeforeTheyFillTheMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.authenticated()
	r.upstream.answers(func(w http.ResponseWriter, rq *http.Request) {
		w.Header().Set(sessionHeader, r.newID())
		answerJSON(`{}`)(w, rq)
	})
	s := &r.server.sessions
	for range 20 {
		r.as("crane", ping)
	}
	if got := s.owners.Len(); got != 20 {
		t.Fatalf("%d sessions, want 20", got)
	}
	*s = sessions{}
	forgotten := 0
	for i := range 60 {
		s.note(&http.Response{Request: &http.Request{}, Header: http.Header{sessionHeader: {fmt.Sprint("s-", i)}}}, snapshot.Caller{Username: "crane"}, 50, func() { forgotten++ })
	}
	if got := s.owners.Len(); got != 50 || forgotten != 10 {
		t.Errorf("%d sessions, %d forgotten, want 50 and 10", got, forgotten)
	}
}

func TestSessionsAreToldApartHoweverLongTheirIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for _, pair := range [][2]string{{"a", "b"}, {long + "a", long + "b"}, {long, keyOf(long)}} {
		if keyOf(pair[0]) == keyOf(pair[1]) {
			t.Errorf("%.20q… and %.20q… are one session", pair[0], pair[1])
		}
	}
	if n := len(keyOf(long)); n != 64 || keyOf("s-1") != "s-1" {
		t.Errorf("a long id takes %d bytes", n)
	}
}
