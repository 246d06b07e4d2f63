// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/discovery"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/sidecar"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

func governedPodOf(name, ip string, age time.Duration, edits ...func(*corev1.Pod)) *corev1.Pod {
	return fixture.With(corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "harbour", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{v1alpha1.GovernLabel: "cranes"},
			CreationTimestamp: metav1.NewTime(made.Add(-age)),
		},
		Spec:   corev1.PodSpec{InitContainers: []corev1.Container{{Name: sidecar.GatewayContainer}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}, edits...)
}

// labelledLater has no gateway: its label came when it ran.
func labelledLater(p *corev1.Pod) { p.Spec.InitContainers[0].Name = "prepare" }

func notReady(p *corev1.Pod) { p.Status.Conditions = nil }

func inThePod(s *v1alpha1.GovernedServer) { s.Spec.Endpoint.URL = "http://127.0.0.1:9000/mcp" }

// askTools lists the tools, and returns who was asked.
func askTools(t *testing.T, d *dock) (asked discovery.Target, err error) {
	t.Helper()
	d.Through = Through{
		Token: func(_ context.Context, audience string) (string, error) { return "token for " + audience, nil },
		List: func(_ context.Context, target discovery.Target) (discovery.Result, error) {
			asked = target
			return discovery.Result{Tools: []tool.Descriptor{}}, nil
		},
	}
	d.Discover = func(_ context.Context, target discovery.Target) (discovery.Result, error) {
		asked = target
		return discovery.Result{}, nil
	}
	_, err = d.discover(t.Context(), d.stored(t))
	return asked, err
}

func TestTheGatewayOfAReadyPodIsAsked(t *testing.T) {
	t.Parallel()
	going := func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: made}, []string{"a/b"} }
	for name, tc := range map[string]struct {
		pods []client.Object
		want string // the address, "" for none
	}{
		"one pod":                                {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour)}, "10.0.0.1"},
		"the newest":                             {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour), governedPodOf("b", "10.0.0.2", time.Minute)}, "10.0.0.2"},
		"a ready one before a newer":             {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour), governedPodOf("b", "10.0.0.2", time.Minute, notReady)}, "10.0.0.1"},
		"one that is not ready, if alone":        {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, notReady)}, "10.0.0.1"},
		"IPv6":                                   {[]client.Object{governedPodOf("a", "fd00::1", time.Hour)}, "[fd00::1]"},
		"one that is going":                      {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, going)}, ""},
		"one without an address":                 {[]client.Object{governedPodOf("a", "", time.Hour)}, ""},
		"one that has ended":                     {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, ""},
		"one with the node's address":            {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, func(p *corev1.Pod) { p.Spec.HostNetwork = true })}, ""},
		"one of another server":                  {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, func(p *corev1.Pod) { p.Labels[v1alpha1.GovernLabel] = "barges" })}, ""},
		"one of another namespace":               {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, func(p *corev1.Pod) { p.Namespace = "other" })}, ""},
		"one that was labelled later":            {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, labelledLater)}, ""},
		"a gateway, not what was labelled later": {[]client.Object{governedPodOf("a", "10.0.0.1", time.Hour, notReady), governedPodOf("b", "10.0.0.2", time.Minute, labelledLater)}, "10.0.0.1"},
		"none":                                   {nil, ""},
	} {
		d := newDock(t, interceptor.Funcs{}, append(tc.pods, cranes(inThePod))...)
		asked, err := askTools(t, d)
		if tc.want == "" {
			if f := faultOf(err); err == nil || f.reason != v1alpha1.ReasonUnreachable || !strings.Contains(f.message, "tidewaiter.dev/govern: cranes") {
				t.Errorf("%s: asked %q, %v, want nobody asked", name, asked.URL, err)
			}
			continue
		}
		if want := "http://" + tc.want + ":9442/harbour/cranes/tools"; err != nil || asked.URL != want {
			t.Errorf("%s: asked %q, %v, want %q", name, asked.URL, err, want)
		}
		if got := asked.Headers.Get("Authorization"); got != "Bearer token for https://tidewaiter.dev/control/harbour/cranes" {
			t.Errorf("%s: with %q", name, got)
		}
	}
}

// Loopback that the operator may dial is its own, as on a machine without pods; and a server elsewhere is asked itself.
func TestOnlyAServerInThePodIsAskedThroughItsGateway(t *testing.T) {
	t.Parallel()
	pod := governedPodOf("a", "10.0.0.1", time.Hour)
	for name, tc := range map[string]struct {
		edit    func(*v1alpha1.GovernedServer)
		allow   string
		through bool
	}{
		"on loopback":                     {inThePod, "10.0.0.0/8", true},
		"on loopback that may be dialled": {inThePod, "127.0.0.0/8", false},
		"by standard input and output": {func(s *v1alpha1.GovernedServer) {
			s.Spec.Endpoint = v1alpha1.Endpoint{Stdio: &v1alpha1.StdioEndpoint{Container: "a"}}
		}, "10.0.0.0/8", true},
		"elsewhere": {func(*v1alpha1.GovernedServer) {}, "10.0.0.0/8", false},
	} {
		d := newDock(t, interceptor.Funcs{}, pod.DeepCopy(), cranes(tc.edit))
		d.Allow = []netip.Prefix{netip.MustParsePrefix(tc.allow)}
		asked, err := askTools(t, d)
		if err != nil || strings.Contains(asked.URL, ":9442/") != tc.through {
			t.Errorf("%s: asked %q, %v, want its gateway asked: %v", name, asked.URL, err, tc.through)
		}
	}
}

// A server is listed anew when another pod is asked.
func TestAnotherPodIsAnotherVersion(t *testing.T) {
	t.Parallel()
	d := newDock(t, interceptor.Funcs{}, cranes(inThePod))
	var versions []string
	note := func() {
		t.Helper()
		v, err := d.version(t.Context(), d.stored(t))
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, v)
	}
	note()
	first := governedPodOf("a", "10.0.0.1", time.Hour)
	if err := d.api.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	note()
	if err := d.api.Create(t.Context(), governedPodOf("b", "10.0.0.2", 2*time.Hour)); err != nil { // older, so not asked
		t.Fatal(err)
	}
	note()
	if err := d.api.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	note()
	if versions[0] == versions[1] || versions[1] != versions[2] || versions[2] == versions[3] {
		t.Errorf("versions are %q", versions)
	}
}

func TestATokenIsKeptWhileItIsGood(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	tokens := &Tokens{Client: plane.Client(t, plane.Manager(t)), Clock: clock, Namespace: fixture.SystemNamespace}
	get := func(audience string) string {
		t.Helper()
		token, err := tokens.For(t.Context(), audience)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := get("https://tidewaiter.dev/control/a/b")
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: first, Audiences: []string{"https://tidewaiter.dev/control/a/b"}}}
	if err := plane.Client(t, plane.Admin).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:tidewaiter-system:tidewaiter-manager" {
		t.Errorf("the token is of %+v", review.Status)
	}
	if get("https://tidewaiter.dev/control/a/b") != first {
		t.Error("a good token is asked for again")
	}
	if get("https://tidewaiter.dev/control/a/c") == first {
		t.Error("two servers get one token")
	}
	clock.Step(tokenLifetime - tokenMargin + time.Minute)
	if get("https://tidewaiter.dev/control/a/b") == first {
		t.Error("a token that is about to end is kept")
	}
	if len(tokens.kept) != 1 {
		t.Errorf("%d tokens are kept, want the one that is good", len(tokens.kept))
	}
}
