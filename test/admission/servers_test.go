// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func namespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestGovernIsNeededForEveryChangeOfAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	server := func() *v1alpha1.GovernedServer { return new(fixture.GovernedServer(w.namespace, "billing")) }
	other := fixture.GovernedServer(w.namespace, "payroll")

	refused(t, "the editor creates it", serversPolicy, w.editor.Create(ctx, server()))
	refused(t, "the owner of another server creates it", serversPolicy, w.owner.Create(ctx, &other))
	taken(t, "the owner creates it", w.owner.Create(ctx, server()))

	for name, patch := range map[string]string{
		"spec":                 `{"spec":{"endpoint":{"url":"https://mcp.example.org/evil"}}}`,
		"a limit":              `{"spec":{"autonomy":{"cleanApprovals":1}}}`,
		"taking a limit away":  `{"spec":{"classification":null}}`,
		"a label":              `{"metadata":{"labels":{"team":"mine"}}}`,
		"an owner reference":   `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"4f0a"}]}}`,
		"a finalizer":          `{"metadata":{"finalizers":["example.com/wedge"]}}`,
		"spec beside a status": `{"spec":{"callTimeout":"1h"},"status":{"observedGeneration":3}}`,
	} {
		if name == "taking a limit away" {
			must(t, w.owner.Patch(ctx, server(), merge(`{"spec":{"classification":{"minimumTier":"Irreversible"}}}`)))
		}
		refused(t, "the editor changes "+name, serversPolicy, w.editor.Patch(ctx, server(), merge(patch)))
		taken(t, "the owner changes "+name, w.owner.Patch(ctx, server(), merge(patch), client.DryRunAll))
	}
	taken(t, "the editor annotates it", w.editor.Patch(ctx, server(), merge(`{"metadata":{"annotations":{"note":"mine"}}}`)))
	// Untyped, since Go writes the duration 10m as 10m0s.
	unchanged := &unstructured.Unstructured{}
	unchanged.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GovernedServer"))
	must(t, w.editor.Get(ctx, client.ObjectKeyFromObject(server()), unchanged))
	taken(t, "the editor puts back what is there", w.editor.Update(ctx, unchanged))
	taken(t, "the editor writes a status that is dropped",
		w.editor.Patch(ctx, server(), merge(`{"status":{"observedGeneration":3}}`)))

	refused(t, "the editor deletes it", serversPolicy, w.editor.Delete(ctx, server()))
	refused(t, "the editor deletes all", serversPolicy,
		w.editor.DeleteAllOf(ctx, server(), client.InNamespace(w.namespace)))
	taken(t, "the owner deletes it", w.owner.Delete(ctx, server()))
	refused(t, "the editor creates it anew", serversPolicy, w.editor.Create(ctx, server()))
}

func TestADeletionThatWasLetThroughIsFinishedByAnybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	server := fixture.GovernedServer(w.namespace, "billing")
	server.Finalizers = []string{"example.com/backup"}
	must(t, w.owner.Create(ctx, server.DeepCopy()))

	free := merge(`{"metadata":{"finalizers":null}}`)
	refused(t, "the editor takes a finalizer from a living server", serversPolicy, w.editor.Patch(ctx, server.DeepCopy(), free))
	must(t, w.owner.Delete(ctx, server.DeepCopy()))
	refused(t, "the editor changes a server that is being deleted", serversPolicy,
		w.editor.Patch(ctx, server.DeepCopy(), merge(`{"spec":{"callTimeout":"1h"}}`)))
	taken(t, "the editor takes the finalizer from a deleted server", w.editor.Patch(ctx, server.DeepCopy(), free))
}

func TestATerminatingNamespaceMayDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	server, policy := fixture.GovernedServer(w.namespace, "billing"), fixture.ToolPolicy(w.namespace, "house", "billing")
	request := fixture.ApprovalRequest(w.namespace, "billing", 1)
	must(t, w.owner.Create(ctx, server.DeepCopy()))
	must(t, w.owner.Create(ctx, policy.DeepCopy()))
	must(t, w.gateway.Create(ctx, request.DeepCopy()))

	terminate(t, w.namespace, func(ctx context.Context) error { return w.editor.Delete(ctx, server.DeepCopy()) })
	taken(t, "the policy of a terminating namespace", w.editor.Delete(ctx, policy.DeepCopy()))
	taken(t, "the request of a terminating namespace", w.editor.Delete(ctx, request.DeepCopy()))
}

