// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// TestCertificatesAreVerifiedWhereTheSystemHasNoRoots runs itself again, as in an image from scratch: the roots are looked
// for once in the life of a process.
func TestCertificatesAreVerifiedWhereTheSystemHasNoRoots(t *testing.T) {
	t.Parallel()
	const nowhere = "/nowhere"
	if os.Getenv("SSL_CERT_FILE") != nowhere {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		again.Env = append(os.Environ(), "SSL_CERT_FILE="+nowhere, "SSL_CERT_DIR="+nowhere)
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	if roots.Equal(x509.NewCertPool()) {
		t.Error("no certificate of a server can be verified")
	}
}
