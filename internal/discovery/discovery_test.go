// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

func namesOf(r Result) []string {
	names := make([]string, 0, len(r.Tools))
	for _, d := range r.Tools {
		names = append(names, d.Name)
	}
	return names
}

func TestARealServerIsListedInWhicheverRevisionItSpeaks(t *testing.T) {
	t.Parallel()
	const says = "List first.\nThen send \u202e."
	for name, tc := range map[string]struct {
		options []server.StreamableHTTPOption
		break26 bool
		want    string
	}{
		"without sessions":         {want: "2026-07-28"},
		"with sessions":            {break26: true, want: "2025-11-25"},
		"stateless before 2026-07": {break26: true, options: []server.StreamableHTTPOption{server.WithStateLess(true)}, want: "2025-11-25"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := http.Handler(server.NewStreamableHTTPServer(withTools(billing(server.WithInstructions(says)), "send_invoice", "get_invoice"), tc.options...))
			if tc.break26 {
				handler = before2026(handler)
			}
			got, err := Tools(t.Context(), targetOf(t, serve(t, handler)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"get_invoice", "send_invoice"}, namesOf(got)); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(Info{"billing", "1.2.3", tc.want, says, tool.DigestOf(says)}, got.Server); diff != "" {
				t.Errorf("server (-want +got):\n%s", diff)
			}
			if !got.Announces || got.Gaps != nil {
				t.Errorf("got announces %t and gaps %q", got.Announces, got.Gaps)
			}
		})
	}
}

func TestLongInstructionsAreCutAndTheirDigestIsOfAll(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"", strings.Repeat("é", maxInstructions/2), "x" + strings.Repeat("é", maxInstructions)} {
		got, err := Tools(t.Context(), targetOf(t, serveMCP(t, withTools(billing(server.WithInstructions(says)), "get_invoice"))))
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if says != "" {
			want = tool.DigestOf(says)
		}
		text := got.Server.Instructions
		if got.Server.InstructionsDigest != want || !strings.HasPrefix(says, text) || len(text) < min(len(says), maxInstructions-1) || len(text) > maxInstructions {
			t.Errorf("of %d bytes %d are left, digest %s", len(says), len(text), got.Server.InstructionsDigest)
		}
	}
}

