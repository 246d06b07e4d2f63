// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func TestAToolIsCalledInWhicheverRevisionTheServerSpeaks(t *testing.T) {
	t.Parallel()
	for name, break26 := range map[string]bool{"without sessions": false, "with sessions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := billing()
			var calls atomic.Int32
			counter := mcp.NewToolWithRawSchema("count_rows", "Counts", []byte(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`))
			s.AddTool(counter, func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				calls.Add(1)
				return mcp.NewToolResultText("matches 40,213 rows in " + r.GetString("region", "none")), nil
			})
			handler := http.Handler(server.NewStreamableHTTPServer(s))
			if break26 {
				handler = before2026(handler)
			}
			target := targetOf(t, serve(t, handler))
			got, err := Call(t.Context(), target, ToolCall{Tool: "count_rows", Arguments: []byte(`{"region":"north"}`), InputSchema: counter.RawInputSchema})
			if err != nil || !strings.Contains(string(got), "matches 40,213 rows in north") || calls.Load() != 1 {
				t.Errorf("got %s, %v after %d calls", got, err, calls.Load())
			}
			if got, err := Call(t.Context(), target, ToolCall{Tool: "no_such_tool", Arguments: []byte(`{}`)}); err == nil {
				t.Errorf("an unknown tool answers %s", got)
			}
		})
	}
}

func TestTheAnswerToACallIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		size int
		fits bool
	}{
		"what fits":    {maxCall / 2, true},
		"what is long": {maxCall, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := billing()
			s.AddTool(mcp.NewTool("dump"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText(strings.Repeat("x", tc.size)), nil
			})
			_, err := Call(t.Context(), targetOf(t, serveMCP(t, s)), ToolCall{Tool: "dump", Arguments: []byte(`{}`)})
			if (err == nil) != tc.fits {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The MCP client takes five seconds of its own to end a session, whatever the caller has left.
func TestTheEndOfASessionTakesNoTimeOfItsOwn(t *testing.T) {
	t.Parallel()
	s := billing()
	s.AddTool(mcp.NewTool("count_rows"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("2 rows"), nil
	})
	handler := before2026(server.NewStreamableHTTPServer(s))
	ended := make(chan struct{}, 1)
	target := targetOf(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			ended <- struct{}{}
			<-r.Context().Done() // never answered
			return
		}
		handler.ServeHTTP(w, r)
	})))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := Call(ctx, target, ToolCall{Tool: "count_rows", Arguments: []byte(`{}`)}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); len(ended) != 1 || took >= 5*time.Second {
		t.Errorf("the session was ended %d times, and the call took %s", len(ended), took)
	}
}
