// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// TestMain lets the test be pid 1 of a node, as the command is.
func TestMain(m *testing.M) {
	if os.Args[0] != initName {
		os.Exit(m.Run())
	}
	if err := inside(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(failed)
	}
}

// TestNode brings a node up, uses it, kills it, starts it again, and wants the machine as it was.
func TestNode(t *testing.T) {
	if os.Getenv("TIDEWAITER_NODE") == "" {
		t.Skip("TIDEWAITER_NODE is not set: no node is started, which takes root and changes the machine for a minute")
	}
	n := newNode(filepath.Join(t.TempDir(), "node"), t.Output())
	if err := n.probe(t.Context(), false); err != nil {
		t.Skip(err)
	}
	before, err := n.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := n.up(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	c := cluster{t: t, node: n}
	if c.Interface, err = n.client(); err != nil {
		t.Fatal(err)
	}
	t.Run("a pod answers another by the name of its Service", c.answers)
	t.Run("a NetworkPolicy lets those through that it admits, and nobody else", c.admits)
	t.Run("a node that was killed comes back with its pods", c.comesBack)
	t.Run("down leaves the machine as it was, though pid 1 was killed behind its back", func(t *testing.T) {
		pid := n.pid()
		if pid == 0 { // which would be this test, and all that runs with it
			t.Fatal("the node is not up")
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := n.down(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := n.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, difference := range before.differences(now) {
			t.Error(difference)
		}
		if _, err := os.Stat(n.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its folder: %v", err)
		}
	})
}

// cluster is the node, for tests.
type cluster struct {
	kubernetes.Interface
	t    *testing.T
	node *node
}

// run makes a pod of the node's own image.
func (c cluster) run(t *testing.T, name string, labels map[string]string, restart corev1.RestartPolicy, args ...string) {
	t.Helper()
	no, yes := false, true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{
			Name: "pod", Image: podImage, ImagePullPolicy: corev1.PullNever, Args: args,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}}},
	}
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// phase waits until a pod is in one of the phases, and returns it.
func (c cluster) phase(t *testing.T, name string, want ...corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	err := c.node.until(t.Context(), "pod "+name+" has ended or runs", func(ctx context.Context) (err error) {
		if pod, err = c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if slices.Contains(want, pod.Status.Phase) {
			return nil
		}
		return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.ContainerStatuses)
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// gets makes a pod that asks a server once, and returns what it printed and whether it got an answer.
func (c cluster) gets(t *testing.T, name, url string, labels map[string]string) (string, bool) {
	t.Helper()
	c.run(t, name, labels, corev1.RestartPolicyNever, "get", url)
	pod := c.phase(t, name, corev1.PodSucceeded, corev1.PodFailed)
	logs, err := c.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(logs)), pod.Status.Phase == corev1.PodSucceeded
}

const web = "http://web.default.svc.cluster.local:8080/"

func (c cluster) answers(t *testing.T) {
	c.run(t, "web", map[string]string{"app": "web"}, corev1.RestartPolicyAlways, "serve", ":8080")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 8080}}}}
	if _, err := c.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.phase(t, "web", corev1.PodRunning)
	c.answered(t, "client", nil)
}

// answered asks until there is an answer: addresses and rules take a moment to reach the kernel.
func (c cluster) answered(t *testing.T, prefix string, labels map[string]string) {
	t.Helper()
	attempts := 0
	err := c.node.until(t.Context(), "there is an answer", func(context.Context) error {
		attempts++
		if said, ok := c.gets(t, fmt.Sprintf("%s-%d", prefix, attempts), web, labels); !ok || said != "web" {
			return fmt.Errorf("attempt %d: %s", attempts, said)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c cluster) admits(t *testing.T) {
	port := intstr.FromInt32(8080)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "friend"}}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
		}},
	}}
	if _, err := c.NetworkingV1().NetworkPolicies("default").Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.refused(t, "stranger")
	c.answered(t, "friend", map[string]string{"app": "friend"})
	c.refused(t, "second-stranger")
}

// refused asks until there is no answer, since a policy takes a moment to reach the kernel.
func (c cluster) refused(t *testing.T, prefix string) {
	t.Helper()
	attempts := 0
	err := c.node.until(t.Context(), "there is a refusal", func(context.Context) error {
		attempts++
		if said, ok := c.gets(t, fmt.Sprintf("%s-%d", prefix, attempts), web, nil); ok {
			return fmt.Errorf("attempt %d: %s", attempts, said)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c cluster) comesBack(t *testing.T) {
	was := c.phase(t, "web", corev1.PodRunning)
	if err := c.node.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.node.up(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	err := c.node.until(t.Context(), "the pod is started again", func(ctx context.Context) error {
		is := c.phase(t, "web", corev1.PodRunning)
		if is.UID != was.UID || len(is.Status.ContainerStatuses) == 0 || is.Status.ContainerStatuses[0].ContainerID == was.Status.ContainerStatuses[0].ContainerID {
			return fmt.Errorf("it is %s in %v", is.UID, is.Status.ContainerStatuses)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.answered(t, "friend-again", map[string]string{"app": "friend"})
	c.refused(t, "stranger-again")
}
