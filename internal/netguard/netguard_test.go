// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package netguard

import (
	"errors"
	"net/netip"
	"testing"
)

func TestOnlyPublicAddressesMayBeDialledByDefault(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]Class{
		"8.8.8.8": Public, "2606:4700::1111": Public, "::ffff:8.8.8.8": Public,
		"127.0.0.1": Loopback, "127.255.255.254": Loopback, "::1": Loopback, "::ffff:127.0.0.1": Loopback,
		"0.0.0.0": Unspecified, "::": Unspecified, "0.1.2.3": Reserved,
		"169.254.169.254": Metadata, "::ffff:169.254.169.254": Metadata, "fd00:ec2::254": Metadata,
		"100.100.100.200": Metadata, "168.63.129.16": Metadata, "fd20:ce::254": Metadata,
		"169.254.1.1": LinkLocal, "fe80::1": LinkLocal, "fe80::1%eth0": LinkLocal,
		"224.0.0.1": Multicast, "ff02::1": Multicast,
		"10.0.0.1": Private, "172.31.255.255": Private, "172.32.0.1": Public, "192.168.1.1": Private,
		"100.64.0.1": Private, "100.128.0.1": Public, "fc00::1": Private, "fdff::1": Private, "64:ff9b:1::1": Private,
		"198.18.0.1": Benchmarking, "198.20.0.1": Public, "2001:2::1": Benchmarking,
		"192.0.2.1": Documentation, "2001:db8::1": Documentation, "3fff::1": Documentation,
		"240.0.0.1": Reserved, "255.255.255.255": Reserved, "192.0.0.8": Reserved, "::8.8.8.8": Reserved,
		"2001:20::1": Reserved, "fec0::1": Reserved, "100::1": Reserved, "4000::1": Reserved, "::ffff:0:8.8.8.8": Reserved,
	} {
		err := Policy{}.Check(netip.MustParseAddr(addr))
		if got := classOfError(err); got != want {
			t.Errorf("Check(%s) says %s, want %s", addr, got, want)
		}
	}
}

func classOfError(err error) Class {
	if err == nil {
		return Public
	}
	var forbidden *ForbiddenError
	if !errors.As(err, &forbidden) || !errors.Is(err, ErrForbidden) {
		return "another error"
	}
	return forbidden.Class
}

func TestAnAddressInsideAnotherDecides(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]Class{
		"64:ff9b::8.8.8.8":                       Public,
		"64:ff9b::169.254.169.254":               Metadata,
		"64:ff9b::10.0.0.1":                      Private,
		"2002:0808:0808::1":                      Public,
		"2002:7f00:1::":                          Loopback,
		"2002:a9fe:a9fe::1":                      Metadata,
		"2001:0:808:808:0:0:f7f7:f7f7":           Public,   // client 8.8.8.8
		"2001:0:808:808:0:0:80ff:fffe":           Loopback, // client 127.0.0.1
		"2001:0:a00:1:0:0:f7f7:f7f7":             Private,  // server 10.0.0.1
		"2606:4700::5efe:8.8.8.8":                Public,
		"2606:4700::5efe:169.254.169.254":        Metadata,
		"2606:4700:0:0:200:5efe:169.254.169.254": Metadata,
	} {
		err := Policy{}.Check(netip.MustParseAddr(addr))
		if got := classOfError(err); got != want {
			t.Errorf("Check(%s) says %s, want %s", addr, got, want)
		}
	}
}

func TestWhatIsListedMayBeDialledAndNothingBeside(t *testing.T) {
	t.Parallel()
	allow, err := ParsePrefixes([]string{"127.0.0.0/8", "169.254.169.254", "fd12::/16"})
	if err != nil {
		t.Fatal(err)
	}
	policy := Policy{Allow: allow}
	for addr, want := range map[string]Class{
		"127.9.9.9": Public, "::ffff:127.0.0.1": Public, "169.254.169.254": Public, "fd12::1": Public,
		"64:ff9b::127.0.0.1": Public,
		"::1":                Loopback, "169.254.169.253": LinkLocal, "10.0.0.1": Private, "fd13::1": Private,
	} {
		if got := classOfError(policy.Check(netip.MustParseAddr(addr))); got != want {
			t.Errorf("Check(%s) says %s, want %s", addr, got, want)
		}
	}
}

func TestAServiceMayBePrivateButNeverLoopbackOrMetadata(t *testing.T) {
	t.Parallel()
	policy := Policy{Cluster: true}
	for addr, want := range map[string]Class{
		"10.96.0.1": Public, "100.64.3.4": Public, "fd00::1": Public, "8.8.8.8": Public,
		"127.0.0.1": Loopback, "169.254.169.254": Metadata, "fd00:ec2::254": Metadata, "100.100.100.200": Metadata,
		"fe80::1": LinkLocal, "0.0.0.0": Unspecified, "224.0.0.1": Multicast,
	} {
		if got := classOfError(policy.Check(netip.MustParseAddr(addr))); got != want {
			t.Errorf("Check(%s) says %s, want %s", addr, got, want)
		}
	}
}

func TestParsePrefixesRefusesWhatIsNoBlock(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "localhost", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/104"} {
		if got, err := ParsePrefixes([]string{value}); err == nil {
			t.Errorf("ParsePrefixes(%q) = %v, want an error", value, got)
		}
	}
	got, err := ParsePrefixes([]string{"::ffff:10.1.2.3", "10.0.0.0/8", "::1"})
	if err != nil || len(got) != 3 || got[0].String() != "10.1.2.3/32" || got[2].String() != "::1/128" {
		t.Errorf("ParsePrefixes = %v, %v", got, err)
	}
}

// FuzzCheck looks for an address that leads to a refused one and passes.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"127.0.0.1", "::1", "8.8.8.8", "64:ff9b::7f00:1", "2002:a9fe:a9fe::", "fe80::1"} {
		addr := netip.MustParseAddr(seed)
		f.Add(addr.AsSlice())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		if (Policy{}).Check(addr) != nil {
			return
		}
		plain := addr.Unmap()
		if plain.IsLoopback() || plain.IsPrivate() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified() || !plain.IsGlobalUnicast() {
			t.Errorf("%s passes", addr)
		}
		if plain.Is6() && !netip.MustParsePrefix("2000::/3").Contains(plain) && !netip.MustParsePrefix("64:ff9b::/96").Contains(plain) {
			t.Errorf("%s passes", addr)
		}
		for _, inner := range embedded(plain) {
			if (Policy{}).Check(inner) != nil {
				t.Errorf("%s passes and leads to %s", addr, inner)
			}
		}
	})
}
