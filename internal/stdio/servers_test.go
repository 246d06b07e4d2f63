// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// part tells this program, when a test starts it, which server it is.
const part = "TIDEWAITER_STDIO_PART"

func TestMain(m *testing.M) {
	parts := map[string]func() error{
		"mcp": serveMCP, "echo": echo, "broken": func() error { return fmt.Errorf("it is broken") },
		"supervisor": supervisor, "orphanage": orphanage,
	}
	play, ok := parts[os.Getenv(part)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// as is the command of a part.
func as(name string, more ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{"/usr/bin/env", part + "=" + name, self}, more...)
}

// serveMCP is a real MCP server.
func serveMCP() error {
	s := server.NewMCPServer("billing", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("get_pid"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(strconv.Itoa(os.Getpid())), nil
	})
	s.AddTool(mcp.NewTool("crash"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	s.AddTool(mcp.NewTool("hang"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return mcp.NewToolResultText("cancelled"), nil
	})
	s.AddTool(mcp.NewTool("fork"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		child := exec.Command("sleep", "600")
		if err := child.Start(); err != nil {
			return nil, err
		}
		return mcp.NewToolResultText(strconv.Itoa(child.Process.Pid)), nil
	})
	s.AddTool(mcp.NewTool("work"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		params := map[string]any{"progress": 1, "progressToken": r.Params.Meta.ProgressToken}
		if err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", params); err != nil {
			return nil, err
		}
		return mcp.NewToolResultText("done"), nil
	})
	s.AddTool(mcp.NewTool("grow"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(mcp.NewTool("new"), nil)
		return mcp.NewToolResultText("grown"), nil
	})
	return server.ServeStdio(s)
}

// echo answers every request with what it received, byte for byte, and prints a line that is no message before each.
func echo() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		m, err := read(lines.Bytes())
		if err != nil {
			return err
		}
		if m.isRequest() {
			fmt.Printf("hello\n{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"got\":%q}}\n", m.ID, lines.Text())
		}
	}
	return lines.Err()
}

// supervisor supervises the orphanage, of which it says how it ended.
func supervisor() error {
	return Supervise(context.Background(), as("orphanage"), []*os.File{nil, os.Stdout, os.Stderr})
}

// orphanage leaves a process to whoever buries orphans, and waits until it is buried.
func orphanage() error {
	out, err := exec.Command("/bin/sh", "-c", "sleep 0.1 >/dev/null & echo $!").Output()
	if err != nil {
		return err
	}
	file := filepath.Join("/proc", strings.TrimSpace(string(out)))
	look := time.NewTicker(10 * time.Millisecond) // nothing tells of the end of a process that is not one's own
	defer look.Stop()
	for range 500 {
		if _, err := os.Stat(file); os.IsNotExist(err) {
			return nil
		}
		<-look.C
	}
	return fmt.Errorf("%s is still there", file)
}
