// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/tidewaiter/tidewaiter/internal/fixture/login"
)

const billing = "https://tidewaiter.example.com/shop/billing/mcp"

// byKeys authenticates as a gateway with a ServiceAccount of its own would.
func byKeys(t *testing.T) *Authenticator {
	t.Helper()
	issuer, err := ServiceAccounts(t.Context(), asAccount(t, account(t, "gateway")))
	if err != nil {
		t.Fatal(err)
	}
	return &Authenticator{Clock: clockAt(time.Now()), Issuers: []*Issuer{issuer}}
}

func TestServiceAccountsAreWhoTheAPIServerSaysTheyAre(t *testing.T) {
	t.Parallel()
	agent := account(t, "agent")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: "agent-0"},
		Spec:       corev1.PodSpec{ServiceAccountName: agent.Name, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	}
	if err := admin(t).Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	audiences := []string{billing}
	reviewed := &Authenticator{Clock: clockAt(time.Now()), Review: reviewBy(t)}
	verified := byKeys(t)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"bound to a pod":   {pod: pod, want: "agent-0"},
		"bound to nothing": {},
	} {
		token := tokenOf(t, agent, tc.pod, "https://elsewhere.example.com", billing)
		want := Caller{
			Username: "system:serviceaccount:" + agent.Namespace + ":agent",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + agent.Namespace, "system:authenticated"},
			Pod:      tc.want,
		}
		for how, a := range map[string]*Authenticator{"keys": verified, "review": reviewed} {
			got, err := a.Authenticate(t.Context(), request(token), audiences)
			if err != nil {
				t.Fatalf("%s, by %s: %v", name, how, err)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Caller{}, "Expires")); diff != "" {
				t.Errorf("%s, by %s (-want +got):\n%s", name, how, diff)
			}
			if until := time.Until(got.Expires); until < 50*time.Minute || until > 70*time.Minute {
				t.Errorf("%s, by %s: expires in %s", name, how, until)
			}
		}
	}
}

