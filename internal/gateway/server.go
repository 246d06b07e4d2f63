// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/endpoint"
	"github.com/tidewaiter/tidewaiter/internal/flow"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// Server is one governed server as a gateway sees it.
type Server struct {
	// Key names the GovernedServer.
	Key types.NamespacedName
	// List lists the server's tools through an MCP client of its own; it bounds its time by the context.
	List func(ctx context.Context, up endpoint.Upstream) ([]tool.Descriptor, error)
	// Call calls a tool that reads, through such a client, and returns the result as it was received; it bounds its time by
	// the context, and the answer itself. Nothing of an agent goes with it.
	Call func(ctx context.Context, up endpoint.Upstream, definition tool.Descriptor, arguments []byte) ([]byte, error)
	// Clock tells the time.
	Clock clock.PassiveClock
	// MaxStaleness is how old the last proof of the watch may be for anything.
	MaxStaleness time.Duration

	view     snapshot.Store
	sessions sessions
	flows    flow.Book[*fate] // calls with effects that did not end with their answer
	legacy   legacyStreams
	health   health
	waiting  waiting
	// Logs that the server is not reached, and that a policy was not evaluated for a call.
	unreached, unevaluated seldom

	upstream atomic.Pointer[dialled]
	proven   atomic.Int64 // when the watch last proved that it is alive, in nanoseconds since 1970

	mu          sync.Mutex // guards the fields below
	inputs      *snapshot.Inputs
	definitions map[string]tool.Descriptor
	changed     chan struct{}    // closed when the snapshot changes
	listedAt    time.Time        // when the tools were last asked for, with or without success; zero since the manager knows better
	openings    []*opening       // requests that the snapshot may not show yet
	endings     []settledRequest // requests whose end the snapshot may not show yet
	listeners   map[*listener]bool
	late        []*fate // outcomes that were learned after the answer to their call, until they are recorded

	listing singleflight.Group // one asks for the tools, whoever waits for them

	previewing singleflight.Group // one asks for a preview, whichever of several identical calls waits for it
	previews   atomic.Int64       // previews under way
}

// dialled is an upstream with its connections.
type dialled struct {
	endpoint.Upstream
	// url is that of the upstream, read.
	url *url.URL
	// digest of the endpoint that the upstream was worked out from.
	digest string
	// pool keeps connections for what has no effects.
	pool *http.Transport
}

// fresh returns a transport for one call with effects, with a connection of its own: one that the server closed while it
// was idle must never leave the fate of the call unknown. Over HTTP/2 a transport that is shared would not do: what it
// dialled for a call that was given up it keeps for the next.
func (d *dialled) fresh() *http.Transport {
	transport := d.own().Transport()
	transport.DisableKeepAlives = true
	return transport
}

// Snapshot returns the view in force, nil when there is none.
func (s *Server) Snapshot() *snapshot.Snapshot { return s.view.Load() }

// Changed returns a channel that is closed when a later snapshot is in force than the one that Snapshot returns after
// this call.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Update puts what the API says now into force; nil inputs say that the server is gone.
func (s *Server) Update(in *snapshot.Inputs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inputs != nil && in != nil && !sameDefinitions(s.inputs.Server.Status.Tools, in.Server.Status.Tools) {
		s.listedAt = time.Time{} // what the gateway itself was told is older than what the manager was
	}
	s.inputs = in
	return s.rebuild()
}

// sameDefinitions tells whether two listings of the manager say the same of all tools.
func sameDefinitions(a, b []v1alpha1.ToolStatus) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.ToolStatus) bool { return a.Name == b.Name && a.Digest == b.Digest })
}

// rebuild builds the snapshot from what is known; the caller holds mu. What cannot be built is taken away.
func (s *Server) rebuild() error {
	var next *snapshot.Snapshot
	var err error
	if s.inputs != nil {
		in := *s.inputs
		in.Definitions = s.definitions
		next, err = snapshot.Build(in)
	}
	s.view.Swap(next)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return err
}

