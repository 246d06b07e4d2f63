// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot holds one immutable view of a governed server, all that a verdict on a call needs, and swaps it
// atomically; building one does no I/O.
package snapshot

import (
	"slices"
	"sync/atomic"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// Inputs are the objects that a snapshot is built from; the snapshot keeps them and changes none.
type Inputs struct {
	Server   *v1alpha1.GovernedServer
	Policies []*policy.Policy
	// OperatorNamespace is where baselines count.
	OperatorNamespace string
	// Requests of the server, of earlier servers of its name too.
	Requests []*v1alpha1.ApprovalRequest
	// Definitions are what the server itself said of its tools last, by name; a tool may be missing.
	Definitions map[string]tool.Descriptor
}

// Snapshot is one view of a governed server.
type Snapshot struct {
	Server      *v1alpha1.GovernedServer
	Policy      *policy.Server
	Definitions map[string]tool.Descriptor
	// EndpointDigest of the server's endpoint as it is now.
	EndpointDigest string

	byAction map[string][]*v1alpha1.ApprovalRequest
	byTool   map[string][]*v1alpha1.ApprovalRequest
}

// Build joins the inputs. It returns an error only for an endpoint that has no digest.
func Build(in Inputs) (*Snapshot, error) {
	endpoint, err := tool.EndpointDigest(in.Server.Spec.Endpoint)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{
		Server: in.Server, Definitions: in.Definitions, EndpointDigest: endpoint,
		byAction: map[string][]*v1alpha1.ApprovalRequest{}, byTool: map[string][]*v1alpha1.ApprovalRequest{},
	}
	facts := policy.Facts{Denied: map[string]bool{}, Ambiguous: map[string]bool{}, Drifted: map[string]bool{}}
	for _, r := range in.Requests {
		if r.Spec.ServerRef.UID != string(in.Server.UID) {
			continue
		}
		s.byAction[r.Spec.ActionHash] = append(s.byAction[r.Spec.ActionHash], r)
		s.byTool[r.Spec.Tool] = append(s.byTool[r.Spec.Tool], r)
		switch r.CurrentPhase() {
		case v1alpha1.PhaseDenied:
			facts.Denied[r.Spec.Tool] = true
		case v1alpha1.PhaseAmbiguous:
			facts.Ambiguous[r.Spec.Tool] = true
		default:
		}
		// A denial counts wherever it is written, signed or not: it only takes away.
		if r.Status.Decision == v1alpha1.DecisionDenied || slices.ContainsFunc(r.Status.Votes, denies) {
			facts.Denied[r.Spec.Tool] = true
		}
	}
	for _, t := range in.Server.Status.Tools {
		if seen, found := in.Definitions[t.Name]; found && seen.Digest() != t.Digest {
			facts.Drifted[t.Name] = true
		}
	}
	s.Policy = policy.Compile(policy.Inputs{Server: in.Server, Policies: in.Policies, OperatorNamespace: in.OperatorNamespace, EndpointDigest: endpoint, Facts: facts})
	return s, nil
}

func denies(v v1alpha1.Vote) bool { return v.Decision == v1alpha1.DecisionDenied }

// Caller is whose a request, a limit or a session is: who calls, together with the user that it acts for.
type Caller struct{ Username, ActsFor string }

// CallerOf returns whose the requests of a requester are.
func CallerOf(r v1alpha1.Requester) Caller { return Caller{r.Username, r.ActsFor} }

// SameAction returns the requests of one action, in no order.
func (s *Snapshot) SameAction(hash string) []*v1alpha1.ApprovalRequest { return s.byAction[hash] }

// OfTool returns the requests of one tool, in no order.
func (s *Snapshot) OfTool(name string) []*v1alpha1.ApprovalRequest { return s.byTool[name] }

// Pending returns how many requests of one caller wait for a person.
func (s *Snapshot) Pending(caller Caller) int {
	n := 0
	for _, same := range s.byAction {
		for _, r := range same {
			if CallerOf(r.Spec.Requester) == caller && r.CurrentPhase() == v1alpha1.PhasePending {
				n++
			}
		}
	}
	return n
}

// Request returns the request with this UID, nil when there is none.
func (s *Snapshot) Request(hash string, uid string) *v1alpha1.ApprovalRequest {
	for _, r := range s.byAction[hash] {
		if string(r.UID) == uid {
			return r
		}
	}
	return nil
}

// Store holds the snapshot in force of one server. The zero value holds none.
type Store struct{ current atomic.Pointer[Snapshot] }

// Load returns the snapshot in force, nil when there is none: then every call is refused.
func (s *Store) Load() *Snapshot { return s.current.Load() }

// Swap puts a snapshot into force; nil takes the last one away.
func (s *Store) Swap(next *Snapshot) { s.current.Store(next) }
