// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy says what may be done with a tool: it joins a server's tiers, the overrides and promotions of its
// ToolPolicies and its track record into one verdict a call; it does no I/O and knows no clock.
package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
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
	// Revision is SHA-256 over the sorted kind, UID and generation of the server and of every policy that targets
	// it, and over the table of tiers.
	Revision string
	// EndpointDigest of the endpoint that the tools came from.
	EndpointDigest string

	object   *v1alpha1.GovernedServer
	policies []*v1alpha1.ToolPolicy
	tools    map[string]compiled
}

type compiled struct {
	tool     Tool
	standing standing
	decision Decision
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
	server, endpointDigest, facts := in.Server, in.EndpointDigest, in.Facts
	s := &Server{EndpointDigest: endpointDigest, object: server, tools: map[string]compiled{}}
	for _, p := range in.Policies {
		if p.covers(server, in.OperatorNamespace) {
			s.policies = append(s.policies, p.object)
		}
	}
	tiers, autonomy := overrides(s.policies), promotions(s.policies)
	if server.Status.EndpointDigest == endpointDigest && endpointDigest != "" {
		for _, t := range known(server, facts) {
			s.tools[t.Name] = compiled{tool: t, standing: stand(t, server, tiers, autonomy)}
		}
	}
	s.Revision = s.revision()
	for name, c := range s.tools {
		c.decision = decide(c.tool, c.standing, server.Spec.Approvals.Required, s.Revision)
		s.tools[name] = c
	}
	return s
}

// known lists the server's tools with their records and what the gateway has seen of them.
func known(server *v1alpha1.GovernedServer, facts Facts) []Tool {
	records := make(map[string]v1alpha1.ToolRecord, len(server.Status.Records))
	for _, r := range server.Status.Records {
		records[r.Tool] = r
	}
	tools := make([]Tool, 0, len(server.Status.Tools))
	for _, t := range server.Status.Tools {
		tools = append(tools, Tool{
			Name: t.Name, Digest: t.Digest, EndpointDigest: server.Status.EndpointDigest,
			ClassifiedTier: t.ClassifiedTier, Source: t.Source, Reason: t.Reason, Record: records[t.Name],
			Denied: facts.Denied[t.Name], Ambiguous: facts.Ambiguous[t.Name], Drifted: facts.Drifted[t.Name],
		})
	}
	return tools
}

// revision hashes what took part; it changes whenever a verdict could.
func (s *Server) revision() string {
	lines := []string{fmt.Sprintf("GovernedServer %s %d", s.object.UID, s.object.Generation)}
	for _, p := range s.policies {
		lines = append(lines, fmt.Sprintf("ToolPolicy %s %d", p.UID, p.Generation))
	}
	for name, c := range s.tools {
		lines = append(lines, fmt.Sprintf("tool %q %s %s %s", name, c.tool.Digest, c.standing.tier, c.standing.gatedBy))
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		fmt.Fprintln(h, line)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
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
	autonomy := c.standing.merit
	if c.standing.promotedBy != "" {
		autonomy = v1alpha1.AutonomyUnattended
	}
	return Standing{Tier: c.standing.tier, Source: c.standing.source, Reason: c.standing.reason, Autonomy: autonomy, Accepted: true, AcceptedDigest: c.tool.Digest}, true
}

// AnyUnattended tells whether some tool runs without a person; then the watch must prove that it is alive.
func (s *Server) AnyUnattended() bool {
	for _, c := range s.tools {
		if c.standing.promotedBy != "" {
			return true
		}
	}
	return false
}

// NotInForce returns a line for every entry of a policy that has no effect on this server, in the order of the
// entries. Entries with globs are said once, for the first tool by name that they fail to lower.
func (s *Server) NotInForce(p *v1alpha1.ToolPolicy) []v1alpha1.NotInForce {
	var lines []v1alpha1.NotInForce
	say := func(field, tool string, why refusal) {
		lines = append(lines, v1alpha1.NotInForce{Server: s.object.Name, Field: field, Tool: tool, Reason: why.reason, Message: glyph.Clip(why.message, 512)})
	}
	for i, o := range p.Spec.Tiers {
		if why := s.overrideRefusal(o); !why.inForce() {
			say(fmt.Sprintf("spec.tiers[%d]", i), glyph.Clip(cmp.Or(o.Tool, fmt.Sprint(o.Tools)), 256), why)
		}
	}
	for i, a := range p.Spec.Autonomy {
		if a.Mode != v1alpha1.ModeUnattended {
			continue
		}
		c, found := s.tools[a.Tool]
		why := s.unknown(a.Tool)
		if found {
			why = judgePromotion(a, c.tool, c.standing, s.object.Spec.Autonomy.CleanApprovals)
		}
		if !why.inForce() {
			say(fmt.Sprintf("spec.autonomy[%d]", i), a.Tool, why)
		}
	}
	return lines
}

func (s *Server) unknown(tool string) refusal {
	return refusal{v1alpha1.NotInForceToolUnknown, fmt.Sprintf("%s lists no tool that matches %s", s.object.Name, tool)}
}

// overrideRefusal says why an override changes nothing on this server, if so.
func (s *Server) overrideRefusal(o v1alpha1.TierOverride) refusal {
	result := s.unknown(cmp.Or(o.Tool, fmt.Sprint(o.Tools)))
	compiled := compileOverride(o)
	for _, name := range s.names() {
		c := s.tools[name]
		if !compiled.names(name) {
			continue
		}
		why := judgeOverride(o, c.tool)
		if why.inForce() && c.standing.tier.StricterThan(o.Tier) {
			why = refusal{v1alpha1.NotInForceStricter, fmt.Sprintf("%s is %s by %s", name, c.standing.tier, c.standing.gatedBy)}
		}
		if !why.inForce() {
			return why
		}
		result = refusal{}
	}
	return result
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
