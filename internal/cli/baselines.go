// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// policySet are the policies that servers of a namespace are judged by: its own, and the baselines.
type policySet struct {
	// operatorNamespace is where baselines count.
	operatorNamespace string
	objects           []v1alpha1.ToolPolicy
}

// policies reads the policies of the namespace, and the baselines. Those who set policy for a team need not be allowed to
// read the operator's namespace: then they are told, once, what the answers leave out.
func (s *session) policies(ctx context.Context) (policySet, error) {
	own, err := s.ownPolicies(ctx)
	if err != nil {
		return policySet{}, err
	}
	baselines, err := s.baselines(ctx)
	if apierrors.IsForbidden(err) {
		err = s.uncounted(refusal(err))
	}
	if err != nil {
		return policySet{}, err
	}
	return policySet{s.operatorNamespace, slices.Concat(own, baselines)}, nil
}

// ownPolicies reads the policies of the namespace.
func (s *session) ownPolicies(ctx context.Context) ([]v1alpha1.ToolPolicy, error) {
	var list v1alpha1.ToolPolicyList
	if err := s.client.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
		return nil, fmt.Errorf("list ToolPolicies: %w", err)
	}
	return list.Items, nil
}

// baselines reads the baselines of the operator's namespace; none where that is the namespace itself, whose policies are
// read anyway.
func (s *session) baselines(ctx context.Context) ([]v1alpha1.ToolPolicy, error) {
	if s.operatorNamespace == s.namespace {
		return nil, nil
	}
	return s.readBaselines(ctx)
}

func (s *session) readBaselines(ctx context.Context) ([]v1alpha1.ToolPolicy, error) {
	var list v1alpha1.ToolPolicyList
	if err := s.client.List(ctx, &list, client.InNamespace(s.operatorNamespace)); err != nil {
		return nil, fmt.Errorf("list baselines in namespace %s: %w", s.operatorNamespace, err)
	}
	return slices.DeleteFunc(list.Items, func(p v1alpha1.ToolPolicy) bool { return p.Spec.NamespaceSelector == nil }), nil
}

// uncounted says once that baselines are not counted, and why.
func (s *session) uncounted(why string) error {
	if s.saidUncounted {
		return nil
	}
	s.saidUncounted = true
	_, err := fmt.Fprintf(s.ErrOut, "Warning: baselines are not counted: %s; what is in force can be stricter than what follows\n", why)
	return err
}

// with returns the policies with one of them changed, or added.
func (set policySet) with(changed v1alpha1.ToolPolicy) policySet {
	all := []v1alpha1.ToolPolicy{changed}
	for i := range set.objects {
		if client.ObjectKeyFromObject(&set.objects[i]) != client.ObjectKeyFromObject(&changed) {
			all = append(all, set.objects[i])
		}
	}
	return policySet{set.operatorNamespace, all}
}

// compile judges a server under the policies, as the manager and the gateways do.
func (set policySet) compile(server *v1alpha1.GovernedServer, facts policy.Facts) (*policy.Server, error) {
	digest, err := tool.EndpointDigest(server.Spec.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("digest endpoint of %s: %w", server.Name, err)
	}
	return set.compileAt(server, digest, facts), nil
}

// compileAt judges a server as if its endpoint had that digest.
func (set policySet) compileAt(server *v1alpha1.GovernedServer, endpointDigest string, facts policy.Facts) *policy.Server {
	return policy.Compile(policy.Inputs{
		Server: server, Policies: parse(set.objects), OperatorNamespace: set.operatorNamespace, EndpointDigest: endpointDigest, Facts: facts,
	})
}

// parse compiles policies.
func parse(objects []v1alpha1.ToolPolicy) []*policy.Policy {
	all := make([]*policy.Policy, 0, len(objects))
	for i := range objects {
		all = append(all, policy.Parse(&objects[i]))
	}
	return all
}

// covers tells whether a policy speaks of a server.
func (set policySet) covers(p *v1alpha1.ToolPolicy, server *v1alpha1.GovernedServer) bool {
	return policy.Covers(p, server, set.operatorNamespace)
}

// isBaseline tells whether a policy is one of those that no team may change.
func isBaseline(p *v1alpha1.ToolPolicy) bool { return p.Spec.NamespaceSelector != nil }

// nameOf names a policy as verdicts do: a baseline with its namespace.
func nameOf(p *v1alpha1.ToolPolicy) string {
	if isBaseline(p) {
		return p.Namespace + "/" + p.Name
	}
	return p.Name
}
