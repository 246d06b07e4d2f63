// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

func TestRoundsOfAnUnattendedCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	r.upstream.answers(answerJSON(asks))
	r.post(callOf(1, ""))
	if got := r.post(callOf(2, answered)); got.code() != codeUnseen {
		t.Errorf("an answer: %s", got.body)
	}
	r.edit(func() { r.policies = append(r.policies, r.attended()) })
	if got := r.post(callOf(3, goesOn)); got.code() != "PolicyChanged" {
		t.Errorf("with a person asked since: %s", got.body)
	}
	r.edit(func() { r.policies = r.policies[:1] })
	r.upstream.answers(answerJSON(`{"content":[]}`))
	if got := r.post(callOf(4, goesOn)); got.code() != "" {
		t.Errorf("the state alone: %s", got.body)
	}
	r.ran(callOf(1, ""), callOf(4, goesOn))
	// One that is never heard of again is a person's to repeat.
	r.upstream.answers(answerJSON(asks))
	r.post(callOf(5, ""))
	r.clock.Step(time.Minute)
	r.server.Prove(r.clock.Now())
	r.gateway.follow(t.Context())
	if got := r.post(callOf(6, "")); got.code() != codePending {
		t.Errorf("lost, and sent again: %s", got.body)
	}
	outcomes := map[string]string{}
	for _, line := range r.of("update_invoice") {
		if line.Kind == receipt.KindOutcome {
			outcomes[line.CallID] += line.Outcome
		} else if line.Verdict == receipt.VerdictAllow {
			outcomes[line.CallID] += line.Code + " "
		}
	}
	var got []string
	for _, outcome := range outcomes {
		got = append(got, outcome)
	}
	slices.Sort(got)
	if want := []string{"Unattended NextRound Succeeded", "Unattended Unclear"}; !slices.Equal(got, want) {
		t.Errorf("receipts of each call: %q, want %q", got, want)
	}
}

func TestReadsInRoundsPassUntouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.upstream.answers(answerJSON(asks))
	first := strings.Replace(callOf(1, ""), "update_invoice", "get_invoice", 1)
	second := strings.Replace(callOf(2, answered), "update_invoice", "get_invoice", 1)
	for _, body := range []string{first, second, second} {
		if got := r.post(body); got.code() != "" || !strings.Contains(got.body, asks) {
			t.Errorf("%s", got.body)
		}
	}
	r.ran(first, second, second)
}

func TestObservedRoundsPassAndAreRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mode(v1alpha1.ModeObserve)
	r.upstream.answers(answerJSON(asks))
	for _, body := range []string{callOf(1, ""), callOf(2, answered), callOf(3, answered)} {
		if got := r.post(body); got.code() != "" {
			t.Errorf("refused: %s", got.body)
		}
	}
	r.ran(callOf(1, ""), callOf(2, answered), callOf(3, answered))
	var codes []string
	for _, line := range r.of("update_invoice") {
		codes = append(codes, line.Observed.Code)
	}
	if strings.Join(codes, " ") != "ApprovalRequired InputNotSeen InputNotSeen" {
		t.Errorf("observed %v", codes)
	}
}
