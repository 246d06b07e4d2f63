// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// patience is how long an answer may take: longer than the gateway holds a call.
	patience = 60 * time.Second
	// reachable is how long the server may take until it can be reached.
	reachable = 15 * time.Second
)

// call is a line that the agent reads.
type call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// answer is the line that comes back.
type answer struct {
	Text string `json:"text"`
	// Code is the gateway's word for an answer of its own, "" where the server answered, and Request the request that it
	// is about.
	Code    string `json:"code,omitempty"`
	Request string `json:"request,omitempty"`
	// Failed says that the tool, or the gateway, answered with an error.
	Failed bool `json:"failed,omitempty"`
	// Error is what came instead of an answer.
	Error string `json:"error,omitempty"`
	// Sessions is how many the agent has opened so far.
	Sessions int `json:"sessions"`
}

// agent calls an MCP server in one session after the other.
type agent struct {
	url, tokenFile string
	client         *client.Client
	sessions       int
}

func newAgent() *agent { return &agent{url: os.Getenv("MCP_URL"), tokenFile: os.Getenv("TOKEN_FILE")} }

// callOnce calls a tool for a person, who reads the text.
func callOnce(ctx context.Context, stdout io.Writer, tool, arguments string) error {
	c := call{Tool: tool}
	if err := json.Unmarshal([]byte(arguments), &c.Arguments); err != nil {
		return fmt.Errorf("the arguments are no JSON object, such as '{\"invoiceId\":\"2026-9\"}': %w", err)
	}
	got := newAgent().call(ctx, c)
	if got.Error != "" {
		return errors.New(got.Error)
	}
	fmt.Fprintln(stdout, got.Text)
	if got.Failed {
		return fmt.Errorf("the call of %s was not executed, or failed: %s", tool, got.Code)
	}
	return nil
}

// callAll calls until there is no more to read.
func callAll(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	a := newAgent()
	in, out := json.NewDecoder(stdin), json.NewEncoder(stdout)
	for {
		var c call
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a call: %w", err)
		}
		if err := out.Encode(a.call(ctx, c)); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
}

// call calls once. Where the server does not know the session any more, it has not read the call: the agent opens another
// session, and calls there.
func (a *agent) call(ctx context.Context, c call) answer {
	for {
		if a.client == nil {
			if err := a.open(ctx); err != nil {
				return answer{Error: err.Error(), Sessions: a.sessions}
			}
		}
		request := mcp.CallToolRequest{}
		request.Params.Name, request.Params.Arguments = c.Tool, c.Arguments
		ctx, cancel := context.WithTimeout(ctx, patience)
		result, err := a.client.CallTool(ctx, request)
		cancel()
		if err == nil {
			return read(result, a.sessions)
		}
		a.client.Close() //nolint:errcheck // it is of no more use
		a.client = nil
		if !errors.Is(err, transport.ErrSessionTerminated) {
			return answer{Error: err.Error(), Sessions: a.sessions}
		}
	}
}

// open begins a session, and waits for a server that cannot be reached yet: nothing has been called by then.
func (a *agent) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachable)
	defer cancel()
	for {
		err := a.tryOpen(ctx)
		if err == nil {
			a.sessions++
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("open a session at %s: %w", a.url, err)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (a *agent) tryOpen(ctx context.Context) error {
	token, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return fmt.Errorf("read the agent's token: %w", err)
	}
	opened, err := client.NewStreamableHttpClient(a.url, transport.WithHTTPTimeout(patience),
		transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + string(bytes.TrimSpace(token))}))
	if err != nil {
		return err
	}
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = "2025-06-18"
	hello.Params.ClientInfo = mcp.Implementation{Name: "demo-agent", Version: "1.0.0"}
	if _, err := opened.Initialize(ctx, hello); err != nil {
		opened.Close() //nolint:errcheck // nothing was opened
		return err
	}
	a.client = opened
	return nil
}

// read takes what counts out of an answer.
func read(result *mcp.CallToolResult, sessions int) answer {
	got := answer{Failed: result.IsError, Sessions: sessions}
	for _, content := range result.Content {
		if text, ok := content.(mcp.TextContent); ok {
			got.Text += text.Text
		}
	}
	if result.Meta != nil {
		if decision, ok := result.Meta.AdditionalFields["tidewaiter.dev/decision"].(map[string]any); ok {
			got.Code, _ = decision["code"].(string)
			got.Request, _ = decision["request"].(string)
		}
	}
	return got
}
