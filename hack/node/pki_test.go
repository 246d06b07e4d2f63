// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

var made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := writePKI(dir, made); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate(t, filepath.Join(dir, "ca.crt")))
	usable := func(id identity, usage x509.ExtKeyUsage, host string) error {
		_, err := certificate(t, filepath.Join(dir, id.file+".crt")).Verify(x509.VerifyOptions{
			Roots: pool, CurrentTime: made.Add(time.Hour), KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: host})
		return err
	}
	for _, id := range servers {
		for _, host := range id.hosts {
			if err := usable(id, x509.ExtKeyUsageServerAuth, host); err != nil {
				t.Errorf("%s as a server at %s: %v", id.file, host, err)
			}
		}
		if usable(id, x509.ExtKeyUsageServerAuth, "elsewhere") == nil || usable(id, x509.ExtKeyUsageClientAuth, "") == nil {
			t.Errorf("%s is good for more than it is for", id.file)
		}
	}
	for _, id := range clients {
		if err := usable(id, x509.ExtKeyUsageClientAuth, ""); err != nil {
			t.Errorf("%s as a client: %v", id.file, err)
		}
		if usable(id, x509.ExtKeyUsageServerAuth, "") == nil {
			t.Errorf("%s may serve", id.file)
		}
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, id.file+".kubeconfig"))
		if err != nil || config.Host != server {
			t.Errorf("the kubeconfig of %s: %v, %v", id.file, config, err)
		}
	}
	subject := certificate(t, filepath.Join(dir, "kubelet.crt")).Subject
	if subject.CommonName != "system:node:"+nodeName || len(subject.Organization) != 1 || subject.Organization[0] != "system:nodes" {
		t.Errorf("the kubelet is %s", subject)
	}
}

// TestANodeThatIsStartedAgainKeepsItsKeys is why tokens and what pods trust stay good; a run that was killed is no reason
// to stop half way.
func TestANodeThatIsStartedAgainKeepsItsKeys(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := os.MkdirAll(dir+".unfinished", 0o700); err != nil {
		t.Fatal(err)
	}
	var keys [2][]byte
	for i := range keys {
		if err := writePKI(dir, made); err != nil {
			t.Fatal(err)
		}
		var err error
		if keys[i], err = os.ReadFile(filepath.Join(dir, "tokens.key")); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(keys[0]), string(keys[1])); diff != "" {
		t.Errorf("the key of tokens (-first +second):\n%s", diff)
	}
}
