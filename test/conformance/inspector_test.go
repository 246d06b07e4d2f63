// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// reply is what the inspector made of an answer.
type reply struct {
	// result is the server's, or the gateway's in its place.
	result map[string]any
	// fault is the inspector's own word for what went wrong, "" when nothing did; message is the sentence with it.
	fault, message string
}

// notice is the gateway's own answer to a call.
type notice struct{ Code, Tier, Rule, Request string }

// inspect sends one request to a server with the inspector, which opens a session of its own for it.
func (s *stage) inspect(t *testing.T, url, method string, args ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, s.node, append([]string{s.program("mcp-inspector"), "--cli", url,
		"--transport", "http", "--format", "json", "--quiet", "--connect-timeout", "60000", "--method", method,
		"--header", "Authorization: Bearer " + s.token}, args...)...) // the server itself takes no notice of it
	// It keeps a catalogue of servers in the user's home.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || ctx.Err() != nil) {
		t.Fatalf("run the inspector: %v", err)
	}
	var answer struct{ Result map[string]any }
	var failure struct {
		Error struct{ Code, Message string }
	}
	if text := bytes.TrimSpace(stdout.Bytes()); len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("the inspector's answer to %s %v: %v\n%s", method, args, err, text)
		}
	}
	if err != nil {
		if json.Unmarshal(stderr.Bytes(), &failure) != nil || failure.Error.Code == "" {
			t.Fatalf("the inspector's error at %s %v: %v\n%s", method, args, err, stderr.Bytes())
		}
	}
	return reply{result: answer.Result, fault: failure.Error.Code, message: failure.Error.Message}
}

// call calls a tool through the gateway.
func (s *stage) call(t *testing.T, tool, arguments string) reply {
	t.Helper()
	return s.inspect(t, s.gateway, "tools/call", "--tool-name", tool, "--tool-args-json", arguments)
}

// notice returns what the gateway said in place of the server, or nothing when the server answered.
func (r reply) notice(t *testing.T) notice {
	t.Helper()
	var answer struct {
		Meta struct {
			Decision notice `json:"tidewaiter.dev/decision"`
		} `json:"_meta"`
	}
	data, err := json.Marshal(r.result)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Meta.Decision
}

// tools returns the tools of a list by name, each as it was sent.
func (r reply) tools(t *testing.T) map[string]map[string]any {
	t.Helper()
	list, _ := r.result["tools"].([]any)
	tools := map[string]map[string]any{}
	for _, entry := range list {
		tool, _ := entry.(map[string]any)
		name, _ := tool["name"].(string)
		if tools[name] != nil || name == "" {
			t.Errorf("the list has no, or a second, tool %q", name)
		}
		tools[name] = tool
	}
	return tools
}
