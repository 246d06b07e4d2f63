// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/internal/sidecar"
)

// TestTheChartIsWhatKustomizeBuilds: roles, webhooks, admission policies and all else, wherever it is installed and whoever
// makes the certificate.
func TestTheChartIsWhatKustomizeBuilds(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"tidewaiter-system", "guard"} {
		for name, tc := range map[string]struct{ component, values string }{
			"as it is":                     {"", ""},
			"certificates by cert-manager": {"components: [../certmanager]\n", "webhook: {certificate: {from: CertManager}}"},
			"monitoring":                   {"components: [../monitoring]\n", all},
		} {
			t.Run(namespace+" "+name, func(t *testing.T) {
				t.Parallel()
				want := kustomized(t, overlay(t, namespace, tc.component))
				got := rendered(t, namespace, tc.values)
				// The namespace of a release is made by whoever installs it.
				delete(want, "Namespace "+namespace)
				for _, object := range got {
					kept(t, object)
				}
				if len(want) < 40 {
					t.Errorf("only %d objects were compared", len(want))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-config/default +chart:\n%s", diff)
				}
			})
		}
	}
}

// overlay is config/default in a namespace, with a component.
func overlay(t *testing.T, namespace, component string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(config)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "manager", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "namespace: tidewaiter-system", "namespace: "+namespace, 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	over := filepath.Join(dir, "overlay")
	kustomization := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../default]\n" + component
	if err := os.Mkdir(over, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(over, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return over
}

// kept wants every CRD to outlive its release, and takes away what says so.
func kept(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	const policy = "helm.sh/resource-policy"
	annotations := object.GetAnnotations()
	if is := annotations[policy] == "keep"; is != (object.GetKind() == "CustomResourceDefinition") {
		t.Errorf("%s %s: kept at an uninstallation: %v", object.GetKind(), object.GetName(), is)
	}
	if _, has := annotations[policy]; has {
		delete(annotations, policy)
		object.SetAnnotations(annotations)
	}
}

// TestTheGatewayIsOfTheManagersVersion: of the chart's own too, which kustomize has by the comparison above, wherever it is not said.
func TestTheGatewayIsOfTheManagersVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &about); err != nil || about.AppVersion == "" {
		t.Fatalf("version %q, %v", about.AppVersion, err)
	}
	deployment, err := yaml.Marshal(rendered(t, "tidewaiter-system", "")["Deployment tidewaiter-manager"])
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&sidecar.Settings{}).AddFlags(flags)
	gateway := "ghcr.io/tidewaiter/tidewaiter-gateway:" + about.AppVersion
	for what, tc := range map[string]struct{ text, want string }{
		"the manager in the chart":        {string(deployment), "image: ghcr.io/tidewaiter/tidewaiter-manager:" + about.AppVersion + "\n"},
		"the gateway in the chart":        {string(deployment), "value: " + gateway + "\n"},
		"the gateway of a manager's flag": {flags.Lookup("gateway-image").DefValue, gateway},
	} {
		if !strings.Contains(tc.text, tc.want) {
			t.Errorf("%s: %q is not in %s", what, tc.want, tc.text)
		}
	}
}