// before2026 makes a server that knows nothing of the revision 2026-07-28.
func before2026(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") == "2026-07-28" {
			http.Error(w, "unsupported", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func TestDefinitionsAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	entry := `{ "name":"pay", "inputSchema":{"$schema":"x","properties":{"n":{"const":9007199254740993}},"oneOf":[]}, "x-vendor" : 1.10}`
	for _, sse := range []bool{false, true} {
		s := &script{sse: sse, list: func(string, int) string { return listOf(entry, "") }}
		got, err := Tools(t.Context(), targetOf(t, serve(t, s)))
		if err != nil || len(got.Tools) != 1 {
			t.Fatalf("sse %t: %v, %v", sse, got, err)
		}
		if diff := cmp.Diff(entry, string(got.Tools[0].Raw)); diff != "" {
			t.Errorf("sse %t (-want +got):\n%s", sse, diff)
		}
	}
}

func TestPagesAreFollowedToTheEnd(t *testing.T) {
	t.Parallel()
	tools := make([]string, 250)
	for i := range tools {
		tools[i] = fmt.Sprintf("tool_%03d", i)
	}
	got, err := Tools(t.Context(), targetOf(t, serveMCP(t, withTools(billing(server.WithPaginationLimit(100)), tools...))))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tools, namesOf(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", tool.MaxName+1)
	for name, tc := range map[string]struct {
		list      func(cursor string, call int) string
		wantTools int
		wantGaps  []string
		wantLists int
	}{
		"a list without an end of pages": {
			list: func(_ string, call int) string {
				return listOf(entries(fmt.Sprintf("p%d_", call), 1), fmt.Sprint(call))
			},
			wantTools: maxPages, wantLists: maxPages,
			wantGaps: []string{"the server lists more than 200 pages"},
		},
		"a cursor that repeats itself": {
			list:      func(_ string, call int) string { return listOf(entries(fmt.Sprintf("p%d_", call), 1), "again") },
			wantTools: 2, wantLists: 2,
			wantGaps: []string{"the server repeats a cursor, so its list ends there"},
		},
		"a server that knows no cursors and gives the same page for ever": {
			list:      func(string, int) string { return listOf(entries("t", 3), "again") },
			wantTools: 3, wantLists: 2,
			wantGaps: []string{"the server repeats a cursor, so its list ends there"},
		},
		"a hundred thousand tools in one page": {
			list:      func(string, int) string { return listOf(entries("t", 100_000), "") },
			wantTools: maxTools, wantLists: 1,
			wantGaps: []string{"the server lists more than 1000 tools"},
		},
		"many tools in many pages": {
			list: func(_ string, call int) string {
				return listOf(entries(fmt.Sprintf("p%d_", call), 300), fmt.Sprint(call))
			},
			wantTools: maxTools, wantLists: 4,
			wantGaps: []string{"the server lists more than 1000 tools"},
		},
		"exactly as many tools as are kept": {
			list:      func(string, int) string { return listOf(entries("t", maxTools), "") },
			wantTools: maxTools, wantLists: 1,
		},
		"a definition of 5 MB beside an honest one": {
			list: func(string, int) string {
				return listOf(`{"name":"big","inputSchema":{"x":"`+strings.Repeat("y", 5<<20)+`"}},`+entries("t", 1), "")
			},
			wantTools: 1, wantLists: 1,
			wantGaps: []string{"left out 1 with a definition of more than 1048576 bytes"},
		},
		"a name with two definitions, one said twice, and names that are none": {
			list: func(string, int) string {
				return listOf(`{"name":"pay","description":"a"},{"name":"pay","description":"b"},{"name":"pay","description":"a"},
					{"name":"get"},{"name":"get"},{"name":"`+long+`"},{"name":"a\nb"},7,{"name":7}`, "")
			},
			wantTools: 1, wantLists: 1,
			wantGaps: []string{
				"left out 1 with two definitions",
				"left out 4 with no strict JSON definition, or without a printable name of 1 to 128 bytes",
			},
		},
		"names with characters that nobody sees, or that turn a line round": {
			list: func(string, int) string {
				return listOf(`{"name":"get"},{"name":"größe_日本"},{"name":"get_\u202eteg"},{"name":"get_\u009b31m"},{"name":"get\u200b"},
					{"name":"get_\u2028"},{"name":"get\u3164"},{"name":"get_\u001b[2J"},{"name":"get_\u061c"}`, "")
			},
			wantTools: 2, wantLists: 1,
			wantGaps: []string{"left out 7 with no strict JSON definition, or without a printable name of 1 to 128 bytes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{list: tc.list}
			got, err := Tools(t.Context(), targetOf(t, serve(t, s)))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Tools) != tc.wantTools || s.listed() != tc.wantLists {
				t.Errorf("got %d tools after %d lists, want %d after %d", len(got.Tools), s.listed(), tc.wantTools, tc.wantLists)
			}
			if diff := cmp.Diff(tc.wantGaps, got.Gaps); diff != "" {
				t.Errorf("gaps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAnswerThatTwoParsersReadDifferentlyIsRefusedWhole(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{
		"two lists":             `{"tools":[{"name":"a"}],"tools":[{"name":"b"}]}`,
		"two lists by case":     `{"tools":[{"name":"a"}],"Tools":[{"name":"b"}]}`,
		"two lists by long s":   `{"tools":[{"name":"a"}],"toolſ":[{"name":"b"}]}`,
		"another case alone":    `{"Tools":[{"name":"b"}]}`,
		"no list":               `{}`,
		"null":                  `null`,
		"null list":             `{"tools":null}`,
		"a list that is none":   `{"tools":{"name":"a"}}`,
		"a cursor that is none": `{"tools":[],"nextCursor":5}`,
		"an endless cursor":     `{"tools":[],"nextCursor":"` + strings.Repeat("x", maxCursor+1) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{list: func(string, int) string { return result }}
			got, err := Tools(t.Context(), targetOf(t, serve(t, s)))
			want := &Error{Kind: ProtocolError, Cause: "the server's answer to tools/list is no list of tools"}
			if diff := cmp.Diff(want, fault(err), cmp.AllowUnexported(Error{})); diff != "" {
				t.Errorf("got %v (-want +got):\n%s", got, diff)
			}
		})
	}
	control := &script{list: func(string, int) string { return `{"tools":[{"name":"a"}],"_meta":{"tools":1},"ttlMs":5}` }}
	if got, err := Tools(t.Context(), targetOf(t, serve(t, control))); err != nil || len(got.Tools) != 1 {
		t.Errorf("an honest list: %v, %v", got, err)
	}
}

func TestARedirectLeadsNowhere(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	_, err := Tools(t.Context(), targetOf(t, serve(t, http.RedirectHandler(elsewhere, http.StatusPermanentRedirect))))
	if fault(err) == nil || reached.Load() != 0 {
		t.Errorf("got %v after %d visits", err, reached.Load())
	}
}

func TestAPageThatFailsSpoilsTheWholeList(t *testing.T) {
	t.Parallel()
	s := &script{list: func(cursor string, _ int) string { return listOf(entries("p"+cursor, 2), "second") }}
	lists := 0
	s.before = func(w http.ResponseWriter, _ *http.Request, method string) bool {
		if method != "tools/list" {
			return false
		}
		if lists++; lists < 2 {
			return false
		}
		http.Error(w, "late", http.StatusGatewayTimeout)
		return true
	}
	got, err := Tools(t.Context(), targetOf(t, serve(t, s)))
	if f := fault(err); f == nil || f.Kind != Unreachable || got.Tools != nil {
		t.Errorf("got %v, %v, want an error and nothing of the first page", got, err)
	}
}

func TestASessionThatTheServerForgotIsOpenedAgain(t *testing.T) {
	t.Parallel()
	s := &script{list: func(string, int) string { return listOf(entries("t", 1), "") }}
	s.before = func(w http.ResponseWriter, r *http.Request, method string) bool {
		if method == "tools/list" && r.Header.Get("Mcp-Session-Id") == "session-1" {
			http.NotFound(w, r)
			return true
		}
		return false
	}
	got, err := Tools(t.Context(), targetOf(t, serve(t, s)))
	if err != nil || len(got.Tools) != 1 || s.sessions != 2 {
		t.Errorf("got %v, %v after %d sessions", got, err, s.sessions)
	}
}

func TestHeadersGoWithEveryRequest(t *testing.T) {
	t.Parallel()
	next := before2026(server.NewStreamableHTTPServer(withTools(billing(), "get_invoice")))
	var without atomic.Int64
	methods := make(chan string, 16)
	target := targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			without.Add(1)
		}
		methods <- r.Method
		next.ServeHTTP(w, r)
	})))
	target.Headers = http.Header{"Authorization": {"Bearer s3cret"}}
	if _, err := Tools(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	close(methods)
	seen := map[string]bool{}
	for method := range methods {
		seen[method] = true
	}
	if n := without.Load(); n != 0 || !seen[http.MethodPost] || !seen[http.MethodDelete] {
		t.Errorf("%d requests came without the header, of %v", n, seen)
	}
}

func TestTheAddressGuardIsAskedOnEveryDial(t *testing.T) {
	t.Parallel()
	url := serveMCP(t, withTools(billing(), "get_invoice"))
	transport := netguard.Policy{}.Transport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	_, err := Tools(t.Context(), Target{URL: url, Transport: transport})
	if f := fault(err); f == nil || f.Kind != AddressForbidden {
		t.Errorf("got %v, want AddressForbidden", err)
	}
}

// FuzzReadPage looks for an answer to tools/list that makes discovery panic or break its bounds.
func FuzzReadPage(f *testing.F) {
	f.Add([]byte(listOf(entries("t", 2), "next")))
	f.Add([]byte(`{"tools":[1,null,{}],"nextCursor":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := readPage(raw)
		if err != nil {
			return
		}
		var found collection
		found.add(p.tools)
		found.gaps(false)
		for name := range found.tools {
			if name == "" || len(name) > tool.MaxName {
				t.Errorf("kept %q", name)
			}
		}
	})
}