// learn notes what the server at an endpoint said of its tools; whole tells that it named them all. A definition that
// differs from the one that was classified is drift, from now on. What is not dialled any more has no say.
func (s *Server) learn(endpoint string, seen []tool.Descriptor, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if endpoint != s.dials() {
		return
	}
	news := whole && len(seen) != len(s.definitions)
	kept := seen[:0:0]
	for _, d := range seen {
		old, known := s.definitions[d.Name]
		// Only what discovery knows can be called, so that a server cannot fill the memory with names.
		if known || whole || s.lists(d.Name) {
			kept = append(kept, d)
			news = news || !known || old.Digest() != d.Digest()
		}
	}
	if !news {
		return
	}
	next := make(map[string]tool.Descriptor, len(kept))
	if !whole {
		maps.Copy(next, s.definitions)
	}
	for _, d := range kept {
		next[d.Name] = d
	}
	s.definitions = next
	_ = s.rebuild() // on an error there is no view, everything is refused, and Update has said why
}

// lists tells whether the manager knows the tool; the caller holds mu.
func (s *Server) lists(name string) bool {
	if s.inputs == nil {
		return false
	}
	for _, t := range s.inputs.Server.Status.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// errNotDefined: the server itself does not list the tool, or could not be asked.
var errNotDefined = errors.New("tool definition not available")

const (
	// listEvery is the least time between two times that the gateway asks a server for its tools.
	listEvery = time.Second
	// listWithin bounds one such listing.
	listWithin = 10 * time.Second
)

// listings is how often the server is asked for one call, where the manager learns of something new while it is asked.
const listings = 3

// define returns the definition of a tool that a call will meet. It asks the server when what it said before is not
// what was classified, at most every listEvery and whenever the manager has learned of something new: nobody is asked
// about a definition that is gone.
func (s *Server) define(ctx context.Context, name string) (tool.Descriptor, error) {
	for range listings {
		definition, overtaken, err := s.defineNow(ctx, name)
		if !overtaken {
			return definition, err
		}
	}
	return tool.Descriptor{}, errNotDefined
}

// defineNow asks the server once, if at all; overtaken tells that the manager learned of something new meanwhile. The
// listing is shared by all calls that wait for one, and does not end with the call that began it.
func (s *Server) defineNow(ctx context.Context, name string) (definition tool.Descriptor, overtaken bool, err error) {
	up, snap := s.upstream.Load(), s.Snapshot()
	if up == nil || snap == nil || up.digest != snap.EndpointDigest {
		return tool.Descriptor{}, false, errNotDefined // what is dialled is not what is governed, for a moment
	}
	if d, ok := s.defined(name); ok {
		return d, false, nil
	}
	listed := s.listing.DoChan(up.digest, func() (any, error) {
		return nil, s.list(context.WithoutCancel(ctx), up)
	})
	select {
	case <-ctx.Done():
		return tool.Descriptor{}, false, fmt.Errorf("%w: %w", errNotDefined, ctx.Err())
	case result := <-listed:
		if result.Err != nil {
			return tool.Descriptor{}, false, fmt.Errorf("%w: %w", errNotDefined, result.Err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.definitions[name]
	switch {
	case s.listedAt.IsZero():
		return tool.Descriptor{}, true, nil
	case !ok:
		return tool.Descriptor{}, false, errNotDefined
	}
	return d, false, nil
}

// list asks the server for its tools, unless that was done just now.
func (s *Server) list(ctx context.Context, up *dialled) error {
	now := s.Clock.Now()
	s.mu.Lock()
	recent := now.Sub(s.listedAt) < listEvery
	if !recent {
		s.listedAt = now
	}
	s.mu.Unlock()
	if recent {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	seen, err := s.List(ctx, up.own())
	if err != nil {
		return err
	}
	if s.upstream.Load() == up {
		s.learn(up.digest, seen, true)
	}
	return nil
}

// defined returns the definition of a tool if it is the one that was classified.
func (s *Server) defined(name string) (tool.Descriptor, bool) {
	snap := s.Snapshot()
	if snap == nil {
		return tool.Descriptor{}, false
	}
	d, ok := snap.Definitions[name]
	if !ok {
		return tool.Descriptor{}, false
	}
	for _, t := range snap.Server.Status.Tools {
		if t.Name == name {
			return d, t.Digest == d.Digest()
		}
	}
	return tool.Descriptor{}, false
}

// Dial sets what is dialled from now on, and the digest of the endpoint that it belongs to; nil when the endpoint cannot
// be used. Connections to another endpoint are given up once they are idle, and what another endpoint said of its tools
// is forgotten.
func (s *Server) Dial(up *endpoint.Upstream, digest string) {
	old := s.upstream.Load()
	if old != nil && up != nil && old.digest == digest && old.same(*up) {
		return // with its connections
	}
	next := newDialled(up, digest)
	s.upstream.Store(next)
	if old == nil {
		return
	}
	old.pool.CloseIdleConnections()
	if next == nil || old.digest != next.digest {
		s.forget()
		s.endListeners()
	}
}

// newDialled returns what is dialled for an upstream, nil for none, or for one without an address.
func newDialled(up *endpoint.Upstream, digest string) *dialled {
	if up == nil {
		return nil
	}
	address, err := url.Parse(up.URL)
	if err != nil {
		return nil // the API takes none of the kind
	}
	next := &dialled{Upstream: *up, url: address, digest: digest}
	next.pool = next.own().Transport()
	return next
}

// own returns the upstream with TLS settings that nothing else shares: a transport completes its own.
func (d *dialled) own() endpoint.Upstream {
	up := d.Upstream
	up.TLS = up.TLS.Clone()
	return up
}

// same tells whether the other upstream is reached in the same way.
func (d *dialled) same(other endpoint.Upstream) bool {
	if d.URL != other.URL || d.SSE != other.SSE || !reflect.DeepEqual(d.Headers, other.Headers) || !reflect.DeepEqual(d.Guard, other.Guard) {
		return false
	}
	if d.TLS == nil || other.TLS == nil {
		return d.TLS == other.TLS
	}
	return d.TLS.ServerName == other.TLS.ServerName && d.TLS.RootCAs.Equal(other.TLS.RootCAs)
}

// forget drops what the server said of its tools.
func (s *Server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.definitions, s.listedAt = nil, time.Time{}
	_ = s.rebuild() // on an error there is no view, everything is refused, and Update has said why
}

// Upstream returns how the server is reached, false while that is not known.
func (s *Server) Upstream() (endpoint.Upstream, bool) {
	up := s.upstream.Load()
	if up == nil {
		return endpoint.Upstream{}, false
	}
	return up.own(), true
}

// Prove notes that the watch was alive at this time.
func (s *Server) Prove(at time.Time) { s.proven.Store(at.UnixNano()) }

// Freshness says how far the snapshot can be trusted now: an effect needs a proof within effectProof while any tool
// runs unattended, and nothing may rest on a snapshot older than MaxStaleness.
func (s *Server) Freshness() policy.Freshness {
	snap, proven := s.Snapshot(), s.proven.Load()
	if snap == nil || proven == 0 {
		return policy.Stale
	}
	age := s.Clock.Since(time.Unix(0, proven))
	switch {
	case age > s.MaxStaleness:
		return policy.Stale
	case age > effectProof && snap.Policy.AnyUnattended():
		return policy.Unproven
	default:
		return policy.Fresh
	}
}

// effectProof is how old the last proof of the watch may be for an effect without a person.
const effectProof = 90 * time.Second

// toolDigest returns the digest of the definition that a call meets: what the server said last, or what the manager
// saw.
func toolDigest(snap *snapshot.Snapshot, d policy.Decision) string {
	if seen, ok := snap.Definitions[d.Tool.Name]; ok {
		return seen.Digest()
	}
	return d.Tool.Digest
}

// serverRef names the very object that governs.
func serverRef(snap *snapshot.Snapshot) v1alpha1.ServerReference {
	return v1alpha1.ServerReference{Name: snap.Server.Name, UID: string(snap.Server.UID)}
}
