// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// governor is a person who governs the server billing of a namespace, whose tool refund the manager has listed.
func governor(t *testing.T) (namespace string, apply func(policy string, args ...string) (said string, exit int)) {
	t.Helper()
	namespace = plane.Namespace(t)
	server, kept := withDefinition(t, namespace, "billing")
	status := server.Status
	admin := plane.Client(t, plane.Admin)
	for _, object := range []client.Object{server, kept} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	before := server.DeepCopy()
	server.Status = status
	if err := plane.Client(t, plane.Manager(t)).Status().Patch(t.Context(), server, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	gina := plane.User(t, "gina@"+namespace)
	plane.Grant(t, namespace, gina, fixture.Authority("billing", v1alpha1.VerbGovern), fixture.Rule("toolpolicies", "get", "create", "patch", "delete"))
	return namespace, func(policy string, args ...string) (string, int) {
		stdout, stderr, exit := plane.Kubectl(t, gina, policy, append([]string{"apply", "-n", namespace, "-f", "-"}, args...)...)
		return stdout + stderr, exit
	}
}

// denyingRefunds is the manifest of a policy that denies calls of refund for which a condition is true.
func denyingRefunds(name, when string) string {
	return `{apiVersion: tidewaiter.dev/v1alpha1, kind: ToolPolicy, metadata: {name: ` + name + `}, spec: {targets: [billing], rules: [
  {name: large, tools: [refund], when: "` + when + `", decision: Deny}]}}`
}

func TestWhoeverAppliesAPolicyIsWarned(t *testing.T) {
	t.Parallel()
	_, apply := governor(t)
	for name, tc := range map[string]struct {
		policy string
		want   string
	}{
		"an argument is misspelt": {denyingRefunds("misspelt", "args.amont > 5"), "Warning: spec.rules[0].when 1:"},
		"it does not compile":     {denyingRefunds("broken", "args.amount >"), "Warning: spec.rules[0].when 1:"},
		"it is as it should be":   {denyingRefunds("right", "args.amount > 5"), ""},
		"no tool is called so":    {strings.Replace(denyingRefunds("absent", "true"), "[refund]", "[refnd]", 1), "did you mean refund?"},
		"a rule is never reached": {strings.Replace(denyingRefunds("late", "true"), "rules: [", `rules: [{name: all, tools: ["*"], decision: Deny},`, 1), "is never reached"},
		"it promotes what is no more": {`{apiVersion: tidewaiter.dev/v1alpha1, kind: ToolPolicy, metadata: {name: old}, spec: {targets: [billing], tiers: [
  {tool: refund, digest: "` + fixture.Digest("0") + `", tier: Read, reason: it was harmless}]}}`, "review it and name that digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, how := range [][]string{{"--dry-run=server"}, nil} {
				said, exit := apply(tc.policy, how...)
				if exit != 0 || !strings.Contains(said, tc.want) || strings.Contains(said, "Warning") != (tc.want != "") {
					t.Errorf("with %v: exit %d, said %q, want 0 and %q", how, exit, said, tc.want)
				}
			}
		})
	}
}

// A second configuration has the same hint at an address where nobody answers. First it must not be ignored, to see that
// the API server calls it at all.
func TestPoliciesCanBeWrittenWithoutTheWebhook(t *testing.T) {
	t.Parallel()
	namespace, apply := governor(t)
	all, err := fixture.WebhooksAt("https://127.0.0.1:1/nobody", nil)
	if err != nil {
		t.Fatal(err)
	}
	dead := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	for _, object := range all {
		var c admissionregistrationv1.ValidatingWebhookConfiguration
		if object.GetKind() != "ValidatingWebhookConfiguration" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c); err != nil {
			t.Fatal(err)
		}
		for _, hook := range c.Webhooks {
			if hook.Name == "hint.policies.tidewaiter.dev" {
				hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
				dead.Webhooks = append(dead.Webhooks, hook)
			}
		}
	}
	if len(dead.Webhooks) != 1 || *dead.Webhooks[0].FailurePolicy != admissionregistrationv1.Ignore {
		t.Fatalf("the manifest has %+v, want one hint that is ignored when it fails", dead.Webhooks)
	}
	admin := plane.Client(t, plane.Admin)
	dead.Name, dead.Webhooks[0].FailurePolicy = "dead-"+namespace, new(admissionregistrationv1.Fail)
	if err := admin.Create(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), dead); err != nil {
			t.Error(err)
		}
	})
	await := func(what string, exits int) {
		t.Helper()
		err := fixture.Poll(t.Context(), what, func(context.Context) (bool, error) {
			_, exit := apply(denyingRefunds("late", "args.amount > 5"), "--dry-run=server")
			return exit == exits, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	await("a webhook that must answer", 1)
	dead.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
	if err := admin.Update(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	await("a webhook that need not answer", 0)
	if said, exit := apply(denyingRefunds("late", "args.amount > 5")); exit != 0 {
		t.Errorf("exit %d: %s", exit, said)
	}
}
