// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const (
	// tokenLifetime is what a token is asked for: the shortest that Kubernetes gives.
	tokenLifetime = 10 * time.Minute
	// tokenMargin is how long before its end a token is asked for anew.
	tokenMargin = 2 * time.Minute
)

// Tokens gets tokens of the operator's own ServiceAccount, each for one audience, and keeps them while they are good.
type Tokens struct {
	// Client writes live.
	Client client.Client
	Clock  clock.PassiveClock
	// Namespace is the operator's.
	Namespace string

	mu   sync.Mutex
	kept map[string]keptToken
}

type keptToken struct {
	token string
	until time.Time
}

// +kubebuilder:rbac:groups="",namespace=tidewaiter-system,resources=serviceaccounts/token,resourceNames=tidewaiter-manager,verbs=create

// For returns a token for an audience.
func (t *Tokens) For(ctx context.Context, audience string) (string, error) {
	now := t.Clock.Now()
	if token := t.known(audience, now); token != "" {
		return token, nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: v1alpha1.ManagerServiceAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{audience}, ExpirationSeconds: new(int64(tokenLifetime / time.Second)),
	}}
	if err := t.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("get a token of ServiceAccount %s/%s: %w", t.Namespace, account.Name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		t.kept = map[string]keptToken{}
	}
	t.kept[audience] = keptToken{token: request.Status.Token, until: request.Status.ExpirationTimestamp.Add(-tokenMargin)}
	return request.Status.Token, nil
}

// known returns a token that is kept, "" for none, and forgets those that are no more of use.
func (t *Tokens) known(audience string, now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, k := range t.kept {
		if !now.Before(k.until) {
			delete(t.kept, a)
		}
	}
	return t.kept[audience].token
}
