// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/fixture"
)

// other returns another value of the same shape.
func other(value any) any {
	switch value := value.(type) {
	case string:
		return value[:len(value)-1] + "7"
	case float64:
		return value + 1
	case []any:
		return []any{value[0], "approve-more"}
	case map[string]any:
		for key := range value {
			value[key] = other(value[key])
			break
		}
		return value
	}
	return nil
}

func TestNoFieldOfARequestCanBeRewritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	request := fixture.ApprovalRequest(w.namespace, "billing", 1)
	request.Spec.Arguments = `{"invoice":"inv_17","amount":5,"to":"alice"}`
	must(t, w.gateway.Create(ctx, request.DeepCopy()))
	everything := person(t, w.namespace, "everything", fixture.Authority("billing", "approve", "approve-irreversible", "resolve", "serve", "govern", "promote"))
	patch := func(spec map[string]any) error {
		text, err := json.Marshal(map[string]any{"spec": spec})
		must(t, err)
		return everything.Patch(ctx, request.DeepCopy(), merge(string(text)))
	}
	invalid(t, "arguments with as many keys", patch(map[string]any{"arguments": `{"invoice":"inv_99","amount":9,"to":"mallo"}`}))

	text, err := json.Marshal(request.Spec)
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(text, &fields))
	if len(fields) < 12 {
		t.Errorf("only %d fields are tried", len(fields))
	}
	for name, value := range fields {
		must(t, json.Unmarshal(text, &fields)) // other changes maps in place
		invalid(t, "another "+name, patch(map[string]any{name: other(value)}))
		invalid(t, "no "+name, patch(map[string]any{name: nil}))
		must(t, json.Unmarshal(text, &fields))
		taken(t, "the same "+name, patch(map[string]any{name: fields[name]}))
	}
	var stored v1alpha1.ApprovalRequest
	must(t, everything.Get(ctx, client.ObjectKeyFromObject(&request), &stored))
	if stored.Generation != 1 || stored.Spec.Arguments != request.Spec.Arguments {
		t.Errorf("generation %d, arguments %s", stored.Generation, stored.Spec.Arguments)
	}
}

func TestRefusedWritesDoNotWedgeARequest(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	request := c.request(t, pending)
	for _, who := range []string{"editor", "approver", "gateway", "manager"} {
		for _, patch := range []string{to("Approved"), junkVote, approve[:len(approve)-1] + "," + junkVote[1:]} {
			declined(t, who+" writes "+patch, c.write(t, request, write{who, patch}))
		}
	}
	for _, step := range executing {
		taken(t, step.as+" writes "+step.patch, c.write(t, request, step))
	}
	taken(t, "the gateway reports success", c.write(t, request, write{"gateway", succeed}))
	var stored v1alpha1.ApprovalRequest
	must(t, c.editor.Get(t.Context(), client.ObjectKeyFromObject(&request), &stored))
	if stored.Status.Phase != v1alpha1.PhaseSucceeded || len(stored.Status.Votes) != 1 {
		t.Errorf("the request is %s with votes %v", stored.Status.Phase, stored.Status.Votes)
	}
}
