// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// CheckUsername compares who a token belongs to for the API server with who it belongs to here; a requester that has
// another name there could vote on its own requests. The token must be one that the API server takes, so its audience
// is not looked at. The error wraps ErrUnavailable if asking again may help, and
// ErrExpired if asking with a fresh token may.
func (a *Authenticator) CheckUsername(ctx context.Context, cluster *rest.Config, token string) error {
	parsed, claims, err := parse(token)
	if err != nil {
		return err
	}
	issuer := a.issuer(claims.Issuer)
	if issuer == nil {
		return fmt.Errorf("the token to check usernames with is of issuer %q, whose tokens are not verified here", claims.Issuer)
	}
	now := a.Clock.Now()
	if err := checkTimes(claims, now); err != nil {
		return err
	}
	caller, err := issuer.identify(ctx, now, parsed, claims)
	if err != nil {
		return err
	}
	ours := caller.Username
	if caller.ActsFor != "" {
		ours = caller.ActsFor // the API server knows nothing of actors
	}
	theirs, err := whoIs(ctx, cluster, token)
	if err != nil {
		return err
	}
	if ours != theirs {
		return fmt.Errorf("a token of issuer %s belongs to %q here (%s) and to %q at the API server: "+
			"give both the same username claim and prefix", issuer.URL, ours, issuer.mapping, theirs)
	}
	return nil
}

var errNotTaken = errors.New("the API server does not take the token to check usernames with: " +
	"give one that it takes, or say that it does not know the issuer")

// whoIs asks the API server: by a TokenReview, and without the right to one by the token itself.
func whoIs(ctx context.Context, cluster *rest.Config, token string) (string, error) {
	own, err := authenticationclient.NewForConfig(cluster)
	if err != nil {
		return "", fmt.Errorf("make client: %w", err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err = own.TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err == nil && !review.Status.Authenticated:
		return "", errNotTaken
	case err == nil:
		return review.Status.User.Username, nil
	case !apierrors.IsForbidden(err):
		return "", fmt.Errorf("%w: review a token: %w", ErrUnavailable, err)
	}
	cfg := rest.AnonymousClientConfig(cluster)
	cfg.BearerToken = token
	its, err := authenticationclient.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("make client: %w", err)
	}
	self, err := its.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return "", errNotTaken
	case apierrors.IsForbidden(err): // so does an API server that has just started, until it has read who may what
		return "", fmt.Errorf("%w: ask the API server whose token it is: neither the gateway may create tokenreviews nor the token's owner selfsubjectreviews: %w", ErrUnavailable, err)
	case err != nil:
		return "", fmt.Errorf("%w: ask the API server whose token it is: %w", ErrUnavailable, err)
	}
	return self.Status.UserInfo.Username, nil
}

// OwnToken returns the token that a configuration calls the API server with, "" for none.
func OwnToken(cluster *rest.Config) (string, error) {
	if cluster.BearerTokenFile == "" {
		return cluster.BearerToken, nil
	}
	token, err := os.ReadFile(cluster.BearerTokenFile)
	if err != nil {
		return "", fmt.Errorf("read the gateway's own token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}
