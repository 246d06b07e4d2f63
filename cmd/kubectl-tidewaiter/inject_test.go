// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/cli"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/fixture/booth"
)

// inject runs the plugin over manifests on its standard input.
func inject(t *testing.T, manifest string, flags ...string) output {
	t.Helper()
	var out, errOut bytes.Buffer
	args := append([]string{"kubectl-tidewaiter", "inject", "-f", "-"}, flags...)
	exit := cli.Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(manifest), Out: &out, ErrOut: &errOut})
	return output{stdout: out.String(), stderr: errOut.String(), exit: exit}
}

const (
	governed = `apiVersion: tidewaiter.dev/v1alpha1
kind: GovernedServer
metadata: {name: cranes, namespace: port}
spec:
  endpoint: {url: 'http://127.0.0.1:9000/mcp'}  # on loopback
  gateway: {serviceAccountName: default}
`
	template = `
      metadata:
        labels: {tidewaiter.dev/govern: cranes}
      spec:
        automountServiceAccountToken: false
        newField: of a later Kubernetes
        containers:
        - {name: server, image: 'cranes:1', newField: too}
`
)

func workload(version, kind, before, name string) string {
	text := "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: port}\nspec:\n" + before
	return text + "    template:" + template
}

func TestInjectLooksIntoEveryKindOfWorkload(t *testing.T) {
	t.Parallel()
	pod := "apiVersion: v1\nkind: Pod\n" + strings.ReplaceAll(strings.ReplaceAll(template, "\n      ", "\n"), "govern: cranes}", "govern: cranes}\n  namespace: port")
	listed := strings.TrimSpace(strings.ReplaceAll(strings.Replace(workload("batch/v1", "Job", "", "a"), "    template", "  template", 1), "\n", "\n    "))
	for name, manifest := range map[string]string{
		"a pod":                             strings.TrimPrefix(pod, "\n"),
		"a Deployment":                      strings.Replace(workload("apps/v1", "Deployment", "", "a"), "    template", "  template", 1),
		"a StatefulSet":                     strings.Replace(workload("apps/v1", "StatefulSet", "", "a"), "    template", "  template", 1),
		"a DaemonSet":                       strings.Replace(workload("apps/v1", "DaemonSet", "", "a"), "    template", "  template", 1),
		"a ReplicaSet":                      strings.Replace(workload("apps/v1", "ReplicaSet", "", "a"), "    template", "  template", 1),
		"a ReplicationController":           strings.Replace(workload("v1", "ReplicationController", "", "a"), "    template", "  template", 1),
		"a Job":                             strings.Replace(workload("batch/v1", "Job", "", "a"), "    template", "  template", 1),
		"a CronJob":                         strings.Replace(workload("batch/v1", "CronJob", "  jobTemplate:\n   spec:\n", "a"), "    template", "    template", 1),
		"a List of them":                    "apiVersion: v1\nkind: List\nitems:\n- " + strings.TrimSpace(strings.ReplaceAll(strings.Replace(workload("batch/v1", "Job", "", "a"), "    template", "  template", 1), "\n", "\n  ")) + "\n",
		"a List in a List":                  "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - " + listed + "\n",
		"a list of one kind":                "apiVersion: batch/v1\nkind: JobList\nitems:\n- " + strings.ReplaceAll(listed, "\n  ", "\n") + "\n",
		"a list as the API server gives it": "apiVersion: batch/v1\nkind: JobList\nitems:\n-" + strings.ReplaceAll(strings.TrimPrefix(listed, "apiVersion: batch/v1\n    kind: Job\n   "), "\n  ", "\n") + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := inject(t, governed+"---\n"+manifest, "--voting-root-key=cm9vdA==", "--gateway-image=gateway:1")
			if first.exit != 0 || first.stderr != "" {
				t.Fatalf("exit %d: %s\n%s", first.exit, first.stderr, manifest)
			}
			if !strings.HasPrefix(first.stdout, governed+"---\n") {
				t.Errorf("the server's document is another:\n%s", first.stdout)
			}
			for part, want := range map[string]int{"name: tidewaiter-gateway\n": 1, "image: gateway:1\n": 1, "--server=port/cranes\n": 1, "newField: of a later Kubernetes\n": 1, "newField: too\n": 1} {
				if got := strings.Count(first.stdout, part); got != want {
					t.Errorf("%q is there %d times, want %d:\n%s", part, got, want, first.stdout)
				}
			}
			again := inject(t, first.stdout, "--voting-root-key=cm9vdA==", "--gateway-image=gateway:1")
			if diff := cmp.Diff(first.stdout, again.stdout); diff != "" {
				t.Errorf("injected again it changes (-first +again):\n%s", diff)
			}
		})
	}
}

func TestInjectPassesEverythingElseAsItIs(t *testing.T) {
	t.Parallel()
	manifest := "# a comment\n---\napiVersion: v1\nkind: Pod   # not governed\nmetadata: {name: a}\n--- # more\n\nkind: Other\nlist: [1, 2.50]\r\n---\n---\nno object\n"
	if got := inject(t, manifest, "--voting-root-key=cm9vdA=="); got.stdout != manifest || got.exit != 0 {
		t.Errorf("exit %d %s, got\n%q\nwant\n%q", got.exit, got.stderr, got.stdout, manifest)
	}
}

