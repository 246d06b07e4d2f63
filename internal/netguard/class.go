// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package netguard

import "net/netip"

type block struct {
	prefix netip.Prefix
	class  Class
}

// blocks are the special blocks of the IANA registries and the metadata services of clouds, never written to; the first
// that contains an address counts. For translators and tunnels (64:ff9b::/96, 2002::/16, 2001::/32) the address inside
// decides.
var blocks = []block{
	{netip.MustParsePrefix("169.254.169.254/32"), Metadata}, // AWS, Azure, GCP, OpenStack and others
	{netip.MustParsePrefix("169.254.170.2/32"), Metadata},   // AWS task credentials
	{netip.MustParsePrefix("169.254.170.23/32"), Metadata},  // AWS pod identity
	{netip.MustParsePrefix("100.100.100.200/32"), Metadata}, // Alibaba Cloud
	{netip.MustParsePrefix("168.63.129.16/32"), Metadata},   // Azure's wire server, a public address
	{netip.MustParsePrefix("192.0.0.192/32"), Metadata},     // Oracle Cloud
	{netip.MustParsePrefix("fd00:ec2::/32"), Metadata},      // AWS: 254 metadata, 23 pod identity
	{netip.MustParsePrefix("fd20:ce::254/128"), Metadata},   // GCP
	{netip.MustParsePrefix("0.0.0.0/32"), Unspecified},
	{netip.MustParsePrefix("::/128"), Unspecified},
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback},
	{netip.MustParsePrefix("::1/128"), Loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), LinkLocal},
	{netip.MustParsePrefix("fe80::/10"), LinkLocal},
	{netip.MustParsePrefix("224.0.0.0/4"), Multicast},
	{netip.MustParsePrefix("ff00::/8"), Multicast},
	{netip.MustParsePrefix("10.0.0.0/8"), Private},
	{netip.MustParsePrefix("172.16.0.0/12"), Private},
	{netip.MustParsePrefix("192.168.0.0/16"), Private},
	{netip.MustParsePrefix("100.64.0.0/10"), Private}, // shared address space; pods and Services of some clusters
	{netip.MustParsePrefix("fc00::/7"), Private},
	{netip.MustParsePrefix("64:ff9b:1::/48"), Private}, // local-use translation
	{netip.MustParsePrefix("198.18.0.0/15"), Benchmarking},
	{netip.MustParsePrefix("2001:2::/48"), Benchmarking},
	{netip.MustParsePrefix("192.0.2.0/24"), Documentation},
	{netip.MustParsePrefix("198.51.100.0/24"), Documentation},
	{netip.MustParsePrefix("203.0.113.0/24"), Documentation},
	{netip.MustParsePrefix("2001:db8::/32"), Documentation},
	{netip.MustParsePrefix("3fff::/20"), Documentation},
	{netip.MustParsePrefix("0.0.0.0/8"), Reserved},
	{netip.MustParsePrefix("192.0.0.0/24"), Reserved},
	{netip.MustParsePrefix("192.88.99.0/24"), Reserved},
	{netip.MustParsePrefix("240.0.0.0/4"), Reserved},
	{netip.MustParsePrefix("64:ff9b::/96"), Public},
	{netip.MustParsePrefix("2001::/32"), Public},
	{netip.MustParsePrefix("2001::/23"), Reserved},
	{netip.MustParsePrefix("2000::/3"), Public},
	{netip.MustParsePrefix("::/0"), Reserved},
}

// classOf returns the class of an address by itself; what a translator makes of it is not looked at.
func classOf(addr netip.Addr) Class {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return Unspecified
	}
	for _, b := range blocks {
		if b.prefix.Contains(addr) {
			return b.class
		}
	}
	return Public
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	teredo    = netip.MustParsePrefix("2001::/32")
)

// embedded returns the IPv4 addresses that an IPv6 address carries for a translator or tunnel.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case nat64.Contains(addr):
		return []netip.Addr{last}
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214
		return []netip.Addr{last}
	default:
		return nil
	}
}
