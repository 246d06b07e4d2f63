// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy says what may be done with a tool: it joins a server's tiers, the policies that cover it and its track
// record into one verdict a call; it does no I/O and knows no clock.
package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// Tool is what is known of one tool when a verdict is made.
type Tool struct {
	Name           string
	Digest         string
	EndpointDigest string
	ClassifiedTier v1alpha1.Tier
	Source         v1alpha1.TierSource
	Reason         string
	// Record is the tool's track record; the zero value is an empty one.
	Record v1alpha1.ToolRecord
	// Denied and Ambiguous are what a gateway has seen of requests that the record may not hold yet.
	Denied, Ambiguous bool
	// Drifted: the server gave the gateway another definition than the one that was classified.
	Drifted bool
}

// Facts are what a gateway has seen itself and the manager may not have written down yet; a nil map knows nothing.
type Facts struct {
	// Denied and Ambiguous hold the names of tools with a Denied request, or an open Ambiguous one.
	Denied, Ambiguous map[string]bool
	// Drifted holds the names of tools that the server defined otherwise than the manager saw.
	Drifted map[string]bool
}

// Server is what is in force on one GovernedServer: compiled once, immutable, safe for concurrent use.
type Server struct {
	// Revision is SHA-256 over the sorted kind, UID and generation of the server and of every policy that covers it,
	// and over the table of tools: tiers, promotions, what is accepted.
	Revision string
	// EndpointDigest of the endpoint that the tools came from.
	EndpointDigest string

	object *v1alpha1.GovernedServer
	// policies are those that cover the server, baselines first, then by namespace and name.
	policies  []*Policy
	baselines int // how many of them are baselines
	// gates are the policies with callers, as many as gated are baselines.
	gates        []*Policy
	gated        int
	mode         mode
	pinning      v1alpha1.Pinning
	instructions acceptance
	unattended   bool
	tools        map[string]*compiled
	stranger     *compiled // stands for a tool that is not known
}

// compiled is what Decide needs to know of a tool.
type compiled struct {
	tool        Tool
	annotations *v1alpha1.ToolAnnotations
	standing    standing
	// decision is the verdict of the tier alone, without any promotion.
	decision Decision
	// rulings are the policies with rules that name the tool, as many as baselines are those of baselines.
	rulings   []ruling
	baselines int
	// bounds are other tiers in which baselines see the tool: those that it would have without the teams' overrides.
	bounds []v1alpha1.Tier
	// gated: a baseline keeps the tool attended or gives it a tier that does, so that its tier binds also in Observe.
	gated bool
}

// Inputs are all that a verdict can rest on.
type Inputs struct {
	Server *v1alpha1.GovernedServer
	// Policies are those of the server's namespace and of OperatorNamespace, in any order; what does not cover the
	// server is left out.
	Policies []*Policy
	// OperatorNamespace is where baselines count.
	OperatorNamespace string
	// EndpointDigest is that of the server's spec: tools that came from another endpoint are unknown.
	EndpointDigest string
	Facts          Facts
}

// Compile joins a server, the policies that cover it and what a gateway has seen. It keeps the objects and never changes
// them.
func Compile(in Inputs) *Server {
	server := in.Server
	s := &Server{EndpointDigest: in.EndpointDigest, object: server, tools: map[string]*compiled{}, pinning: pinningOf(server)}
	for _, p := range in.Policies {
		if p.Covers(server, in.OperatorNamespace) {
			s.policies = append(s.policies, p)
		}
	}
	slices.SortFunc(s.policies, byPlace)
	for _, p := range s.policies {
		if p.baseline {
			s.baselines++
		}
		if len(p.callers) > 0 {
			s.gates = append(s.gates, p)
			if p.baseline {
				s.gated++
			}
		}
	}
	s.mode = modeOf(server, s.policies[:s.baselines])
	s.instructions = instructionsOf(server, s.pinning, s.policies)
	if server.Status.EndpointDigest == in.EndpointDigest && in.EndpointDigest != "" {
		s.addTools(in.Facts)
	}
	s.Revision = s.revision()
	for _, c := range s.tools {
		c.decision = byTier(c.tool, &c.standing, server.Spec.Approvals.Required)
		c.decision.Revision = s.Revision
	}
	s.stranger = &compiled{decision: Decision{Reason: ReasonToolUnknown, Revision: s.Revision}}
	s.unattended = s.anyUnattended()
	return s
}

// byPlace orders policies: baselines first, then by namespace and name.
func byPlace(a, b *Policy) int {
	if a.baseline != b.baseline {
		if a.baseline {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.object.Namespace, b.object.Namespace), cmp.Compare(a.object.Name, b.object.Name),
		cmp.Compare(a.object.UID, b.object.UID))
}

