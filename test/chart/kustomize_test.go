// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
				for _, objects := range []map[string]*unstructured.Unstructured{want, got} {
					withoutImage(t, objects["Deployment tidewaiter-manager"])
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

// withoutImage takes away what kustomize and Helm say in ways of their own.
func withoutImage(t *testing.T, deployment *unstructured.Unstructured) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%d containers, %v", len(containers), err)
	}
	container := containers[0].(map[string]any)
	if image := fmt.Sprint(container["image"]); !strings.HasPrefix(image, "ghcr.io/tidewaiter/tidewaiter-manager:") {
		t.Errorf("the image is %s", image)
	}
	delete(container, "image")
	delete(container, "imagePullPolicy")
	container["args"] = slices.DeleteFunc(container["args"].([]any), func(arg any) bool { return strings.HasPrefix(arg.(string), "--gateway-image=") })
	if err := unstructured.SetNestedSlice(deployment.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
}
