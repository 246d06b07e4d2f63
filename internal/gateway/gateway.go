// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the enforcement point: the HTTP handler that judges every tools/call between an agent and an MCP
// server, holds those that need a person, and relays every other message as it is.
package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/approval"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
	"github.com/tidewaiter/tidewaiter/internal/tracing"
	"github.com/tidewaiter/tidewaiter/internal/vote"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

const (
	// progressEvery is the time between two signs of life to a client that asked for them.
	progressEvery = 10 * time.Second
)

// Gateway serves agents; it is an http.Handler. All fields are set before the first request and never changed.
type Gateway struct {
	// Servers are the governed servers, by name.
	Servers map[types.NamespacedName]*Server
	// Authenticate tells who sends a request, by a token for one of audiences: Authenticate of an identity.Authenticator.
	Authenticate func(ctx context.Context, r *http.Request, audiences []string) (identity.Caller, error)
	// Everybody is the username that every call counts for, without a token; it counts on a loopback listener only. With ""
	// every request is authenticated.
	Everybody string
	// Metadata names the resources that tokens are for, and tells clients where to get one.
	Metadata *identity.Metadata
	// Audiences are what a token may be for besides the resource of its server.
	Audiences []string
	// Origins are those whose pages may send requests, besides that of Metadata.PublicURL.
	Origins []string
	// Votes counts the votes on a request, or says that it cannot tell now: Count of a Keyring.
	Votes func(ctx context.Context, request *v1alpha1.ApprovalRequest) (vote.Tally, error)
	// Approvals keeps the requests.
	Approvals *approval.Store
	// Receipts is the record of every decision.
	Receipts *receipt.Writer
	// Clock tells the time and makes timers.
	Clock clock.WithTicker
	// NewID returns a random value that nobody else can have.
	NewID func() string
	// Loopback tells that only this machine can reach the listener.
	Loopback bool
	// Metrics count what was decided.
	Metrics *Metrics
	// Tracer makes a span of every message; nil makes none.
	Tracer *tracing.Tracer
	// Stopping ends when the gateway is to stop: streams that agents only listen on end then, so that they do not keep
	// it from stopping.
	Stopping context.Context
	// Limits bound what is taken, kept and passed on.
	Limits Limits

	callers     callers        // what is under way
	recording   sync.WaitGroup // outcomes that are recorded after their agents were answered
	unavailable seldom         // the log that callers cannot be authenticated
}

// Finish waits until the outcomes of all calls that were answered are on record, or the context ends. Nothing may be
// served any more.
func (g *Gateway) Finish(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		g.recording.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("record the outcome of every call: %w", ctx.Err())
	}
}

// ServeHTTP relays one request of an agent, or answers it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	agent := newPatient(w, r, g.Limits.ClientStall)
	defer agent.end()
	g.serve(agent, r)
}

