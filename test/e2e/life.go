// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// kinds of the API, as their CRDs are named.
var kinds = []string{"approvalrequests.tidewaiter.dev", "governedservers.tidewaiter.dev", "toolpolicies.tidewaiter.dev"}

// upgrade shows that an upgrade replaces the managers and nothing else.
func upgrade(e *e2e) []step {
	t := e.team("upgrade")
	const before, after = `{"invoiceId":"2026-9","note":"before"}`, `{"invoiceId":"2026-9","note":"after"}`
	var kept map[string]string
	return []step{
		{"a team with a call that waits is there", func(ctx context.Context) (string, error) {
			if out, err := t.startWithPeople(ctx); err != nil {
				return out, err
			}
			got, err := t.expects(ctx, "update_invoice", before, "ApprovalPending")
			return got.Text, err
		}},
		{"the chart is upgraded, while the operator's namespace enforces restricted", func(ctx context.Context) (_ string, err error) {
			if kept, err = e.identities(ctx); err != nil {
				return "", err
			}
			if out, err := e.kubectl(ctx, "label", "namespace", home, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
				return out, err
			}
			return e.run(ctx, "", "helm", "upgrade", "tidewaiter", "charts/tidewaiter", "--namespace="+home, "--set=manager.podAnnotations.upgraded=yes", "--wait")
		}},
		{"the managers are others, and within restricted", func(ctx context.Context) (string, error) {
			pods := &corev1.PodList{}
			if err := e.admin.List(ctx, pods, client.InNamespace(home), client.MatchingLabels{"app.kubernetes.io/component": "manager"}); err != nil {
				return "", err
			}
			var seen []string
			for i := range pods.Items {
				if pod := &pods.Items[i]; pod.DeletionTimestamp == nil {
					seen = append(seen, describe(pod))
					if pod.Annotations["upgraded"] != "yes" {
						return describe(pod), errors.New("this is a pod of the time before")
					}
				}
			}
			if len(seen) != 2 {
				return strings.Join(seen, "\n"), fmt.Errorf("there are %d managers", len(seen))
			}
			return strings.Join(seen, "\n"), nil
		}},
		{"CRDs, objects of teams and the key of votes are the same", func(ctx context.Context) (string, error) {
			now, err := e.identities(ctx)
			if diff := cmp.Diff(kept, now); err == nil && (diff != "" || len(now) < 5) {
				err = fmt.Errorf("%d objects (-before +after):\n%s", len(now), diff)
			}
			return fmt.Sprintf("%d objects with the identities that they had", len(now)), err
		}},
		{"the call that waited is approved, and runs once", func(ctx context.Context) (string, error) {
			if out, err := t.approve(ctx, "before"); err != nil {
				return out, err
			}
			if got, err := t.expects(ctx, "update_invoice", before, ""); err != nil {
				return got.Text, err
			}
			return t.executed(ctx, "update_invoice", "note", "before", 1)
		}},
		{"control: one that nobody approves does not run", func(ctx context.Context) (string, error) {
			if got, err := t.expects(ctx, "update_invoice", after, "ApprovalPending"); err != nil {
				return got.Text, err
			}
			return t.executed(ctx, "update_invoice", "note", "after", 0)
		}},
	}
}

// identities of CRDs, of the objects of teams that people made, and of the key that vouches for votes.
func (e *e2e) identities(ctx context.Context) (map[string]string, error) {
	servers, requests, policies := &v1alpha1.GovernedServerList{}, &v1alpha1.ApprovalRequestList{}, &v1alpha1.ToolPolicyList{}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	for _, list := range []client.ObjectList{servers, requests, policies, crds} {
		if err := e.admin.List(ctx, list); err != nil {
			return nil, err
		}
	}
	keys := &corev1.ConfigMap{}
	if err := e.admin.Get(ctx, client.ObjectKey{Namespace: home, Name: v1alpha1.VotingKeys}, keys); err != nil {
		return nil, err
	}
	found := map[string]string{"root key": keys.Data["root"]}
	add := func(kind string, meta metav1.ObjectMeta) {
		found[kind+" "+meta.Namespace+"/"+meta.Name] = string(meta.UID)
	}
	for _, server := range servers.Items {
		add("GovernedServer", server.ObjectMeta)
	}
	for _, request := range requests.Items {
		add("ApprovalRequest", request.ObjectMeta)
	}
	for _, policy := range policies.Items {
		add("ToolPolicy", policy.ObjectMeta)
	}
	for _, crd := range crds.Items {
		if slices.Contains(kinds, crd.Name) {
			add("CRD", crd.ObjectMeta)
		}
	}
	return found, nil
}