func TestTheGarbageCollectorFollowsOwnerReferencesAndDoesNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	collector := plane.Client(t, plane.ServiceAccount(t, "kube-system", "generic-garbage-collector"))
	server, policy := fixture.GovernedServer(w.namespace, "billing"), fixture.ToolPolicy(w.namespace, "house", "billing")
	request := fixture.ApprovalRequest(w.namespace, "billing", 1)
	owned := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "4f0a"}}
	server.OwnerReferences, policy.OwnerReferences = owned, owned
	must(t, w.owner.Create(ctx, server.DeepCopy()))
	must(t, w.owner.Create(ctx, policy.DeepCopy()))
	must(t, w.gateway.Create(ctx, request.DeepCopy()))

	orphan := merge(`{"metadata":{"ownerReferences":null}}`)
	taken(t, "it orphans a server", collector.Patch(ctx, server.DeepCopy(), orphan))
	taken(t, "it orphans a policy", collector.Patch(ctx, policy.DeepCopy(), orphan))
	relabel := merge(`{"metadata":{"labels":{"team":"mine"}}}`)
	refused(t, "it labels a server", serversPolicy, collector.Patch(ctx, server.DeepCopy(), relabel))
	refused(t, "it labels a policy", policiesPolicy, collector.Patch(ctx, policy.DeepCopy(), relabel))
	taken(t, "it deletes a policy", collector.Delete(ctx, policy.DeepCopy()))
	taken(t, "it deletes a server", collector.Delete(ctx, server.DeepCopy()))
	refused(t, "it deletes a request", requestsPolicy, collector.Delete(ctx, request.DeepCopy()))
}

func TestStatusOfServersAndPoliciesIsTheManagersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	server, policy := fixture.GovernedServer(w.namespace, "billing"), fixture.ToolPolicy(w.namespace, "house", "billing")
	must(t, w.owner.Create(ctx, server.DeepCopy()))
	must(t, w.owner.Create(ctx, policy.DeepCopy()))

	record := `{"status":{"records":[{"tool":"wipe","approved":3,"failed":0,"denied":0,"ambiguous":0,"autonomy":"Unattended"}]}}`
	in := `{"status":{"conditions":[{"type":"Effective","status":"True","reason":"Mine","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
	clusterAdmin := plane.User(t, "cluster-admin@"+w.namespace)
	plane.GrantClusterRole(t, w.namespace, clusterAdmin, "cluster-admin")
	for name, who := range map[string]client.Client{
		"the editor": w.editor, "the owner": w.owner, "a cluster-admin": plane.Client(t, clusterAdmin),
	} {
		refused(t, name+" writes a server's record", statusPolicy, who.Status().Patch(ctx, server.DeepCopy(), merge(record)))
		refused(t, name+" writes a policy's status", statusPolicy, who.Status().Patch(ctx, policy.DeepCopy(), merge(in)))
		refused(t, name+" applies a server's record", statusPolicy, applyStatus(ctx, who, w.namespace))
	}
	taken(t, "the manager writes a server's record", w.manager.Status().Patch(ctx, server.DeepCopy(), merge(record)))
	taken(t, "the manager writes a policy's status", w.manager.Status().Patch(ctx, policy.DeepCopy(), merge(in)))
}

func applyStatus(ctx context.Context, who client.Client, namespace string) error {
	object := &v1alpha1.GovernedServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "billing"}}
	manifest := `{"apiVersion":"tidewaiter.dev/v1alpha1","kind":"GovernedServer","metadata":{"name":"billing"},` +
		`"status":{"counts":{"read":9,"reversible":0,"irreversible":0}}}`
	return who.Status().Patch(ctx, object, client.RawPatch(types.ApplyYAMLPatchType, []byte(manifest)),
		client.FieldOwner("mine"), client.ForceOwnership)
}