func TestInjectRefusesWhatTheWebhookWouldRefuse(t *testing.T) {
	t.Parallel()
	deployment := strings.Replace(workload("apps/v1", "Deployment", "", "a"), "    template", "  template", 1)
	for name, tc := range map[string]struct {
		manifest, want string
	}{
		"the host's network":  {governed + "---\n" + strings.Replace(deployment, "newField: of a later Kubernetes", "hostNetwork: true", 1), "Deployment a: the gateway cannot be put into this pod: hostNetwork"},
		"a label beside":      {governed + "---\n" + strings.Replace(strings.Replace(deployment, "labels: {tidewaiter.dev/govern: cranes}", "name: x", 1), "namespace: port}", "labels: {tidewaiter.dev/govern: cranes}}", 1), "belongs into the template"},
		"the operator's own":  {governed + "---\n" + strings.Replace(deployment, "namespace: port", "namespace: tidewaiter-system", 1), "operator's own namespace"},
		"YAML that is none":   {"a: [", "not valid YAML"},
		"a pod beside a mark": {"a: 1\n--- {apiVersion: v1, kind: Pod, metadata: {name: a, labels: {tidewaiter.dev/govern: cranes}}}\n", "line 2: nothing but a comment"},
		"a key that is twice": {"a: 1\na: 2\n", "not valid YAML"},
	} {
		got := inject(t, tc.manifest, "--voting-root-key=cm9vdA==")
		if got.exit != 1 || got.stdout != "" || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%s: exit %d, %s, want %q and nothing printed", name, got.exit, got.stderr, tc.want)
		}
	}
	if got := inject(t, deployment, "--voting-root-key=cm9vdA==", "--kubeconfig=/dev/null"); got.exit != 1 || !strings.Contains(got.stderr, "kubeconfig") {
		t.Errorf("a server that is not in the files, without a cluster: exit %d, %s", got.exit, got.stderr)
	}
}

// A last line without an end must not swallow the mark of the next file.
func TestInjectKeepsTheDocumentsOfFilesApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"the last line has an end": {[]string{"a: 1\n", "b: 1\n"}, "a: 1\n---\nb: 1\n"},
		"it has none":              {[]string{"a: 1", "b: 1\n"}, "a: 1\n---\nb: 1\n"},
		"it is a comment":          {[]string{"a: 1\n# end", "b: 1"}, "a: 1\n# end\n---\nb: 1"},
		"the next has a mark":      {[]string{"a: 1", "---\nb: 1\n"}, "a: 1\n---\nb: 1\n"},
		"a file is empty":          {[]string{"a: 1", "", "b: 1\n"}, "a: 1\n---\n---\nb: 1\n"},
		"one file alone":           {[]string{"a: 1"}, "a: 1"},
	} {
		folder, flags := t.TempDir(), []string{"kubectl-tidewaiter", "inject", "--voting-root-key=cm9vdA=="}
		for i, text := range tc.files {
			path := filepath.Join(folder, strconv.Itoa(i)+".yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			flags = append(flags, "-f", path)
		}
		var out, errOut bytes.Buffer
		if exit := cli.Run(t.Context(), flags, genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}); exit != 0 || out.String() != tc.want {
			t.Errorf("%s: exit %d %s, got\n%q\nwant\n%q", name, exit, errOut.String(), out.String(), tc.want)
		}
	}
}

// What inject prints is what the webhook makes of the same pod, and the API server takes it.
func TestInjectPrintsWhatTheOperatorWouldMake(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	server := fixture.GovernedServer(s.namespace, "dock")
	server.Spec.Endpoint = v1alpha1.Endpoint{URL: "http://localhost:9000/mcp"}
	if err := s.admin.Create(t.Context(), &server); err != nil {
		t.Fatal(err)
	}
	manifest := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  template:\n    metadata: {labels: {tidewaiter.dev/govern: dock}}\n" +
		"    spec: {restartPolicy: Never, serviceAccountName: default, automountServiceAccountToken: false, containers: [{name: server, image: 'dock:1'}]}\n"
	got := inject(t, manifest, "-n", s.namespace, "--kubeconfig", s.anaFile, "--gateway-image="+booth.GatewayImage, "--gateway-requests=cpu=1m", "--gateway-limits=cpu=1")
	if got.exit != 0 || !strings.Contains(got.stderr, "Warning: spec.gateway.serviceAccountName") {
		t.Fatalf("exit %d: %s", got.exit, got.stderr)
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(got.stdout), &job); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	pod.Namespace, pod.Name = s.namespace, "a"
	annotation := pod.Annotations[v1alpha1.InjectedAnnotation]
	if err := s.admin.Create(t.Context(), pod); err != nil {
		t.Fatalf("the webhook does not take what inject printed: %v", err)
	}
	if annotation == "" || pod.Annotations[v1alpha1.InjectedAnnotation] != annotation {
		t.Errorf("inject says %q, the webhook %q: they make different gateways", annotation, pod.Annotations[v1alpha1.InjectedAnnotation])
	}
	if got := pod.Spec.InitContainers[0].Resources.Requests.Cpu().String(); got != "1m" {
		t.Errorf("the gateway asks for cpu %s, want that of the flag", got)
	}
}
