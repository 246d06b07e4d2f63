// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// held shows what becomes of agents that wait: for a person, and for a server that is gone for a moment.
func held(e *e2e) []step {
	t := e.team("held")
	t.Hold = "6s"
	const nobody, meanwhile, after = `{"invoiceId":"2026-9","note":"nobody"}`, `{"invoiceId":"2026-9","note":"meanwhile"}`, `{"invoiceId":"2026-9","note":"after"}`
	var agent *session
	return []step{
		{"a team is there whose calls are held for 6 s", t.startWithPeople},
		{"a call that nobody decides on is answered after that, and long before its client gives up", func(ctx context.Context) (string, error) {
			started := time.Now()
			got, err := t.expects(ctx, "update_invoice", nobody, "ApprovalPending")
			took := time.Since(started)
			if err == nil && (took < 6*time.Second || took > 20*time.Second) {
				err = fmt.Errorf("it took %s", took)
			}
			return fmt.Sprintf("after %s: %s", took.Round(100*time.Millisecond), got.Text), err
		}},
		{"control: one that alice approves meanwhile runs in the same call, once", func(ctx context.Context) (string, error) {
			voted := make(chan error, 1)
			go func() {
				_, err := t.approve(ctx, "meanwhile")
				voted <- err
			}()
			got, err := t.expects(ctx, "update_invoice", meanwhile, "")
			if err = errors.Join(err, <-voted); err != nil {
				return got.Text, err
			}
			seen, err := t.executed(ctx, "update_invoice", "note", "meanwhile", 1)
			return got.Text + "\n" + seen, err
		}},
		{"an agent opens a session, and a second call stays in it", func(ctx context.Context) (_ string, err error) {
			// It outlives the step.
			if agent, err = t.open(context.WithoutCancel(ctx)); err != nil {
				return "", err
			}
			if _, err = agent.call("get_invoice", `{"invoiceId":"2026-9"}`, ""); err != nil {
				return "", err
			}
			got, err := agent.call("update_invoice", after, "ApprovalPending")
			if err == nil && got.Sessions != 1 {
				err = fmt.Errorf("the agent has opened %d sessions", got.Sessions)
			}
			return got.Text, err
		}},
		{"its call is approved, and then the server's process ends and is started again", func(ctx context.Context) (string, error) {
			if out, err := t.approve(ctx, "after"); err != nil {
				return out, err
			}
			return t.restartServer(ctx)
		}},
		{"the server does not know the session any more: after one more the agent goes on", func(ctx context.Context) (string, error) {
			got, err := agent.call("get_invoice", `{"invoiceId":"2026-9"}`, "")
			if err == nil && got.Sessions != 2 {
				err = fmt.Errorf("the agent has opened %d sessions, want 2", got.Sessions)
			}
			return fmt.Sprintf("%s, in session %d", got.Text, got.Sessions), err
		}},
		{"and the approved call runs, once", func(ctx context.Context) (string, error) {
			got, err := agent.call("update_invoice", after, "")
			if err = errors.Join(err, agent.close()); err != nil {
				return got.Text, err
			}
			return t.executed(ctx, "update_invoice", "note", "after", 1)
		}},
	}
}

// restartServer ends the server's process, and waits until another one answers.
func (t team) restartServer(ctx context.Context) (string, error) {
	before, err := t.pod(ctx)
	if err != nil {
		return "", err
	}
	if out, err := t.kubectl(ctx, "exec", "--namespace="+t.Namespace, before.Name, "--container=server", "--", "/demo", "end"); err != nil {
		return out, err
	}
	var after *corev1.Pod
	err = t.until(ctx, func(ctx context.Context) (err error) {
		if after, err = t.pod(ctx); err != nil {
			return err
		}
		status := after.Status.ContainerStatuses[0]
		if after.UID != before.UID || status.RestartCount == before.Status.ContainerStatuses[0].RestartCount || status.State.Running == nil {
			return errors.New("it has not been started again")
		}
		_, err = t.expects(ctx, "get_invoice", `{"invoiceId":"2026-9"}`, "") // of another agent
		return err
	})
	return describe(after), err
}
