// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/ed25519"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

// votingKey is the one that the webhook signs with; root vouches for it.
var (
	root      = ed25519.NewKeyFromSeed([]byte(strings.Repeat("r", 32)))
	votingKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("v", 32)))
)

func half(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func published(keys ...ed25519.PrivateKey) vote.Keys {
	all := vote.Keys{}
	for _, key := range keys {
		all[vote.KeyID(half(key))] = vote.Published{Public: half(key), NotBefore: noon.Add(-time.Hour)}
	}
	return all
}

// count does what a Keyring does.
func (r *rig) count(_ context.Context, request *v1alpha1.ApprovalRequest) (vote.Tally, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keysErr != nil {
		return vote.Tally{}, r.keysErr
	}
	return r.keys.Count(request), nil
}

// cast adds a signed vote to a request, as the webhook does.
func (r *rig) cast(request *v1alpha1.ApprovalRequest, key ed25519.PrivateKey, username string, decision v1alpha1.Decision) {
	r.t.Helper()
	v, err := vote.Key{ID: vote.KeyID(half(key)), Private: key}.Sign(request, v1alpha1.Vote{Username: username, Decision: decision, Time: metav1.NewTime(r.clock.Now())})
	if err != nil {
		r.t.Fatal(err)
	}
	request.Status.Votes = append(request.Status.Votes, v)
}

// decide does what a person and the webhook do.
func (r *rig) decide(decision v1alpha1.Decision) {
	r.t.Helper()
	r.decideOn(r.request(), decision, "alice")
}

// decideOn does so for one request of several; the last of the voters is the one whose vote decides.
func (r *rig) decideOn(request *v1alpha1.ApprovalRequest, decision v1alpha1.Decision, voters ...string) {
	r.t.Helper()
	for _, voter := range voters {
		r.cast(request, votingKey, voter, decision)
	}
	request.Status.Decision, request.Status.Phase = decision, v1alpha1.Phase(decision)
	if err := r.api.Status().Update(context.Background(), request); err != nil {
		r.t.Fatal(err)
	}
}

// approved asks for a call, has it approved and returns its body.
func (r *rig) approved(name string) string {
	r.t.Helper()
	body := toolCall(name, `{"n":1}`)
	if got := r.post(body); got.code() != codePending {
		r.t.Fatalf("not asked: %s", got.body)
	}
	r.decide(v1alpha1.DecisionApproved)
	return body
}