func TestTokensOfTheClusterForOthersAreRefused(t *testing.T) {
	t.Parallel()
	agent := account(t, "agent")
	verified, reviewed := byKeys(t), &Authenticator{Clock: clockAt(time.Now()), Review: reviewBy(t)}
	late := &Authenticator{Clock: clockAt(time.Now().Add(2 * time.Hour)), Issuers: verified.Issuers}
	good, own := tokenOf(t, agent, nil, billing), tokenOf(t, agent, nil)
	for name, tc := range map[string]struct {
		by        *Authenticator
		token     string
		audiences []string
		want      error
	}{
		"control: by keys":                              {by: verified, token: good, audiences: []string{billing}},
		"control: by review":                            {by: reviewed, token: good, audiences: []string{billing}},
		"control: one of two audiences":                 {by: verified, token: good, audiences: []string{"x", billing}},
		"for the API server, by keys":                   {by: verified, token: own, audiences: []string{billing}, want: ErrInvalidToken},
		"for the API server, by review":                 {by: reviewed, token: own, audiences: []string{billing}, want: ErrInvalidToken},
		"no audience asked for, by keys":                {by: verified, token: own, want: ErrInvalidToken},
		"no audience asked for, by review":              {by: reviewed, token: own, want: ErrInvalidToken},
		"expired":                                       {by: late, token: good, audiences: []string{billing}, want: ErrInvalidToken},
		"for another server":                            {by: verified, token: good, audiences: []string{billing + "2"}, want: ErrInvalidToken},
		"for this server after it was good for another": {by: reviewed, token: good, audiences: []string{"x"}, want: ErrInvalidToken},
	} {
		_, err := tc.by.Authenticate(t.Context(), request(tc.token), tc.audiences)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestADeletedServiceAccountIsNoticedByReview(t *testing.T) {
	t.Parallel()
	agent := account(t, "agent")
	verified, clock := byKeys(t), clockAt(time.Now())
	reviewed := &Authenticator{Clock: clock, Review: reviewBy(t)}
	seen, audiences := tokenOf(t, agent, nil, billing), []string{billing}
	for how, a := range map[string]*Authenticator{"keys": verified, "review": reviewed} {
		if _, err := a.Authenticate(t.Context(), request(seen), audiences); err != nil {
			t.Fatalf("control, by %s: %v", how, err)
		}
	}
	if err := admin(t).Delete(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	if _, err := reviewed.Authenticate(t.Context(), request(seen), audiences); err != nil {
		t.Errorf("an answer of the API server holds for %s: %v", reviewFor, err)
	}
	// The API server itself remembers a token for ten seconds.
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		clock.SetTime(clock.Now().Add(reviewFor + time.Second))
		_, last = reviewed.Authenticate(ctx, request(seen), audiences)
		return last != nil, nil
	})
	if err != nil || !errors.Is(last, ErrInvalidToken) {
		t.Errorf("by review: got %v, want %v (%v)", last, ErrInvalidToken, err)
	}
	if _, err := verified.Authenticate(t.Context(), request(seen), audiences); err != nil {
		t.Errorf("by keys a token is good until it expires: %v", err)
	}
}

func TestAnAPIServerThatDoesNotAnswerIsUnavailable(t *testing.T) {
	t.Parallel()
	cfg := asAccount(t, account(t, "gateway"))
	cfg.Host = "https://127.0.0.1:1"
	if _, err := ServiceAccounts(t.Context(), cfg); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
}

func TestCheckUsername(t *testing.T) {
	t.Parallel()
	administrator, people := cluster(t)
	gateway := account(t, "gateway")
	plain := asAccount(t, gateway)
	accounts, err := ServiceAccounts(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	own, err := OwnToken(plain)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	ticket := map[string]any{
		"iss": people.URL, "sub": "alice", "aud": apiAudience, "exp": at.Add(time.Hour).Unix(), "iat": at.Unix(),
		"email": "alice@example.com", "email_verified": true,
	}
	same := OIDC{URL: people.URL, CA: login.CA(people.Server)}
	for name, tc := range map[string]struct {
		oidc  OIDC
		token string
		want  string
	}{
		"the gateway's own token":        {oidc: same, token: own},
		"a token of the provider":        {oidc: same, token: people.Signer.Sign(t, ticket)},
		"with an actor":                  {oidc: same, token: people.Signer.Sign(t, with(ticket, map[string]any{"act": map[string]any{"sub": "agent"}}))},
		"another prefix":                 {oidc: OIDC{URL: people.URL, CA: login.CA(people.Server), UsernamePrefix: "-"}, token: people.Signer.Sign(t, ticket), want: `belongs to "alice" here (claim "sub" with prefix "") and to "` + people.URL + `#alice" at the API server`},
		"another claim":                  {oidc: OIDC{URL: people.URL, CA: login.CA(people.Server), UsernameClaim: "email"}, token: people.Signer.Sign(t, ticket), want: `belongs to "alice@example.com" here (claim "email" with prefix "")`},
		"not for the API server":         {oidc: same, token: people.Signer.Sign(t, with(ticket, map[string]any{"aud": billing})), want: errNotTaken.Error()},
		"expired":                        {oidc: same, token: people.Signer.Sign(t, with(ticket, map[string]any{"exp": at.Unix() - 1})), want: "it has expired"},
		"of an issuer that is not known": {oidc: same, token: login.EC("x").Sign(t, with(ticket, map[string]any{"iss": "https://x"})), want: `of issuer "https://x", whose tokens are not verified here`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer, err := tc.oidc.Issuer()
			if err != nil {
				t.Fatal(err)
			}
			a := &Authenticator{Clock: clockAt(at), Issuers: []*Issuer{accounts, issuer}}
			// The administrator may create TokenReviews, the gateway may not.
			for who, cfg := range map[string]*rest.Config{"with the right to review": administrator, "without": plain} {
				err := a.CheckUsername(t.Context(), cfg, tc.token)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q", who, err, tc.want)
				}
			}
		})
	}
}

func TestCheckUsernameSaysWhetherAskingAgainMayHelp(t *testing.T) {
	t.Parallel()
	a, plain := byKeys(t), asAccount(t, account(t, "gateway"))
	down := rest.CopyConfig(plain)
	down.Host = "https://127.0.0.1:1"
	if err := a.CheckUsername(t.Context(), down, plain.BearerToken); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
}

func TestOwnToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg   rest.Config
		want  string
		fails bool
	}{
		"a file, which is renewed, before a text": {cfg: rest.Config{BearerTokenFile: file, BearerToken: "old"}, want: "from-file"},
		"a text":              {cfg: rest.Config{BearerToken: "text"}, want: "text"},
		"a certificate":       {},
		"a file that is gone": {cfg: rest.Config{BearerTokenFile: file + "x", BearerToken: "old"}, fails: true},
	} {
		if got, err := OwnToken(&tc.cfg); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}
