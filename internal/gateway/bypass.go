// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/internal/endpoint"
)

const (
	// bypassEvery is the time between two looks.
	bypassEvery = 15 * time.Second
	// bypassWithin bounds one connection.
	bypassWithin = 2 * time.Second
)

// Bypass finds out whether a server in the gateway's pod answers at the pod's address too, where whoever reaches the pod
// would walk around the gateway. It sends nothing.
type Bypass struct {
	Servers map[types.NamespacedName]*Server
	// PodIPs are the addresses of the pod: one, or one of each family.
	PodIPs []netip.Addr
	Clock  clock.WithTicker
	// Dial connects.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	found map[types.NamespacedName]string
}

// The words of v1alpha1.BypassAnnotation.
const (
	bypassOpen   = "Open"
	bypassClosed = "Closed"
)

// Run looks until the context ends.
func (b *Bypass) Run(ctx context.Context) error {
	ticker := b.Clock.NewTicker(bypassEvery)
	defer ticker.Stop()
	for {
		for key, server := range b.Servers {
			b.note(key, b.look(ctx, server))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Found says what was found of a server: "" where that cannot be told. A nil Bypass finds nothing.
func (b *Bypass) Found(key types.NamespacedName) string {
	if b == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found[key]
}

func (b *Bypass) note(key types.NamespacedName, word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found == nil {
		b.found = map[types.NamespacedName]string{}
	}
	b.found[key] = word
}

// look connects to the server's port at the pod's addresses. That nobody answers there tells something only while the server
// answers on loopback.
func (b *Bypass) look(ctx context.Context, server *Server) string {
	snap := server.Snapshot()
	if snap == nil {
		return ""
	}
	local, ok := endpoint.InPod(snap.Server.Spec.Endpoint)
	if !ok {
		return ""
	}
	for _, address := range b.PodIPs {
		if b.answers(ctx, address, local.Port) {
			return bypassOpen
		}
	}
	for _, address := range local.Addresses {
		if b.answers(ctx, address.Addr(), local.Port) {
			return bypassClosed
		}
	}
	return ""
}

func (b *Bypass) answers(ctx context.Context, address netip.Addr, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, bypassWithin)
	defer cancel()
	conn, err := b.Dial(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(int(port))))
	if err != nil {
		return false
	}
	_ = conn.Close() // it was only to see who answers
	return true
}
