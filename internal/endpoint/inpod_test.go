// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func TestOnlyAnEndpointOnLoopbackIsInThePod(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")
	for url, want := range map[string]*Local{
		"http://127.0.0.1:9000/mcp":          {9000, []netip.Prefix{four}},
		"http://127.0.0.1/mcp":               {80, []netip.Prefix{four}},
		"https://127.0.0.1/mcp":              {443, []netip.Prefix{four}},
		"http://[::1]:9000/mcp":              {9000, []netip.Prefix{six}},
		"http://[::ffff:127.0.0.1]:9000/mcp": {9000, []netip.Prefix{four}},
		"http://LocalHost:9000/mcp":          {9000, []netip.Prefix{four, six}},
		"http://127.0.0.2:9000/mcp":          {9000, []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}},
		"http://10.0.0.1:9000/mcp":           nil,
		"http://0.0.0.0:9000/mcp":            nil,
		"http://127.0.0.1.example.com/mcp":   nil,
		"http://localhost.example.com/mcp":   nil,
		"http://127.0.0.1:99999/mcp":         nil,
		"http://2130706433/mcp":              nil,
		"":                                   nil,
	} {
		got, ok := InPod(v1alpha1.Endpoint{URL: url})
		if ok != (want != nil) {
			t.Errorf("%q is in the pod: %v", url, ok)
			continue
		}
		if want != nil {
			if diff := cmp.Diff(*want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("%q (-want +got):\n%s", url, diff)
			}
		}
	}
	if _, ok := InPod(v1alpha1.Endpoint{Service: &v1alpha1.ServiceEndpoint{Name: "a", Port: 1}}); ok {
		t.Error("a Service is in the pod")
	}
}

// Whoever may not dial loopback dials no server behind standard input and output either.
func TestStdioIsReachedOnLoopbackAndOnlyByWhoMay(t *testing.T) {
	t.Parallel()
	stdio := server(func(s *v1alpha1.GovernedServer) {
		s.Spec.Endpoint = v1alpha1.Endpoint{Stdio: &v1alpha1.StdioEndpoint{Container: "server"}}
	})
	local, ok := InPod(stdio.Spec.Endpoint)
	if !ok || local.Port != StdioPort {
		t.Fatalf("stdio is at %+v, %v", local, ok)
	}
	for name, allow := range map[string][]netip.Prefix{"nobody": nil, "the gateway in the pod": local.Addresses} {
		up, err := Resolve(t.Context(), fake.NewClientBuilder().Build(), stdio, allow)
		if err != nil || up.URL != "http://127.0.0.1:9443/mcp" {
			t.Fatalf("%s: %q, %v", name, up.URL, err)
		}
		if err := up.Guard.Check(netip.MustParseAddr("127.0.0.1")); (err == nil) != (allow != nil) {
			t.Errorf("%s may dial it: %v", name, err)
		}
	}
}
