// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/receipt"
)

// world is where a replay finds servers and policies; it reads each once.
type world struct {
	session  *session
	offline  bool
	proposed manifests
	notes    []string

	servers  map[client.ObjectKey]*governed
	policies map[string]*policySet
}

// governed is a server, and the policies that cover it: those in force, and those that would be.
type governed struct {
	object            *v1alpha1.GovernedServer
	inForce, proposed policySet
	// compiled are the same, compiled once; inForce is nil where there is no cluster.
	compiledInForce, compiledProposed []*policy.Policy
}

// server returns what is known of a server; nil where there is none.
func (w *world) server(ctx context.Context, key client.ObjectKey) (*governed, error) {
	if g, known := w.servers[key]; known {
		return g, nil
	}
	object, err := w.object(ctx, key)
	if err != nil {
		return nil, err
	}
	if w.servers == nil {
		w.servers = map[client.ObjectKey]*governed{}
	}
	if object == nil {
		w.servers[key] = nil
		return nil, nil //nolint:nilnil // a server that is gone is no error here
	}
	// A server that observes, or is stopped, says nothing about its policies.
	object.Spec.Mode = v1alpha1.ModeEnforce
	inForce, err := w.inForce(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	g := &governed{object: object, inForce: inForce.covering(object), proposed: w.proposed.over(inForce).covering(object)}
	g.compiledProposed = parse(g.proposed.objects)
	if !w.offline {
		g.compiledInForce = parse(g.inForce.objects)
	}
	w.servers[key] = g
	return g, nil
}

// object reads a server from the files, or else from the cluster.
func (w *world) object(ctx context.Context, key client.ObjectKey) (*v1alpha1.GovernedServer, error) {
	var object v1alpha1.GovernedServer
	if !w.offline && named(key) {
		err := w.session.client.Get(ctx, key, &object)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read GovernedServer %s: %w", key, err)
		}
	}
	for _, s := range w.proposed.servers {
		if client.ObjectKeyFromObject(s.Server) == key {
			s.Server.Status, s.Server.UID = object.Status, object.UID
			return s.Server.DeepCopy(), nil
		}
	}
	if object.Name == "" {
		return nil, nil //nolint:nilnil // as above
	}
	return &object, nil
}

