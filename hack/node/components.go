// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import "path/filepath"

// component is a program of the node that runs as long as the node does.
type component struct {
	name string // of its log
	args []string
}

// plane is what everything else waits for.
func (n *node) plane(programs string) []component {
	pki := func(file string) string { return n.path("pki", file) }
	return []component{
		{"etcd", []string{filepath.Join(programs, "etcd"), "--name=node", "--data-dir=" + n.path("etcd"), "--log-level=warn",
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=node=http://127.0.0.1:2380",
			"--unsafe-no-fsync"}}, // what is written survives the node, and need not survive the machine
		{"containerd", []string{"containerd", "--config=" + n.path("conf", "containerd.toml")}},
		{"kube-apiserver", []string{filepath.Join(programs, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
			"--bind-address=" + nodeIP, "--advertise-address=" + nodeIP, "--service-cluster-ip-range=" + serviceRange,
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--client-ca-file=" + pki("ca.crt"), "--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate=" + pki("apiserver-kubelet.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet.key"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + pki("tokens.pub"), "--service-account-signing-key-file=" + pki("tokens.key")}},
	}
}

// rest starts when the API server is ready.
func (n *node) rest(programs string) []component {
	pki := func(file string) string { return n.path("pki", file) }
	program := func(name string) string { return filepath.Join(programs, name) }
	return []component{
		{"kubelet", []string{program("kubelet"), "--config=" + n.path("conf", "kubelet.yaml"), "--kubeconfig=" + pki("kubelet.kubeconfig"),
			"--hostname-override=" + nodeName, "--node-ip=" + nodeIP}},
		{"kube-controller-manager", []string{program("kube-controller-manager"), "--kubeconfig=" + pki("controller-manager.kubeconfig"),
			"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials", "--kube-api-qps=200", "--kube-api-burst=400", // it makes 40 accounts before pods are admitted
			"--root-ca-file=" + pki("ca.crt"),
			"--service-account-private-key-file=" + pki("tokens.key"), "--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key")}},
		{"kube-scheduler", []string{program("kube-scheduler"), "--kubeconfig=" + pki("scheduler.kubeconfig"), "--bind-address=127.0.0.1", "--leader-elect=false"}},
		{"kube-proxy", []string{program("kube-proxy"), "--config=" + n.path("conf", "proxy.yaml")}},
		{"dns", []string{program("dns"), "-conf=" + n.path("conf", "Corefile")}},
		{"policy", []string{program("policy"), "--kubeconfig=" + n.kubeconfig(), "--node=" + nodeName, "--services=" + serviceRange}},
	}
}
