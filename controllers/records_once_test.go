// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// harbour is an API server whose managers read it through caches that lag, and crash at any write.
type harbour struct {
	*dock
	// past are states of the API server, the newest last; a cache shows one of them.
	past []state
	// cachedServer and cachedRequests are where in the past the caches stand, each on its own.
	cachedServer, cachedRequests int
	// writesLeft until the manager crashes; negative for never.
	writesLeft int
}

type state struct {
	server   v1alpha1.GovernedServer
	requests []v1alpha1.ApprovalRequest
}

var errCrash = errors.New("the manager is gone")

func newHarbour(t *rapid.T) *harbour {
	h := &harbour{writesLeft: -1}
	h.dock = newDock(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			server, ok := obj.(*v1alpha1.GovernedServer)
			if !ok {
				return c.Get(ctx, key, obj, opts...)
			}
			h.past[h.cachedServer].server.DeepCopyInto(server)
			return nil
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			requests, ok := list.(*v1alpha1.ApprovalRequestList)
			if !ok {
				return c.List(ctx, list, opts...)
			}
			for _, request := range h.past[h.cachedRequests].requests {
				requests.Items = append(requests.Items, *request.DeepCopy())
			}
			return nil
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if h.writesLeft == 0 {
				return errCrash
			}
			h.writesLeft--
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	}, cranes())
	h.remember(t)
	return h
}

// remember adds the state of the API server to what caches may show.
func (h *harbour) remember(t *rapid.T) {
	var requests v1alpha1.ApprovalRequestList
	if err := h.api.List(t.Context(), &requests); err != nil {
		t.Fatal(err)
	}
	h.past = append(h.past, state{server: *h.stored(t), requests: requests.Items})
}

func (h *harbour) run(t *rapid.T) {
	_, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: cranesKey})
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	h.remember(t)
}

// TestEveryDecisionIsCountedExactlyOnce tries orders of decisions, reconciles with caches that lag or go back in time
// (as on a change of leader), crashes between any two writes, and removals of requests that are marked.
func TestEveryDecisionIsCountedExactlyOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHarbour(t)
		endpoint := endpointOf(t, cranes())
		tools := []string{"lift_box", "move_box"}
		want := map[string][3]int32{}
		made := 0
		t.Repeat(map[string]func(*rapid.T){
			"decide": func(t *rapid.T) {
				if made == 12 {
					t.Skip("enough")
				}
				name, kind := rapid.SampledFrom(tools).Draw(t, "tool"), rapid.IntRange(0, 2).Draw(t, "kind")
				how := []edit{clean, ended(v1alpha1.PhaseFailed, v1alpha1.OutcomeToolError), ended(v1alpha1.PhaseDenied, "")}[kind]
				made++
				request := newRequest(how, forTool(name, "sha256:"+name), withUID(fmt.Sprint(made)), func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = endpoint })
				if err := h.api.Create(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				counts := want[name]
				counts[kind]++
				want[name] = counts
				h.remember(t)
			},
			"servers lag":       func(t *rapid.T) { h.cachedServer = rapid.IntRange(0, len(h.past)-1).Draw(t, "server") },
			"requests lag":      func(t *rapid.T) { h.cachedRequests = rapid.IntRange(0, len(h.past)-1).Draw(t, "requests") },
			"servers catch up":  func(*rapid.T) { h.cachedServer = len(h.past) - 1 },
			"requests catch up": func(*rapid.T) { h.cachedRequests = len(h.past) - 1 },
			"settle": func(t *rapid.T) {
				h.writesLeft = -1
				for range 3 {
					h.cachedServer, h.cachedRequests = len(h.past)-1, len(h.past)-1
					h.run(t)
				}
				h.cachedServer = len(h.past) - 1
			},
			"reconcile": func(t *rapid.T) {
				h.writesLeft = rapid.IntRange(-1, 4).Draw(t, "writes until the crash")
				h.run(t)
			},
			"remove what is marked": func(t *rapid.T) {
				var all v1alpha1.ApprovalRequestList
				if err := h.api.List(t.Context(), &all); err != nil {
					t.Fatal(err)
				}
				for i := range all.Items {
					if isAccounted(&all.Items[i]) {
						if err := h.api.Delete(t.Context(), &all.Items[i]); err != nil && !apierrors.IsNotFound(err) {
							t.Fatal(err)
						}
					}
				}
				h.remember(t)
			},
			"": func(t *rapid.T) {
				for _, r := range h.stored(t).Status.Records {
					if w := want[r.Tool]; r.Approved > w[0] || r.Failed > w[1] || r.Denied > w[2] {
						t.Fatalf("counted too much: %+v, want at most %v", r, w)
					}
				}
			},
		})
		h.writesLeft = -1
		for range 5 {
			h.cachedServer, h.cachedRequests = len(h.past)-1, len(h.past)-1
			h.run(t)
		}
		got := map[string][3]int32{}
		for _, r := range h.stored(t).Status.Records {
			got[r.Tool] = [3]int32{r.Approved, r.Failed, r.Denied}
			if len(r.Accounted) > 0 {
				t.Errorf("%s still holds %v", r.Tool, r.Accounted)
			}
		}
		for _, name := range tools {
			if got[name] != want[name] {
				t.Errorf("%s has approved, failed, denied %v, want %v", name, got[name], want[name])
			}
		}
		var left v1alpha1.ApprovalRequestList
		if err := h.api.List(t.Context(), &left); err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(left.Items, func(r v1alpha1.ApprovalRequest) bool { return !isAccounted(&r) }); i >= 0 {
			t.Errorf("%s is not marked", left.Items[i].Name)
		}
	})
}

func TestARequestIsMarkedOnlyAfterTheRecordIsSaved(t *testing.T) {
	t.Parallel()
	request := newRequest(clean, func(r *v1alpha1.ApprovalRequest) { r.Spec.EndpointDigest = endpointOf(t, cranes()) })
	var order []string
	d := newDock(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		order = append(order, fmt.Sprintf("%T", obj))
		return c.SubResource(sub).Patch(ctx, obj, p, opts...)
	}}, cranes(), request)
	if _, err := d.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []string{"*v1alpha1.GovernedServer", "*v1alpha1.ApprovalRequest"}) {
		t.Errorf("wrote %v", order)
	}
	var marked v1alpha1.ApprovalRequest
	if err := d.api.Get(t.Context(), types.NamespacedName{Namespace: "harbour", Name: request.Name}, &marked); err != nil || !isAccounted(&marked) {
		t.Errorf("%v, conditions %v", err, marked.Status.Conditions)
	}
}
