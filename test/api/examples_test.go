// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"strings"
	"testing"
)

// What the page on placement shows is a file, and the API takes it.
func TestTheExampleOfAStandaloneGatewayIsTaken(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../docs/examples/standalone.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(example), "\n") // after the comment
	if !strings.Contains(string(page), "```yaml\n"+shown+"```\n") {
		t.Error("docs/placement.md does not show docs/examples/standalone.yaml as it is")
	}
	namespace := plane.Namespace(t)
	kubectl(t, strings.ReplaceAll(string(example), "namespace: shop", "namespace: "+namespace), "apply", "-f", "-")
	if got := kubectl(t, "", "get", "gsrv", "payments", "-n", namespace, "-o", "jsonpath={.spec.gateway.standalone.replicas}"); got != "2" {
		t.Errorf("it has %q replicas", got)
	}
}
