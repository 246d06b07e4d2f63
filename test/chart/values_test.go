// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	kyaml "sigs.k8s.io/yaml"
)

// TestValues has for every refusal the twin that is taken.
func TestValues(t *testing.T) {
	t.Parallel()
	const pem = "\"-----BEGIN CERTIFICATE-----\\nMIIB\""
	for name, tc := range map[string]struct{ taken, refused, says string }{
		"an unknown key":                          {"manager: {replicas: 2}", "replicas: 2", "additional properties 'replicas' not allowed"},
		"an unknown key of the manager":           {"manager: {replicas: 2}", "manager: {replicaCount: 2}", "additional properties 'replicaCount' not allowed"},
		"an unknown key of the certificate":       {"webhook: {certificate: {from: Manager}}", "webhook: {certificate: {mode: Manager}}", "additional properties 'mode' not allowed"},
		"no replica":                              {"manager: {replicas: 1}", "manager: {replicas: 0}", "'/manager/replicas': minimum"},
		"a number as text":                        {"manager: {replicas: 2}", "manager: {replicas: '2'}", "got string, want integer"},
		"an address without a length":             {"manager: {allowAddresses: [10.1.2.3/32]}", "manager: {allowAddresses: [10.1.2.3]}", "does not match pattern"},
		"a lifetime without a unit":               {"manager: {votingKeyLifetime: 720h}", "manager: {votingKeyLifetime: '720'}", "does not match pattern"},
		"a tag that goes on below":                {"image: {tag: v1.10_a-b}", "image: {tag: \"1\\n        securityContext: {privileged: true}\"}", "'/image/tag': "},
		"a repository that is two words":          {"image: {repository: 'registry.example.com:5000/a/b-c'}", "image: {repository: 'a b'}", "'/image/repository': "},
		"a tag of the gateway that is a comment":  {"gateway: {image: {tag: '1'}}", "gateway: {image: {tag: '#1'}}", "'/gateway/image/tag': "},
		"a Secret to pull with in capitals":       {"image: {pullSecrets: [{name: a.b-c}]}", "image: {pullSecrets: [{name: A}]}", "'/image/pullSecrets/0/name'"},
		"a Secret to pull with without a name":    {"image: {pullSecrets: [{name: a}]}", "image: {pullSecrets: [{name: ''}]}", "'/image/pullSecrets/0/name'"},
		"a Secret that is a path":                 {"manager: {notifySecret: a}", "manager: {notifySecret: a/b}", "'/manager/notifySecret'"},
		"a priority class that is two words":      {"manager: {priorityClassName: 'yes'}", "manager: {priorityClassName: 'a: b'}", "'/manager/priorityClassName'"},
		"a peer that is nobody in particular":     {"networkPolicy: {metricsFrom: [{namespaceSelector: {}}]}", "networkPolicy: {metricsFrom: [{}]}", "'/networkPolicy/metricsFrom/0': minProperties"},
		"a digest that is short":                  {"image: {digest: 'sha256:" + strings.Repeat("0", 64) + "'}", "image: {digest: 'sha256:00'}", "does not match pattern"},
		"an image of a gateway without a name":    {"gateway: {image: {repository: registry.example.com/gateway}}", "gateway: {image: {repository: ''}}", "'/gateway/image/repository': '' does not match pattern"},
		"a resource that is no quantity":          {"gateway: {resources: {requests: {cpu: 50m, memory: 1.5Gi}}}", "gateway: {resources: {requests: {cpu: much}}}", "'/gateway/resources/requests/cpu'"},
		"two resources in one":                    {"gateway: {resources: {limits: {cpu: 2}}}", "gateway: {resources: {limits: {'cpu=1,memory': 1}}}", "additional properties 'cpu=1,memory' not allowed"},
		"resources of another kind":               {"gateway: {resources: {limits: {}}}", "gateway: {resources: {image: {}}}", "additional properties 'image' not allowed"},
		"a policy of pulling that there is not":   {"image: {pullPolicy: Never}", "image: {pullPolicy: never}", "value must be one of"},
		"a Secret without a name":                 {"webhook: {certificate: {from: Secret, secretName: mine, caBundle: " + pem + "}}", "webhook: {certificate: {from: Secret, caBundle: " + pem + "}}", "'/webhook/certificate/secretName': minLength"},
		"a Secret that nobody vouches for":        {"webhook: {certificate: {from: Secret, secretName: mine, caBundle: " + pem + "}}", "webhook: {certificate: {from: Secret, secretName: mine}}", "'/webhook/certificate/caBundle'"},
		"the Secret that the manager keeps":       {"webhook: {certificate: {from: Secret, secretName: mine, caBundle: " + pem + "}}", "webhook: {certificate: {from: Secret, secretName: tidewaiter-webhook, caBundle: " + pem + "}}", "'/webhook/certificate/secretName': 'not' failed"},
		"a Secret that is named and not used":     {"webhook: {certificate: {from: CertManager}}", "webhook: {certificate: {from: CertManager, secretName: mine}}", "'/webhook/certificate/secretName': maxLength"},
		"a peer that is no object":                {"networkPolicy: {metricsFrom: [{podSelector: {}}]}", "networkPolicy: {metricsFrom: [monitoring]}", "got string, want object"},
		"a word for yes":                          {"crds: {keep: true}", "crds: {keep: 'yes'}", "got string, want boolean"},
		"a key beside those of a chart around it": {"global: {registry: x}", "globals: {registry: x}", "additional properties 'globals' not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := try(t, "template", release, chart, "--values", valuesFile(t, tc.taken)); err != nil {
				t.Errorf("its twin is refused: %v", err)
			}
			if _, err := try(t, "template", release, chart, "--values", valuesFile(t, tc.refused)); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want %q", err, tc.says)
			}
		})
	}
}

