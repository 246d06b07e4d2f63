// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package governance

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// manyRequests lets one agent ask often.
func manyRequests(s *v1alpha1.GovernedServer) {
	s.Spec.Approvals.MaxPending, s.Spec.Approvals.MaxPerHour = 1000, 10000
}

// Certificate authority and voting key are replaced while people approve twenty times a second.
func TestRotationUnderApprovalsLosesNone(t *testing.T) {
	t.Parallel()
	const (
		perSecond = 20
		approvals = 15 * perSecond
	)
	o := startOperator(t, startPlane(t), 2, 30)
	w := newWorldOn(t, o.site, tellAtOnce, manyRequests)
	d := w.openDoor("gw")
	arguments := func(n int) string { return fmt.Sprintf(`{"invoiceId":"2026-%d","note":"n"}`, n) }
	names := make([]string, approvals)
	w.each(approvals, func(n int) error {
		got := d.call("update_invoice", arguments(n))
		names[n] = got.request()
		if got.code() != "ApprovalPending" {
			return fmt.Errorf("call %d: %s", n, got.raw)
		}
		return nil
	})

	bundle, certificate := o.bundle(), o.certificate()
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	var voting errgroup.Group
	for n, name := range names {
		<-tick.C
		if n == perSecond {
			o.rotate(v1alpha1.WebhookConfiguration, v1alpha1.RotateAnnotation)
			o.rotate(v1alpha1.VotingKeys, v1alpha1.RotateAnnotation)
		}
		voting.Go(func() error { return w.vote(name, v1alpha1.DecisionApproved) })
	}
	if err := voting.Wait(); err != nil {
		t.Errorf("an approval was lost: %v", err)
	}
	// The API server may give up a connection; what must not be is a certificate that it does not trust.
	if noise := o.noise.String(); strings.Contains(noise, "certificate") {
		t.Errorf("the webhook complains:\n%s", noise)
	}
	if o.certificate() == certificate || o.bundle() == bundle {
		t.Error("the webhook's authority was not replaced meanwhile")
	}

	byKey := map[string]int{}
	for _, r := range w.requests() {
		for _, v := range r.Status.Votes {
			byKey[v.KeyID]++
		}
	}
	t.Logf("%d approvals at %d a second while CA and voting key were replaced; votes by key: %v", approvals, perSecond, byKey)
	if len(byKey) != 2 {
		t.Errorf("votes were made under %d keys, want 2", len(byKey))
	}
	for _, name := range names {
		d.sees(w.request(name), v1alpha1.PhaseApproved)
	}
	w.each(approvals, func(n int) error {
		return wantServerAnswer(d.call("update_invoice", arguments(n)))
	})
	w.executions("update_invoice", approvals)
}

// The operator is rolled while approved calls run: what becomes of them is the gateway's to record.
func TestRollingTheOperatorLeavesNoCallUnclear(t *testing.T) {
	t.Parallel()
	const calls = 20
	o := startOperator(t, startPlane(t), 2, 1)
	w := newWorldOn(t, o.site, tellAtOnce, manyRequests)
	release := make(chan struct{})
	var arrived sync.WaitGroup
	arrived.Add(calls)
	w.intercept = func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		w.record(rw, r, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err == nil {
				if bytes.Contains(body, []byte(`"note":"hold"`)) {
					arrived.Done()
					<-release
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			next.ServeHTTP(rw, r)
		}))
	}
	d := w.openDoor("gw")
	names := make([]string, calls)
	w.each(calls, func(n int) error {
		names[n] = d.call("update_invoice", fmt.Sprintf(`{"invoiceId":"%d","note":"hold"}`, n)).request()
		return w.vote(names[n], v1alpha1.DecisionApproved)
	})
	for _, name := range names {
		d.sees(w.request(name), v1alpha1.PhaseApproved)
	}
	var running errgroup.Group
	for n := range calls {
		running.Go(func() error {
			return wantServerAnswer(d.call("update_invoice", fmt.Sprintf(`{"invoiceId":"%d","note":"hold"}`, n)))
		})
	}
	arrived.Wait()
	old := slices.Clone(o.replicas)
	for _, r := range old {
		o.start()
		r.stop()
	}
	// Beside the control: votes can be given all the same.
	extra := d.call("update_invoice", `{"invoiceId":"x","note":"n"}`).request()
	if err := w.vote(extra, v1alpha1.DecisionApproved); err != nil {
		t.Errorf("a vote after the roll: %v", err)
	}
	close(release)
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		w.eventually(name+" has its outcome", func() error { return wantPhase(w.request(name), v1alpha1.PhaseSucceeded) })
	}
	w.executions("update_invoice", calls)
}
