// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

// person is what a provider says of one; the issuer is added where its URL is known.
func person(iss string, changes map[string]any) map[string]any {
	return with(map[string]any{
		"iss": iss, "sub": "alice", "aud": billing, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"email": "alice@example.com", "email_verified": true, "groups": []string{"finance", "dev"}, "role": "finance",
	}, changes)
}

func TestPeopleAndAgentsOfAProvider(t *testing.T) {
	t.Parallel()
	p := login.Start(clock.RealClock{})
	t.Cleanup(p.Close)
	everybody := "system:authenticated"
	actor := func(claims map[string]any) map[string]any { return map[string]any{"act": claims} }
	email := OIDC{UsernameClaim: "email"}
	for name, tc := range map[string]struct {
		oidc    OIDC
		changes map[string]any
		want    Caller
		refusal string
	}{
		"the defaults": {want: Caller{Username: p.URL + "#alice", Groups: []string{everybody}}},
		"a prefix, groups and their prefix": {
			oidc: OIDC{UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "oidc:"},
			want: Caller{Username: "oidc:alice", Groups: []string{"oidc:finance", "oidc:dev", everybody}}},
		"no prefix":                          {oidc: OIDC{UsernamePrefix: "-"}, want: Caller{Username: "alice", Groups: []string{everybody}}},
		"a group that is a text":             {oidc: OIDC{UsernamePrefix: "-", GroupsClaim: "role"}, want: Caller{Username: "alice", Groups: []string{"finance", everybody}}},
		"no groups in the token":             {oidc: OIDC{UsernamePrefix: "-", GroupsClaim: "teams"}, want: Caller{Username: "alice", Groups: []string{everybody}}},
		"email has no prefix of itself":      {oidc: email, want: Caller{Username: "alice@example.com", Groups: []string{everybody}}},
		"email with a prefix":                {oidc: OIDC{UsernameClaim: "email", UsernamePrefix: "o:"}, want: Caller{Username: "o:alice@example.com", Groups: []string{everybody}}},
		"email that is not verified":         {oidc: email, changes: map[string]any{"email_verified": false}, refusal: "email_verified"},
		"email of which nothing is said":     {oidc: email, changes: map[string]any{"email_verified": nil}, refusal: "email_verified"},
		"email_verified as a text":           {oidc: email, changes: map[string]any{"email_verified": "true"}, refusal: "email_verified"},
		"no username":                        {changes: map[string]any{"sub": nil}, refusal: "claim sub holds no username"},
		"an empty username":                  {changes: map[string]any{"sub": ""}, refusal: "claim sub holds no username"},
		"a username that is a number":        {oidc: OIDC{UsernameClaim: "uid"}, changes: map[string]any{"uid": 7}, refusal: "claim uid holds no username"},
		"a username too long":                {changes: map[string]any{"sub": strings.Repeat("a", 300)}, refusal: "longer than 256"},
		"control: 256 bytes":                 {oidc: OIDC{UsernamePrefix: "-"}, changes: map[string]any{"sub": strings.Repeat("é", 128)}, want: Caller{Username: strings.Repeat("é", 128), Groups: []string{everybody}}},
		"257 bytes, in fewer characters":     {oidc: OIDC{UsernamePrefix: "-"}, changes: map[string]any{"sub": strings.Repeat("é", 128) + "a"}, refusal: "longer than 256"},
		"a user of Kubernetes":               {oidc: OIDC{UsernamePrefix: "-"}, changes: map[string]any{"sub": "system:admin"}, refusal: "system:"},
		"a ServiceAccount":                   {oidc: OIDC{UsernamePrefix: "-"}, changes: map[string]any{"sub": "system:serviceaccount:agents:bookkeeper"}, refusal: "system:"},
		"one half from the prefix":           {oidc: OIDC{UsernamePrefix: "sys"}, changes: map[string]any{"sub": "tem:admin"}, refusal: "system:"},
		"control: system: behind a prefix":   {oidc: OIDC{UsernamePrefix: "o:"}, changes: map[string]any{"sub": "system:admin"}, want: Caller{Username: "o:system:admin", Groups: []string{everybody}}},
		"a group of Kubernetes":              {oidc: OIDC{GroupsClaim: "groups"}, changes: map[string]any{"groups": []string{"a", "system:masters"}}, refusal: "groups begins with system:"},
		"groups that are numbers":            {oidc: OIDC{GroupsClaim: "groups"}, changes: map[string]any{"groups": []any{1}}, refusal: "not a list of group names"},
		"groups that are an object":          {oidc: OIDC{GroupsClaim: "groups"}, changes: map[string]any{"groups": map[string]any{"a": 1}}, refusal: "not a list of group names"},
		"an algorithm that is not allowed":   {oidc: OIDC{SigningAlgs: []string{"ES256"}}, refusal: "algorithm"},
		"an agent for a user":                {oidc: OIDC{GroupsClaim: "groups"}, changes: actor(map[string]any{"sub": "bookkeeper"}), want: Caller{Username: p.URL + "#bookkeeper", ActsFor: p.URL + "#alice", Groups: []string{everybody}}},
		"the groups of the agent":            {oidc: OIDC{UsernamePrefix: "-", GroupsClaim: "groups"}, changes: actor(map[string]any{"sub": "bookkeeper", "groups": "agents"}), want: Caller{Username: "bookkeeper", ActsFor: "alice", Groups: []string{"agents", everybody}}},
		"an agent of the same issuer, named": {oidc: OIDC{UsernamePrefix: "-"}, changes: actor(map[string]any{"sub": "bookkeeper", "iss": p.URL}), want: Caller{Username: "bookkeeper", ActsFor: "alice", Groups: []string{everybody}}},
		"of nested agents the outermost":     {oidc: OIDC{UsernamePrefix: "-"}, changes: actor(map[string]any{"sub": "bookkeeper", "act": map[string]any{"sub": "mailer"}}), want: Caller{Username: "bookkeeper", ActsFor: "alice", Groups: []string{everybody}}},
		"an agent of another issuer":         {changes: actor(map[string]any{"sub": "bookkeeper", "iss": "https://x"}), refusal: "another issuer"},
		"an agent without a name":            {changes: actor(map[string]any{"client_id": "bookkeeper"}), refusal: "claim sub holds no username (in its claim act)"},
		"an agent without a verified email":  {oidc: email, changes: actor(map[string]any{"email": "a@example.com"}), refusal: "email_verified"},
		"an agent that is a text":            {changes: map[string]any{"act": "bookkeeper"}, refusal: "claim act is not an object"},
		"an agent of Kubernetes":             {oidc: OIDC{UsernamePrefix: "-"}, changes: actor(map[string]any{"sub": "system:admin"}), refusal: "system:"},
		"for a user of Kubernetes":           {oidc: OIDC{UsernamePrefix: "-"}, changes: map[string]any{"sub": "system:admin", "act": map[string]any{"sub": "bookkeeper"}}, refusal: "system:"},
		"for a user with too long a name":    {oidc: OIDC{UsernamePrefix: "-"}, changes: map[string]any{"sub": strings.Repeat("a", 300), "act": map[string]any{"sub": "bookkeeper"}}, refusal: "longer than 256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.oidc.URL, tc.oidc.CA = p.URL, login.CA(p.Server)
			issuer, err := tc.oidc.Issuer()
			if err != nil {
				t.Fatal(err)
			}
			a := &Authenticator{Clock: clockAt(time.Now()), Issuers: []*Issuer{issuer}}
			claims := person(p.URL, tc.changes)
			got, err := a.Authenticate(t.Context(), request(p.Signer.Sign(t, claims)), []string{billing})
			if tc.refusal != "" {
				if !errors.Is(err, ErrInvalidToken) || !strings.Contains(err.Error(), tc.refusal) {
					t.Errorf("got %v, want %q", err, tc.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Expires = time.Unix(claims["exp"].(int64), 0)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneIssuerCannotSpeakForAnother(t *testing.T) {
	t.Parallel()
	one, two := login.Start(clock.RealClock{}), login.Start(clock.RealClock{})
	t.Cleanup(one.Close)
	t.Cleanup(two.Close)
	a := &Authenticator{Clock: clockAt(time.Now())}
	for _, p := range []*login.Provider{one, two} {
		a.Issuers = append(a.Issuers, must(OIDC{URL: p.URL, CA: login.CA(p.Server), UsernamePrefix: "-"}.Issuer()))
	}
	if _, err := a.Authenticate(t.Context(), request(two.Signer.Sign(t, person(two.URL, nil))), []string{billing}); err != nil {
		t.Errorf("control: %v", err)
	}
	_, err := a.Authenticate(t.Context(), request(two.Signer.Sign(t, person(one.URL, nil))), []string{billing})
	if !errors.Is(err, ErrInvalidToken) {
		t.Errorf("got %v, want %v", err, ErrInvalidToken)
	}
}

func TestSettingsOfAnIssuer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		oidc OIDC
		want string
	}{
		"control":                  {oidc: OIDC{URL: "https://login.example.com/realm"}},
		"control: all algorithms":  {oidc: OIDC{URL: "https://login.example.com", SigningAlgs: []string{"RS256", "ES384", "EdDSA", "PS512"}}},
		"without TLS":              {oidc: OIDC{URL: "http://login.example.com"}, want: "not an https URL"},
		"not a URL":                {oidc: OIDC{URL: "login.example.com"}, want: "not an https URL"},
		"with a query":             {oidc: OIDC{URL: "https://login.example.com?a=b"}, want: "not an https URL"},
		"with a password":          {oidc: OIDC{URL: "https://a:b@login.example.com"}, want: "not an https URL"},
		"a symmetric algorithm":    {oidc: OIDC{URL: "https://login.example.com", SigningAlgs: []string{"HS256"}}, want: `signing algorithm "HS256"`},
		"no algorithm":             {oidc: OIDC{URL: "https://login.example.com", SigningAlgs: []string{"none"}}, want: `signing algorithm "none"`},
		"a prefix of Kubernetes":   {oidc: OIDC{URL: "https://login.example.com", UsernamePrefix: "system:"}, want: "system:"},
		"a group of Kubernetes":    {oidc: OIDC{URL: "https://login.example.com", GroupsPrefix: "system:"}, want: "system:"},
		"a CA file without a cert": {oidc: OIDC{URL: "https://login.example.com", CA: []byte("x")}, want: "no PEM certificate"},
	} {
		issuer, err := tc.oidc.Issuer()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || (issuer == nil) != (err != nil) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func TestAProviderThatCannotBeTrustedIsUnavailable(t *testing.T) {
	t.Parallel()
	key := login.RSA("k1")
	for name, tc := range map[string]struct {
		configuration func(url string) string
		keys          http.HandlerFunc
		want          string // "" is taken
	}{
		"control":                      {configuration: func(url string) string { return `{"issuer":"` + url + `","jwks_uri":"` + url + `/keys"}` }},
		"the configuration of another": {configuration: func(url string) string { return `{"issuer":"` + url + `/x","jwks_uri":"` + url + `/keys"}` }, want: "is that of"},
		"keys without TLS":             {configuration: func(url string) string { return `{"issuer":"` + url + `","jwks_uri":"http://` + url[8:] + `/keys"}` }, want: "no https jwks_uri"},
		"no keys named":                {configuration: func(url string) string { return `{"issuer":"` + url + `"}` }, want: "no https jwks_uri"},
		"not JSON":                     {configuration: func(string) string { return "<html>" }, want: "not JSON"},
		"keys that are not JSON":       {keys: func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("x")) }, want: "not a JSON Web Key Set"},
		"an error":                     {keys: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusTeapot) }, want: "status 418"},
		"an endless answer": {keys: func(w http.ResponseWriter, _ *http.Request) {
			for range 40 {
				w.Write([]byte(strings.Repeat(" ", 32<<10)))
			}
		}, want: "too large"},
		"a redirect out of TLS": {keys: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/keys", http.StatusFound)
		}, want: "without https"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			server := httptest.NewTLSServer(mux)
			t.Cleanup(server.Close)
			if tc.configuration == nil {
				tc.configuration = func(url string) string { return `{"issuer":"` + url + `","jwks_uri":"` + url + `/keys"}` }
			}
			if tc.keys == nil {
				tc.keys = func(w http.ResponseWriter, _ *http.Request) { w.Write(login.KeySet(key)) }
			}
			mux.HandleFunc(discoveryPath, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(tc.configuration(server.URL))) })
			mux.HandleFunc("/keys", tc.keys)
			ca := login.CA(server)
			a := &Authenticator{Clock: clockAt(time.Now()), Issuers: []*Issuer{must(OIDC{URL: server.URL, CA: ca}.Issuer())}}
			_, err := a.Authenticate(t.Context(), request(key.Sign(t, person(server.URL, nil))), []string{billing})
			if tc.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTheCertificateOfAProviderIsChecked(t *testing.T) {
	t.Parallel()
	p := login.Start(clock.RealClock{})
	t.Cleanup(p.Close)
	a := &Authenticator{Clock: clockAt(time.Now()), Issuers: []*Issuer{must(OIDC{URL: p.URL}.Issuer())}}
	_, err := a.Authenticate(t.Context(), request(p.Signer.Sign(t, person(p.URL, nil))), []string{billing})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want an unknown certificate", err)
	}
}