// named tells whether a server can have this name: what others wrote into receipts is no reason to stop.
func named(key client.ObjectKey) bool {
	return len(validation.IsDNS1123Label(key.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(key.Name)) == 0
}

// inForce reads the policies that are in force in a namespace.
func (w *world) inForce(ctx context.Context, namespace string) (policySet, error) {
	if set, known := w.policies[namespace]; known {
		return *set, nil
	}
	set := policySet{operatorNamespace: w.session.operatorNamespace}
	if !w.offline {
		// The session of another namespace is this one, there.
		there := *w.session
		there.namespace = namespace
		var err error
		if set, err = there.policies(ctx); err != nil {
			return set, err
		}
		if there.saidUncounted && !w.session.saidUncounted {
			w.session.saidUncounted = true
			w.notes = append(w.notes, "baselines could not be read and do not count")
		}
	}
	if w.policies == nil {
		w.policies = map[string]*policySet{}
	}
	w.policies[namespace] = &set
	return set, nil
}

// covering returns the policies that speak of a server.
func (set policySet) covering(server *v1alpha1.GovernedServer) policySet {
	all := policySet{operatorNamespace: set.operatorNamespace}
	for i := range set.objects {
		if set.covers(&set.objects[i], server) {
			all.objects = append(all.objects, set.objects[i])
		}
	}
	return all
}

// judges are the policies in force and the proposed ones, compiled for one tool as it was.
type judges struct {
	// inForce is nil where there is no cluster.
	inForce, proposed *policy.Server
	// untouched: the proposed policies say of the tool what those in force say.
	untouched bool
	// looksAt are things that some policy looks at, and receipts may lack.
	looksAtGroups, looksAtAnnotations, annotationsKnown bool
}

// missing says what a policy looks at and the receipt does not have; "" for nothing.
func (j *judges) missing(r *receipt.Receipt) string {
	cut := len(r.Groups) == 0 || r.GroupsTotal > len(r.Groups) || slices.ContainsFunc(r.Groups, func(g string) bool { return strings.Contains(g, "… (") })
	switch {
	case j.looksAtGroups && cut:
		return "a policy looks at groups, and the receipt does not have all of the requester's"
	case j.looksAtAnnotations && !j.annotationsKnown:
		return "a policy looks at the annotations of the tool, and its definition of then is not known; give it with --tools"
	default:
		return ""
	}
}

// judge returns the policies for the tool of a receipt, nil where its server is not known.
func (r *replay) judge(ctx context.Context, line *receipt.Receipt, was verdictOnRecord) (*judges, error) {
	g, err := r.world.server(ctx, keyOf(line))
	if err != nil || g == nil {
		return nil, err
	}
	unattended := was.code == string(policy.ReasonUnattended)
	key := [...]string{line.Namespace, line.Server, line.Tool, line.ToolDigest, line.EndpointDigest, line.Tier, fmt.Sprint(unattended)}
	if known, found := r.judges.Get(key); found {
		return known.(*judges), nil
	}
	j := r.compile(g, line, unattended)
	r.judges.Add(key, j)
	return j, nil
}

// compile judges the tool as it was: its definition, endpoint and tier are those of the receipt. That it ran unattended
// proves that its record was clean then; else nothing is known of the record.
func (r *replay) compile(g *governed, line *receipt.Receipt, unattended bool) *judges {
	definition, known := r.definition(g.object, line)
	tool := v1alpha1.ToolStatus{
		Name: line.Tool, Digest: line.ToolDigest, ClassifiedTier: v1alpha1.Tier(line.Tier), Tier: v1alpha1.Tier(line.Tier),
		Source: v1alpha1.TierSourceName, Reason: "the tier on record", Annotations: definition.annotations,
	}
	server := g.object.DeepCopy()
	server.Status.EndpointDigest, server.Status.Accepted, server.Status.Records = line.EndpointDigest, nil, nil
	if server.Status.Server != nil {
		server.Status.Server.AcceptedInstructionsDigest = ""
	}
	if unattended {
		server.Status.Records = []v1alpha1.ToolRecord{{
			Tool: line.Tool, Digest: line.ToolDigest, EndpointDigest: line.EndpointDigest, Approved: max(server.Spec.Autonomy.CleanApprovals, 1),
		}}
	}
	of := func(policies []*policy.Policy, classified v1alpha1.Tier) *policy.Server {
		judged := server.DeepCopy()
		tool.ClassifiedTier = classified
		judged.Status.Tools = []v1alpha1.ToolStatus{tool}
		return policy.Compile(policy.Inputs{
			Server: judged, Policies: policies, OperatorNamespace: g.proposed.operatorNamespace, EndpointDigest: line.EndpointDigest,
		})
	}
	j := &judges{annotationsKnown: known}
	classified := tool.ClassifiedTier
	if known && !r.world.offline {
		// What the classifier says of this very definition holds if the policies in force make of it what was on record.
		if s, _ := of(g.compiledInForce, definition.classified).Standing(line.Tool); s.Tier == classified {
			classified = definition.classified
		}
	}
	if !r.world.offline {
		j.inForce = of(g.compiledInForce, classified)
	}
	j.proposed = of(g.compiledProposed, classified)
	says, wouldSay := g.inForce.speaksOf(line.Tool), g.proposed.speaksOf(line.Tool)
	j.untouched = !r.world.offline && equality.Semantic.DeepEqual(says, wouldSay)
	for _, spec := range wouldSay {
		j.looksAtGroups = j.looksAtGroups || looksAtGroups(&spec)
		j.looksAtAnnotations = j.looksAtAnnotations || looksAt(&spec, "annotations")
	}
	return j
}

// definition returns what is known of the definition that a receipt names.
func (r *replay) definition(server *v1alpha1.GovernedServer, line *receipt.Receipt) (definition, bool) {
	if t := server.Status.Tool(line.Tool); t != nil && t.Digest == line.ToolDigest {
		return definition{t.ClassifiedTier, t.Annotations}, true
	}
	d, known := r.known[[2]string{line.Tool, line.ToolDigest}]
	return d, known
}

// speaksOf returns what the policies have to say of one tool, by their names.
func (set policySet) speaksOf(tool string) map[string]v1alpha1.ToolPolicySpec {
	all := map[string]v1alpha1.ToolPolicySpec{}
	for i := range set.objects {
		p := &set.objects[i]
		says := v1alpha1.ToolPolicySpec{Mode: p.Spec.Mode, Callers: p.Spec.Callers}
		for _, rule := range p.Spec.Rules {
			if policy.Matches(rule.Tools, tool) {
				says.Rules = append(says.Rules, rule)
			}
		}
		for _, pin := range p.Spec.Pins {
			if pin.Tool == tool || pin.Tool == "" {
				says.Pins = append(says.Pins, pin)
			}
		}
		for _, tier := range p.Spec.Tiers {
			if tier.Tool == tool || policy.Matches(tier.Tools, tool) {
				says.Tiers = append(says.Tiers, tier)
			}
		}
		for _, autonomy := range p.Spec.Autonomy {
			if autonomy.Tool == tool {
				says.Autonomy = append(says.Autonomy, autonomy)
			}
		}
		if !equality.Semantic.DeepEqual(says, v1alpha1.ToolPolicySpec{}) {
			all[nameOf(p)] = says
		}
	}
	return all
}

// looksAtGroups tells whether a policy cares for the groups of a requester.
func looksAtGroups(spec *v1alpha1.ToolPolicySpec) bool {
	isGroup := func(s v1alpha1.Subject) bool { return s.Kind == v1alpha1.SubjectGroup }
	return slices.ContainsFunc(spec.Callers, isGroup) || looksAt(spec, "groups") ||
		slices.ContainsFunc(spec.Rules, func(r v1alpha1.Rule) bool { return slices.ContainsFunc(r.Subjects, isGroup) })
}

// looksAt tells whether the name of a member stands in an expression of a policy: if it does not, the expression cannot
// look at it.
func looksAt(spec *v1alpha1.ToolPolicySpec, member string) bool {
	return slices.ContainsFunc(spec.Rules, func(r v1alpha1.Rule) bool { return strings.Contains(r.When, member) }) ||
		slices.ContainsFunc(spec.Autonomy, func(a v1alpha1.AutonomyRule) bool { return strings.Contains(a.When, member) })
}