// uninstall takes everything away, twice, in two orders, with teams whose pods run.
func uninstall(e *e2e) []step {
	t := e.team("last")
	documented, err := commands("docs/install.md", "## Uninstall")
	if err == nil && len(documented) != 2 {
		err = fmt.Errorf("docs/install.md has %d commands to uninstall, not two", len(documented))
	}
	if err != nil {
		return []step{{"the commands of docs/install.md are read", func(context.Context) (string, error) { return "", err }}}
	}
	crds := step{"the CRDs are deleted, with all objects of teams", func(ctx context.Context) (string, error) {
		return e.soon(ctx, "kubectl delete crd "+strings.Join(kinds, " "))
	}}
	namespaces := step{"the namespaces are deleted, with all pods", e.deleteNamespaces}
	nothing := step{"nothing is left, and nothing is Terminating", func(ctx context.Context) (string, error) {
		return e.leaves(ctx, func(string) bool { return true })
	}}
	return []step{
		{"$ " + documented[0], func(ctx context.Context) (string, error) { return e.soon(ctx, documented[0]) }},
		{"of the cluster and the operator's namespace it leaves what the page says", func(ctx context.Context) (string, error) {
			return e.leaves(ctx, ofTheOperator, kept...)
		}},
		{"control: the servers of teams are governed as before", func(ctx context.Context) (string, error) {
			t := team{e2e: e, Namespace: shop}
			read, err := t.expects(ctx, "get_invoice", `{"invoiceId":"2026-9"}`, "")
			if err != nil {
				return read.Text, err
			}
			refund, err := t.expects(ctx, "refund_invoices", `{"accountId":"acc_17","amount":5000}`, "RuleDenied")
			return read.Text + "\n" + refund.Text, err
		}},
		crds,
		namespaces,
		nothing,
		{"control: installed again, with a team: what is there is seen", func(ctx context.Context) (string, error) {
			if out, err := e.run(ctx, "", "helm", "install", "tidewaiter", "charts/tidewaiter", "--namespace="+home, "--create-namespace", "--wait"); err != nil {
				return out, err
			}
			if out, err := t.start(ctx); err != nil {
				return out, err
			}
			now, err := e.inventory(ctx)
			if more := len(now) - len(e.before); err == nil && more < 40 {
				err = fmt.Errorf("only %d objects more than before", more)
			}
			return fmt.Sprintf("%d objects, %d more than before", len(now), len(now)-len(e.before)), err
		}},
		crds,
		namespaces,
		{"$ " + documented[1], func(ctx context.Context) (string, error) { return e.soon(ctx, documented[1]) }},
		nothing,
	}
}

// kept is what an uninstallation of the chart leaves on purpose, besides namespaces.
var kept = []string{
	"CustomResourceDefinition /approvalrequests.tidewaiter.dev", "CustomResourceDefinition /governedservers.tidewaiter.dev",
	"CustomResourceDefinition /toolpolicies.tidewaiter.dev",
	"ConfigMap " + home + "/tidewaiter-voting-keys", "Secret " + home + "/tidewaiter-voting-keys", "Secret " + home + "/tidewaiter-webhook",
	"RoleBinding " + home + "/tidewaiter-baselines-readers", "Lease " + home + "/tidewaiter-manager",
}

// byItself are kinds and names that Kubernetes makes for a namespace, a Service or a CRD.
var byItself = []string{"Namespace", "APIService", "IPAddress", "kube-root-ca.crt", "default"}

// ofTheOperator tells what a cluster or the operator's namespace has, and has not by itself.
func ofTheOperator(what string) bool {
	kind, name, _ := strings.Cut(what, " ")
	namespace, name, _ := strings.Cut(name, "/")
	return (namespace == "" || namespace == home) && !slices.Contains(byItself, kind) && !slices.Contains(byItself, name)
}

// soon runs a command that has to end within the time for an uninstallation.
func (e *e2e) soon(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, removal)
	defer cancel()
	return e.run(ctx, "", "bash", "-eu", "-o", "pipefail", "-c", command)
}

// deleteNamespaces deletes the operator's, and those of all teams.
func (e *e2e) deleteNamespaces(ctx context.Context) (string, error) {
	namespaces := &corev1.NamespaceList{}
	if err := e.admin.List(ctx, namespaces); err != nil {
		return "", err
	}
	var names []string
	for _, namespace := range namespaces.Items {
		if ours(namespace.Name) {
			names = append(names, namespace.Name)
		}
	}
	out, err := e.soon(ctx, "kubectl delete namespace "+strings.Join(names, " "))
	if err != nil {
		left, _ := e.kubectl(ctx, "get", "namespaces,pods", "--all-namespaces", "--output=wide") // what it says is more than that it failed
		out += left
	}
	return out, err
}