// addTools compiles the server's tools with their records and what the gateway has seen of them.
func (s *Server) addTools(facts Facts) {
	status := &s.object.Status
	records := make(map[string]v1alpha1.ToolRecord, len(status.Records))
	for _, r := range status.Records {
		records[r.Tool] = r
	}
	accepted := make(map[string]*v1alpha1.AcceptedTool, len(status.Accepted))
	for i := range status.Accepted {
		accepted[status.Accepted[i].Tool] = &status.Accepted[i]
	}
	for _, t := range status.Tools {
		c := &compiled{annotations: t.Annotations, tool: Tool{
			Name: t.Name, Digest: t.Digest, EndpointDigest: status.EndpointDigest,
			ClassifiedTier: t.ClassifiedTier, Source: t.Source, Reason: t.Reason, Record: records[t.Name],
			Denied: facts.Denied[t.Name], Ambiguous: facts.Ambiguous[t.Name], Drifted: facts.Drifted[t.Name],
		}}
		a := acceptanceOf(c.tool, s.pinning, s.policies, accepted[t.Name])
		c.standing = stand(c.tool, a, s.object, s.policies)
		s.assign(c)
		s.tools[t.Name] = c
	}
}

// assign gives a tool the rules that name it, and what baselines make of it on their own.
func (s *Server) assign(c *compiled) {
	for _, p := range s.policies {
		if r := p.rulingOn(c.tool.Name); len(r.rules) > 0 {
			c.rulings = append(c.rulings, r)
			if p.baseline {
				c.baselines++
			}
		}
	}
	c.gated = slices.ContainsFunc(c.standing.attended, func(a *autonomy) bool { return a.baseline })
	overrides := overridesOf(s.policies[:s.baselines], c.tool.Name)
	for _, o := range overrides {
		c.gated = c.gated || o.Tier.StricterThan(v1alpha1.TierRead) // in force or not: it may be so for another definition
	}
	if !slices.ContainsFunc(c.rulings[:c.baselines], ruling.looksAtCalls) && !s.mode.bound {
		return
	}
	for _, minimum := range []v1alpha1.Tier{"", s.object.Spec.Classification.MinimumTier} {
		tier := effectiveTier(c.tool, c.standing.acceptance, minimum, overrides).tier
		if tier != c.standing.tier && !slices.Contains(c.bounds, tier) {
			c.bounds = append(c.bounds, tier)
		}
	}
}

// revision hashes what took part; it changes whenever a verdict could.
func (s *Server) revision() string {
	lines := []string{
		fmt.Sprintf("GovernedServer %s %d", s.object.UID, s.object.Generation),
		fmt.Sprintf("instructions %t", s.instructions.accepted),
	}
	for _, p := range s.policies {
		lines = append(lines, fmt.Sprintf("ToolPolicy %s %d", p.object.UID, p.object.Generation))
	}
	for name, c := range s.tools {
		st := &c.standing
		promoted := make([]string, 0, len(st.promoted))
		for _, a := range st.promoted {
			promoted = append(promoted, a.at)
		}
		lines = append(lines, fmt.Sprintf("tool %q %q %s %q %t %q %q %q",
			name, c.tool.Digest, st.tier, st.gatedBy, st.accepted, promoted, c.bounds, hints(c.annotations)))
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		fmt.Fprintln(h, line)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// hints spells annotations in one letter each.
func hints(a *v1alpha1.ToolAnnotations) string {
	if a == nil {
		return ""
	}
	var spelt []byte
	for _, hint := range []*bool{a.ReadOnlyHint, a.DestructiveHint, a.IdempotentHint, a.OpenWorldHint} {
		switch {
		case hint == nil:
			spelt = append(spelt, '-')
		case *hint:
			spelt = append(spelt, 't')
		default:
			spelt = append(spelt, 'f')
		}
	}
	return string(spelt)
}

// Standing is what people are told about a tool.
type Standing struct {
	Tier     v1alpha1.Tier
	Source   v1alpha1.TierSource
	Reason   string
	Autonomy v1alpha1.Autonomy
	// Accepted tells whether the tool's definition is an accepted one; with pinning Off every one is.
	Accepted bool
	// AcceptedDigest is that of the accepted definition; "" where nobody accepted any.
	AcceptedDigest string
}

// Standing returns what is in force for a tool, and whether the server lists it.
func (s *Server) Standing(tool string) (Standing, bool) {
	c, found := s.tools[tool]
	if !found {
		return Standing{}, false
	}
	st := &c.standing
	autonomy := st.merit
	if len(st.promoted) > 0 {
		autonomy = v1alpha1.AutonomyUnattended
	}
	return Standing{
		Tier: st.tier, Source: st.source, Reason: st.reason, Autonomy: autonomy,
		Accepted: st.accepted, AcceptedDigest: st.digest,
	}, true
}

// names returns the tools' names, sorted.
func (s *Server) names() []string {
	all := make([]string, 0, len(s.tools))
	for name := range s.tools {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
