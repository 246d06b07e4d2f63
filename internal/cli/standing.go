// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// blocks returns for each tool what would keep a promotion made now from being in force; a tool that is not in it could
// be promoted. It asks what the manager would be asked: a policy that promotes every tool is judged.
func blocks(compiled *policy.Server, server *v1alpha1.GovernedServer) map[string]v1alpha1.NotInForce {
	asked := v1alpha1.ToolPolicy{}
	for _, t := range server.Status.Tools {
		asked.Spec.Autonomy = append(asked.Spec.Autonomy, v1alpha1.AutonomyRule{Tool: t.Name, Digest: t.Digest, Mode: v1alpha1.ModeUnattended})
	}
	lines := map[string]v1alpha1.NotInForce{}
	for _, line := range compiled.NotInForce(&asked) {
		lines[line.Tool] = line
	}
	return lines
}

// promotion is an Unattended entry of a policy, and what the manager says of it.
type promotion struct {
	// Policy is its name, with its namespace for a baseline.
	Policy  string `json:"policy"`
	Field   string `json:"field"`
	Digest  string `json:"digest"`
	InForce bool   `json:"inForce"`
	// Reason and Message are those of status.notInForce.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// notJudged is the message of an entry that the manager has not looked at.
const notJudged = "the manager has not judged this version of the policy yet"

// promotionsOf lists the Unattended entries for a tool among the policies that speak of the server.
func (set policySet) promotionsOf(server *v1alpha1.GovernedServer, tool string) []promotion {
	var all []promotion
	for i := range set.objects {
		p := &set.objects[i]
		if !set.covers(p, server) {
			continue
		}
		for i, a := range p.Spec.Autonomy {
			if a.Tool != tool || a.Mode != v1alpha1.ModeUnattended {
				continue
			}
			found := promotion{Policy: nameOf(p), Field: fmt.Sprintf("spec.autonomy[%d]", i), Digest: a.Digest}
			found.judge(p, server)
			all = append(all, found)
		}
	}
	return all
}

// judge takes over what status says; silence of a status about another version of the policy says nothing.
func (f *promotion) judge(p *v1alpha1.ToolPolicy, server *v1alpha1.GovernedServer) {
	name := server.Name
	if isBaseline(p) {
		name = server.Namespace + "/" + server.Name
	}
	if p.Status.ObservedGeneration != p.Generation || p.Generation == 0 {
		f.Message = notJudged
		return
	}
	for _, line := range p.Status.NotInForce {
		if (line.Server == name || line.Server == "") && line.Field == f.Field {
			f.Reason, f.Message = line.Reason, line.Message
			return
		}
	}
	f.InForce = true
}

// findTool returns what the server's status says of a tool, and refuses in words what cannot be judged.
func findTool(server *v1alpha1.GovernedServer, name string) (v1alpha1.ToolStatus, error) {
	digest, err := tool.EndpointDigest(server.Spec.Endpoint)
	switch {
	case err != nil:
		return v1alpha1.ToolStatus{}, fmt.Errorf("digest endpoint of %s: %w", server.Name, err)
	case server.Status.EndpointDigest != digest:
		return v1alpha1.ToolStatus{}, notDone("%s was not listed yet at the endpoint that it has now; "+
			"kubectl describe gsrv %s -n %s says why", server.Name, server.Name, server.Namespace)
	}
	if t := server.Status.Tool(name); t != nil {
		return *t, nil
	}
	return v1alpha1.ToolStatus{}, notDone("%s lists no tool %s; those it lists: kubectl tidewaiter tools %s -n %s",
		server.Name, glyph.Plain(name), server.Name, server.Namespace)
}

// recordOf returns the track record of a tool; without one it is empty.
func recordOf(server *v1alpha1.GovernedServer, t v1alpha1.ToolStatus) v1alpha1.ToolRecord {
	if r := server.Status.Record(t.Name); r != nil {
		return *r
	}
	autonomy := v1alpha1.AutonomyNone
	if t.Tier.StricterThan(v1alpha1.TierReversible) {
		autonomy = v1alpha1.AutonomyForbidden
	}
	return v1alpha1.ToolRecord{Tool: t.Name, Autonomy: autonomy}
}