func (g *Gateway) serve(w *patient, r *http.Request) {
	if r.URL.Path == identity.MetadataPath || strings.HasPrefix(r.URL.Path, identity.MetadataPath+"/") {
		g.Metadata.ServeHTTP(w, r)
		return
	}
	server := g.route(r.URL.Path)
	if server == nil {
		http.Error(w, "no such server; the path is /NAMESPACE/NAME/mcp", http.StatusNotFound)
		return
	}
	w.stalled = func() { g.Metrics.cutShort(server.Key, codeClientStalled) }
	if !g.trusts(r) {
		g.Metrics.refused(server.Key, codeForeignOrigin)
		http.Error(w, "this Host or Origin may not use the gateway; --public-url and --allow-origin say which may", http.StatusForbidden)
		return
	}
	who, err := g.authenticate(r, server)
	if err != nil {
		g.refuseCaller(w, r, server, err)
		return
	}
	if refusal := wire.CheckHeaders(r.Header, r.Trailer); refusal != nil {
		g.refuseMessage(w, server, codeMalformed, refusal)
		return
	}
	if !server.sessions.mayUse(r.Header.Get(sessionHeader), who.owner()) {
		g.refuseMessage(w, server, codeForeignSession, foreignSession())
		return
	}
	if server.speaksSSE() {
		g.serveLegacy(w, r, server, who) //nolint:contextcheck // a stream, and a call, outlive the request that they came by
		return
	}
	switch r.Method {
	case http.MethodPost:
		g.servePost(w, r, server, who) //nolint:contextcheck // what has left is followed to its end without its agent: see detached
	case http.MethodGet, http.MethodDelete:
		if g.keepsPace(w, server, who, nil) {
			g.serveStream(w, r, server, who)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

// refuseMessage refuses a message before anything is decided, and counts that.
func (g *Gateway) refuseMessage(w http.ResponseWriter, server *Server, reason string, refusal *wire.Refusal) {
	g.Metrics.refused(server.Key, reason)
	writeRefusal(w, refusal)
}

// route finds the server of a path; a single server answers at /mcp too.
func (g *Gateway) route(path string) *Server {
	if path == identity.ShortPath && len(g.Servers) == 1 {
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

// serveStream relays what has no message of the agent in it: a stream that the agent listens to, or the end of its
// session. Lists of tools that pass on a stream are filtered like others.
func (g *Gateway) serveStream(w http.ResponseWriter, r *http.Request, server *Server, who caller) {
	if refusal := wire.CheckVersion(r.Header); refusal != nil {
		g.refuseMessage(w, server, codeMalformed, refusal)
		return
	}
	snap := server.Snapshot()
	if snap == nil {
		writeNotReady(w, nil)
		return
	}
	listens, p, silence := r.Method == http.MethodGet, telling, snap.Server.Spec.CallTimeout.Duration
	if listens {
		p, silence = listening, g.Limits.StreamIdle
	}
	t, ok := g.takePlace(w, server, who, p, nil)
	if !ok {
		return
	}
	defer t.leave()
	endpoint := server.dials()
	ctx, cancel := g.untilStopping(r.Context())
	defer cancel()
	if listens {
		defer server.listens(endpoint, cancel)()
	}
	ctx, pulse, end := withPulse(ctx, silence)
	defer end()
	resp, _, err := g.send(ctx, server, outbound{request: r, caller: who.owner(), headers: allHeaders, endpoint: endpoint})
	if err != nil {
		writeUpstreamError(w, nil, pulse.explain(err))
		return
	}
	answer := relay{Gateway: g, server: server, pulse: pulse, listened: listens}
	if listens {
		answer.transform = server.overhear(endpoint, who.owner(), g.listFilter(server, endpoint, who, nil))
		answer.audience = &audience{principal: who.principal}
	}
	answer.run(w, resp)
}

// untilStopping bounds what has no end of its own by the end of the gateway.
func (g *Gateway) untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.Stopping, cancel)
	return ctx, func() { stop(); cancel() }
}

// servePost judges one message of the agent.
func (g *Gateway) servePost(w *patient, r *http.Request, server *Server, who caller) {
	message, held, ok := g.receive(w, r, server, who)
	if !ok {
		return
	}
	defer held.free()
	id := message.ID
	if message.Kind != wire.Request { // that of an answer is one of the server's requests
		id = nil
	}
	t, ok := g.takePlace(w, server, who, placeOf(message), id)
	if !ok {
		return
	}
	defer t.leave()
	a := arrival{Gateway: g, caller: who, server: server, message: message, request: r, span: g.Tracer.Serve(r, server.Key, message)}
	defer a.span.End()
	if message.Call != nil {
		a.call(w).serve()
		return
	}
	m := other{arrival: a}
	m.serve(w)
}

// Ready says why the gateway cannot do its work, and where to look; nil when it can.
func (g *Gateway) Ready() error {
	if err := g.Receipts.Healthy(); err != nil {
		return fmt.Errorf("%w; look at the file of --receipts, its disk and standard output", err)
	}
	for _, server := range g.Servers {
		if server.Snapshot() == nil {
			return fmt.Errorf("GovernedServer %s is not known; see that there is one, and that the gateway's account may list it, its ToolPolicies and its ApprovalRequests: the log says what is missing", server.Key)
		}
		if server.Freshness() == policy.Stale {
			return fmt.Errorf("what is known of GovernedServer %s is stale; mend the connection to the Kubernetes API: the log says why the watch is not proven", server.Key)
		}
	}
	return nil
}
