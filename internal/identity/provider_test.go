// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	clocktesting "k8s.io/utils/clock/testing"
)

// signer signs tokens with one key.
type signer struct {
	kid string
	alg jose.SignatureAlgorithm
	key any
}

func rsaSigner(kid string) signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return signer{kid: kid, alg: jose.RS256, key: key}
}

func ecSigner(kid string) signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return signer{kid: kid, alg: jose.ES256, key: key}
}

// public is the half that is published.
func (s signer) public() jose.JSONWebKey {
	private := jose.JSONWebKey{Key: s.key, KeyID: s.kid, Algorithm: string(s.alg), Use: "sig"}
	return private.Public()
}

func (s signer) sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if s.kid != "" {
		options = options.WithHeader("kid", s.kid)
	}
	made, err := jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: s.key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(made).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// with returns a copy of claims with changes; nil takes a claim away.
func with(claims map[string]any, changes map[string]any) map[string]any {
	changed := maps.Clone(claims)
	for name, value := range changes {
		if changed[name] = value; value == nil {
			delete(changed, name)
		}
	}
	return changed
}

// keysOf returns a key set that is asked for in memory, and counts how often.
func keysOf(signers ...signer) (*keySet, *atomic.Int64) {
	var asked atomic.Int64
	return &keySet{fetch: func(ctx context.Context) ([]byte, error) {
		asked.Add(1)
		return jwks(signers...), ctx.Err()
	}}, &asked
}

func jwks(signers ...signer) []byte {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, s := range signers {
		set.Keys = append(set.Keys, s.public())
	}
	data, err := json.Marshal(set)
	if err != nil {
		panic(err)
	}
	return data
}

// now is when tests of pure rules take place.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func clockAt(at time.Time) *clocktesting.FakePassiveClock {
	return clocktesting.NewFakePassiveClock(at)
}

// request is one with an Authorization header.
func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/shop/billing/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// provider is an OpenID Connect provider on a socket, where whoever comes is alice.
type provider struct {
	*httptest.Server

	mu      sync.Mutex
	signers []signer // the first signs
	codes   map[string]url.Values
}

func newProvider(signers ...signer) *provider {
	p := &provider{signers: signers, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.configuration)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewUnstartedServer(mux)
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.StartTLS()
	return p
}

// ca returns the certificate of the provider in PEM.
func (p *provider) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}

func (p *provider) signer() signer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signers[0]
}

func (p *provider) configuration(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"response_types_supported": []string{"code"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		"subject_types_supported": []string{"public"}, "code_challenge_methods_supported": []string{"S256"},
	})
}

func (p *provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Write(jwks(p.signers...))
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	if asked.Get("code_challenge_method") != "S256" || asked.Get("resource") == "" {
		http.Error(w, "PKCE and a resource are needed", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	code := rand.Text()
	p.codes[code] = asked
	p.mu.Unlock()
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {asked.Get("state")}}.Encode(), http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	asked, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	p.mu.Unlock()
	hash := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(hash[:]) != asked.Get("code_challenge") || r.FormValue("resource") != asked.Get("resource") {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	at := time.Now()
	made, err := jose.NewSigner(jose.SigningKey{Algorithm: p.signer().alg, Key: p.signer().key}, (&jose.SignerOptions{}).WithHeader("kid", p.signer().kid))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	access, err := jwt.Signed(made).Claims(map[string]any{
		"iss": p.URL, "sub": "alice", "aud": asked.Get("resource"), "iat": at.Unix(), "exp": at.Add(time.Hour).Unix(),
	}).Serialize()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600})
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}
