// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

const namespace = "tidewaiter-system"

// TestNoHandshakeFailsWhateverIsInterrupted lets two replicas rotate and renew in any order, each of their calls getting
// lost, answered, unanswered or overtaken by the other, while API servers and replicas are late.
func TestNoHandshakeFailsWhateverIsInterrupted(t *testing.T) {
	t.Parallel()
	turns, renewals := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 2, configurationsOf("votes.tidewaiter.dev")...)
		w.overtake = func(replica int) {
			trouble := w.trouble
			w.trouble = nil
			for range rapid.IntRange(1, 3).Draw(t, "rounds") {
				w.round(t, replica)
				w.clock.Step(lead)
				w.look(t)
			}
			w.round(t, replica)
			w.trouble = trouble
		}
		w.round(t, 0)
		w.round(t, 1)
		_, first := w.secret(t)
		last := first
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"round", "round", "trouble", "trouble", "time", "time", "jump", "rotate", "strip", "narrow"}).Draw(t, "what") {
			case "round":
				w.round(t, rapid.IntRange(0, 1).Draw(t, "who"))
			case "trouble":
				w.trouble = func(int) fate {
					return rapid.SampledFrom([]fate{answered, answered, answered, overtaken, lost, unanswered}).Draw(t, "fate")
				}
				_ = w.replicas[rapid.IntRange(0, 1).Draw(t, "who")].ensure(context.Background())
				w.trouble = nil
				w.look(t)
			case "time":
				w.pass(t, rapid.SampledFrom([]time.Duration{time.Second, every, lead - time.Second, lead, lead, lead, 3 * time.Minute, retain - 1}).Draw(t, "for"))
			case "jump":
				w.pass(t, 29*day)
				w.round(t, 0)
				w.round(t, 1)
			case "rotate":
				secret, _ := w.secret(t)
				secret.Annotations = map[string]string{v1alpha1.RotateAnnotation: ""}
				w.update(t, secret)
			case "strip":
				w.spoil(t, nil)
			case "narrow":
				// Somebody puts a bundle back that knows nothing of the next authority.
				if _, s := w.secret(t); s.old == nil {
					narrow, err := state{ca: s.ca}.bundle()
					if err != nil {
						t.Fatal(err)
					}
					w.spoil(t, narrow)
				}
			}
			_, now := w.secret(t)
			if !now.ca.Leaf.Equal(last.ca.Leaf) {
				turns++
			} else if !now.serving.Leaf.Equal(last.serving.Leaf) {
				renewals++
			}
			if now.path != first.path {
				t.Fatalf("the path changed from %s to %s", first.path, now.path)
			}
			last = now
		}
		w.round(t, 0)
		w.round(t, 1)
		for i, replica := range w.replicas {
			if err := replica.Ready(nil); err != nil {
				t.Fatalf("replica %d is not ready after all: %v", i, err)
			}
		}
	})
	t.Logf("%d authorities replaced, %d certificates renewed", turns, renewals)
	if turns == 0 || renewals == 0 {
		t.Error("nothing was replaced or renewed: the test proves nothing")
	}
}

// spoil writes a bundle into one of the configurations, as somebody else does.
func (w *world) spoil(t fataler, bundle []byte) {
	t.Helper()
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	w.get(t, mutating)
	mutating.Webhooks[0].ClientConfig.CABundle = bundle
	w.update(t, mutating)
	w.look(t)
}

func (w *world) update(t fataler, object client.Object) {
	t.Helper()
	if err := w.api.Update(context.Background(), object); err != nil {
		t.Fatal(err)
	}
}

func TestTheConfigurationsLeadToTheSecretPath(t *testing.T) {
	t.Parallel()
	path, url, odd := "/v1/vote", "https://127.0.0.1:9443/main", "https://localhost:9443"
	for name, tc := range map[string]struct {
		config admissionregistrationv1.WebhookClientConfig
		want   string
	}{
		"a service without a path": {admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{}}, "/SECRET/votes"},
		"a service with a path":    {admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: &path}}, "/SECRET/vote"},
		"a URL with a path":        {admissionregistrationv1.WebhookClientConfig{URL: &url}, "https://127.0.0.1:9443/SECRET/main"},
		"a URL without one":        {admissionregistrationv1.WebhookClientConfig{URL: &odd}, "https://localhost:9443/SECRET/votes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hook{name: "votes.tidewaiter.dev", config: tc.config.DeepCopy()}
			for range 2 { // the second time nothing changes
				if err := h.point(paths{"SECRET", "NEXT"}, []byte("bundle")); err != nil {
					t.Fatal(err)
				}
				got := ""
				if h.config.URL != nil {
					got = *h.config.URL
				} else {
					got = *h.config.Service.Path
				}
				if got != tc.want || string(h.config.CABundle) != "bundle" {
					t.Errorf("got %s with the bundle %q, want %s", got, h.config.CABundle, tc.want)
				}
			}
		})
	}
}

