// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

var errCrash = errors.New("crashed")

type fataler interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Helper()
}

// view is a bundle that a configuration had.
type view struct {
	bundle []byte
	// until is when it was replaced; zero: it is there.
	until time.Time
}

// world is an API with both configurations, and some replicas.
type world struct {
	api      client.WithWatch
	clock    *testingclock.FakeClock
	replicas []*Serving
	// trouble decides about a call of a replica to the API; nil: all go well.
	trouble func(replica int) fate
	// overtake has another replica go on.
	overtake func(replica int)
	views    map[string][]view
	// trusted is until when a bundle and a certificate need not be looked at again.
	trusted map[string]time.Time
	// refreshed is when each replica last ended a round.
	refreshed []time.Time
}

// fate is what becomes of one call to the API.
type fate int

const (
	answered fate = iota
	// lost: it never arrived; unanswered: it arrived, and nobody heard.
	lost
	unanswered
	// overtaken: it arrives only after another replica has done rounds.
	overtaken
)

func configurationsOf(hookNames ...string) []client.Object {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.WebhookConfiguration}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.WebhookConfiguration}}
	for _, name := range hookNames {
		service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "tidewaiter-webhook"}}
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{Name: name, ClientConfig: service})
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name, ClientConfig: *service.DeepCopy()})
	}
	return []client.Object{mutating, validating}
}

func newWorld(t fataler, replicas int, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{
		api:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		clock: testingclock.NewFakeClock(start), views: map[string][]view{}, trusted: map[string]time.Time{},
	}
	for i := range replicas {
		w.replicas = append(w.replicas, &Serving{Client: w.through(i), Namespace: namespace, Clock: w.clock, Names: names})
		w.refreshed = append(w.refreshed, start)
	}
	return w
}

// through returns the API as a replica has it.
func (w *world) through(replica int) client.Client {
	call := func(do func() error) error {
		how := answered
		if w.trouble != nil {
			how = w.trouble(replica)
		}
		switch how {
		case lost:
			return errCrash
		case unanswered:
			_ = do()
			return errCrash
		case overtaken:
			w.overtake((replica + 1) % len(w.replicas))
		case answered:
		}
		return do()
	}
	return interceptor.NewClient(w.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return call(func() error { return c.Get(ctx, key, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return call(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return call(func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			err := call(func() error { return c.Patch(ctx, o, p, opts...) })
			return err
		},
	})
}

func (w *world) get(t fataler, object client.Object) {
	t.Helper()
	key := client.ObjectKey{Name: v1alpha1.WebhookConfiguration}
	if _, secret := object.(*corev1.Secret); secret {
		key.Namespace = namespace
	}
	if err := w.api.Get(context.Background(), key, object); err != nil {
		t.Fatal(err)
	}
}

func (w *world) secret(t fataler) (*corev1.Secret, state) {
	t.Helper()
	secret := &corev1.Secret{}
	w.get(t, secret)
	s, err := parse(secret.Data)
	if err != nil {
		t.Fatalf("the Secret was spoilt: %v", err)
	}
	return secret, s
}

// look checks that every API server, however late, trusts every replica, however late.
func (w *world) look(t fataler) {
	t.Helper()
	now := w.clock.Now()
	for _, object := range configurationsOf() {
		kind := fmt.Sprintf("%T", object)
		w.get(t, object)
		var bundle []byte
		for _, h := range hooksOf(object) {
			bundle = h.config.CABundle
		}
		views := w.views[kind]
		if n := len(views); n == 0 || !bytes.Equal(views[n-1].bundle, bundle) {
			if n > 0 {
				views[n-1].until = now
			}
			views = append(views, view{bundle: bundle})
		}
		w.views[kind] = views
		for _, v := range views {
			if len(v.bundle) == 0 || !v.until.IsZero() && !v.until.Add(lead).After(now) {
				continue
			}
			for i, replica := range w.replicas {
				if replica.certificate == nil {
					continue
				}
				pair := string(v.bundle) + string(replica.certificate.Leaf.Raw)
				if w.trusted[pair].After(now) {
					continue
				}
				w.trusted[pair] = now.Add(day)
				if err := trusts(v.bundle, replica.certificate.Leaf, now); err != nil {
					t.Fatalf("an API server with a %s of %s before (until %s) does not trust replica %d: %v", kind, now.Sub(v.until), v.until, i, err)
				}
			}
		}
	}
}

// round has a replica do a round without trouble.
func (w *world) round(t fataler, replica int) {
	t.Helper()
	if err := w.replicas[replica].ensure(context.Background()); err != nil {
		t.Fatalf("a round: %v", err)
	}
	w.refreshed[replica] = w.clock.Now()
	w.look(t)
}

// pass lets time pass; a replica that works does a round in less than retain.
func (w *world) pass(t fataler, d time.Duration) {
	t.Helper()
	for i := range w.replicas {
		if d > retain || w.clock.Now().Add(d).Sub(w.refreshed[i]) >= retain {
			w.round(t, i)
		}
	}
	w.clock.Step(d)
	w.look(t)
}
