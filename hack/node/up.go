// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// up starts the node with the state that it has, if any, and returns when pods can be made. One that runs already, from a
// run that may not have come to its end, is waited for all the same.
func (n *node) up(ctx context.Context, install bool) error {
	started := time.Now()
	if n.pid() == 0 {
		if err := n.launch(ctx, install); err != nil {
			return err
		}
	}
	if err := n.await(ctx, started); err != nil {
		return fmt.Errorf("%w; logs are in %s, and pid 1 of the node said last:\n  %s", err, n.path("log"), n.lastWords())
	}
	n.say("pods can be made; stop kills the node, down removes it")
	fmt.Println(n.kubeconfig())
	return nil
}

// launch starts the node, or leaves the machine as it was.
func (n *node) launch(ctx context.Context, install bool) error {
	// What a run left that was killed goes first, so that the stock is taken of a machine without a node.
	if err := n.clear(ctx); err != nil {
		return err
	}
	if err := n.probe(ctx, install); err != nil {
		return err
	}
	programs, err := n.programs(ctx)
	if err != nil {
		return err
	}
	if err := n.prepare(ctx); err != nil {
		return err
	}
	before, err := n.look(ctx)
	if err != nil {
		return err
	}
	if err := before.remember(n.stock()); err != nil {
		return fmt.Errorf("note what the machine is like: %w", err)
	}
	if err := n.startInit(programs); err != nil {
		return errors.Join(err, n.clear(context.WithoutCancel(ctx)))
	}
	return nil
}

// repository is the folder of this module's sources.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources: %w; run this in a clone of the repository", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// programs returns the folder of the programs that are built here, once they are.
func (n *node) programs(ctx context.Context) (string, error) {
	root, err := repository(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "envtest.sh"), "node")
	cmd.Stderr = n.out
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// prepare writes everything that the node reads.
func (n *node) prepare(ctx context.Context) error {
	for _, dir := range []string{"log", "images"} {
		if err := os.MkdirAll(n.path(dir), 0o700); err != nil {
			return fmt.Errorf("make a folder of the node: %w", err)
		}
	}
	cni, err := cniFolder()
	if err != nil {
		return err
	}
	if err := n.writeConfig(cni); err != nil {
		return err
	}
	if err := writePKI(n.path("pki"), time.Now()); err != nil {
		return err
	}
	return n.buildPod(ctx)
}

// await waits, one by one, for what makes a node of use.
func (n *node) await(ctx context.Context, started time.Time) error {
	for _, step := range []struct {
		what string
		try  func(context.Context) error
	}{
		{"containerd takes images", func(ctx context.Context) error { return n.importFile(ctx, n.podArchive()) }},
		{"the API server is ready", func(context.Context) error { return n.ready() }},
		{"the node is ready", func(ctx context.Context) error { return n.nodeReady(ctx, started) }},
		{"pods have a service account", n.accountThere},
		{"DNS has its Service", n.applyDNS},
		{"DNS knows the API server", resolves},
		{"policies are enforced", n.enforced},
	} {
		alive := func(ctx context.Context) error {
			if n.pid() == 0 {
				return &fatalError{errors.New("the node has ended")}
			}
			return step.try(ctx)
		}
		if err := n.until(ctx, step.what, alive); err != nil {
			return err
		}
		n.say("%s", step.what)
	}
	return nil
}

// startInit starts pid 1 of the node and the link to it.
func (n *node) startInit(programs string) error {
	groups, err := machineCgroups()
	if err != nil {
		return err
	}
	if err := groups.create(); err != nil {
		return err
	}
	log, err := os.Create(n.path("log", "init.log"))
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the node has its own
	cmd := pidOne("run", n.dir, programs)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, environment()
	word, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer word.Close() //nolint:errcheck // without a word the node ends
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	go cmd.Wait() //nolint:errcheck // it ends when it is killed; here it is only kept from staying a zombie
	for _, command := range []string{
		fmt.Sprintf("ip link add %s type veth peer name %s netns %d", machineEnd, nodeEnd, cmd.Process.Pid),
		"ip address add " + machineIP + "/30 dev " + machineEnd,
		"ip link set " + machineEnd + " up",
		"ip route add " + podRange + " via " + nodeIP,
		"ip route add " + serviceRange + " via " + nodeIP,
	} {
		if err := execute(command); err != nil {
			return err
		}
	}
	if _, err := word.Write([]byte("go")); err != nil {
		return fmt.Errorf("tell the node to go on: %w", err)
	}
	return nil
}

func (n *node) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig())
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// nodeReady wants a heartbeat of this start: the Node of an earlier one still says that it is ready.
func (n *node) nodeReady(ctx context.Context, started time.Time) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	got, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return fresh(got.Status.Conditions, started)
}

func fresh(conditions []corev1.NodeCondition, started time.Time) error {
	i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	switch {
	case i < 0:
		return errors.New("it has not said yet whether it is ready")
	case conditions[i].LastHeartbeatTime.Time.Before(started.Truncate(time.Second)): // heartbeats are of whole seconds
		return fmt.Errorf("its last heartbeat is of %s, before this start", conditions[i].LastHeartbeatTime)
	case conditions[i].Status != corev1.ConditionTrue:
		return errors.New(conditions[i].Message)
	}
	return nil
}

// accountThere waits for the controller manager: until it has made the account, every pod is refused.
func (n *node) accountThere(ctx context.Context) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

func (n *node) applyDNS(ctx context.Context) error {
	programs, err := n.programs(ctx)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(programs, "kubectl"), "--kubeconfig="+n.kubeconfig(),
		"apply", "--server-side", "--filename="+n.path("conf", "dns.yaml")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// enforced looks for the rule that ends a chain of the enforcer once it has written all policies that there are.
func (n *node) enforced(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(n.pid()), "--net", "iptables", "--wait", "--list-rules", "KUBE-ROUTER-FORWARD").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if !strings.Contains(string(out), "-j ACCEPT") {
		return errors.New("no policy has been written yet")
	}
	return nil
}

// resolves asks for the API server's name by way of the Service, as pods do.
func resolves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(dnsIP, "53"))
	}}
	got, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	if err != nil {
		return err
	}
	if !slices.Equal(got, []string{apiIP}) {
		return fmt.Errorf("it says %v, not %s", got, apiIP)
	}
	return nil
}
