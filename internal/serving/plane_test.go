// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

var plane *fixture.ControlPlane

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &plane)) }

// serve runs a webhook that allows everything, with the certificate and the path of s. Every call is a new connection.
func serve(t *testing.T, s *Serving) (address string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	allow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	})
	server := httptest.NewUnstartedServer(s.Guard(allow))
	server.Config.SetKeepAlivesEnabled(false)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateActive {
			connections.Add(1)
		}
	}
	// Not StartTLS: it brings a certificate of its own.
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	s.TLS(config)
	server.Listener = tls.NewListener(server.Listener, config)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), connections
}

// install puts both configurations in place, with one webhook for the ConfigMaps of a namespace, at an address each.
func install(t *testing.T, admin client.Client, namespace string, addresses ...string) {
	t.Helper()
	fail, none, scope := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.NamespacedScope
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &scope},
	}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	objects := configurationsOf()
	mutating := objects[0].(*admissionregistrationv1.MutatingWebhookConfiguration)
	validating := objects[1].(*admissionregistrationv1.ValidatingWebhookConfiguration)
	for i, address := range addresses {
		url := "https://" + address
		name := fmt.Sprintf("replica%d.tidewaiter.dev", i)
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, Rules: rules, NamespaceSelector: selector,
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
		also := url
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &also}, Rules: rules, NamespaceSelector: selector,
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	for _, object := range objects {
		// The manifests may have brought their own.
		old := object.DeepCopyObject().(client.Object)
		if err := admin.Delete(t.Context(), old); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// caller updates a ConfigMap through the webhooks, about twenty times a second.
type caller struct {
	admin client.Client
	cm    *corev1.ConfigMap
	calls int
}

func (c *caller) call(ctx context.Context) error {
	c.calls++
	c.cm.Data = map[string]string{"n": fmt.Sprint(c.calls)}
	return c.admin.Update(ctx, c.cm)
}

// until calls until done, and at least n times; every call must pass.
func (c *caller) until(t *testing.T, n int, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := c.calls + 1200; n > 0 || !done(); n-- {
		if c.calls > deadline {
			t.Fatalf("not within a minute: %s", what)
		}
		if err := c.call(t.Context()); err != nil {
			t.Fatalf("call %d, while waiting: %s: %v", c.calls, what, err)
		}
		<-tick.C
	}
}

// TestRotationLosesNoCall replaces the authority and the certificate twice, by two replicas with the manager's own
// rights, while a client calls through the webhooks of both.
func TestRotationLosesNoCall(t *testing.T) {
	admin := plane.Client(t, plane.Admin)
	namespace := plane.Namespace(t)
	// The API server's clock is the real one: a clock that begins in the past never makes a certificate of the future.
	clock := testingclock.NewFakeClock(time.Now().Add(-day))
	var replicas []*Serving
	var addresses []string
	var connections []*atomic.Int64
	for range 2 {
		s := &Serving{Client: plane.Client(t, plane.Manager(t)), Namespace: fixture.SystemNamespace, Clock: clock, Names: []string{"127.0.0.1", "localhost"}}
		address, seen := serve(t, s)
		replicas, addresses, connections = append(replicas, s), append(addresses, address), append(connections, seen)
	}
	install(t, admin, namespace, addresses...)
	ended := make(chan error, len(replicas))
	ctx, stop := context.WithCancel(t.Context())
	for _, s := range replicas {
		go func() { ended <- s.Start(ctx) }()
	}
	defer func() {
		stop()
		for range replicas {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "called"}}
	if err := admin.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	c := &caller{admin: admin, cm: cm}
	for deadline := time.Now().Add(time.Minute); c.call(t.Context()) != nil; {
		if time.Now().After(deadline) {
			t.Fatalf("the webhook never answered: %v %v", replicas[0].Ready(nil), replicas[1].Ready(nil))
		}
	}
	early := c.calls - 1 // those that came too early
	read := func() (*corev1.Secret, state) {
		secret := &corev1.Secret{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: fixture.SystemNamespace, Name: v1alpha1.WebhookConfiguration}, secret); err != nil {
			t.Fatal(err)
		}
		s, err := parse(secret.Data)
		if err != nil {
			t.Fatal(err)
		}
		return secret, s
	}
	for range 2 {
		secret, before := read()
		secret.Annotations = map[string]string{v1alpha1.RotateAnnotation: ""}
		for err := admin.Update(t.Context(), secret); err != nil; err = admin.Update(t.Context(), secret) {
			if !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			secret, before = read()
			secret.Annotations = map[string]string{v1alpha1.RotateAnnotation: ""}
		}
		// The next authority is known to the API server for some real seconds of calls before the lead is over.
		c.until(t, 1, "the next authority in both configurations", func() bool {
			clock.Step(time.Second)
			_, s := read()
			return !s.nextSince.IsZero()
		})
		c.until(t, 40, "the API server sees them", func() bool { return true })
		c.until(t, 1, "the next authority signs", func() bool {
			clock.Step(every)
			_, s := read()
			return !s.ca.Leaf.Equal(before.ca.Leaf)
		})
		c.until(t, 20, "the former authority is dropped", func() bool {
			clock.Step(every)
			_, s := read()
			return s.old == nil
		})
		if secret, after := read(); len(secret.Annotations) > 0 || after.path != before.path {
			t.Errorf("annotations %v, path %s, before %s", secret.Annotations, after.path, before.path)
		}
	}
	for i := range replicas {
		if n := connections[i].Load(); n < int64(2*(c.calls-early)) {
			t.Errorf("replica %d saw %d connections for %d calls: the test proves little", i, n, c.calls)
		}
	}
	t.Logf("%d calls through two webhooks each of two replicas, none failed; two authorities replaced", c.calls)

	// Nobody who does not know the path gets an answer, and who does gets one.
	replicas[0].mu.RLock()
	path, leaf := pathOf(replicas[0]), replicas[0].certificate.Leaf
	replicas[0].mu.RUnlock()
	for _, tc := range []struct {
		path string
		want int
	}{{"/" + path + "/replica0", http.StatusBadRequest}, {"/replica0", http.StatusNotFound}, {"/" + strings.Repeat("0", len(path)) + "/replica0", http.StatusNotFound}} {
		if got := post(t, "https://"+addresses[0]+tc.path, leaf); got != tc.want {
			t.Errorf("%s gives %d, want %d", strings.ReplaceAll(tc.path, path, "SECRET"), got, tc.want)
		}
	}
}

// post sends no review to a webhook, trusting the certificate that it serves.
func post(t *testing.T, url string, leaf *x509.Certificate) int {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}).Post(url, "application/json", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}
