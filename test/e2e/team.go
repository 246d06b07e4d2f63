// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// demoImage is the server and the agent.
const demoImage = "ghcr.io/tidewaiter/tidewaiter-demo:0.1.0"

// book is the file in which executions stand.
const book = "/executions/book"

//go:embed manifests
var manifests embed.FS

// team is a namespace of its own with a governed server named billing, and an agent.
type team struct {
	*e2e
	Namespace string
	// Listen is the address that the server listens at; empty for one of standard input and output.
	Listen string
	// Hold is how long a call waits for a person before its agent is told to come again.
	Hold string
	// Replicas is how many pods the server has.
	Replicas int
	// Book is where the server writes what it executes: a file, or another pod.
	Book string
}

// Image is that of server and agent.
func (team) Image() string { return demoImage }

// team describes one that listens where it should, and whose calls do not wait.
func (e *e2e) team(name string) team {
	return team{e2e: e, Namespace: prefix + name, Listen: "127.0.0.1:9000", Hold: "0s", Replicas: 1, Book: book}
}

// manifest fills one of the manifests in.
func (t team) manifest(name string) (string, error) {
	filled, err := template.New("").Delims("[[", "]]").ParseFS(manifests, "manifests/*")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = filled.ExecuteTemplate(&out, name, t)
	return out.String(), err
}

// applyFile applies one of the manifests.
func (t team) applyFile(ctx context.Context, name string) (string, error) {
	manifest, err := t.manifest(name)
	if err != nil {
		return "", err
	}
	return t.apply(ctx, manifest)
}

// start makes the team, and waits until its agent can call.
func (t team) start(ctx context.Context) (string, error) {
	if out, err := t.applyFile(ctx, "team.yaml"); err != nil {
		return out, err
	}
	return t.ready(ctx)
}

// ready waits until the server is governed and the agent runs.
func (t team) ready(ctx context.Context) (string, error) {
	for _, args := range [][]string{
		{"rollout", "status", "deployment/billing", "--timeout=90s"},
		{"wait", "--for=condition=Ready", "--timeout=90s", "governedserver/billing", "pod/agent"},
	} {
		if out, err := t.kubectl(ctx, append(args, "--namespace="+t.Namespace)...); err != nil {
			return out, err
		}
	}
	return t.kubectl(ctx, "get", "governedservers,pods", "--namespace="+t.Namespace)
}

// pod is the server's, the newest if there are several.
func (t team) pod(ctx context.Context) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := t.admin.List(ctx, pods, client.InNamespace(t.Namespace), client.MatchingLabels{"app": "billing"}); err != nil {
		return nil, err
	}
	var newest *corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp == nil && (newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	if newest == nil {
		return nil, errors.New("the server has no pod")
	}
	return newest, nil
}

// server is the GovernedServer.
func (t team) server(ctx context.Context) (*v1alpha1.GovernedServer, error) {
	server := &v1alpha1.GovernedServer{}
	return server, t.admin.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: "billing"}, server)
}

// request reads an ApprovalRequest.
func (t team) request(ctx context.Context, name string) (*v1alpha1.ApprovalRequest, error) {
	request := &v1alpha1.ApprovalRequest{}
	return request, t.admin.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, request)
}

// letApprove gives people the Role that the README has for them.
func (t team) letApprove(ctx context.Context) (string, error) {
	manifests, err := blocks("README.md", "## Who may approve", "yaml")
	if err != nil {
		return "", err
	}
	return t.kubectlWith(ctx, manifests[0], "apply", "--namespace="+t.Namespace, "-f", "-")
}

// startWithPeople makes the team, and lets people approve.
func (t team) startWithPeople(ctx context.Context) (string, error) {
	out, err := t.start(ctx)
	if err != nil {
		return out, err
	}
	_, err = t.letApprove(ctx)
	return out, err
}

// alice is a person of the group that may approve.
var alice = []string{"--as=alice", "--as-group=finance-leads", "--as-group=system:authenticated"}

// approval is the command by which somebody approves.
func (t team) approval(name string, who []string) []string {
	return append([]string{"approve", name, "--namespace=" + t.Namespace, "--reason=checked with finance"}, who...)
}

// approve waits for the call with a note, and lets alice approve it.
func (t team) approve(ctx context.Context, note string) (out string, err error) {
	err = t.until(ctx, func(ctx context.Context) error {
		name, err := t.waiting(ctx, note)
		if err != nil {
			return err
		}
		out, err = t.kubectl(ctx, t.approval(name, alice)...)
		return err
	})
	return out, err
}

// waiting is the request of the call with a note that waits for a person.
func (t team) waiting(ctx context.Context, note string) (string, error) {
	requests, err := t.requests(ctx)
	if err != nil {
		return "", err
	}
	for _, request := range requests[note] {
		if request.Status.Phase == v1alpha1.PhasePending {
			return request.Name, nil
		}
	}
	return "", fmt.Errorf("none of the requests has the note %q and waits", note)
}

// execution is what the server itself wrote down of one.
type execution struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// executions are those of a tool with one argument that says which, by the server's own book.
func (t team) executions(ctx context.Context, tool, argument, value string) (int, error) {
	pod, err := t.pod(ctx)
	if err != nil {
		return 0, err
	}
	out, err := t.kubectl(ctx, "exec", "--namespace="+t.Namespace, pod.Name, "--container=server", "--", "/demo", "executions", book)
	if err != nil {
		return 0, err
	}
	n := 0
	lines, err := readBook(out)
	for _, line := range lines {
		if line.Tool == tool && line.Arguments[argument] == value {
			n++
		}
	}
	return n, err
}

func readBook(text string) (lines []execution, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var line execution
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("read a book of executions: %w: %s", err, text)
		}
		lines = append(lines, line)
	}
}

// executed wants the server's own book to say how often a call ran.
func (t team) executed(ctx context.Context, tool, argument, value string, want int) (string, error) {
	n, err := t.executions(ctx, tool, argument, value)
	if err == nil && n != want {
		err = fmt.Errorf("%s of %s ran %d times, want %d", tool, value, n, want)
	}
	return fmt.Sprintf("the server's own book has %s of %s %d times", tool, value, n), err
}
