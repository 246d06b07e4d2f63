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
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// patience is how long a step of the story may take.
const patience = 60 * time.Second

// teller prints the story.
type teller struct {
	out  io.Writer
	step int
}

func (t *teller) say(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

func (t *teller) chapter(title string) {
	t.step++
	fmt.Fprintf(t.out, "\n=== %d. %s\n", t.step, title)
}

// show prints text with an indent.
func (t *teller) show(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		fmt.Fprint(t.out, "    ", line)
	}
}

// player does the story's deeds: kubectl as one of its people, and calls as the agent.
type player struct {
	*teller
	*stage
	agent *client.Client
	calls int // how often the agent has called a tool
	// held is the request of the call that two chapters are about.
	held string
}

// run runs kubectl as somebody, prints it and its output, and returns the output. It fails unless kubectl ends with the
// exit code that is wanted.
func (p *player) run(ctx context.Context, who, stdin string, want int, args ...string) (string, error) {
	p.say("  %s$ kubectl %s", who, quote(args))
	out, err := p.quiet(ctx, who, stdin, args...)
	p.show(out)
	got := 0
	if exit, exited := errors.AsType[*exec.ExitError](err); exited {
		got = exit.ExitCode()
	} else if err != nil {
		return out, fmt.Errorf("kubectl %s as %s: %w", args[0], who, err)
	}
	if got != want {
		return out, fmt.Errorf("kubectl %s as %s: exit code %d, want %d", strings.Join(args[:min(2, len(args))], " "), who, got, want)
	}
	return out, nil
}

// quiet is run without a word.
func (p *player) quiet(ctx context.Context, who, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := p.as(ctx, who, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	return out.String(), err
}

func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if strings.ContainsAny(a, " {}[]$*?'\"=()@") && !strings.HasPrefix(a, "--") {
			quoted[i] = "'" + a + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// until waits until kubectl prints what is wanted, and returns it.
func (p *player) until(ctx context.Context, what, want string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		out, err := p.quiet(ctx, "approver", "", args...)
		if err == nil && strings.Contains(out, want) {
			return strings.TrimSpace(out), nil
		}
		select {
		case <-ctx.Done():
			return out, fmt.Errorf("waited in vain for %s: %s", what, strings.TrimSpace(out))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// connect opens the agent's MCP session through the gateway.
func (p *player) connect(ctx context.Context) error {
	account, err := p.plane.AddServiceAccount(ctx, namespace, "invoice-agent", p.gatewayURL)
	if err != nil {
		return err
	}
	if err := p.keepCaller(account.BearerToken); err != nil {
		return err
	}
	agent, err := client.NewStreamableHttpClient(p.gatewayURL, transport.WithHTTPTimeout(patience),
		transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + account.BearerToken}))
	if err != nil {
		return fmt.Errorf("make the agent's client: %w", err)
	}
	if _, err := agent.Initialize(ctx, hello("demo-agent")); err != nil {
		return fmt.Errorf("open the agent's session: %w", err)
	}
	p.agent = agent
	p.later(agent.Close)
	return nil
}

// hello opens an MCP session.
func hello(name string) mcp.InitializeRequest {
	var request mcp.InitializeRequest
	request.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	request.Params.ClientInfo = mcp.Implementation{Name: name, Version: "1.0.0"}
	return request
}

// callerScript calls a tool as the agent does: it opens a session, then calls.
const callerScript = `#!/bin/sh
# Calls a tool through the gateway as the agent: agent TOOL ARGUMENTS
mcp() {
  curl -sS -H "Authorization: Bearer $(cat '%s')" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' "$@" '%s'
}
session=$(mcp -o /dev/null -D - -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
  tr -d '\r' | sed -n 's/^[Mm]cp-[Ss]ession-[Ii]d: //p')
mcp -H "Mcp-Session-Id: $session" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"'"$1"'","arguments":'"$2"'}}'
echo
`

// keepCaller leaves people a way to call the gateway as the agent.
func (p *player) keepCaller(token string) error {
	file := filepath.Join(p.dir, "agent-token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return fmt.Errorf("keep the agent's token: %w", err)
	}
	p.caller = filepath.Join(p.dir, "agent")
	if err := os.WriteFile(p.caller, fmt.Appendf(nil, callerScript, file, p.gatewayURL), 0o700); err != nil {
		return fmt.Errorf("keep a script for calls: %w", err)
	}
	return nil
}

// reply is what the agent got.
type reply struct {
	text string
	// code is the gateway's word for its own answer, "" when the server answered.
	code    string
	request string
}

// call calls a tool as the agent, and prints both.
func (p *player) call(ctx context.Context, tool string, arguments map[string]any) (reply, error) {
	written, err := json.Marshal(arguments)
	if err != nil {
		return reply{}, fmt.Errorf("write the arguments of %s: %w", tool, err)
	}
	p.say("  agent> %s %s", tool, written)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request := mcp.CallToolRequest{}
	request.Params.Name, request.Params.Arguments = tool, arguments
	p.calls++
	result, err := p.agent.CallTool(ctx, request)
	if err != nil {
		return reply{}, fmt.Errorf("call %s: %w", tool, err)
	}
	var r reply
	for _, content := range result.Content {
		if text, ok := content.(mcp.TextContent); ok {
			r.text += text.Text
		}
	}
	if result.Meta != nil {
		if decision, ok := result.Meta.AdditionalFields["tidewaiter.dev/decision"].(map[string]any); ok {
			r.code, _ = decision["code"].(string)
			r.request, _ = decision["request"].(string)
		}
	}
	p.show(r.text)
	return r, nil
}

// expect calls a tool and fails unless the gateway's word is the wanted one; "" wants the server's own answer.
func (p *player) expect(ctx context.Context, tool string, arguments map[string]any, code string) (reply, error) {
	r, err := p.call(ctx, tool, arguments)
	if err == nil && r.code != code {
		err = fmt.Errorf("call of %s: got %q, want %q", tool, r.code, code)
	}
	return r, err
}

// executed fails unless the server itself counts this many executions of a tool.
func (p *player) executed(tool string, want int) error {
	got := p.billing.Executions()[tool]
	p.say("  the server's own counter of %s: %d", tool, got)
	if got != want {
		return fmt.Errorf("%s ran %d times, want %d", tool, got, want)
	}
	return nil
}
