// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// listen has somebody answer at an address, with the port of another or with a free one.
func listen(t *testing.T, address string, port int) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", address, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// The pod has the addresses 127.0.0.3 and ::1, its loopback is 127.0.0.1.
func TestAServerThatAnswersAtThePodsAddressIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		addresses []string
		want      string
	}{
		"on loopback only":    {[]string{"127.0.0.1"}, "Closed"},
		"on every address":    {[]string{"0.0.0.0"}, "Open"},
		"at the pod's only":   {[]string{"127.0.0.3"}, "Open"},
		"at the pod's second": {[]string{"127.0.0.1", "[::1]"}, "Open"},
		"on both, one by one": {[]string{"127.0.0.1", "127.0.0.3"}, "Open"},
		"on another loopback": {[]string{"127.0.0.2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, port := newRig(t), 0
			for _, address := range tc.addresses {
				port = listen(t, address, port)
			}
			r.edit(func() {
				r.governed.Spec.Endpoint = v1alpha1.Endpoint{URL: fmt.Sprintf("http://127.0.0.1:%d/mcp", port)}
			})
			b := &Bypass{Servers: r.gateway.Servers, PodIPs: []netip.Addr{netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("::1")}, Clock: r.clock, Dial: (&net.Dialer{}).DialContext}
			if got := b.look(t.Context(), r.server); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAServerElsewhereIsNotLookedAt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.edit(func() { r.governed.Spec.Endpoint = v1alpha1.Endpoint{URL: "https://mcp.example.com/mcp"} })
	b := &Bypass{Servers: r.gateway.Servers, PodIPs: []netip.Addr{netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("::1")}, Clock: r.clock}
	if got := b.look(t.Context(), r.server); got != "" {
		t.Errorf("found %q", got)
	}
	b.note(billing, bypassOpen)
	if b.Found(billing) != bypassOpen || (*Bypass)(nil).Found(billing) != "" {
		t.Error("what was found is not told, or a gateway that does not look has found something")
	}
}

func TestAWayAroundIsSaidInTheLeaseAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Bypass = &Bypass{}
	word := func() string { return d.written[len(d.written)-1].Annotations[v1alpha1.BypassAnnotation] }
	d.expect(t, "at the start", d.after(t, 0), 1)
	if got := word(); got != "" {
		t.Errorf("before anybody looked the Lease says %q", got)
	}
	for _, found := range []string{bypassClosed, bypassOpen, ""} {
		d.Bypass.note(billing, found)
		d.expect(t, "it is "+found, d.after(t, time.Second), 1)
		if got := word(); got != found {
			t.Errorf("the Lease says %q, want %q", got, found)
		}
		d.expect(t, "a steady state", d.after(t, time.Second), 0)
	}
}
