// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package billing is a small MCP server for demos and tests: seven tools over invoices that exist only in memory, and an
// own count of every execution, which no gateway can embellish.
package billing

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Server is a billing server. Make one with New.
type Server struct {
	// Executed, where it is set, is told of every execution before it is answered; with an error the answer is that.
	Executed func(tool string, arguments map[string]any) error

	mcp *server.MCPServer

	mu     sync.Mutex
	counts map[string]int
}

// New returns a server with its seven tools.
func New() *Server {
	s := &Server{mcp: server.NewMCPServer("billing", "1.0.0", server.WithToolCapabilities(true)), counts: map[string]int{}}
	invoice := mcp.WithString("invoiceId", mcp.Required(), mcp.Description("Number of the invoice"))
	s.add("get_invoice", "Get one invoice.", invoice)
	s.add("list_invoices", "List the invoices of an account.", mcp.WithString("accountId", mcp.Required()))
	s.add("update_invoice", "Change the note of an invoice. The old note is kept.", invoice, mcp.WithString("note", mcp.Required()))
	s.add("send_invoice", "Send an invoice to its customer by mail.", invoice)
	invoices := map[string]int{"acc_17": 412, "acc_991": 3}
	s.answer("count_invoices", "Count the invoices of an account.", func(call mcp.CallToolRequest, _ int) string {
		account := call.GetString("accountId", "")
		return fmt.Sprintf("%s has %d invoices", account, invoices[account])
	}, mcp.WithString("accountId", mcp.Required()))
	s.add("refund_invoices", "Refund an amount on every invoice of an account.", mcp.WithString("accountId", mcp.Required()), mcp.WithNumber("amount", mcp.Required()))
	s.add("delete_account", "Delete an account with all of its invoices.", mcp.WithString("accountId"), mcp.WithBoolean("force"))
	return s
}

// add registers a tool that does nothing but count its executions, and says so.
func (s *Server) add(name, description string, parameters ...mcp.ToolOption) {
	s.answer(name, description, func(_ mcp.CallToolRequest, execution int) string {
		return fmt.Sprintf("%s done, execution %d", name, execution)
	}, parameters...)
}

// answer registers a tool that counts its executions and has an answer of its own.
func (s *Server) answer(name, description string, text func(call mcp.CallToolRequest, execution int) string, parameters ...mcp.ToolOption) {
	options := append([]mcp.ToolOption{mcp.WithDescription(description)}, parameters...)
	s.mcp.AddTool(mcp.NewTool(name, options...), func(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts[name]++
		if s.Executed != nil {
			if err := s.Executed(name, call.GetArguments()); err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
		}
		return mcp.NewToolResultText(text(call, s.counts[name])), nil
	})
}

// Redescribe changes the description of a tool, as a new release of a server would.
func (s *Server) Redescribe(name, description string, parameters ...mcp.ToolOption) {
	s.add(name, description, parameters...)
}

// Remove takes a tool away.
func (s *Server) Remove(name string) { s.mcp.DeleteTools(name) }

// Executions returns how often each tool ran.
func (s *Server) Executions() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// Handler serves MCP over streamable HTTP. A session ends with the server: the next one does not know it.
func (s *Server) Handler() http.Handler {
	return server.NewStreamableHTTPServer(s.mcp, server.WithStateful(true))
}

// Listen serves MCP over a pair of streams, until the input or the context ends.
func (s *Server) Listen(ctx context.Context, input io.Reader, output io.Writer) error {
	return server.NewStdioServer(s.mcp).Listen(ctx, input, output)
}
