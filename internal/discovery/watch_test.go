// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// watching runs Watch until stop is called, which returns what Watch returned.
func watching(t *testing.T, target Target) (changes <-chan struct{}, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan struct{}, 64), make(chan error, 1)
	go func() {
		done <- Watch(ctx, target, func() { seen <- struct{}{} })
	}()
	stop = func() error {
		cancel()
		select {
		case err := <-done:
			done <- err
			return err
		case <-time.After(30 * time.Second):
			t.Error("Watch does not return")
			return nil
		}
	}
	t.Cleanup(func() { _ = stop() })
	return seen, stop
}

func receive(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s was not told", what)
	}
}

func TestAChangeIsToldInEveryRevision(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"without sessions": func(h http.Handler) http.Handler { return h },
		"with sessions":    before2026,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withTools(billing(), "get_invoice")
			changes, stop := watching(t, targetOf(t, serve(t, wrap(server.NewStreamableHTTPServer(s)))))
			receive(t, changes, "that the stream stands")
			s.AddTool(mcp.NewTool("send_invoice"), nil)
			receive(t, changes, "a new tool")
			if err := stop(); err == nil {
				t.Error("Watch returned nil")
			}
		})
	}
}

func TestAServerWithoutAStreamIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	silent := server.NewMCPServer("silent", "1", server.WithToolCapabilities(false))
	for name, handler := range map[string]http.Handler{
		"it announces nothing": server.NewStreamableHTTPServer(withTools(silent, "get_invoice")),
		"it has no GET":        &script{},
	} {
		err := Watch(t.Context(), targetOf(t, serve(t, handler)), func() { t.Errorf("%s: told of a change", name) })
		if !errors.Is(err, ErrNoStream) {
			t.Errorf("%s: %v, want ErrNoStream", name, err)
		}
	}
}

// stream answers GET with a text and then ends.
func stream(text string) *script {
	s := &script{}
	s.before = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		return true
	}
	return s
}

func TestOnlyAChangeOfToolsIsTold(t *testing.T) {
	t.Parallel()
	const told = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"a change":                        {told, 1},
		"CRLF, comment, event, id":        {strings.ReplaceAll(": hi\nid: 4\nevent: message\n"+told, "\n", "\r\n"), 1},
		"data over two lines":             {"data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/tools/list_changed\"}\n\n", 1},
		"every kind of line end":          {"\ufeff: x\r\rdata: {\"method\":\rdata: \"notifications/tools/list_changed\"}\r\r", 1},
		"other news and no news":          {"data: {\"method\":\"notifications/prompts/list_changed\"}\n\ndata: no\n\n\n\n: x\n\n", 0},
		"the words in another message":    {"data: {\"method\":\"x\",\"params\":\"notifications/tools/list_changed\"}\n\n", 0},
		"an event without its end":        {"data: {\"method\":\"notifications/tools/list_changed\"}\n", 0},
		"a change after a long event":     {"data: " + strings.Repeat("x", maxEvent/2) + "\n\n" + told, 1},
		"an event that does not fit":      {"data: " + strings.Repeat("x", maxEvent+1) + "\n\n" + told, 0},
		"an event of more than an answer": {strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", maxAnswer/1000) + "\n" + told, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := -1 // the first call says that the stream stands
			err := Watch(t.Context(), targetOf(t, serve(t, stream(tc.text))), func() { got++ })
			if fault(err) == nil || got != tc.want {
				t.Errorf("told %d times (%v), want %d", got, err, tc.want)
			}
		})
	}
}

func TestNothingIsLeftOfAWatchOrAList(t *testing.T) {
	s := withTools(billing(), "get_invoice")
	old := serve(t, before2026(server.NewStreamableHTTPServer(s)))
	modern := serve(t, server.NewStreamableHTTPServer(s))
	round := func() {
		for _, url := range []string{old, modern} {
			target := targetOf(t, url)
			changes, stop := watching(t, target)
			receive(t, changes, "that the stream stands")
			_ = stop()
			if _, err := Tools(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			target.Transport.(*http.Transport).CloseIdleConnections()
		}
	}
	round()
	before := settled(t, 0)
	for range 10 {
		round()
	}
	if after := settled(t, before+5); after > before+5 {
		t.Errorf("%d goroutines became %d", before, after)
	}
}

// settled waits until the number of goroutines is at most want, or no longer falls, and returns it.
func settled(t *testing.T, want int) int {
	t.Helper()
	least, tick := runtime.NumGoroutine(), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for range 100 {
		<-tick.C
		least = min(least, runtime.NumGoroutine())
		if least <= want {
			break
		}
	}
	return least
}