// TestTheTableOfValues keeps README.md of the chart true to values.yaml, in which every value is explained.
func TestTheTableOfValues(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, row := range rows(t) {
		table.WriteString("| `" + row.name + "` | `" + row.value + "` | " + row.comment + " |\n")
	}
	const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"
	file := filepath.Join(chart, "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no %q before %q", file, begin, end)
	}
	golden(t, file, before+begin+table.String()+end+after)
}

// TestTheSchemaKnowsEveryValue, and no other: one that is misspelt would allow what nothing reads.
func TestTheSchemaKnowsEveryValue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	properties("", schema, known)
	delete(known, "global")
	want := map[string]bool{}
	for _, row := range rows(t) {
		want[row.name] = true
		for name := range known {
			if strings.HasPrefix(name, row.name+".") { // a part of a value
				delete(known, name)
				known[row.name] = true
			}
		}
	}
	if diff := cmp.Diff(want, known); diff != "" {
		t.Errorf("-values.yaml +values.schema.json:\n%s", diff)
	}
}

// properties adds the names of the leaves of a schema.
func properties(prefix string, schema map[string]any, to map[string]bool) {
	members, ok := schema["properties"].(map[string]any)
	if !ok {
		to[strings.TrimSuffix(prefix, ".")] = true
		return
	}
	for name, member := range members {
		properties(prefix+name+".", member.(map[string]any), to)
	}
}

type row struct{ name, value, comment string }

// rows are the values of values.yaml, each with the comment above it. A mapping with a comment is one value; without, its
// members are.
func rows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	all := rowsOf(t, "", document.Content[0])
	if len(all) < 15 {
		t.Errorf("found only %d values", len(all))
	}
	return all
}

func rowsOf(t *testing.T, prefix string, mapping *yaml.Node) []row {
	t.Helper()
	var found []row
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		if key.HeadComment == "" && value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			found = append(found, rowsOf(t, name+".", value)...)
			continue
		}
		var words []string
		for line := range strings.SplitSeq(key.HeadComment, "\n") {
			words = append(words, strings.TrimSpace(strings.TrimPrefix(line, "#")))
		}
		comment := strings.Join(words, " ")
		if !strings.HasSuffix(comment, ".") {
			t.Errorf("values.yaml does not explain %s in a whole sentence above it: %q", name, comment)
		}
		var plain any
		if err := value.Decode(&plain); err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, row{name, string(shown), comment})
	}
	return found
}

// A name may look like something else to a reader of YAML.
func TestANameIsTextWhateverItLooksLike(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"yes", "1", "1e3", "null", "a"} {
		values := valuesFile(t, "manager: {notifySecret: '"+name+"', priorityClassName: '"+name+"'}\nimage: {pullSecrets: [{name: '"+name+"'}]}")
		manifest := helm(t, "template", release, chart, "--values", values, "--show-only", "templates/deployment.yaml")
		var is appsv1.Deployment
		if err := kyaml.UnmarshalStrict([]byte(manifest), &is); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		spec := is.Spec.Template.Spec
		if got := []string{spec.Volumes[0].Secret.SecretName, spec.PriorityClassName, spec.ImagePullSecrets[0].Name}; !slices.Equal(got, []string{name, name, name}) {
			t.Errorf("%q became %q", name, got)
		}
	}
}