func TestTheGuardKnowsTheSecretPathOfTheTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, configurationsOf("votes.tidewaiter.dev")...)
	s := w.replicas[0]
	guarded := s.Guard(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.URL.Path) }))
	ask := func(path string) (int, string) {
		answer := httptest.NewRecorder()
		guarded.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
		return answer.Code, answer.Body.String()
	}
	for _, path := range []string{"/", "//votes", "/votes"} {
		if code, _ := ask(path); code != http.StatusNotFound {
			t.Errorf("before the path is loaded %s gives %d", path, code)
		}
	}
	if err := s.Ready(nil); !errors.Is(err, errNotLoaded) {
		t.Errorf("ready before the first round: %v", err)
	}
	w.round(t, 0)
	path, _, _ := pathsAt(s.path, w.clock.Now())
	if code, body := ask("/" + path + "/votes"); code != http.StatusOK || body != "/votes" {
		t.Errorf("the secret path gives %d %q", code, body)
	}
	for _, other := range []string{"/", "/votes", "//votes", "/" + strings.Repeat("0", 32) + "/votes", "/" + path[:31] + "/votes", "/" + path + "0/votes", "/x/" + path + "/votes", "/" + strings.ToUpper(path) + "x/votes", "/" + s.path + "/votes"} {
		if code, _ := ask(other); code != http.StatusNotFound {
			t.Errorf("%s gives %d", other, code)
		}
	}
	// A path that somebody has seen is soon good for nothing; until the configurations have another, it is.
	w.clock.Step(pathPeriod)
	if code, _ := ask("/" + path + "/votes"); code != http.StatusOK {
		t.Errorf("the former path gives %d", code)
	}
	w.clock.Step(pathPeriod)
	if code, _ := ask("/" + path + "/votes"); code != http.StatusNotFound {
		t.Errorf("a path from two periods ago gives %d", code)
	}
}

// pathOf returns the secret path that a replica writes now.
func pathOf(s *Serving) string {
	current, _, _ := pathsAt(s.path, s.Clock.Now())
	return current
}

// Where two replicas' clocks lie on two sides of a change, neither takes back what the other has written.
func TestClocksThatDifferDoNotFightOverThePath(t *testing.T) {
	t.Parallel()
	seed, change := "ab", time.Unix(0, 0).Add(pathPeriod)
	ahead, _, _ := pathsAt(seed, change)
	current, coming, _ := pathsAt(seed, change.Add(-time.Second))
	url := "https://localhost:9443/" + ahead + "/votes"
	h := hook{name: "votes.tidewaiter.dev", config: &admissionregistrationv1.WebhookClientConfig{URL: &url}}
	if err := h.point(paths{current, coming}, nil); err != nil || !strings.Contains(*h.config.URL, ahead) {
		t.Errorf("the one behind writes %s (%v), want it left", *h.config.URL, err)
	}
	url = "https://localhost:9443/" + current + "/votes"
	next, after, _ := pathsAt(seed, change)
	if err := h.point(paths{next, after}, nil); err != nil || !strings.Contains(*h.config.URL, ahead) {
		t.Errorf("the one ahead writes %s (%v), want its own", *h.config.URL, err)
	}
}

func TestHandshakesBeforeTheFirstLoadFailClearly(t *testing.T) {
	t.Parallel()
	config := &tls.Config{}
	(&Serving{}).TLS(config)
	if _, err := config.GetCertificate(nil); !errors.Is(err, errNotLoaded) {
		t.Errorf("got %v", err)
	}
}

func TestASecretOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	theirs := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.WebhookConfiguration},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{"tls.crt": []byte("theirs"), "tls.key": []byte("theirs")},
	}
	w := newWorld(t, 1, append(configurationsOf("votes.tidewaiter.dev"), theirs)...)
	before := &corev1.Secret{}
	w.get(t, before)
	err := w.replicas[0].ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "was not made by this operator") {
		t.Errorf("got %v", err)
	}
	if err := w.replicas[0].Ready(nil); err == nil {
		t.Error("ready all the same")
	}
	after := &corev1.Secret{}
	if w.get(t, after); after.ResourceVersion != before.ResourceVersion {
		t.Error("the Secret was written")
	}
	// The twin: one that cannot be read is ours, and is left alone too.
	after.Labels = map[string]string{ownerLabel: owner}
	w.update(t, after)
	err = w.replicas[0].ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is left as it is") {
		t.Errorf("got %v", err)
	}
	if w.get(t, after); string(after.Data["tls.crt"]) != "theirs" {
		t.Error("the Secret was written")
	}
}

func TestACertificateThatIsBroughtIsServedAndNothingElseTouched(t *testing.T) {
	t.Parallel()
	s := begun(t)
	data, err := format(s)
	if err != nil {
		t.Fatal(err)
	}
	theirs := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": data["tls.key"]},
	}
	configurations := configurationsOf("votes.tidewaiter.dev")
	for _, configuration := range configurations {
		for _, h := range hooksOf(configuration) {
			h.config.CABundle = []byte("their bundle")
		}
	}
	w := newWorld(t, 1, append(configurations, theirs)...)
	replica := w.replicas[0]
	replica.CertificateSecret = "theirs"
	w.clock.Step(300 * day)
	if err := replica.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !replica.certificate.Leaf.Equal(s.serving.Leaf) {
		t.Error("another certificate is served")
	}
	if secret, kept := w.secret(t); kept.ca.Leaf != nil || len(secret.Data) != 1 || kept.path == "" {
		t.Errorf("the Secret holds more than the path: %v", secret.Data)
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	w.get(t, mutating)
	got := mutating.Webhooks[0].ClientConfig
	if string(got.CABundle) != "their bundle" || *got.Service.Path != "/"+pathOf(replica)+"/votes" {
		t.Errorf("bundle %q, path %q", got.CABundle, *got.Service.Path)
	}
	stored := &corev1.Secret{}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(theirs), stored); err != nil || !bytes.Equal(stored.Data["tls.crt"], data["tls.crt"]) || len(stored.Labels) > 0 {
		t.Errorf("their Secret was written: %v %v", stored.Labels, err)
	}

	// Without its entries there is an error that names it.
	stored.Data = nil
	w.update(t, stored)
	if err := replica.ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "tidewaiter-system/theirs") {
		t.Errorf("got %v", err)
	}
}

func TestAMissingConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	both := configurationsOf("votes.tidewaiter.dev")
	w := newWorld(t, 1, both[0])
	s := w.replicas[0]
	err := s.ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ValidatingWebhookConfiguration tidewaiter-webhook is not installed") {
		t.Errorf("got %v", err)
	}
	if s.certificate == nil {
		t.Error("no certificate is served")
	}
	if err := s.Ready(nil); err == nil {
		t.Error("ready all the same")
	}
	if err := w.api.Create(t.Context(), both[1]); err != nil {
		t.Fatal(err)
	}
	w.round(t, 0)
	if err := s.Ready(nil); err != nil {
		t.Errorf("not ready with both: %v", err)
	}
}

func TestAConfigurationIsWrittenOnlyAsItWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, configurationsOf("votes.tidewaiter.dev")...)
	var patches []error
	w.replicas[0].Client = interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if len(patches) == 0 { // somebody else is first
				newer := o.DeepCopyObject().(client.Object)
				w.get(t, newer)
				newer.SetAnnotations(map[string]string{"changed": "meanwhile"})
				w.update(t, newer)
			}
			err := c.Patch(ctx, o, p, opts...)
			patches = append(patches, err)
			return err
		},
	})
	w.round(t, 0)
	if len(patches) != 3 || !apierrors.IsConflict(patches[0]) || patches[1] != nil || patches[2] != nil {
		t.Errorf("patches: %v, want a conflict and one for each configuration", patches)
	}
}
