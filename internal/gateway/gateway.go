// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the enforcement point: the HTTP handler that judges every tools/call between an agent and an MCP
// server, holds those that need a person, and relays every other message as it is.
package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// maxBody bounds a message of an agent, in bytes.
	maxBody = 4 << 20
	// maxAnswer bounds an answer, or an event, that has to be read before it is relayed, in bytes.
	maxAnswer = 16 << 20
	// progressEvery is the time between two signs of life to a client that asked for them.
	progressEvery = 10 * time.Second
)

// Gateway serves agents; it is an http.Handler. All fields are set before the first request and never changed.
type Gateway struct {
	// Servers are the governed servers, by name.
	Servers map[types.NamespacedName]*Server
	// Requester is who every call counts for.
	Requester v1alpha1.Requester
	// Approvals keeps the requests.
	Approvals *approval.Store
	// Receipts is the record of every decision.
	Receipts *receipt.Writer
	// Clock tells the time and makes timers.
	Clock clock.WithTicker
	// NewID returns a random value that nobody else can have.
	NewID func() string
	// Loopback tells that only this machine can reach the listener; then the Host of a request must say so too.
	Loopback bool
	// Metrics count what was decided.
	Metrics *Metrics
	// Stopping ends when the gateway is to stop: streams that agents only listen on end then, so that they do not keep
	// it from stopping. Nil for never.
	Stopping context.Context
	// MaxStaleness is how old the last proof of the watch may be for anything.
	MaxStaleness time.Duration
}

// ServeHTTP relays one request of an agent, or answers it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server := g.route(r.URL.Path)
	if server == nil {
		http.Error(w, "no such server; the path is /NAMESPACE/NAME/mcp", http.StatusNotFound)
		return
	}
	if !g.trustedOrigin(r) {
		http.Error(w, "this Host or Origin may not use the gateway", http.StatusForbidden)
		return
	}
	if refusal := wire.CheckHeaders(r.Header, r.Trailer); refusal != nil {
		writeRefusal(w, refusal)
		return
	}
	switch r.Method {
	case http.MethodPost:
		g.servePost(w, r, server) //nolint:contextcheck // what has left is followed to its end without its agent: see detached
	case http.MethodGet, http.MethodDelete:
		g.serveStream(w, r, server)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

// route finds the server of a path; a single server answers at /mcp too.
func (g *Gateway) route(path string) *Server {
	if path == "/mcp" && len(g.Servers) == 1 {
		for _, server := range g.Servers {
			return server
		}
	}
	namespace, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	name, end, _ := strings.Cut(rest, "/")
	if end != "mcp" {
		return nil
	}
	return g.Servers[types.NamespacedName{Namespace: namespace, Name: name}]
}

// trustedOrigin refuses what a page in a browser could send: a foreign Origin, and on a loopback listener a Host that a
// name service was made to point here.
func (g *Gateway) trustedOrigin(r *http.Request) bool {
	if g.Loopback && !isLoopback(r.Host) {
		return false
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	origin, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && isLoopback(origin.Host) && isLoopback(r.Host)
}

func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// serveStream relays what has no message of the agent in it: a stream that the agent listens to, or the end of its
// session. Lists of tools that pass on a stream are filtered like others.
func (g *Gateway) serveStream(w http.ResponseWriter, r *http.Request, server *Server) {
	snap := server.Snapshot()
	if snap == nil {
		writeNotReady(w, nil)
		return
	}
	ctx, cancel := g.untilStopping(r.Context())
	defer cancel()
	resp, _, err := server.send(ctx, outbound{request: r, headers: allHeaders})
	if err != nil {
		writeUpstreamError(w, nil, err)
		return
	}
	relay{transform: g.listFilter(server, nil)}.run(w, resp)
}

// untilStopping bounds what has no end of its own by the end of the gateway.
func (g *Gateway) untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if g.Stopping == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(g.Stopping, cancel)
	return ctx, func() { stop(); cancel() }
}

// servePost judges one message of the agent.
func (g *Gateway) servePost(w http.ResponseWriter, r *http.Request, server *Server) {
	if refusal := wire.CheckContent(r.Header); refusal != nil {
		writeRefusal(w, refusal)
		return
	}
	body, refusal := readBody(w, r)
	if refusal != nil {
		writeRefusal(w, refusal)
		return
	}
	message, refusal := wire.Parse(body)
	if refusal == nil {
		refusal = wire.CheckAgreement(r.Header, message)
	}
	if refusal != nil {
		g.Metrics.refused(server.Key, "Malformed")
		writeRefusal(w, refusal)
		return
	}
	if message.Call != nil {
		c := &call{Gateway: g, server: server, message: message, request: r, id: g.NewID(), started: g.Clock.Now(), reply: newReply(w, r, message)}
		c.serve()
		return
	}
	if server.Snapshot() == nil {
		writeNotReady(w, message.ID)
		return
	}
	g.relayMessage(w, r, server, message)
}

// relayMessage passes a message that is not governed, and filters the answer when it is a list of tools.
func (g *Gateway) relayMessage(w http.ResponseWriter, r *http.Request, server *Server, message wire.Message) {
	ctx := r.Context()
	if message.Method == string(mcp.MethodSubscriptionsListen) { // the stream of revisions without GET
		var cancel context.CancelFunc
		ctx, cancel = g.untilStopping(ctx)
		defer cancel()
	}
	resp, _, err := server.send(ctx, outbound{request: r, body: message.Raw, headers: allHeaders})
	if err != nil {
		writeUpstreamError(w, message.ID, err)
		return
	}
	out := relay{id: message.ID}
	if known, _ := wire.Lookup(message.Method); known.Governed {
		out.transform = g.listFilter(server, message.ID)
	}
	out.run(w, resp)
}

// readBody reads a whole message, within bounds.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Refusal) {
	if r.ContentLength > maxBody {
		return nil, wire.TooLarge()
	}
	return readAll(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength)
}

// Ready says why the gateway cannot do its work, nil when it can.
func (g *Gateway) Ready() error {
	if err := g.Receipts.Healthy(); err != nil {
		return err
	}
	for _, server := range g.Servers {
		if server.Snapshot() == nil {
			return fmt.Errorf("GovernedServer %s is not known", server.Key)
		}
		if server.Freshness(g.Clock.Now(), g.MaxStaleness) == policy.Stale {
			return fmt.Errorf("what is known of GovernedServer %s is stale", server.Key)
		}
	}
	return nil
}
