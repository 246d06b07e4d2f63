// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// direct shows that nothing walks around the gateway, and what tells when something could.
func direct(e *e2e) []step {
	t, open := e.team("direct"), e.team("open")
	open.Listen = ":9000" // on every address of the pod
	return []step{
		{"a team has a server that listens on loopback", t.start},
		{"another has one that listens on every address", open.start},
		{"a pod without a gateway, which listens on every address, is there to compare with", func(ctx context.Context) (string, error) {
			if out, err := t.applyFile(ctx, "bare.yaml"); err != nil {
				return out, err
			}
			return e.kubectl(ctx, "wait", "--namespace="+t.Namespace, "--for=condition=Ready", "--timeout=90s", "pod/bare")
		}},
		{"from the agent's pod, the server's port at the pod's address is closed", func(ctx context.Context) (string, error) {
			pod, err := t.pod(ctx)
			if err != nil {
				return "", err
			}
			return t.closed(ctx, pod.Status.PodIP, 9000)
		}},
		{"control: the gateway's port at the same address answers", func(ctx context.Context) (string, error) {
			pod, err := t.pod(ctx)
			if err != nil {
				return "", err
			}
			return t.answers(ctx, pod.Status.PodIP, 9440)
		}},
		{"control: the port of the pod without a gateway answers", func(ctx context.Context) (string, error) {
			ip, err := e.kubectl(ctx, "get", "pod/bare", "--namespace="+t.Namespace, "--output=jsonpath={.status.podIP}")
			if err != nil {
				return "", err
			}
			return t.answers(ctx, ip, 9000)
		}},
		{"BypassClosed is True", func(ctx context.Context) (string, error) { return t.bypass(ctx, metav1.ConditionTrue) }},
		{"of the server on every address it is False, and says why", func(ctx context.Context) (string, error) {
			return open.bypass(ctx, metav1.ConditionFalse)
		}},
		{"the NetworkPolicy closes that server's port all the same, and that of the metrics", func(ctx context.Context) (string, error) {
			pod, err := open.pod(ctx)
			if err != nil {
				return "", err
			}
			server, err := open.closed(ctx, pod.Status.PodIP, 9000)
			if err != nil {
				return server, err
			}
			metrics, err := open.closed(ctx, pod.Status.PodIP, 9441)
			return server + metrics, err
		}},
		{"control: the gateway's port of that pod answers", func(ctx context.Context) (string, error) {
			pod, err := open.pod(ctx)
			if err != nil {
				return "", err
			}
			return open.answers(ctx, pod.Status.PodIP, 9440)
		}},
		{"once that server listens on loopback, BypassClosed is True", func(ctx context.Context) (string, error) {
			open.Listen = "127.0.0.1:9000"
			if out, err := open.start(ctx); err != nil {
				return out, err
			}
			return open.bypass(ctx, metav1.ConditionTrue)
		}},
	}
}

// get has the agent ask a port once, from its pod.
func (t team) get(ctx context.Context, ip string, port int) (string, error) {
	return t.kubectl(ctx, "exec", "--namespace="+t.Namespace, "agent", "--", "/demo", "get", fmt.Sprintf("http://%s:%d/mcp", ip, port))
}

// closed wants no answer, and looks again for a moment: a policy takes that long to come into force.
func (t team) closed(ctx context.Context, ip string, port int) (out string, err error) {
	err = t.until(ctx, func(ctx context.Context) error {
		var asked error
		if out, asked = t.get(ctx, ip, port); asked == nil {
			return errors.New("it answered")
		}
		return nil
	})
	return out, err
}

// answers wants an answer, whatever it says.
func (t team) answers(ctx context.Context, ip string, port int) (out string, err error) {
	err = t.until(ctx, func(ctx context.Context) (err error) {
		out, err = t.get(ctx, ip, port)
		return err
	})
	return out, err
}

// bypass waits until the condition BypassClosed is what is wanted.
func (t team) bypass(ctx context.Context, want metav1.ConditionStatus) (seen string, err error) {
	err = t.until(ctx, func(ctx context.Context) error {
		server, err := t.server(ctx)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionBypassClosed)
		if condition == nil {
			return errors.New("there is no such condition")
		}
		seen = fmt.Sprintf("BypassClosed=%s, %s: %s", condition.Status, condition.Reason, condition.Message)
		if condition.Status != want {
			return errors.New(seen)
		}
		return nil
	})
	return seen, err
}
