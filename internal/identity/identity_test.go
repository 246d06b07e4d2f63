// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"pgregory.net/rapid"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

const clusterURL = "https://kubernetes.default.svc.cluster.local"

// agentClaims are those of a ServiceAccount token that is good at now.
func agentClaims() map[string]any {
	return map[string]any{
		"iss": clusterURL, "sub": "system:serviceaccount:agents:bookkeeper", "aud": []string{billing},
		"exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nbf": now.Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      "agents",
			"serviceaccount": map[string]any{"name": "bookkeeper", "uid": "uid-1"},
			"pod":            map[string]any{"name": "bookkeeper-0", "uid": "uid-2"},
		},
	}
}

// clusterBy returns an authenticator for the ServiceAccounts of a cluster that signs with these keys.
func clusterBy(signers ...login.Signer) *Authenticator {
	keys, _ := keysOf(signers...)
	issuer := &Issuer{URL: clusterURL, algorithms: asymmetric(), keys: keys, caller: serviceAccount}
	return &Authenticator{Clock: clockAt(now), Issuers: []*Issuer{issuer}}
}

func TestHostileTokensAreRefused(t *testing.T) {
	t.Parallel()
	key, other := login.RSA("k1"), login.RSA("k1")
	curve := login.EC("k2")
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public().Key))})
	private := func(changes map[string]any) map[string]any {
		return with(agentClaims(), map[string]any{"kubernetes.io": changes})
	}
	sub := func(name string) string { return "system:serviceaccount:agents:" + name }
	for name, tc := range map[string]struct {
		token string
		want  string // "" is taken
	}{
		"control":                           {token: key.Sign(t, agentClaims())},
		"control: another key of the set":   {token: curve.Sign(t, agentClaims())},
		"control: without key ID":           {token: login.Signer{Algorithm: jose.RS256, Key: key.Key}.Sign(t, agentClaims())},
		"control: one audience, not a list": {token: key.Sign(t, with(agentClaims(), map[string]any{"aud": billing}))},
		"control: one of more audiences":    {token: key.Sign(t, with(agentClaims(), map[string]any{"aud": []string{"a", billing}}))},
		"control: nbf within the skew":      {token: key.Sign(t, with(agentClaims(), map[string]any{"nbf": now.Add(maxSkew).Unix()}))},
		"control: expires in a second":      {token: key.Sign(t, with(agentClaims(), map[string]any{"exp": now.Unix() + 1}))},
		"control: without nbf and iat":      {token: key.Sign(t, with(agentClaims(), map[string]any{"nbf": nil, "iat": nil}))},

		"alg none":                         {token: unsigned(t, "none", agentClaims()), want: "not a JWT signed with an asymmetric algorithm"},
		"alg None":                         {token: unsigned(t, "None", agentClaims()), want: "not a JWT"},
		"HS256 with the public key in PEM": {token: login.Signer{KeyID: "k1", Algorithm: jose.HS256, Key: publicPEM}.Sign(t, agentClaims()), want: "not a JWT signed with an asymmetric algorithm"},
		"HS256 with the modulus":           {token: login.Signer{KeyID: "k1", Algorithm: jose.HS256, Key: login.KeySet(key)}.Sign(t, agentClaims()), want: "not a JWT"},
		"another key with this key ID":     {token: other.Sign(t, agentClaims()), want: "signature"},
		"another algorithm than the key's": {token: login.Signer{KeyID: "k1", Algorithm: jose.PS256, Key: key.Key}.Sign(t, agentClaims()), want: "signature"},
		"an unknown key ID":                {token: login.RSA("junk").Sign(t, agentClaims()), want: "signature"},
		"its own key in the header":        {token: withOwnKey(t, agentClaims()), want: "signature"},
		"a signature that is cut":          {token: strings.TrimRight(key.Sign(t, agentClaims())[:400], "."), want: "accepted"},
		"other claims under the signature": {token: swapped(t, key.Sign(t, agentClaims()), with(agentClaims(), map[string]any{"sub": sub("admin")})), want: "signature"},
		"encrypted":                        {token: encrypted(t, key, agentClaims()), want: "not a JWT signed"},
		"another issuer":                   {token: key.Sign(t, with(agentClaims(), map[string]any{"iss": clusterURL + "/"})), want: "issuer"},
		"no issuer":                        {token: key.Sign(t, with(agentClaims(), map[string]any{"iss": nil})), want: "issuer"},
		"an issuer that is a list":         {token: key.Sign(t, with(agentClaims(), map[string]any{"iss": []string{clusterURL}})), want: "malformed"},
		"another audience":                 {token: key.Sign(t, with(agentClaims(), map[string]any{"aud": []string{billing + "/"}})), want: "its audience must be " + billing},
		"no audience":                      {token: key.Sign(t, with(agentClaims(), map[string]any{"aud": nil})), want: "audience"},
		"an empty audience":                {token: key.Sign(t, with(agentClaims(), map[string]any{"aud": []string{""}})), want: "audience"},
		"an audience of objects":           {token: key.Sign(t, with(agentClaims(), map[string]any{"aud": []any{map[string]any{}}})), want: "malformed"},
		"no exp":                           {token: key.Sign(t, with(agentClaims(), map[string]any{"exp": nil})), want: "no exp"},
		"expires now":                      {token: key.Sign(t, with(agentClaims(), map[string]any{"exp": now.Unix()})), want: "expired"},
		"an exp that is no number":         {token: key.Sign(t, with(agentClaims(), map[string]any{"exp": "never"})), want: "malformed"},
		"an exp beyond time":               {token: key.Sign(t, with(agentClaims(), map[string]any{"exp": json.Number("1e300")})), want: "malformed"},
		"a later nbf":                      {token: key.Sign(t, with(agentClaims(), map[string]any{"nbf": now.Add(maxSkew).Unix() + 1})), want: "not valid yet"},
		"issued in the future":             {token: key.Sign(t, with(agentClaims(), map[string]any{"iat": now.Add(maxSkew).Unix() + 1})), want: "issued in the future"},
		"sub of another account":           {token: key.Sign(t, with(agentClaims(), map[string]any{"sub": sub("admin")})), want: "different ServiceAccounts"},
		"sub of a user":                    {token: key.Sign(t, with(agentClaims(), map[string]any{"sub": "alice"})), want: "different ServiceAccounts"},
		"without the claims of Kubernetes": {token: key.Sign(t, with(agentClaims(), map[string]any{"kubernetes.io": nil})), want: "no ServiceAccount"},
		"Kubernetes in other letters":      {token: key.Sign(t, with(agentClaims(), map[string]any{"kubernetes.io": nil, "Kubernetes.io": agentClaims()["kubernetes.io"]})), want: "no ServiceAccount"},
		"without a UID":                    {token: key.Sign(t, private(map[string]any{"namespace": "agents", "serviceaccount": map[string]any{"name": "bookkeeper"}})), want: "no ServiceAccount"},
		"claims of Kubernetes as a text":   {token: key.Sign(t, with(agentClaims(), map[string]any{"kubernetes.io": "agents"})), want: "malformed"},
		"a name that is too long":          {token: key.Sign(t, with(private(map[string]any{"namespace": "agents", "serviceaccount": map[string]any{"name": strings.Repeat("a", 300), "uid": "u"}}), map[string]any{"sub": sub(strings.Repeat("a", 300))})), want: "longer than 256"},
	} {
		a := clusterBy(key, curve)
		got, err := a.Authenticate(t.Context(), request(tc.token), []string{billing})
		if tc.want == "" {
			if err != nil || got.Username != sub("bookkeeper") {
				t.Errorf("%s: got %q, %v", name, got.Username, err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalidToken) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
			continue
		}
		if strings.Contains(err.Error(), tc.token[:20]) || strings.Contains(err.Error(), "admin") {
			t.Errorf("%s: the error tells of the token: %v", name, err)
		}
		if diff := cmp.Diff(Caller{}, got); diff != "" {
			t.Errorf("%s: a caller comes with the refusal (-want +got):\n%s", name, diff)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// unsigned is a token without a signature.
func unsigned(t *testing.T, alg string, claims map[string]any) string {
	t.Helper()
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+alg+`","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(must(json.Marshal(claims))) + "."
}

// swapped has other claims under the signature of a token.
func swapped(t *testing.T, token string, claims map[string]any) string {
	t.Helper()
	parts := strings.Split(token, ".")
	parts[1] = base64.RawURLEncoding.EncodeToString(must(json.Marshal(claims)))
	return strings.Join(parts, ".")
}

// withOwnKey is signed by a key that the token itself brings.
func withOwnKey(t *testing.T, claims map[string]any) string {
	t.Helper()
	own := login.EC("k2")
	made := must(jose.NewSigner(jose.SigningKey{Algorithm: own.Algorithm, Key: own.Key}, &jose.SignerOptions{EmbedJWK: true}))
	return must(must(made.Sign(must(json.Marshal(claims)))).CompactSerialize())
}

func encrypted(t *testing.T, to login.Signer, claims map[string]any) string {
	t.Helper()
	recipient := jose.Recipient{Algorithm: jose.RSA_OAEP, Key: to.Public().Key}
	made := must(jose.NewEncrypter(jose.A128GCM, recipient, nil))
	return must(must(made.Encrypt(must(json.Marshal(claims)))).CompactSerialize())
}

func TestNothingButTheAuthorizationHeaderSaysWhoCalls(t *testing.T) {
	t.Parallel()
	key := login.EC("k1")
	token := key.Sign(t, agentClaims())
	a := clusterBy(key)
	r := httptest.NewRequest(http.MethodPost, "/shop/billing/mcp?access_token="+token, strings.NewReader("access_token="+token))
	r.Header = http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Cookie": {"access_token=" + token}, "Proxy-Authorization": {"Bearer " + token},
		"X-Authorization": {"Bearer " + token}, "X-Forwarded-Access-Token": {token},
		"X-User": {"admin"}, "X-Remote-User": {"admin"}, "Impersonate-User": {"admin"},
	}
	r.TLS = nil
	if got, err := a.Authenticate(t.Context(), r, []string{billing}); !errors.Is(err, ErrNoToken) {
		t.Errorf("got %q, %v, want %v", got.Username, err, ErrNoToken)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if got, err := a.Authenticate(t.Context(), r, []string{billing}); err != nil || got.Username != "system:serviceaccount:agents:bookkeeper" {
		t.Errorf("control: got %q, %v", got.Username, err)
	}
}

func TestAnEmptyAudienceIsNone(t *testing.T) {
	t.Parallel()
	key := login.EC("k1")
	token := key.Sign(t, with(agentClaims(), map[string]any{"aud": []string{"", "x"}}))
	for name, tc := range map[string]struct {
		audiences []string
		want      error
	}{
		"control": {audiences: []string{"", "x"}},
		"empty":   {audiences: []string{""}, want: ErrInvalidToken},
		"none":    {audiences: nil, want: ErrInvalidToken},
	} {
		if _, err := clusterBy(key).Authenticate(t.Context(), request(token), tc.audiences); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestAVerifiedTokenIsRememberedOnlyAsLongAsItIsGood(t *testing.T) {
	t.Parallel()
	key := login.EC("k1")
	token := key.Sign(t, with(agentClaims(), map[string]any{"exp": now.Add(2 * time.Minute).Unix()}))
	audiences := []string{billing}
	a, clock := clusterBy(key), clockAt(now)
	a.Clock = clock
	if _, err := a.Authenticate(t.Context(), request(token), audiences); err != nil {
		t.Fatal(err)
	}
	a.Issuers = nil // from here on nobody can verify
	for _, tc := range []struct {
		at        time.Duration
		audiences []string
		want      error
	}{
		{at: 0, audiences: audiences},
		{at: 2*time.Minute - time.Second, audiences: audiences},
		{at: time.Minute, audiences: []string{"another"}, want: ErrInvalidToken},
		{at: 2 * time.Minute, audiences: audiences, want: ErrInvalidToken},
	} {
		clock.SetTime(now.Add(tc.at))
		if _, err := a.Authenticate(t.Context(), request(token), tc.audiences); !errors.Is(err, tc.want) {
			t.Errorf("after %s for %v: got %v, want %v", tc.at, tc.audiences, err, tc.want)
		}
	}
}

func TestAWithdrawnKeyIsNoticed(t *testing.T) {
	t.Parallel()
	key, next := login.EC("k1"), login.EC("k2")
	published := []login.Signer{key}
	a, clock := clusterBy(), clockAt(now)
	a.Clock = clock
	a.Issuers[0].keys = &keySet{fetch: func(context.Context) ([]byte, error) { return login.KeySet(published...), nil }}
	token := key.Sign(t, agentClaims())
	if _, err := a.Authenticate(t.Context(), request(token), []string{billing}); err != nil {
		t.Fatal(err)
	}
	published = []login.Signer{next}
	clock.SetTime(now.Add(trustFor + keysFresh))
	if _, err := a.Authenticate(t.Context(), request(token), []string{billing}); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("got %v, want %v", err, ErrInvalidToken)
	}
	if _, err := a.Authenticate(t.Context(), request(next.Sign(t, agentClaims())), []string{billing}); err != nil {
		t.Errorf("the key in its place: %v", err)
	}
}

// TestATokenIsTakenExactlyWhenEveryClaimIsRight compares the authenticator with the rules, said once more.
func TestATokenIsTakenExactlyWhenEveryClaimIsRight(t *testing.T) {
	t.Parallel()
	good, bad := login.EC("k1"), login.EC("k1")
	rapid.Check(t, func(r *rapid.T) {
		exp := rapid.Int64Range(-5, 5).Draw(r, "exp")
		nbf := rapid.Int64Range(25, 35).Draw(r, "nbf")
		aud := rapid.SliceOfN(rapid.SampledFrom([]string{billing, "a", "b", ""}), 0, 3).Draw(r, "aud")
		wanted := rapid.SliceOfN(rapid.SampledFrom([]string{billing, "a", ""}), 0, 2).Draw(r, "wanted")
		by := rapid.SampledFrom([]login.Signer{good, bad}).Draw(r, "by")
		sub := rapid.SampledFrom([]string{"system:serviceaccount:agents:bookkeeper", "system:serviceaccount:agents:x"}).Draw(r, "sub")
		meant := false
		for _, a := range aud {
			for _, w := range wanted {
				meant = meant || a == w && a != ""
			}
		}
		want := exp > 0 && nbf <= 30 && meant && by.Key == good.Key && sub == "system:serviceaccount:agents:bookkeeper"
		token := by.Sign(t, with(agentClaims(), map[string]any{"exp": now.Unix() + exp, "nbf": now.Unix() + nbf, "aud": aud, "sub": sub}))
		a := clusterBy(good)
		for _, look := range []string{"first", "second"} {
			if _, err := a.Authenticate(t.Context(), request(token), wanted); (err == nil) != want {
				r.Fatalf("the %s time: got %v, want taken %t", look, err, want)
			}
		}
	})
}

func TestAReviewBindsATokenToItsAudience(t *testing.T) {
	t.Parallel()
	token := login.EC("k1").Sign(t, agentClaims())
	for name, tc := range map[string]struct {
		status authenticationv1.TokenReviewStatus
		err    error
		want   error
	}{
		"control": {status: authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{billing}, User: authenticationv1.UserInfo{Username: "a"}}},
		"not authenticated, and the rest as if": {
			status: authenticationv1.TokenReviewStatus{Audiences: []string{billing}, User: authenticationv1.UserInfo{Username: "a"}}, want: ErrInvalidToken},
		"an authenticator without audiences": {
			status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "a"}}, want: ErrInvalidToken},
		"another audience": {
			status: authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"x"}, User: authenticationv1.UserInfo{Username: "a"}}, want: ErrInvalidToken},
		"nobody":                             {status: authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{billing}}, want: ErrInvalidToken},
		"an API server that does not answer": {err: errors.New("down"), want: ErrUnavailable},
	} {
		a := &Authenticator{Clock: clockAt(now), Review: func(_ context.Context, review *authenticationv1.TokenReview) error {
			if diff := cmp.Diff(authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{billing}}, review.Spec); diff != "" {
				t.Errorf("%s: asked (-want +got):\n%s", name, diff)
			}
			review.Status = tc.status
			return tc.err
		}}
		if _, err := a.Authenticate(t.Context(), request(token), []string{billing}); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestAFloodOfTokensIsAFewReviews(t *testing.T) {
	t.Parallel()
	reviews := 0
	authenticated := false
	clock := clockAt(now)
	a := &Authenticator{Clock: clock, Review: func(_ context.Context, review *authenticationv1.TokenReview) error {
		reviews++
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: authenticated, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: "a"}}
		return nil
	}}
	key := login.EC("k1")
	token := key.Sign(t, agentClaims())
	try := func(token string) error {
		_, err := a.Authenticate(t.Context(), request(token), []string{billing})
		return err
	}
	for range 50 {
		if err := try(token); !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("got %v", err)
		}
	}
	if reviews != 1 {
		t.Errorf("50 times one bad token were %d reviews", reviews)
	}
	clock.SetTime(now.Add(refuseFor + time.Second))
	authenticated = true
	for range 50 {
		if err := try(token); err != nil {
			t.Fatalf("a no is remembered for a moment only: %v", err)
		}
	}
	if reviews != 2 {
		t.Errorf("50 times one good token were %d reviews", reviews-1)
	}
	for _, junk := range []string{"x", "a.b.c", unsigned(t, "none", agentClaims()), key.Sign(t, with(agentClaims(), map[string]any{"aud": "x"}))} {
		if err := try(junk); !errors.Is(err, ErrInvalidToken) {
			t.Errorf("got %v", err)
		}
	}
	if reviews != 2 {
		t.Errorf("what cannot be good was sent to the API server")
	}
	var last error
	for range 2 * reviewBurst {
		last = try(key.Sign(t, agentClaims())) // each is another: ECDSA signatures are random
	}
	if reviews > reviewBurst+2 || !errors.Is(last, ErrUnavailable) {
		t.Errorf("%d tokens were %d reviews, the last: %v", 2*reviewBurst, reviews, last)
	}
}

func BenchmarkVerified(b *testing.B) {
	key := login.RSA("k1")
	a, r, audiences := clusterBy(key), request(key.Sign(b, agentClaims())), []string{billing}
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), r, audiences); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnverified(b *testing.B) {
	key := login.RSA("k1")
	a, token := clusterBy(key), key.Sign(b, agentClaims())
	for b.Loop() {
		parsed, claims, err := parse(token)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := a.Issuers[0].identify(b.Context(), now, parsed, claims); err != nil {
			b.Fatal(err)
		}
	}
}
