// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity tells who calls: it authenticates the HTTP requests of agents by the bearer tokens of Kubernetes
// ServiceAccounts and of OIDC providers, and tells clients where to get one. It never decides what a caller may do, and
// never passes a token on to an MCP server.
package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

var (
	// ErrNoToken says that a request has no Authorization header.
	ErrNoToken = errors.New("no bearer token")
	// ErrInvalidToken says that a token, or the header that holds it, is not accepted. What wraps it gives the reason and
	// holds nothing of the token.
	ErrInvalidToken = errors.New("the token is not accepted")
	// ErrExpired is the ErrInvalidToken of a token that was good once: a fresh one may be good.
	ErrExpired = fmt.Errorf("%w: it has expired", ErrInvalidToken)
	// ErrUnavailable says that it cannot be told now whether a token is good: keys or API server do not answer.
	ErrUnavailable = errors.New("tokens cannot be checked now")
)

const (
	// trustFor bounds how long a token that was verified with its issuer's keys is taken without another look, so that a
	// key that was withdrawn does not live on here.
	trustFor = 5 * time.Minute
	// reviewFor is the same for what the API server said of a token: a revoked one is refused after that.
	reviewFor = 10 * time.Second
	// refuseFor is how long the API server's no is remembered.
	refuseFor = 5 * time.Second
	// maxTrusted and maxRefused bound how many tokens are remembered.
	maxTrusted = 4096
	maxRefused = 1024
	// reviewsPerSecond and reviewBurst bound what a flood of tokens becomes at the API server.
	reviewsPerSecond = 50
	reviewBurst      = 100
	// maxSkew is how far ahead the clock of an issuer may be.
	maxSkew = 30 * time.Second
)

// Caller is who calls. Callers share it: nothing in it may be changed.
type Caller struct {
	// Username and Groups are as the Kubernetes API server has them for the same token. A username has 1 to 256 bytes.
	Username string
	Groups   []string
	// ActsFor is the username of the user that the caller acts for, of at most 256 bytes; "" for none.
	ActsFor string
	// Pod is the one that the token of a ServiceAccount is bound to; "" for none.
	Pod string
	// Expires is when the token does.
	Expires time.Time
}

// Authenticator authenticates requests. Its fields are set before the first use and never changed.
type Authenticator struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Issuers are those whose tokens are verified by their keys; of two with one URL the first counts.
	Issuers []*Issuer
	// Review sends a TokenReview to the API server, which it asks about every token of another issuer; nil refuses them.
	Review func(ctx context.Context, review *authenticationv1.TokenReview) error

	once      sync.Once
	trusted   *cache.LRUExpireCache // Caller by fingerprint
	refused   *cache.LRUExpireCache // error by fingerprint
	reviews   flowcontrol.PassiveRateLimiter
	reviewing singleflight.Group
}

// init makes what a literal cannot have.
func (a *Authenticator) init() {
	a.trusted = cache.NewLRUExpireCacheWithClock(maxTrusted, a.Clock)
	a.refused = cache.NewLRUExpireCacheWithClock(maxRefused, a.Clock)
	a.reviews = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewsPerSecond, reviewBurst, a.Clock)
}

// Authenticate tells who sent a request. The token must be meant for one of audiences; without audiences none is. The
// error is ErrNoToken, ErrInvalidToken or ErrUnavailable, wrapped with a reason.
func (a *Authenticator) Authenticate(ctx context.Context, r *http.Request, audiences []string) (Caller, error) {
	token, err := bearer(r.Header)
	if err != nil {
		return Caller{}, err
	}
	a.once.Do(a.init)
	key, now := fingerprint(token, audiences), a.Clock.Now()
	if known, ok := a.trusted.Get(key); ok && now.Before(known.(Caller).Expires) {
		return known.(Caller), nil
	}
	parsed, claims, err := parse(token)
	if err != nil {
		return Caller{}, err
	}
	// The claims are not proven yet: what they say can only refuse.
	if err := checkAudience(claims.Audience, audiences); err != nil {
		return Caller{}, err
	}
	if err := checkTimes(claims, now); err != nil {
		return Caller{}, err
	}
	caller, lasts, err := a.identify(ctx, now, parsed, claims, question{key: key, token: token, audiences: audiences})
	if err != nil {
		return Caller{}, err
	}
	a.trusted.Add(key, caller, min(lasts, caller.Expires.Sub(now)))
	return caller, nil
}

// identify tells whose token it is, and for how long that answer holds at most.
func (a *Authenticator) identify(ctx context.Context, now time.Time, parsed *jwt.JSONWebToken, claims jwt.Claims, q question) (Caller, time.Duration, error) {
	if issuer := a.issuer(claims.Issuer); issuer != nil {
		caller, err := issuer.identify(ctx, now, parsed, claims)
		return caller, trustFor, err
	}
	if a.Review == nil {
		return Caller{}, 0, invalid("its issuer is not one that this gateway trusts")
	}
	caller, err := a.review(ctx, q)
	caller.Expires = claims.Expiry.Time()
	return caller, reviewFor, err
}

func (a *Authenticator) issuer(url string) *Issuer {
	for _, issuer := range a.Issuers {
		if issuer.URL == url {
			return issuer
		}
	}
	return nil
}

// fingerprint identifies a token together with what it is to be good for, without holding it.
func fingerprint(token string, audiences []string) [sha256.Size]byte {
	// Neither a token nor a URL holds a NUL.
	return sha256.Sum256([]byte(strings.Join(audiences, "\x00") + "\x00" + token))
}

func checkAudience(has jwt.Audience, audiences []string) error {
	if slices.ContainsFunc(audiences, func(a string) bool { return a != "" && slices.Contains(has, a) }) {
		return nil
	}
	return invalid("it is not meant for this server; its audience must be %s", strings.Join(audiences, " or "))
}

// checkTimes is strict about the end of a token, and lenient by maxSkew about its beginning.
func checkTimes(claims jwt.Claims, now time.Time) error {
	switch latest := now.Add(maxSkew); {
	case claims.Expiry == nil:
		return invalid("it has no exp claim")
	case !now.Before(claims.Expiry.Time()):
		return ErrExpired
	case claims.NotBefore != nil && claims.NotBefore.Time().After(latest):
		return invalid("it is not valid yet")
	case claims.IssuedAt != nil && claims.IssuedAt.Time().After(latest):
		return invalid("it was issued in the future")
	}
	return nil
}

func invalid(reason string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidToken, fmt.Sprintf(reason, args...))
}
