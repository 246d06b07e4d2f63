// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// answer is what an agent got, as hack/demo/pod writes it.
type answer struct {
	Text     string `json:"text"`
	Code     string `json:"code"`
	Request  string `json:"request"`
	Failed   bool   `json:"failed"`
	Error    string `json:"error"`
	Sessions int    `json:"sessions"`
}

// check wants the gateway's word to be the code; "" wants the tool's own answer.
func (a answer) check(code string) error {
	switch {
	case a.Error != "":
		return errors.New(a.Error)
	case a.Code != code || code == "" && a.Failed:
		return fmt.Errorf("the agent got %q, want %q: %s", a.Code, code, a.Text)
	}
	return nil
}

// expects has an agent in its pod call a tool, and wants the gateway's word to be the code; "" wants the tool's own answer.
func (t team) expects(ctx context.Context, tool, arguments, code string) (answer, error) {
	agent, err := t.open(ctx)
	if err != nil {
		return answer{}, err
	}
	got, err := agent.call(tool, arguments, code)
	return got, errors.Join(err, agent.close())
}

// session is an agent that calls in one MCP session for as long as its server knows it.
type session struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Decoder
}

// open starts one in the agent's pod. It ends with the context, or with close.
func (t team) open(ctx context.Context) (*session, error) {
	cmd := t.command(ctx, "kubectl", "exec", "--stdin", "--namespace="+t.Namespace, "agent", "--", "/demo", "calls")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &session{cmd, stdin, json.NewDecoder(stdout)}, nil
}

// call calls a tool, and wants the gateway's word to be the code; "" wants the tool's own answer.
func (s *session) call(tool, arguments, code string) (answer, error) {
	if _, err := fmt.Fprintf(s.stdin, `{"tool":%q,"arguments":%s}`+"\n", tool, arguments); err != nil {
		return answer{}, fmt.Errorf("call %s: %w", tool, err)
	}
	var got answer
	if err := s.out.Decode(&got); err != nil {
		return answer{}, fmt.Errorf("read the answer to %s: %w", tool, err)
	}
	return got, got.check(code)
}

// abandon ends a session that is of no more use, however it ended.
func (s *session) abandon() {
	s.stdin.Close()
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func (s *session) close() error { return errors.Join(s.stdin.Close(), s.cmd.Wait()) }
