// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/cli"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// lint runs the plugin over a manifest on its standard input.
func lint(t *testing.T, manifest string, flags ...string) output {
	t.Helper()
	var out, errOut bytes.Buffer
	exit := cli.Run(t.Context(), append([]string{"kubectl-tidewaiter", "lint", "-"}, flags...), genericiooptions.IOStreams{In: strings.NewReader(manifest), Out: &out, ErrOut: &errOut})
	return output{stdout: out.String(), stderr: errOut.String(), exit: exit}
}

// What lint says without a cluster is what the API server says. It is stricter only about YAML itself: of a key that is
// there twice kubectl silently takes one.
func TestLintRefusesWhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	const policyHead = "apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: a}\nspec:\n"
	const serverHead = "apiVersion: tidewaiter.dev/v1alpha1\nkind: GovernedServer\nmetadata: {name: a}\nspec:\n"
	rule := func(fields string) string { return policyHead + "  targets: [a]\n  rules: [{" + fields + "}]\n" }
	for name, tc := range map[string]struct {
		manifest string
		taken    bool
	}{
		"a rule":                     {rule("name: a, tools: [x], decision: Deny, when: args.a > 1"), true},
		"a rule without a decision":  {rule("name: a, tools: [x]"), false},
		"a rule with a class":        {rule("name: a, tools: ['get_['], decision: Deny"), false},
		"a misspelt key":             {rule("name: a, tools: [x], decision: Deny, wehn: args.a > 1"), false},
		"a verb of another kind":     {rule("name: a, tools: [x], decision: RequireApproval, approvals: {verb: get}"), false},
		"approvals of a denial":      {rule("name: a, tools: [x], decision: Deny, approvals: {required: 2}"), false},
		"nobody required":            {rule("name: a, tools: [x], decision: RequireApproval, approvals: {required: 0}"), false},
		"a tool twice":               {rule("name: a, tools: [x, x], decision: Deny"), false},
		"two rules of one name":      {policyHead + "  targets: [a]\n  rules: [{name: a, tools: [x], decision: Deny}, {name: a, tools: [y], decision: Deny}]\n", false},
		"neither of two":             {policyHead + "  rules: [{name: a, tools: [x], decision: Deny}]\n", false},
		"a mode without selector":    {policyHead + "  targets: [a]\n  mode: Stopped\n", false},
		"a baseline in a namespace":  {policyHead + "  namespaceSelector: {}\n", false},
		"an alias":                   {policyHead + "  targets: &t [a]\n  rules: [{name: a, tools: *t, decision: Deny}]\n", true},
		"a number as a text":         {policyHead + "  targets: [1]\n", false},
		"a name with capitals":       {strings.Replace(rule("name: a, tools: [x], decision: Deny"), "name: a}", "name: A}", 1), false},
		"a label that is none":       {strings.Replace(rule("name: a, tools: [x], decision: Deny"), "name: a}", "name: a, labels: {a: '?'}}", 1), false},
		"an unknown metadata field":  {strings.Replace(rule("name: a, tools: [x], decision: Deny"), "name: a}", "name: a, label: {a: b}}", 1), false},
		"a server":                   {serverHead + "  endpoint: {url: 'https://a'}\n", true},
		"a server with two ends":     {serverHead + "  endpoint: {url: 'https://a', service: {name: a, port: 1}}\n", false},
		"a server with a short wait": {serverHead + "  endpoint: {url: 'https://a'}\n  discovery: {interval: 1s}\n", false},
		"a server with a dot":        {strings.Replace(serverHead, "name: a", "name: a.b", 1) + "  endpoint: {url: 'https://a'}\n", false},
		"a server with a status":     {serverHead + "  endpoint: {url: 'https://a'}\nstatus: {counts: {read: 1, reversible: 0, irreversible: 0}}\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifest := strings.Replace(tc.manifest, "metadata: {", "metadata: {namespace: "+namespace+", ", 1)
			said := lint(t, manifest)
			_, stderr, exit := plane.Kubectl(t, plane.Admin, manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
			if tc.taken != (exit == 0) || tc.taken != (said.exit == 0) {
				t.Errorf("the API server exits with %d, lint with %d\n%s%s%s", exit, said.exit, stderr, said.stdout, said.stderr)
			}
		})
	}
}

func TestLintComparesWithTheServersThatAreThere(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	definition, err := tool.Parse([]byte(`{"name":"refund_invoice","inputSchema":{"type":"object","properties":{"amount":{"type":"number"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	o.report(t, func(s *v1alpha1.GovernedServer) {
		for i := range s.Status.Tools {
			if s.Status.Tools[i].Name == definition.Name {
				s.Status.Tools[i].Digest = definition.Digest()
			}
		}
	})
	var shelf definitions.Shelf
	shelf.Add(definition.Canonical())
	if err := o.admin.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: definitions.ConfigMapName("billing"), Labels: map[string]string{v1alpha1.ServerLabel: "billing"}},
		BinaryData: shelf.Kept.BinaryData(),
	}); err != nil {
		t.Fatal(err)
	}
	reader := plane.User(t, "linter-"+o.namespace)
	policy := "apiVersion: tidewaiter.dev/v1alpha1\nkind: ToolPolicy\nmetadata: {name: a, namespace: " + o.namespace + "}\nspec:\n  targets: [billing]\n" +
		"  rules:\n  - name: large\n    tools: [refund_invoice]\n    when: args.amont > 5\n    decision: Deny\n"
	flags := []string{"--live", "--kubeconfig", plane.Kubeconfig(t, reader), "-o", "json"}
	if got := lint(t, policy, flags...); got.exit != 2 || !strings.Contains(got.stderr, "forbidden") {
		t.Errorf("without rights: %+v", got)
	}
	plane.Grant(t, o.namespace, reader, fixture.Rule("governedservers", "list"), fixture.Rule("toolpolicies", "list"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{definitions.ConfigMapName("billing")}, Verbs: []string{"get"}})
	got := lint(t, policy, flags...)
	var report struct {
		ToolsKnown bool
		Findings   []struct{ Message string }
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || !report.ToolsKnown || len(report.Findings) == 0 ||
		!strings.Contains(report.Findings[0].Message, "did you mean amount?") || got.exit != 1 {
		t.Errorf("%v: %+v", err, got)
	}
	if got := lint(t, strings.Replace(policy, "amont", "amount", 1), flags...); got.exit != 0 {
		t.Errorf("a policy that fits: %+v", got)
	}
}
