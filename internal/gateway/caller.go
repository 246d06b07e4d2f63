// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/identity"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
)

// What an ApprovalRequest can hold of the groups and the pod of a requester, in characters and in groups.
const (
	maxGroup  = 256
	maxPod    = 253
	maxGroups = 64
)

// caller is who calls: as requests can hold it, and as policies see it.
type caller struct {
	requester v1alpha1.Requester
	principal expr.Principal
}

// owner is whose requests, limits and sessions those of the caller are.
func (c caller) owner() snapshot.Caller { return snapshot.CallerOf(c.requester) }

// serviceAccountPrefix begins the username of a ServiceAccount. Only Kubernetes gives such names.
const serviceAccountPrefix = "system:serviceaccount:"

// callerOf returns who calls. Policies see every group, also those that a request has no room for.
func callerOf(is identity.Caller) caller {
	principal := expr.Principal{Username: is.Username, ActsFor: is.ActsFor, Groups: is.Groups}
	if account, found := strings.CutPrefix(is.Username, serviceAccountPrefix); found {
		principal.Namespace, principal.ServiceAccount, _ = strings.Cut(account, ":")
	}
	return caller{requester: requesterOf(is), principal: principal}
}

// authenticate tells whose request it is. Without a requester that all calls count for, a token has to say so; headers
// like X-User never do.
func (g *Gateway) authenticate(r *http.Request, server *Server) (caller, error) {
	if g.Everybody != "" && g.Loopback {
		return callerOf(identity.Caller{Username: g.Everybody}), nil
	}
	resource := g.Metadata.Resource(server.Key)
	audiences := make([]string, 0, 2+len(g.Audiences))
	audiences = append(audiences, resource)
	if len(g.Servers) == 1 {
		audiences = append(audiences, g.Metadata.PublicURL+identity.ShortPath)
	}
	is, err := g.Authenticate(r.Context(), r, append(audiences, g.Audiences...))
	if err != nil {
		return caller{}, err
	}
	return callerOf(is), nil
}

// requesterOf returns a caller as an ApprovalRequest can hold it. Who calls is never shortened: a Caller has no name of
// more bytes than a request takes characters. What is there for the record is left out where it is too long.
func requesterOf(is identity.Caller) v1alpha1.Requester {
	requester := v1alpha1.Requester{Username: is.Username, ActsFor: is.ActsFor, Groups: is.Groups, Pod: is.Pod}
	tooLong := func(group string) bool { return utf8.RuneCountInString(group) > maxGroup }
	if slices.ContainsFunc(requester.Groups, tooLong) {
		requester.Groups = slices.DeleteFunc(slices.Clone(requester.Groups), tooLong)
	}
	requester.Groups = requester.Groups[:min(len(requester.Groups), maxGroups)]
	if len(requester.Pod) > maxPod {
		requester.Pod = ""
	}
	return requester
}

// refuseCaller answers a request of which it is not known whose it is.
func (g *Gateway) refuseCaller(w http.ResponseWriter, r *http.Request, server *Server, err error) {
	g.Metrics.refused(server.Key, "Unauthenticated")
	if errors.Is(err, identity.ErrUnavailable) && g.unavailable.due(g.Clock.Now()) { // the caller is not told why
		log.FromContext(r.Context()).Error(err, "caller not authenticated", "server", server.Key.String())
	}
	identity.Challenge(w, g.Metadata.URL(r.URL.Path), err)
}

// sayEvery is the least time between two lines of the log that anybody's requests can cause.
const sayEvery = time.Minute

// seldom keeps requests from filling the log; its zero value is ready for use.
type seldom struct {
	mu   sync.Mutex
	last time.Time
}

// due tells whether something may be said again, and takes it as said.
func (s *seldom) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < sayEvery {
		return false
	}
	s.last = now
	return true
}

// trusts refuses what a page in a browser could send: a Host that a name service was made to point here, or a foreign
// Origin.
func (g *Gateway) trusts(r *http.Request) bool {
	if !isLoopback(r.Host) && !g.isPublic(r.Host) {
		return false
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		return true
	case len(origins) > 1:
		return false
	case slices.Contains(g.Origins, origins[0]):
		return true
	}
	origin, err := url.Parse(origins[0])
	if err != nil {
		return false
	}
	if sameOrigin(origins[0], g.Metadata.PublicURL) {
		return true
	}
	return g.Loopback && isLoopback(origin.Host) && isLoopback(r.Host)
}

// isPublic tells whether a Host header names the address that agents reach the gateway at.
func (g *Gateway) isPublic(host string) bool {
	scheme, _, _ := strings.Cut(g.Metadata.PublicURL, "://")
	return sameOrigin(scheme+"://"+host, g.Metadata.PublicURL)
}

// sameOrigin compares two origins; the default port of a scheme may be left out.
func sameOrigin(a, b string) bool {
	return a == b || plainOrigin(a) == plainOrigin(b)
}

func plainOrigin(origin string) string {
	origin = strings.ToLower(origin)
	switch {
	case strings.HasPrefix(origin, "https://"):
		return strings.TrimSuffix(origin, ":443")
	case strings.HasPrefix(origin, "http://"):
		return strings.TrimSuffix(origin, ":80")
	}
	return origin
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
