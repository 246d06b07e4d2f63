// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

func TestOnlyAGatewayOfTheServerCreatesRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere := newWorld(t)
	ctx := t.Context()
	create := fixture.Rule("approvalrequests", "create")
	payroll := account(t, w.namespace, "gateway-payroll", fixture.Authority("payroll", "serve"), create)
	plane.Grant(t, w.namespace, w.manager.cfg, fixture.Authority("billing", "serve"), create)
	foreign := account(t, elsewhere.namespace, "gateway-billing", fixture.Authority("billing", "serve"))
	plane.Grant(t, w.namespace, foreign.cfg, create)

	request := func(edits ...func(*v1alpha1.ApprovalRequest)) *v1alpha1.ApprovalRequest {
		return fixture.With(fixture.ApprovalRequest(w.namespace, "billing", 1), edits...)
	}
	for name, who := range map[string]client.Client{
		"the editor": w.editor, "the owner": w.owner, "another server's gateway": payroll, "another namespace's gateway": foreign,
		"the manager, whose role holds serve to give it on": w.manager,
	} {
		refused(t, name, requestsPolicy, who.Create(ctx, request()))
	}
	taken(t, "the gateway", w.gateway.Create(ctx, request(), client.DryRunAll))

	taken(t, "without a label", w.gateway.Create(ctx, request(func(r *v1alpha1.ApprovalRequest) { r.Labels = nil }), client.DryRunAll))
	for name, edit := range map[string]func(*v1alpha1.ApprovalRequest){
		"another server's name":  func(r *v1alpha1.ApprovalRequest) { r.Name = "payroll-1" },
		"a name without a dash":  func(r *v1alpha1.ApprovalRequest) { r.Name = "billing1" },
		"another server's label": func(r *v1alpha1.ApprovalRequest) { r.Labels[v1alpha1.ServerLabel] = "payroll" },
		"a finalizer":            func(r *v1alpha1.ApprovalRequest) { r.Finalizers = []string{"example.com/wedge"} },
		"an owner reference": func(r *v1alpha1.ApprovalRequest) {
			r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "4f0a"}}
		},
	} {
		refused(t, name, requestsPolicy, w.gateway.Create(ctx, request(edit)))
	}

	born := request(func(r *v1alpha1.ApprovalRequest) {
		r.Status.Phase, r.Status.Decision = v1alpha1.PhaseApproved, v1alpha1.DecisionApproved
	})
	taken(t, "with a status in the manifest", w.gateway.Create(ctx, born))
	must(t, w.editor.Get(ctx, client.ObjectKeyFromObject(born), born))
	if born.Status.Phase != v1alpha1.PhasePending || born.Status.Decision != "" {
		t.Errorf("a request created as Approved is %q with decision %q, want Pending without one", born.Status.Phase, born.Status.Decision)
	}
}

func TestARequestStaysAsItWasAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	request := fixture.ApprovalRequest(w.namespace, "billing", 1)
	must(t, w.gateway.Create(ctx, request.DeepCopy()))
	patch := func(who client.Client, patch string) error { return who.Patch(ctx, request.DeepCopy(), merge(patch)) }

	invalid(t, "another tool", patch(w.editor, `{"spec":{"tool":"list_invoices"}}`))
	invalid(t, "more time", patch(w.editor, `{"spec":{"ttlSeconds":86400}}`))
	invalid(t, "spec and status in one", patch(w.owner, `{"spec":{"tool":"x"},"status":{"decision":"Approved"}}`))
	refused(t, "another server's label", requestsPolicy, patch(w.editor, `{"metadata":{"labels":{"tidewaiter.dev/server":"payroll"}}}`))
	refused(t, "no label", requestsPolicy, patch(w.editor, `{"metadata":{"labels":null}}`))
	refused(t, "a finalizer", requestsPolicy, patch(w.editor, `{"metadata":{"finalizers":["example.com/wedge"]}}`))
	refused(t, "an owner reference", requestsPolicy,
		patch(w.editor, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"4f0a"}]}}`))
	taken(t, "a label of one's own", patch(w.editor, `{"metadata":{"labels":{"team":"finance"}}}`))
	taken(t, "an annotation", patch(w.editor, `{"metadata":{"annotations":{"ticket":"4711"}}}`))

	// On /status the API server drops what is not status before anybody can object; what is signed is what is stored.
	taken(t, "spec in a write of status", w.gateway.Status().Patch(ctx, request.DeepCopy(), merge(`{"spec":{"tool":"list_invoices"}}`)))

	// Whoever edits without --subresource=status decides nothing.
	taken(t, "a decision on the wrong resource", patch(w.owner, `{"status":{"decision":"Approved","phase":"Approved"}}`))
	must(t, w.editor.Get(ctx, client.ObjectKeyFromObject(&request), &request))
	if asked := fixture.ApprovalRequest(w.namespace, "billing", 1).Spec.Tool; request.Spec.Tool != asked {
		t.Errorf("the tool of a request became %s, want it to stay %s", request.Spec.Tool, asked)
	}
	if request.Status.Phase != v1alpha1.PhasePending || request.Status.Decision != "" {
		t.Errorf("a patch of the main resource made it %q, %q", request.Status.Phase, request.Status.Decision)
	}
}

func TestOnlyTheManagerDeletesRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	request := fixture.ApprovalRequest(w.namespace, "billing", 1)
	must(t, w.gateway.Create(ctx, request.DeepCopy()))
	requester := account(t, w.namespace, "agent", fixture.Authority("billing", "serve"), fixture.Rule("approvalrequests", "delete"))

	for name, who := range map[string]client.Client{"the editor": w.editor, "the owner": w.owner, "the agent": requester} {
		refused(t, name, requestsPolicy, who.Delete(ctx, request.DeepCopy()))
	}
	refused(t, "the editor deletes all", requestsPolicy,
		w.editor.DeleteAllOf(ctx, &v1alpha1.ApprovalRequest{}, client.InNamespace(w.namespace)))
	taken(t, "the manager", w.manager.Delete(ctx, request.DeepCopy()))
}
