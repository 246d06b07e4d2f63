// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

func TestAFloodOfJunkKeyIDsIsOneQuestion(t *testing.T) {
	t.Parallel()
	keys, asked := keysOf(login.EC("k1"))
	var flood sync.WaitGroup
	for i := range 200 {
		flood.Go(func() {
			if found, err := keys.find(t.Context(), now, fmt.Sprint("junk-", i)); len(found) > 0 || err != nil && !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %d keys, %v", len(found), err)
			}
			if found, err := keys.find(t.Context(), now, "k1"); len(found) != 1 || err != nil {
				t.Errorf("a known key in the flood: got %d, %v", len(found), err)
			}
		})
	}
	flood.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
	for range 3 {
		_, err := keys.find(t.Context(), now.Add(askKeysEvery), "junk")
		if err != nil && !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the issuer was asked %d times, %s later", n, askKeysEvery)
	}
}

func TestKeysAreFound(t *testing.T) {
	t.Parallel()
	old, next := login.EC("old"), login.EC("next")
	down := errors.New("down")
	type step struct {
		after  time.Duration
		answer []login.Signer
		fails  error
		id     string
		want   int
		err    error
	}
	for name, steps := range map[string][]step{
		"a new key is asked for at once, once the last question is a while ago": {
			{answer: []login.Signer{old}, id: "old", want: 1},
			{after: time.Second, answer: []login.Signer{old, next}, id: "next", err: ErrUnavailable},
			{after: askKeysEvery, answer: []login.Signer{old, next}, id: "next", want: 1},
		},
		"a token without a key ID may be of any": {
			{answer: []login.Signer{old, next}, id: "", want: 2},
		},
		"old keys hold for a while when the issuer is down": {
			{answer: []login.Signer{old}, id: "old", want: 1},
			{after: keysFresh, fails: down, id: "old", want: 1},
			{after: keysUsable - 1, fails: down, id: "old", want: 1},
			{after: keysUsable, fails: down, id: "old", err: ErrUnavailable},
			{after: 2 * keysUsable, answer: []login.Signer{old}, id: "old", want: 1},
		},
		"an issuer that is down from the start": {
			{fails: down, id: "old", err: ErrUnavailable},
			{after: 1, answer: []login.Signer{old}, id: "old", err: ErrUnavailable},
			{after: askKeysEvery, answer: []login.Signer{old}, id: "old", want: 1},
		},
		"a key that is not published any more is gone": {
			{answer: []login.Signer{old}, id: "old", want: 1},
			{after: keysFresh - 1, answer: []login.Signer{next}, id: "old", want: 1},
			{after: keysFresh, answer: []login.Signer{next}, id: "old", want: 0},
		},
	} {
		var is step
		keys := &keySet{fetch: func(context.Context) ([]byte, error) { return login.KeySet(is.answer...), is.fails }}
		for i, is2 := range steps {
			is = is2
			found, err := keys.find(t.Context(), now.Add(is.after), is.id)
			if len(found) != is.want || !errors.Is(err, is.err) {
				t.Errorf("%s, step %d: got %d keys, %v, want %d, %v", name, i+1, len(found), err, is.want, is.err)
			}
		}
	}
}

func TestACallerThatGivesUpDoesNotEndTheQuestion(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	keys := &keySet{fetch: func(ctx context.Context) ([]byte, error) {
		<-release
		return login.KeySet(login.EC("k1")), ctx.Err()
	}}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := keys.find(gone, now, "k1"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
	close(release)
	if found, err := keys.find(t.Context(), now, "k1"); len(found) != 1 || err != nil {
		t.Errorf("the one who waits: got %d keys, %v", len(found), err)
	}
}

func TestOnlyKeysThatVerifyAreTaken(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	good := login.EC("k1").Public()
	encryption, private := good, login.EC("k3")
	encryption.Use = "enc"
	for name, tc := range map[string]struct {
		key  any
		want int
	}{
		"control":               {key: good, want: 1},
		"for encryption":        {key: encryption},
		"private":               {key: jose.JSONWebKey{Key: private.Key, KeyID: "k3"}},
		"symmetric":             {key: map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}},
		"RSA of 1024 bits":      {key: jose.JSONWebKey{Key: &small.PublicKey, KeyID: "k1"}},
		"of a kind not known":   {key: map[string]any{"kty": "OKP", "crv": "Ed448", "x": "AAAA"}},
		"a point off the curve": {key: map[string]any{"kty": "EC", "crv": "P-256", "x": strings.Repeat("A", 43), "y": strings.Repeat("A", 43)}},
	} {
		data, err := json.Marshal(map[string]any{"keys": []any{tc.key}})
		if err != nil {
			t.Fatal(err)
		}
		if keys, err := parseKeys(data); len(keys) != tc.want || err != nil {
			t.Errorf("%s: got %d keys, %v, want %d", name, len(keys), err, tc.want)
		}
	}
	many, err := json.Marshal(map[string]any{"keys": make([]struct{}, maxKeys+1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{string(many), "", "[]", `{"keys":{}}`} {
		if _, err := parseKeys([]byte(data)); err == nil {
			t.Errorf("took %.40q", data)
		}
	}
}
