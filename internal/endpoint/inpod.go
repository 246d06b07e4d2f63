// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// StdioPort is the port, on a pod's loopback, at which a server that speaks by standard input and output is reached.
const StdioPort = 9443

var stdioURL = fmt.Sprintf("http://127.0.0.1:%d/mcp", StdioPort)

// Local is where a server listens that only its own pod reaches.
type Local struct {
	// Port on the pod's loopback.
	Port uint16
	// Addresses are what its host stands for.
	Addresses []netip.Prefix
}

// InPod tells whether an endpoint is on loopback, so in the pods with the label tidewaiter.dev/govern, and where there.
func InPod(e v1alpha1.Endpoint) (Local, bool) {
	address := e.URL
	if e.Stdio != nil {
		address = stdioURL
	}
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return Local{}, false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Port() == "" && u.Scheme == "https":
		port = 443
	case u.Port() == "":
		port = 80
	case err != nil:
		return Local{}, false
	}
	l := Local{Port: uint16(port)}
	if strings.EqualFold(u.Hostname(), "localhost") {
		l.Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")}
		return l, true
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || !addr.IsLoopback() {
		return Local{}, false
	}
	l.Addresses = []netip.Prefix{netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())}
	return l, true
}
