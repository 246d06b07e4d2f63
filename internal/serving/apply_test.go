// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// Whoever applies the manifests again, as GitOps does all the time, takes nothing back and meets no conflict: what the
// manager writes does not stand in them.
//
// The configurations are there once, so this does not run beside other tests.
func TestApplyingTheManifestsAgainTakesNothingBack(t *testing.T) {
	admin := plane.Client(t, plane.Admin)
	for _, object := range configurationsOf() { // of another test
		if err := admin.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	apply := func(stdin string, what ...string) (stderr string, exit int) {
		_, stderr, exit = plane.Kubectl(t, plane.Admin, stdin, append([]string{"apply", "--server-side"}, what...)...)
		return stderr, exit
	}
	if stderr, exit := apply("", "-k", "../../config/webhook"); exit != 0 {
		t.Fatal(stderr)
	}
	s := &Serving{
		Client: plane.Client(t, plane.Manager(t)), Namespace: fixture.SystemNamespace,
		Clock: testingclock.NewFakeClock(time.Now().Add(-day)), Names: []string{"tidewaiter-webhook." + fixture.SystemNamespace + ".svc"},
	}
	if err := s.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := written(t, admin)
	if stderr, exit := apply("", "-k", "../../config/webhook"); exit != 0 {
		t.Errorf("applied again: exit %d\n%s", exit, stderr)
	}
	for name, after := range written(t, admin) {
		if was := before[name]; !bytes.Equal(after.CABundle, was.CABundle) || *after.Service.Path != *was.Service.Path {
			t.Errorf("webhook %s leads to %s and its bundle has %d bytes, before %s and %d",
				name, *after.Service.Path, len(after.CABundle), *was.Service.Path, len(was.CABundle))
		}
	}

	// The same manifest with a path in it would be refused.
	manifest, err := os.ReadFile("../../config/webhook/validating.yaml")
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(manifest), "    service:\n", "    service:\n      path: /validate\n", 1)
	if stderr, exit := apply(with, "-f", "-"); exit == 0 || !strings.Contains(stderr, "clientConfig.service.path") {
		t.Errorf("a manifest that names a path: exit %d, want a conflict about it\n%s", exit, stderr)
	}
}

// written returns where each webhook leads, by its name; each has a path and a bundle.
func written(t *testing.T, admin client.Client) map[string]admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	all := map[string]admissionregistrationv1.WebhookClientConfig{}
	for _, configuration := range configurationsOf() {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil {
			t.Fatal(err)
		}
		for _, h := range hooksOf(configuration) {
			if h.config.Service == nil || h.config.Service.Path == nil || len(h.config.CABundle) == 0 {
				t.Errorf("webhook %s has no path or no bundle", h.name)
				continue
			}
			all[h.name] = *h.config
		}
	}
	if len(all) == 0 {
		t.Fatal("there is no webhook")
	}
	return all
}
