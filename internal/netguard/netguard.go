// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netguard keeps connections away from addresses that a server's author must not be able to reach through us;
// it never resolves names for callers and follows no redirect.
package netguard

import (
	"errors"
	"net/netip"
)

// Class says what kind of address a refused one is.
type Class string

// The classes of addresses. All but Public are refused unless they are listed.
const (
	Public        Class = "public"
	Loopback      Class = "loopback"
	Unspecified   Class = "unspecified"
	LinkLocal     Class = "link-local"
	Metadata      Class = "metadata service"
	Multicast     Class = "multicast"
	Private       Class = "private"
	Benchmarking  Class = "benchmarking"
	Documentation Class = "documentation"
	Reserved      Class = "reserved"
)

// ErrForbidden is the identity of every refusal of this package.
var ErrForbidden = errors.New("address may not be dialled")

// ForbiddenError says what kind of address was refused. Its text is the same for all addresses of a class.
type ForbiddenError struct {
	// Class of the address.
	Class Class
}

// Error names the class, never the address.
func (e *ForbiddenError) Error() string { return string(e.Class) + " " + ErrForbidden.Error() }

// Is makes every ForbiddenError an ErrForbidden.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// Policy says which addresses may be dialled. The zero value allows public ones only.
type Policy struct {
	// Allow lists addresses that may be dialled whatever their class.
	Allow []netip.Prefix
	// Cluster allows private addresses too, as those of Services are.
	Cluster bool
}

// Check returns a *ForbiddenError unless the address may be dialled.
func (p Policy) Check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if p.lists(addr) {
		return nil
	}
	switch class := classOf(addr); {
	case class == Public, class == Private && p.Cluster:
	default:
		return &ForbiddenError{Class: class}
	}
	// An address that a translator or tunnel turns into another is as good as that other one.
	for _, inner := range embedded(addr) {
		if err := p.Check(inner); err != nil {
			return err
		}
	}
	return nil
}

func (p Policy) lists(addr netip.Addr) bool {
	for _, prefix := range p.Allow {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}
