// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
)

const (
	// keysFresh is the age at which keys are asked for again, so that a withdrawn one is noticed.
	keysFresh = 10 * time.Minute
	// keysUsable is the age up to which keys are used while the issuer does not answer.
	keysUsable = time.Hour
	// askKeysEvery is the least time between two questions, whatever tokens come: junk key IDs cost the issuer no more.
	askKeysEvery = 5 * time.Second
	// askKeysWithin bounds one question.
	askKeysWithin = 5 * time.Second
	// maxKeys and minRSA bound what is taken of an answer: keys, and bits of a modulus.
	maxKeys = 100
	minRSA  = 2048
)

// keySet holds the public keys of one issuer.
type keySet struct {
	// fetch asks the issuer.
	fetch func(ctx context.Context) ([]byte, error)

	mu     sync.Mutex // guards the fields below
	keys   []jose.JSONWebKey
	asked  time.Time // when the issuer was asked last
	answer time.Time // when it was asked for the keys that are there

	asking singleflight.Group // one asks, whoever waits
}

// find returns the keys that a token with this key ID may be signed with: all for none. It asks the issuer for keys that
// it does not know or that are old.
func (s *keySet) find(ctx context.Context, now time.Time, id string) ([]jose.JSONWebKey, error) {
	if found, age := s.known(now, id); len(found) > 0 && age < keysFresh {
		return found, nil
	}
	err := s.refresh(ctx, now)
	found, age := s.known(now, id)
	switch {
	case len(found) > 0 && age < keysUsable:
		return found, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil, nil
}

// known returns the keys with an ID, and how old what is known is.
func (s *keySet) known(now time.Time, id string) ([]jose.JSONWebKey, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []jose.JSONWebKey
	for _, key := range s.keys {
		if id == "" || key.KeyID == id {
			found = append(found, key)
		}
	}
	return found, now.Sub(s.answer)
}

var errAskedJustNow = errors.New("the issuer was asked for its keys a moment ago")

// refresh asks the issuer, unless that was done just now. The question is shared by all who wait for an answer, and does
// not end with the request that began it.
func (s *keySet) refresh(ctx context.Context, now time.Time) error {
	asked := s.asking.DoChan("", func() (any, error) {
		s.mu.Lock()
		recent := !s.asked.IsZero() && now.Sub(s.asked) < askKeysEvery
		if !recent {
			s.asked = now
		}
		s.mu.Unlock()
		if recent {
			return nil, errAskedJustNow
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askKeysWithin)
		defer cancel()
		return nil, s.ask(ctx, now)
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case result := <-asked:
		return result.Err
	}
}

func (s *keySet) ask(ctx context.Context, now time.Time) error {
	data, err := s.fetch(ctx)
	if err != nil {
		return err
	}
	keys, err := parseKeys(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.answer = keys, now
	return nil
}

// parseKeys reads a JSON Web Key Set and leaves out what cannot verify a signature here.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("the issuer's keys are not a JSON Web Key Set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the issuer publishes %d keys; at most %d are read", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err == nil && verifies(key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// verifies tells whether a key is the public half of one that signs, and strong enough.
func verifies(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
