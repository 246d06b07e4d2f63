// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"slices"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// maxUsername bounds a username, in bytes, as an ApprovalRequest does.
const maxUsername = 256

// authenticated is the group that the API server gives everybody who has a name.
const authenticated = "system:authenticated"

// Issuer vouches for callers by signed tokens. ServiceAccounts and OIDC.Issuer make one.
type Issuer struct {
	// URL is the iss claim of its tokens.
	URL string

	algorithms []jose.SignatureAlgorithm
	keys       *keySet
	// caller reads a token whose signature was verified.
	caller func(token *jwt.JSONWebToken, claims jwt.Claims) (Caller, error)
	// mapping says how a username is made, for people who compare it.
	mapping string
}

// identify verifies the signature of a token and tells whose it is. Issuer, audience and times are the caller's to check.
func (i *Issuer) identify(ctx context.Context, now time.Time, token *jwt.JSONWebToken, claims jwt.Claims) (Caller, error) {
	header := token.Headers[0] // compact: exactly one
	if !slices.Contains(i.algorithms, jose.SignatureAlgorithm(header.Algorithm)) {
		return Caller{}, invalid("it is not signed with an algorithm that is allowed for its issuer")
	}
	keys, err := i.keys.find(ctx, now, header.KeyID)
	if err != nil {
		return Caller{}, err
	}
	if !slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
		return (key.Algorithm == "" || key.Algorithm == header.Algorithm) && token.Claims(key.Key) == nil
	}) {
		return Caller{}, invalid("its signature is not by a key that its issuer publishes")
	}
	caller, err := i.caller(token, claims)
	if err != nil {
		return Caller{}, err
	}
	if caller.Username == "" || len(caller.Username) > maxUsername || len(caller.ActsFor) > maxUsername {
		return Caller{}, invalid("the username is empty or longer than %d bytes", maxUsername)
	}
	caller.Expires = claims.Expiry.Time()
	return caller, nil
}
