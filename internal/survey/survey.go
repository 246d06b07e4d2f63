// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package survey reads what a policy meets in a cluster: the servers that it covers, with their tools, and what of it is
// in force there; it writes nothing.
package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/definitions"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

const (
	// MaxLines is how many lines a survey keeps of what is not in force.
	MaxLines = 256
	// maxTools is how many tools a survey tells of; of more it tells of none.
	maxTools = 50_000
	// maxRead is how many servers' kept definitions one survey reads.
	maxRead = 64
	// maxSchemas is how many schemas are remembered, and maxSchema how long one may be.
	maxSchemas, maxSchema = 2048, 32 << 10
)

// Surveyor reads what policies meet. It is safe for concurrent use.
type Surveyor struct {
	client, live      client.Reader
	library           *policy.Library
	operatorNamespace string
	// schemas are input schemas by the digest of the tool's definition.
	schemas *lru.Cache
}

// New returns a surveyor that lists policies and servers by cached, and reads kept definitions by live.
func New(cached, live client.Reader, library *policy.Library, operatorNamespace string) *Surveyor {
	return &Surveyor{client: cached, live: live, library: library, operatorNamespace: operatorNamespace, schemas: lru.New(maxSchemas)}
}

// Survey is what a policy meets.
type Survey struct {
	// Misplaced: the policy is a baseline outside of the operator's namespace, and counts for nothing.
	Misplaced bool
	// Findings of the policy, checked against the tools of the servers that it covers.
	Findings []policy.Finding
	// Lines say what is not in force on a server, at most MaxLines by server; Count is how many there are.
	Lines []v1alpha1.NotInForce
	Count int
}

func (s *Survey) add(lines ...v1alpha1.NotInForce) {
	s.Count += len(lines)
	s.Lines = append(s.Lines, lines[:min(len(lines), MaxLines-len(s.Lines))]...)
}

// Parse compiles a policy that an API server stores.
func (y *Surveyor) Parse(p *v1alpha1.ToolPolicy) *policy.Policy {
	return y.library.Parse([]v1alpha1.ToolPolicy{*p})[0]
}

// Of surveys a policy, which need not be stored; where one of its name is, it counts in the place of that.
func (y *Surveyor) Of(ctx context.Context, p *policy.Policy) (*Survey, error) {
	s := &Survey{}
	if p.IsBaseline() && p.Object().Namespace != y.operatorNamespace {
		s.Misplaced, s.Findings = true, p.Check(nil)
		return s, nil
	}
	servers, err := y.servers(ctx, p, s)
	if err != nil {
		return nil, err
	}
	policies, err := y.policies(ctx, p)
	if err != nil {
		return nil, err
	}
	var tools []policy.CheckedTool
	shelf := &shelf{surveyor: y, wanted: p.HasExpressions()}
	for i := range servers {
		server := &servers[i]
		endpoint, err := tool.EndpointDigest(server.Spec.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("digest endpoint of %s: %w", server.Name, err)
		}
		compiled := policy.Compile(policy.Inputs{
			Server: server, Policies: policies.of(server.Namespace), OperatorNamespace: y.operatorNamespace, EndpointDigest: endpoint,
		})
		s.add(compiled.NotInForce(p.Object())...)
		if len(tools) <= maxTools {
			schemas, err := shelf.of(ctx, server)
			if err != nil {
				return nil, err
			}
			tools = append(tools, compiled.Checked(schemas)...)
		}
	}
	if len(tools) > maxTools {
		tools = nil
	}
	s.Findings = p.Check(tools)
	return s, nil
}

// servers returns the servers that a policy covers, in order. Nobody may change them.
func (y *Surveyor) servers(ctx context.Context, p *policy.Policy, s *Survey) ([]v1alpha1.GovernedServer, error) {
	var all v1alpha1.GovernedServerList
	if !p.IsBaseline() {
		for _, target := range slices.Sorted(slices.Values(p.Object().Spec.Targets)) {
			var server v1alpha1.GovernedServer
			err := y.client.Get(ctx, client.ObjectKey{Namespace: p.Object().Namespace, Name: target}, &server)
			switch {
			case err == nil:
				all.Items = append(all.Items, server)
			case client.IgnoreNotFound(err) == nil:
				s.add(v1alpha1.NotInForce{Server: target, Field: "spec.targets", Reason: v1alpha1.NotInForceServerMissing,
					Message: fmt.Sprintf("there is no GovernedServer %s in this namespace", target)})
			default:
				return nil, fmt.Errorf("read server %s: %w", target, err)
			}
		}
		return all.Items, nil
	}
	if err := y.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	covered := slices.DeleteFunc(slices.Clone(all.Items), func(server v1alpha1.GovernedServer) bool { return !p.Covers(&server, y.operatorNamespace) })
	slices.SortFunc(covered, func(a, b v1alpha1.GovernedServer) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return covered, nil
}

// policies are those that count beside each other, by namespace.
type policies struct {
	byNamespace       map[string][]*policy.Policy
	operatorNamespace string
}

func (p policies) of(namespace string) []*policy.Policy {
	if namespace == p.operatorNamespace {
		return p.byNamespace[namespace]
	}
	return slices.Concat(p.byNamespace[namespace], p.byNamespace[p.operatorNamespace])
}

// policies returns the policies that may cover the same servers as one does, and that one.
func (y *Surveyor) policies(ctx context.Context, one *policy.Policy) (policies, error) {
	all := policies{map[string][]*policy.Policy{}, y.operatorNamespace}
	places := []string{one.Object().Namespace, y.operatorNamespace}
	if one.IsBaseline() {
		places = []string{""} // all of them
	}
	for _, place := range slices.Compact(places) {
		var stored v1alpha1.ToolPolicyList
		if err := y.client.List(ctx, &stored, client.InNamespace(place)); err != nil {
			return policies{}, fmt.Errorf("list policies: %w", err)
		}
		for _, p := range y.library.Parse(stored.Items) {
			if o := p.Object(); o.Namespace != one.Object().Namespace || o.Name != one.Object().Name {
				all.byNamespace[o.Namespace] = append(all.byNamespace[o.Namespace], p)
			}
		}
	}
	all.byNamespace[one.Object().Namespace] = append(all.byNamespace[one.Object().Namespace], one)
	return all, nil
}

// shelf finds the schemas of tools for one survey.
type shelf struct {
	surveyor *Surveyor
	// wanted: there is something to compare them with.
	wanted bool
	read   int
}

// of returns where the schemas of a server's tools are, as far as they are kept and there is time to read them.
func (h *shelf) of(ctx context.Context, server *v1alpha1.GovernedServer) (func(tool, digest string) []byte, error) {
	known := h.surveyor.schemas
	missing := slices.ContainsFunc(server.Status.Tools, func(t v1alpha1.ToolStatus) bool {
		_, found := known.Get(t.Digest)
		return !found
	})
	if h.wanted && missing && h.read < maxRead {
		h.read++
		kept, err := definitions.Read(ctx, h.surveyor.live, server)
		if err != nil {
			return nil, err
		}
		for _, t := range server.Status.Tools {
			if d, found := kept.Tool(t.Digest); found && len(d.InputSchema) <= maxSchema {
				known.Add(t.Digest, []byte(d.InputSchema))
			}
		}
	}
	return func(_, digest string) []byte {
		if schema, found := known.Get(digest); found && h.wanted {
			return schema.([]byte)
		}
		return nil
	}, nil
}
