// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// generation reads how often the spec of an object changed.
func generation(t *testing.T, namespace, kind string) string {
	t.Helper()
	return kubectl(t, "", "get", kind, "-n", namespace, "-o", "jsonpath={.items[*].metadata.generation}")
}

func TestWhatIsReadBackIsAppliedUnchanged(t *testing.T) {
	t.Parallel()
	for kind, tc := range map[string]struct{ manifest, change string }{
		"governedservers": {fmt.Sprintf(serverHead, "billing") + url, `{"spec":{"callTimeout":"6m"}}`},
		"toolpolicies":    {fmt.Sprintf(policyHead, "house") + "  targets: [billing]", `{"spec":{"targets":["billing","payroll"]}}`},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			for _, how := range [][]string{{"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}, {"apply", "-f", "-"}} {
				kubectl(t, tc.manifest, append(how, "-n", namespace)...)
				stored := kubectl(t, "", "get", kind, "-n", namespace, "-o", "yaml")
				kubectl(t, stored, "apply", "--server-side", "--force-conflicts", "--field-manager=git", "-f", "-", "-n", namespace, "--dry-run=server")
				if got := generation(t, namespace, kind); got != "1" {
					t.Errorf("after %v: generation %s, want 1", how, got)
				}
			}
			kubectl(t, kubectl(t, "", "get", kind, "-n", namespace, "-o", "yaml"), "replace", "-f", "-", "-n", namespace)
			if got := generation(t, namespace, kind); got != "1" {
				t.Errorf("after it was put back: generation %s, want 1", got)
			}
			name := strings.TrimSpace(kubectl(t, "", "get", kind, "-n", namespace, "-o", "name"))
			kubectl(t, "", "patch", name, "-n", namespace, "--type=merge", "-p", tc.change)
			if got := generation(t, namespace, kind); got != "2" {
				t.Errorf("after a change: generation %s, want 2", got)
			}
		})
	}
}

// kubectl reads a file before it asks for strictness, and keeps the last of two equal keys: what the API is sent no
// longer shows it. Whoever sends the file itself is told.
func TestAKeyGivenTwiceIsRefused(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	client, err := rest.HTTPClientFor(plane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	post := func(manifest string) (int, string) {
		address := strings.TrimSuffix(plane.Admin.Host, "/") + "/apis/tidewaiter.dev/v1alpha1/namespaces/" + namespace + "/toolpolicies?fieldValidation=Strict"
		resp, err := client.Post(address, "application/yaml", strings.NewReader(manifest))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	good := fmt.Sprintf(policyHead, "house") + tiers("{tools: [a], tier: Irreversible, reason: r}")
	if status, text := post(good + "\n  tiers: []"); status != http.StatusBadRequest || !strings.Contains(text, `key \"tiers\" already set`) {
		t.Errorf("HTTP %d %s", status, text)
	}
	if status, text := post(good); status != http.StatusCreated {
		t.Errorf("without it: HTTP %d %s", status, text)
	}
}

func TestAFileIsNoEndpoint(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	for _, endpoint := range []string{"file:///etc/passwd", "file://localhost/etc/passwd", "FILE:///x", "gopher://a/", "unix:///run/x.sock", "//169.254.169.254/", "javascript:1"} {
		err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(serverHead, "bad")+"  endpoint: {url: '"+endpoint+"'}")
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it invalid", endpoint, err)
		}
	}
	if err := fixture.Create(t.Context(), plane.Admin, namespace, fmt.Sprintf(serverHead, "good")+url); err != nil {
		t.Errorf("an address over HTTPS: %v", err)
	}
}
