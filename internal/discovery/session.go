// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// probeTimeout bounds the question whether a server speaks a revision without sessions; servers that ignore unknown
// methods cost that long at every listing.
const probeTimeout = 5 * time.Second

// Target is one MCP server and what is presented to it.
type Target struct {
	// URL of the MCP endpoint: of the event stream where SSE is set.
	URL string
	// SSE tells that the server speaks HTTP+SSE, the transport of revision 2024-11-05.
	SSE bool
	// Headers go with every request.
	Headers http.Header
	// Transport makes the connections; it must come from a netguard.Policy.
	Transport http.RoundTripper
}

// session is one connection of the MCP client, in whichever revision the server speaks.
type session struct {
	client *client.Client
	http   *http.Client
	line   *line
	url    string
	hello  *mcp.InitializeResult
	nextID int64
	schema json.RawMessage // input schema of the tool that is called, if one is
	// stream ends with the stream of HTTP+SSE, and lose ends it; nil with another transport.
	stream context.Context
	lose   context.CancelFunc
}

// connect opens a session; endless tells that it is one whose stream is followed. Its errors are of type *Error.
func connect(ctx context.Context, target Target, endless bool) (*session, error) {
	l := &line{base: target.Transport, headers: target.Headers, endless: endless, left: maxListing}
	s := &session{http: &http.Client{Transport: l, CheckRedirect: netguard.NoRedirect}, line: l, url: target.URL}
	hello := mcp.InitializeRequest{}
	hello.Params.ClientInfo = mcp.Implementation{Name: "tidewaiter", Version: "v1alpha1"}
	open := s.openHTTP
	if target.SSE {
		open = s.openSSE
		hello.Params.ProtocolVersion = newestOverSSE
	}
	probe := probeTimeout
	if deadline, ok := ctx.Deadline(); ok {
		probe, l.until = min(probe, time.Until(deadline)/2), deadline
	}
	if err := open(ctx, probe); err != nil {
		return nil, err
	}
	var err error
	opening, cancel := s.untilLost(ctx)
	defer cancel()
	if s.hello, err = s.client.Initialize(opening, hello); err != nil {
		err = s.explain(ctx, err)
		s.close()
		return nil, err
	}
	return s, nil
}

// openHTTP begins to speak streamable HTTP.
func (s *session) openHTTP(ctx context.Context, probe time.Duration) error {
	conn, err := transport.NewStreamableHTTP(s.url,
		transport.WithHTTPBasicClient(s.http),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return protocolError("the server's address is no URL")
	}
	s.client = client.NewClient(conn, client.WithDiscoverTimeout(probe))
	if err := s.client.Start(ctx); err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

func (s *session) close() {
	_ = s.client.Close() // the server ends forgotten sessions itself
	if s.lose != nil {
		s.lose()
	}
}

// explain says in stable words why a request came to nothing.
func (s *session) explain(ctx context.Context, err error) *Error {
	if fault := s.line.fault(); fault != nil && (s.stream == nil || ctx.Err() == nil) {
		return fault
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return unreachable("the server does not answer in time")
	}
	if s.stream != nil && s.stream.Err() != nil {
		return unreachable("the server ends its event stream")
	}
	return protocolError("the server's answer is no MCP message")
}

// request sends one request and returns its result, byte for byte as it was received.
func (s *session) request(ctx context.Context, method mcp.MCPMethod, params map[string]any) (json.RawMessage, error) {
	header := http.Header{}
	version := s.client.ProtocolVersion()
	if mcp.IsModernProtocol(version) {
		params["_meta"] = map[string]any{
			mcp.MetaKeyProtocolVersion:    version,
			mcp.MetaKeyClientCapabilities: mcp.ClientCapabilities{},
		}
		if err := s.describe(header, version, method, params); err != nil {
			return nil, err
		}
	}
	waiting, cancel := s.untilLost(ctx)
	defer cancel()
	// Ids start high above the few that the client has used itself.
	s.nextID++
	id := mcp.NewRequestId(1000 + s.nextID)
	response, err := s.client.GetTransport().SendRequest(waiting, transport.JSONRPCRequest{
		JSONRPC: mcp.JSONRPC_VERSION, ID: id, Method: string(method), Params: params, Header: header,
	})
	if err != nil || s.line.refusal() != nil {
		return nil, s.explain(ctx, err)
	}
	if response.Error != nil {
		return nil, protocolError("the server answers %s with JSON-RPC error %d", method, response.Error.Code)
	}
	if !sameID(response.ID, id) {
		return nil, protocolError("the server answers another request than %s", method)
	}
	return response.Result, nil
}

// describe sets the headers that say what a message holds.
func (s *session) describe(header http.Header, version string, method mcp.MCPMethod, params map[string]any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return protocolError("the arguments are no JSON")
	}
	for name, value := range mcp.StandardHeaders(version, method, text) {
		header.Set(name, value)
	}
	if s.schema != nil {
		for name, value := range mcp.GenerateParamHeaders(&mcp.Tool{RawInputSchema: s.schema}, text) {
			header.Set(name, value)
		}
	}
	return nil
}

func sameID(a, b mcp.RequestId) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

// info returns what the server said of itself, cut to what a status may hold.
func (s *session) info() Info {
	said := Info{
		Name:            clip(s.hello.ServerInfo.Name, maxInfo),
		Version:         clip(s.hello.ServerInfo.Version, maxInfo),
		ProtocolVersion: clip(s.hello.ProtocolVersion, maxInfo),
	}
	if whole := s.hello.Instructions; whole != "" {
		said.Instructions, said.InstructionsDigest = glyph.Cut(whole, maxInstructions), tool.DigestOf(whole)
	}
	return said
}

// announces tells whether the server says that it tells of changes to its list of tools.
func (s *session) announces() bool {
	tools := s.hello.Capabilities.Tools
	return tools != nil && tools.ListChanged
}

// clip returns at most limit bytes of a text that a stranger wrote, without what a person does not see: controls also
// beyond ASCII, and marks that turn the rest of a line round.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "")
	text = strings.Map(func(r rune) rune {
		if !glyph.Visible(r) {
			return -1
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}
