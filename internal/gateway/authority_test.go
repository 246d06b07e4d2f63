// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture/authority"
)

// trusting is a gateway that trusts its server by the authority in a Secret.
type trusting struct {
	*rig
	watcher *Watcher
	secrets client.Client
	shown   atomic.Pointer[tls.Certificate] // what the server shows
}

func newTrusting(t *testing.T, ca *authority.Authority) *trusting {
	t.Helper()
	r := &trusting{rig: newRig(t)}
	r.show(ca, "127.0.0.1")
	secured := httptest.NewUnstartedServer(r.upstream.Config.Handler)
	secured.EnableHTTP2 = true
	secured.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*r.shown.Load()}, NextProtos: []string{"h2"}}, nil
	}}
	secured.StartTLS()
	t.Cleanup(secured.Close)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: billing.Namespace, Name: "authority", Labels: map[string]string{v1alpha1.ServerLabel: billing.Name}},
		Data:       map[string][]byte{"ca.crt": ca.PEM},
	}
	r.secrets = fake.NewClientBuilder().WithObjects(secret).Build()
	r.watcher = &Watcher{
		Client: r.secrets, Servers: map[types.NamespacedName]*Server{billing: r.server}, Clock: r.clock, Metrics: newMetrics(t),
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, known: map[types.NamespacedName]resolved{},
	}
	r.edit(func() {
		r.governed.Spec.Endpoint = v1alpha1.Endpoint{
			URL: secured.URL + "/mcp",
			TLS: &v1alpha1.EndpointTLS{CASecretRef: &v1alpha1.SecretKeyRef{Name: "authority", Key: "ca.crt"}},
		}
	})
	r.watcher.dial(t.Context())
	return r
}

// show has the server show a certificate of an authority from now on.
func (r *trusting) show(ca *authority.Authority, name string) {
	certificate := ca.Issue(r.t, time.Now().Add(time.Hour), name)
	r.shown.Store(&certificate)
}

// change changes the Secret, and lets the time pass until the gateway looks.
func (r *trusting) change(edit func(*corev1.Secret)) {
	r.t.Helper()
	var secret corev1.Secret
	if err := r.secrets.Get(r.t.Context(), types.NamespacedName{Namespace: billing.Namespace, Name: "authority"}, &secret); err != nil {
		r.t.Fatal(err)
	}
	edit(&secret)
	if err := r.secrets.Update(r.t.Context(), &secret); err != nil {
		r.t.Fatal(err)
	}
	r.clock.Step(secretsEvery)
	r.server.Prove(r.clock.Now())
	r.watcher.dial(r.t.Context())
}

// reconnect has the next message make a connection.
func (r *trusting) reconnect() { r.server.upstream.Load().pool.CloseIdleConnections() }

func TestAnotherAuthorityHoldsFromTheNextConnectionOnAndVoidsNothing(t *testing.T) {
	t.Parallel()
	first, second := authority.New(t), authority.New(t)
	r := newTrusting(t, first)
	read := toolCall("get_invoice", `{}`)
	if got := r.post(read); got.status != http.StatusOK {
		t.Fatalf("HTTP %d: %s", got.status, got.body)
	}
	approved := r.approved("delete_account")
	before := len(r.upstream.requests())

	next := make(chan string)
	plain := r.upstream.answer
	r.upstream.answers(streaming(next))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inFlight, err := r.open(ctx, http.MethodPost, "/mcp", read)
	if err != nil {
		t.Fatal(err)
	}
	defer inFlight.Body.Close()
	r.upstream.answers(plain)

	r.show(second, "127.0.0.1")
	if got := r.post(approved); got.status != http.StatusBadGateway || r.request().CurrentPhase() != v1alpha1.PhaseFailed || r.request().Status.Execution.Outcome != v1alpha1.OutcomeNotSent {
		t.Errorf("a server that the Secret does not vouch for: HTTP %d, the request is %s: %s", got.status, r.request().CurrentPhase(), got.body)
	}
	if n := len(r.upstream.requests()); n != before+1 {
		t.Errorf("it got %d requests, want the one in flight", n-before)
	}
	approved = r.approveNext("delete_account")
	r.change(func(s *corev1.Secret) { s.Data["ca.crt"] = second.PEM })
	if got := r.post(read); got.status != http.StatusOK {
		t.Errorf("a read by the new authority: HTTP %d: %s", got.status, got.body)
	}
	if got := r.post(approved); got.status != http.StatusOK || got.code() != "" {
		t.Errorf("a call that was approved before: HTTP %d: %s", got.status, got.body)
	}
	last := "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n"
	next <- last
	close(next)
	if text, err := io.ReadAll(inFlight.Body); err != nil || string(text) != last {
		t.Errorf("the call in flight ended with %q, %v", text, err)
	}

	r.show(first, "127.0.0.1")
	r.reconnect()
	if got := r.post(read); got.status != http.StatusBadGateway {
		t.Errorf("by the authority that was taken away: HTTP %d", got.status)
	}
}

// approveNext has a call approved once more.
func (r *trusting) approveNext(name string) string {
	r.t.Helper()
	body := toolCall(name, `{"n":1}`)
	if got := r.post(body); got.code() != codePending {
		r.t.Fatalf("not asked: %s", got.body)
	}
	all := r.requests()
	for i := range all {
		if all[i].CurrentPhase() == v1alpha1.PhasePending {
			r.decideOn(&all[i], v1alpha1.DecisionApproved, "alice")
		}
	}
	return body
}

func TestAServerIsTrustedByItsAuthorityAndName(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	for name, tc := range map[string]struct {
		show       string // the name in the certificate
		serverName string
		edit       func(*corev1.Secret)
		want       int
	}{
		"its address":              {"127.0.0.1", "", nil, http.StatusOK},
		"a name that was agreed":   {"billing.example.com", "billing.example.com", nil, http.StatusOK},
		"another name":             {"billing.example.com", "", nil, http.StatusBadGateway},
		"not the agreed name":      {"127.0.0.1", "billing.example.com", nil, http.StatusBadGateway},
		"another's Secret":         {"127.0.0.1", "", func(s *corev1.Secret) { s.Labels[v1alpha1.ServerLabel] = "another" }, http.StatusBadGateway},
		"a Secret without a label": {"127.0.0.1", "", func(s *corev1.Secret) { s.Labels = nil }, http.StatusBadGateway},
		"no certificate":           {"127.0.0.1", "", func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("x") }, http.StatusBadGateway},
		"two authorities": {"127.0.0.1", "", func(s *corev1.Secret) {
			s.Data["ca.crt"] = append(s.Data["ca.crt"], authority.New(t).PEM...)
		}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTrusting(t, ca)
			r.show(ca, tc.show)
			r.edit(func() {
				r.governed.Generation++
				r.governed.Spec.Endpoint.TLS.ServerName = tc.serverName
			})
			edit := tc.edit
			if edit == nil {
				edit = func(*corev1.Secret) {}
			}
			r.change(edit)
			for _, call := range []string{ping, toolCall("get_invoice", `{}`)} {
				if got := r.post(call); got.status != tc.want {
					t.Errorf("%s: HTTP %d, want %d: %s", call, got.status, tc.want, got.body)
				}
			}
			if n := len(r.upstream.requests()); (n > 0) != (tc.want == http.StatusOK) {
				t.Errorf("the server got %d requests", n)
			}
		})
	}
}
