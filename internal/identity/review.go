// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// askReviewWithin bounds one question to the API server.
const askReviewWithin = 5 * time.Second

// podNameKey is where the API server says which pod a token is bound to.
const podNameKey = "authentication.kubernetes.io/pod-name"

// question is one token, and what it is to be good for.
type question struct {
	key       [sha256.Size]byte
	token     string
	audiences []string
}

// review asks the API server whose token it is. Questions about one token are one question; a no is remembered for a
// moment.
func (a *Authenticator) review(ctx context.Context, q question) (Caller, error) {
	if refusal, ok := a.refused.Get(q.key); ok {
		return Caller{}, refusal.(error)
	}
	asked := a.reviewing.DoChan(string(q.key[:]), func() (any, error) {
		if !a.reviews.TryAccept() {
			return Caller{}, fmt.Errorf("%w: too many tokens wait for the API server", ErrUnavailable)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askReviewWithin)
		defer cancel()
		caller, err := a.ask(ctx, q)
		if errors.Is(err, ErrInvalidToken) {
			a.refused.Add(q.key, err, refuseFor)
		}
		return caller, err
	})
	select {
	case <-ctx.Done():
		return Caller{}, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	case result := <-asked:
		return result.Val.(Caller), result.Err
	}
}

func (a *Authenticator) ask(ctx context.Context, q question) (Caller, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: q.token, Audiences: q.audiences}}
	if err := a.Review(ctx, review); err != nil {
		return Caller{}, fmt.Errorf("%w: review a token: %w", ErrUnavailable, err)
	}
	status := review.Status
	if !status.Authenticated {
		return Caller{}, invalid("the API server does not accept it")
	}
	// An authenticator that knows nothing of audiences leaves them out: then it is not known what the token is for.
	if !slices.ContainsFunc(status.Audiences, func(audience string) bool { return slices.Contains(q.audiences, audience) }) {
		return Caller{}, invalid("the API server does not say that it is meant for this server")
	}
	if status.User.Username == "" || len(status.User.Username) > maxUsername {
		return Caller{}, invalid("the username is empty or longer than %d bytes", maxUsername)
	}
	return reviewed(status.User), nil
}

// reviewed is the caller that the API server describes.
func reviewed(user authenticationv1.UserInfo) Caller {
	caller := Caller{Username: user.Username, Groups: user.Groups}
	if pod := user.Extra[podNameKey]; len(pod) == 1 {
		caller.Pod = pod[0]
	}
	return caller
}
