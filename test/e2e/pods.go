// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gatewayContainer is the name of the container that the operator puts in.
const gatewayContainer = "tidewaiter-gateway"

// pods shows what becomes of pods with the label, and of others.
func pods(e *e2e) []step {
	t := e.team("pods")
	return []step{
		{"a labelled pod starts with its gateway as a sidecar, in a namespace that enforces restricted", func(ctx context.Context) (string, error) {
			if out, err := t.start(ctx); err != nil {
				return out, err
			}
			pod, err := t.pod(ctx)
			if err == nil {
				err = hasSidecar(pod)
			}
			return describe(pod), err
		}},
		{"control: a pod without the label is left alone", func(ctx context.Context) (string, error) {
			pod := &corev1.Pod{}
			err := e.admin.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: "agent"}, pod)
			if err == nil && len(pod.Spec.InitContainers)+len(pod.Spec.Containers) != 1 {
				err = errors.New("something was put into it")
			}
			return describe(pod), err
		}},
		{"control: restricted is enforced: a pod that may gain privileges is refused", func(ctx context.Context) (string, error) {
			out, err := t.applyFile(ctx, "privileged.yaml")
			return refusal(out, err, "violates PodSecurity")
		}},
		{"a labelled pod is refused whose GovernedServer does not exist", func(ctx context.Context) (string, error) {
			out, err := t.applyFile(ctx, "orphan.yaml")
			return refusal(out, err, `there is no GovernedServer "nobody"`)
		}},
		{"a Job with a gateway in its pod completes", func(ctx context.Context) (string, error) {
			if out, err := t.applyFile(ctx, "job.yaml"); err != nil {
				return out, err
			}
			if out, err := e.kubectl(ctx, "wait", "--namespace="+t.Namespace, "--for=condition=Complete", "--timeout=90s", "job/once"); err != nil {
				return out, err
			}
			pods := &corev1.PodList{}
			err := e.admin.List(ctx, pods, client.InNamespace(t.Namespace), client.MatchingLabels{"job-name": "once"})
			if err == nil && len(pods.Items) != 1 {
				err = fmt.Errorf("the Job has %d pods", len(pods.Items))
			}
			if err != nil {
				return "", err
			}
			pod := &pods.Items[0]
			if pod.Status.Phase != corev1.PodSucceeded {
				err = fmt.Errorf("its pod is %s", pod.Status.Phase)
			}
			return describe(pod), errors.Join(err, hasSidecar(pod))
		}},
	}
}

// hasSidecar wants the gateway to be a sidecar of the kind that Kubernetes knows, and the first of all to start.
func hasSidecar(pod *corev1.Pod) error {
	first := pod.Spec.InitContainers
	if i := slices.IndexFunc(first, func(c corev1.Container) bool { return c.Name == gatewayContainer }); i < 0 ||
		first[i].RestartPolicy == nil || *first[i].RestartPolicy != corev1.ContainerRestartPolicyAlways {
		return errors.New("it has no gateway, or one that is no sidecar")
	}
	return nil
}

// describe names the containers of a pod and how each is.
func describe(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	lines := []string{fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		state := "waits"
		if status.State.Running != nil {
			state = "runs"
		} else if status.State.Terminated != nil {
			state = fmt.Sprintf("has ended with %d", status.State.Terminated.ExitCode)
		}
		lines = append(lines, fmt.Sprintf("  %s %s, image %s", status.Name, state, status.Image))
	}
	return strings.Join(lines, "\n")
}

// refusal wants something to have been refused with certain words.
func refusal(out string, err error, words string) (string, error) {
	switch {
	case err == nil:
		return out, errors.New("it was not refused")
	case !strings.Contains(out, words):
		return out, fmt.Errorf("it was refused in other words than %q", words)
	}
	return out, nil
}
