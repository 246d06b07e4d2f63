// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control is how the gateway in a server's pod tells the operator, and nobody else, which tools the server has: the
// whole list, and that it has changed. It passes no message on.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/identity"
)

// listWithin bounds one listing, whoever waits for it.
const listWithin = 5 * time.Minute

// Audience is what the operator's token is for that it shows to the gateways of a server, and to no other.
func Audience(server types.NamespacedName) string {
	return "https://tidewaiter.dev/control/" + server.Namespace + "/" + server.Name
}

// ToolsPath is where the tools of a server are, ChangesPath where its changes are told.
func ToolsPath(server types.NamespacedName) string {
	return "/" + server.Namespace + "/" + server.Name + "/tools"
}

// ChangesPath is where the changes of a server's list of tools are told.
func ChangesPath(server types.NamespacedName) string {
	return "/" + server.Namespace + "/" + server.Name + "/changes"
}

// Port is an http.Handler for the operator.
type Port struct {
	// Manager is the username of the operator.
	Manager string
	// Authenticate tells who asks: Authenticate of an identity.Authenticator. It fails while that is not known.
	Authenticate func(ctx context.Context, r *http.Request, audiences []string) (identity.Caller, error)
	// Upstream returns how a server is reached, false for one that is not known here, or not yet.
	Upstream func(types.NamespacedName) (endpoint.Upstream, bool)
	// List and Watch are those of package discovery.
	List  func(context.Context, discovery.Target) (discovery.Result, error)
	Watch func(ctx context.Context, target discovery.Target, changed func()) error
	// Stopping ends when the gateway is to stop; streams of changes end then.
	Stopping context.Context
}

// ServeHTTP answers the operator.
func (p *Port) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{namespace}/{name}/tools", p.guard(p.tools))
	mux.HandleFunc("GET /{namespace}/{name}/changes", p.guard(p.changes))
	mux.ServeHTTP(w, r)
}

// guard lets the operator in, by a token for this very server.
func (p *Port) guard(serve func(http.ResponseWriter, *http.Request, discovery.Target)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
		who, err := p.Authenticate(r.Context(), r, []string{Audience(key)})
		switch {
		case errors.Is(err, identity.ErrUnavailable):
			http.Error(w, "it is not known yet who asks", http.StatusServiceUnavailable)
			return
		case err != nil:
			http.Error(w, "the operator's token for this server is needed", http.StatusUnauthorized)
			return
		case who.Username != p.Manager:
			http.Error(w, "only the operator is told the tools of the server", http.StatusForbidden)
			return
		}
		up, ok := p.Upstream(key)
		if !ok {
			http.Error(w, "it is not known yet where the server is", http.StatusServiceUnavailable)
			return
		}
		transport := up.Transport()
		defer transport.CloseIdleConnections()
		serve(w, r, discovery.Target{URL: up.URL, SSE: up.SSE, Headers: up.Headers, Transport: transport})
	}
}

// tools answers with a report.
func (p *Port) tools(w http.ResponseWriter, r *http.Request, target discovery.Target) {
	ctx, cancel := context.WithTimeout(r.Context(), listWithin)
	defer cancel()
	report, err := json.Marshal(discovery.ReportOf(p.List(ctx, target)))
	if err != nil {
		log.FromContext(ctx).Error(err, "report not written")
		http.Error(w, "the report cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(report) // the operator asks again
}

// changes writes a line for every change, until either side ends the stream.
func (p *Port) changes(w http.ResponseWriter, r *http.Request, target discovery.Target) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.Stopping, cancel)() //nolint:contextcheck // the gateway stops, whoever asks
	news := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- p.Watch(ctx, target, func() {
			select {
			case news <- struct{}{}:
			default: // one is enough
			}
		})
	}()
	begun := false
	for {
		select {
		case <-news:
			begun = true
			if _, err := fmt.Fprintln(w, "changed"); err != nil || http.NewResponseController(w).Flush() != nil {
				return // which ends the context, and with it the watch
			}
		case err := <-ended:
			switch {
			case begun:
			case errors.Is(err, discovery.ErrNoStream):
				w.WriteHeader(http.StatusNoContent)
			default:
				http.Error(w, "the server cannot be followed", http.StatusBadGateway)
			}
			return
		}
	}
}
