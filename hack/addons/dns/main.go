// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dns is CoreDNS with the few plugins that the node of make node has in its Corefile. The whole of CoreDNS links
// the clients of several clouds, and takes far longer to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"errors", "kubernetes"}
	coremain.Run()
}
