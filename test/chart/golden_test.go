// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files and the table of values anew")

// home is the namespace that golden files are for.
const home = "tidewaiter-system"

// matrix has values of every kind; each is a golden file in testdata and passes Helm's lint.
var matrix = map[string]string{
	"default":                      "",
	"certificates-by-cert-manager": "webhook: {certificate: {from: CertManager}}",
	"certificate-in-a-secret":      "webhook: {certificate: {from: Secret, secretName: corporate, caBundle: \"-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n\"}}",
	"crds-from-elsewhere":          "crds: {install: false}",
	"crds-not-kept":                "crds: {keep: false}",
	"image-by-digest":              "image: {repository: registry.example.com/tidewaiter-manager, digest: 'sha256:" + strings.Repeat("0a", 32) + "', pullPolicy: Always, pullSecrets: [{name: registry}]}",
	"image-by-tag":                 "image: {tag: dev, pullPolicy: Never}\ngateway: {image: {tag: dev}}",
	"gateways-that-need-more":      "gateway: {resources: {requests: {cpu: 1, memory: 128Mi}, limits: {memory: 1Gi, cpu: '2'}}}",
	"everything-of-monitoring":     all,
	"alerts-alone":                 "monitoring: {prometheusRule: true, labels: {release: kube-prometheus-stack}}",
	"one-replica":                  "manager: {replicas: 1}\npodDisruptionBudget: {enabled: false}\nnetworkPolicy: {enabled: false}",
	"metrics-for-nobody":           "networkPolicy: {metricsFrom: []}",
	"metrics-for-prometheus":       "networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}, podSelector: {matchLabels: {app.kubernetes.io/name: prometheus}}}]}",
	"every-setting-of-the-manager": `manager:
  verbosity: 4
  allowAddresses: [10.0.0.0/8, "fd00::/8"]
  votingKeyLifetime: 168h
  notifySecret: tidewaiter-notify
  resources: {requests: {cpu: 100m}, limits: {memory: 1Gi}}
  podAnnotations: {example.com/owner: platform}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/component: manager}}}]}}
  priorityClassName: system-cluster-critical
`,
}

// TestGolden shows what each set of values changes: of the default against config/default, of the others against the
// default.
func TestGolden(t *testing.T) {
	t.Parallel()
	defaults := rendered(t, home, "")
	for name, values := range matrix {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := changes(t, defaults, rendered(t, home, values))
			if name == "default" {
				got = changes(t, kustomized(t, config+"/default"), defaults)
			}
			golden(t, filepath.Join("testdata", name+".yaml"), got)
		})
	}
	t.Run("every golden file has its values", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("testdata/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if _, known := matrix[strings.TrimSuffix(filepath.Base(file), ".yaml")]; !known {
				t.Errorf("%s is of no values", file)
			}
		}
	})
}

// changes tells what is left out, and gives what is new or different, the specs of CRDs excepted.
func changes(t *testing.T, before, after map[string]*unstructured.Unstructured) string {
	t.Helper()
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if after[key] == nil {
			out.WriteString("# left out: " + key + "\n")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if cmp.Equal(before[key], after[key]) {
			continue
		}
		object := after[key].DeepCopy()
		if object.GetKind() == "CustomResourceDefinition" {
			delete(object.Object, "spec")
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(text))
	}
	return out.String()
}

// golden compares with a file, or writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run this test with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -update takes it as it is:\n%s", file, diff)
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range matrix {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			helm(t, "lint", "--strict", chart, "--values", valuesFile(t, values))
		})
	}
}
