// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// validity of certificates; a node is thrown away long before.
const validity = 365 * 24 * time.Hour

// identity is who a component is to the others: Kubernetes takes users and groups from the subject.
type identity struct {
	file   string
	user   string
	groups []string
	hosts  []string // for a server: the names and addresses it answers at
}

var servers = []identity{
	{file: "apiserver", user: "kube-apiserver", hosts: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", nodeIP, apiIP, "127.0.0.1"}},
	{file: "kubelet-serving", user: "system:node:" + nodeName, groups: []string{"system:nodes"}, hosts: []string{nodeName, nodeIP}},
}

// clients have a kubeconfig each. The roles of all but admin are those that every cluster has from the start.
var clients = []identity{
	{file: "admin", user: "admin", groups: []string{"system:masters"}},
	{file: "apiserver-kubelet", user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
	{file: "controller-manager", user: "system:kube-controller-manager"},
	{file: "scheduler", user: "system:kube-scheduler"},
	{file: "kubelet", user: "system:node:" + nodeName, groups: []string{"system:nodes"}},
	{file: "proxy", user: "system:kube-proxy"},
}

// authority signs the certificates of one node.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  time.Time
}

// writePKI makes keys, certificates and kubeconfigs, all or none. Those of a node that is started again stay: tokens and
// the authority that pods know must be good after it too.
func writePKI(dir string, now time.Time) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("remove what an earlier run did not finish: %w", err)
	}
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		return fmt.Errorf("make a folder for certificates: %w", err)
	}
	ca, err := newAuthority(now)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(unfinished, "ca.crt"), "CERTIFICATE", ca.cert.Raw); err != nil {
		return err
	}
	if err := writeKey(filepath.Join(unfinished, "ca.key"), ca.key); err != nil {
		return err
	}
	for _, id := range append(append([]identity{}, servers...), clients...) {
		if err := ca.issue(unfinished, id); err != nil {
			return fmt.Errorf("issue the certificate of %s: %w", id.file, err)
		}
	}
	for _, id := range clients {
		if err := writeKubeconfig(unfinished, id.file, ca.cert.Raw); err != nil {
			return fmt.Errorf("write the kubeconfig of %s: %w", id.file, err)
		}
	}
	if err := writeTokenKey(unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tidewaiter-node"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(validity),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return &authority{cert: cert, key: key, now: now}, nil
}

// issue writes a key and a certificate: for a server where there are hosts, otherwise for a client.
func (a *authority) issue(dir string, id identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		// A serial number that is left out is made at random.
		Subject:  pkix.Name{CommonName: id.user, Organization: id.groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: a.now.Add(-time.Minute), NotAfter: a.cert.NotAfter,
	}
	if len(id.hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range id.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(filepath.Join(dir, id.file+".crt"), "CERTIFICATE", der), writeKey(filepath.Join(dir, id.file+".key"), key))
}

// writeTokenKey makes the key pair of service account tokens.
func writeTokenKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of tokens: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the key of tokens: %w", err)
	}
	return errors.Join(writeKey(filepath.Join(dir, "tokens.key"), key), writePEM(filepath.Join(dir, "tokens.pub"), "PUBLIC KEY", public))
}

func writeKubeconfig(dir, name string, ca []byte) error {
	cert, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["node"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: encodePEM("CERTIFICATE", ca)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["node"] = &clientcmdapi.Context{Cluster: "node", AuthInfo: name}
	config.CurrentContext = "node"
	return clientcmd.WriteToFile(*config, filepath.Join(dir, name+".kubeconfig"))
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, encodePEM(kind, der), 0o600)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
