// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidewaiter/tidewaiter/internal/gateway"
	"github.com/tidewaiter/tidewaiter/internal/identity"
)

const (
	// askAgain is the time between two tries to learn who may call.
	askAgain = 2 * time.Second
	// askWithin bounds one of them: an API server that takes a question and is silent is asked again.
	askWithin = 15 * time.Second
)

// door keeps agents out until it is known how to tell who they are.
type door struct {
	gateway *gateway.Gateway
	votes   *gateway.Keyring
	open    atomic.Bool
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.open.Load() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, errNobody.Error(), http.StatusServiceUnavailable)
		return
	}
	d.gateway.ServeHTTP(w, r)
}

var errNobody = errors.New("the gateway does not know yet whose tokens the API server takes")

func (d *door) ready() error {
	if !d.open.Load() {
		return fmt.Errorf("%w; mend the connection to it: the log says what it does not answer", errNobody)
	}
	return d.gateway.Ready()
}

// letIn opens the door once the gateway can tell who calls: at once for one requester, else when the API server has said
// what the issuer of its tokens is, and that callers have the same names there and here.
func (d *door) letIn(ctx context.Context, o options, live client.Client, oidc *identity.Issuer) error {
	if o.requester == "" {
		authenticator := &identity.Authenticator{Clock: clock.RealClock{}}
		if oidc != nil {
			authenticator.Issuers = append(authenticator.Issuers, oidc)
		}
		if o.tokenReview {
			authenticator.Review = func(ctx context.Context, review *authenticationv1.TokenReview) error { return live.Create(ctx, review) }
		} else if err := trustServiceAccounts(ctx, o, authenticator); err != nil {
			return err
		}
		if err := checkOIDC(ctx, o, authenticator); err != nil {
			return err
		}
		d.gateway.Authenticate = authenticator.Authenticate
	}
	d.open.Store(true)
	log.FromContext(ctx).Info("agents are let in")
	return nil
}

// trustServiceAccounts adds the issuer of the cluster's ServiceAccounts, and compares names by the gateway's own token.
func trustServiceAccounts(ctx context.Context, o options, a *identity.Authenticator) error {
	err := untilAnswered(ctx, func(ctx context.Context) error {
		issuer, err := identity.ServiceAccounts(ctx, o.cluster)
		if err == nil {
			a.Issuers = append(a.Issuers, issuer)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ask the API server for the issuer of its tokens: %w", err)
	}
	return untilAnswered(ctx, func(ctx context.Context) error {
		token, err := identity.OwnToken(o.cluster)
		if err != nil || token == "" { // it calls by a certificate: there is nothing to compare with
			return err
		}
		if err := a.CheckUsername(ctx, o.cluster, token); err != nil {
			return fmt.Errorf("check usernames by the gateway's own token: %w", err)
		}
		return nil
	})
}

// checkOIDC compares names by a token of the OIDC provider.
func checkOIDC(ctx context.Context, o options, a *identity.Authenticator) error {
	if o.oidc.issuerURL == "" || o.oidc.checkTokenFile == noCheck {
		return nil
	}
	return untilAnswered(ctx, func(ctx context.Context) error {
		token, err := os.ReadFile(o.oidc.checkTokenFile)
		if err != nil {
			return fmt.Errorf("--oidc-check-token-file: %w", err)
		}
		err = a.CheckUsername(ctx, o.cluster, strings.TrimSpace(string(token)))
		switch {
		case errors.Is(err, identity.ErrExpired):
			return fmt.Errorf("put a fresh token into the file of --oidc-check-token-file: %w", err)
		case err != nil:
			return fmt.Errorf("check usernames by --oidc-check-token-file: %w", err)
		}
		return nil
	})
}

// untilAnswered asks until there is an answer, whichever. A token that has expired is none: it says nothing of how names
// are made, and whoever keeps its file fresh may be about to replace it.
func untilAnswered(ctx context.Context, ask func(ctx context.Context) error) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		asking, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		err := ask(asking)
		if errors.Is(err, identity.ErrUnavailable) || errors.Is(err, identity.ErrExpired) {
			if text := err.Error(); text != said {
				log.FromContext(ctx).Error(err, "who may call is not known yet")
				said = text
			}
			return false, nil
		}
		return err == nil, err
	})
}
