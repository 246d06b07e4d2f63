// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"k8s.io/client-go/util/cert"
)

const (
	// countVariable names the file of executions, dieVariable the execution of this process at which it dies: before3 is
	// just before the third, after3 between the third and its answer.
	countVariable = "SOAK_COUNT"
	dieVariable   = "SOAK_DIE"
)

// The sites are the ways to one server, each with a GovernedServer of its own.
const (
	// depot is reached by HTTP/1.1, vault by HTTP/2 and TLS, annex by HTTP+SSE.
	depot = "depot"
	vault = "vault"
	annex = "annex"
)

var sites = []string{depot, vault, annex}

// pathOf is where the MCP endpoint of a site is.
func pathOf(site string) string {
	if site == annex {
		return "/sse"
	}
	return "/mcp"
}

// The tools.
const (
	toolRead       = "get_box"
	toolUnattended = "update_box"
	toolGated      = "update_shelf"
	toolLasting    = "delete_box"
)

// execution is one line of the server's own count.
type execution struct {
	// Trace is the trace id of the message that asked for it: one message of an agent.
	Trace string `json:"trace"`
	Tool  string `json:"tool"`
	Key   string `json:"key"`
}

// counter appends executions to a file; each is on disk before its answer leaves.
type counter struct {
	file *os.File
	runs atomic.Int64
	// die is at which execution the process dies, dieBefore whether before it.
	die       int64
	dieBefore bool
}

func (c *counter) execute(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	key := call.GetString("key", "")
	fields := strings.Split(call.Header.Get("Traceparent"), "-")
	if len(fields) != 4 || key == "" {
		return nil, fmt.Errorf("a call without a trace or a key")
	}
	n := c.runs.Add(1)
	pause := time.Duration(key[len(key)-1]%5) * 5 * time.Millisecond
	time.Sleep(pause)
	if n == c.die && c.dieBefore {
		killSelf()
	}
	line, err := json.Marshal(execution{Trace: fields[1], Tool: call.Params.Name, Key: key})
	if err != nil {
		return nil, err
	}
	if _, err := c.file.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	if call.Params.Name != toolRead {
		if err := c.file.Sync(); err != nil {
			return nil, err
		}
	}
	if n == c.die {
		killSelf()
	}
	time.Sleep(pause)
	if strings.HasPrefix(key, "fail") {
		return mcp.NewToolResultError("failed " + key), nil
	}
	return mcp.NewToolResultText("done " + key), nil
}

// killSelf ends the process as kill -9 does, and returns never.
func killSelf() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// warehouse is the MCP server behind all sites.
func (c *counter) warehouse() *server.MCPServer {
	s := server.NewMCPServer("warehouse", "1.0.0", server.WithToolCapabilities(true), server.WithTaskCapabilities(true, true, true))
	for name, about := range map[string]string{
		toolRead: "Get one box.", toolUnattended: "Change the note of a box.", toolGated: "Change the note of a shelf.", toolLasting: "Delete a box.",
	} {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription(about), mcp.WithTaskSupport(mcp.TaskSupportOptional),
			mcp.WithString("key", mcp.Required(), mcp.Description("Number of the box"))), c.execute)
	}
	return s
}

// serve is the MCP server, at one address for each site.
func serve(ctx context.Context, addresses, count string) error {
	file, err := os.OpenFile(count, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	c := &counter{file: file}
	if when, number, ok := strings.Cut(os.Getenv(dieVariable), "="); ok {
		c.dieBefore = when == "before"
		if c.die, err = strconv.ParseInt(number, 10, 64); err != nil {
			return fmt.Errorf("%s: %w", dieVariable, err)
		}
	}
	s := c.warehouse()
	for i, address := range strings.Split(addresses, ",") {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		// It is never closed, which would wait for streams that others hold: it ends with the process.
		web := httptest.NewUnstartedServer(server.NewStreamableHTTPServer(s, server.WithStateLess(true)))
		web.Listener.Close()
		web.Listener = listener
		if sites[i] == annex {
			web.Config.Handler = server.NewSSEServer(s)
		}
		web.Config.Handler = cutting(web.Config.Handler)
		if web.EnableHTTP2 = sites[i] == vault; web.EnableHTTP2 {
			web.StartTLS()
		} else {
			web.Start()
		}
	}
	<-ctx.Done()
	return nil
}

// cutting does what it is asked, and then breaks the connection of one message in sixteen in place of an answer.
func cutting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, trace, _ := strings.Cut(r.Header.Get("Traceparent"), "-"); r.Method != http.MethodPost || !strings.HasPrefix(trace, "0") {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
}

// authority returns the certificate that vouches for the server, as a Secret holds it.
func authority() ([]byte, error) {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	return cert.EncodeCertificates(web.Certificate())
}
