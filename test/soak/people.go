// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// person votes on requests, and settles those whose fate nobody knows, as the server's count shows it.
type person struct {
	client   client.Client
	chance   *rand.Rand
	executed func() ([]execution, error)
	// minds are what was made up about each request: "" lets it expire.
	minds map[types.UID]v1alpha1.Decision
}

// work decides until the context ends. What the API does not take is tried again.
func (p *person) work(ctx context.Context) {
	p.minds = map[types.UID]v1alpha1.Decision{}
	for ctx.Err() == nil {
		p.round(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+p.chance.IntN(500)) * time.Millisecond):
		}
	}
}

func (p *person) round(ctx context.Context) {
	var all v1alpha1.ApprovalRequestList
	if err := p.client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return
	}
	for i := range all.Items {
		r := &all.Items[i]
		switch r.CurrentPhase() {
		case v1alpha1.PhasePending:
			if mind := p.mind(r); mind != "" {
				p.decide(ctx, r, mind)
			}
		case v1alpha1.PhaseAmbiguous:
			// Two of three are settled, and no sooner than every call on it has ended.
			if e := r.Status.Execution; r.UID[0]%3 != 0 && e != nil && e.Deadline != nil && time.Since(e.Deadline.Time) > 2*callTimeout {
				p.settle(ctx, r)
			}
		default:
		}
	}
}

// mind makes up a mind about a request, once. The tool that runs unattended is never denied: it would not any more.
func (p *person) mind(r *v1alpha1.ApprovalRequest) v1alpha1.Decision {
	mind, made := p.minds[r.UID]
	if made {
		return mind
	}
	switch dice := p.chance.IntN(100); {
	case dice < 80:
		mind = v1alpha1.DecisionApproved
	case dice < 90 && r.Spec.Tool != toolUnattended:
		mind = v1alpha1.DecisionDenied
	case dice < 94:
		mind = v1alpha1.DecisionDismissed
	}
	p.minds[r.UID] = mind
	return mind
}

func (p *person) decide(ctx context.Context, r *v1alpha1.ApprovalRequest, decision v1alpha1.Decision) error {
	patch := fmt.Sprintf(`{"status":{"decision":%q,"reason":"soaked"}}`, decision)
	return p.client.Status().Patch(ctx, r, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// settle says what the server's own count says.
func (p *person) settle(ctx context.Context, r *v1alpha1.ApprovalRequest) {
	done, err := p.executed()
	if err != nil {
		return
	}
	found := v1alpha1.ResolutionNotExecuted
	for _, e := range done {
		if e.Key == keyOf(r) {
			found = v1alpha1.ResolutionCommitted
		}
	}
	patch := fmt.Sprintf(`{"status":{"resolution":{"outcome":%q,"reason":"looked at the count"}}}`, found)
	p.client.Status().Patch(ctx, r, client.RawPatch(types.MergePatchType, []byte(patch))) // tried again, while it is Ambiguous
}

// keyOf returns the key in the arguments of a request.
func keyOf(r *v1alpha1.ApprovalRequest) string {
	var arguments struct{ Key string }
	if json.Unmarshal([]byte(r.Spec.Arguments), &arguments) != nil {
		return ""
	}
	return arguments.Key
}
