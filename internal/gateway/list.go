// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
	"github.com/tidewaiter/tidewaiter/internal/policy"
	"github.com/tidewaiter/tidewaiter/internal/snapshot"
	"github.com/tidewaiter/tidewaiter/internal/tool"
	"github.com/tidewaiter/tidewaiter/internal/wire"
)

// What tools/list says of a tool, under tidewaiter.dev/behaviour.
const (
	behaviourImmediate  = "Immediate"
	behaviourUnattended = "Unattended"
	behaviourApproval   = "RequiresApproval"
	behaviourDepends    = "Depends" // on the arguments
	behaviourDenied     = "Denied"  // would be, if the server did not only observe
)

const listOfTools = "list of tools"

// listFilter returns what filters lists of tools in an answer: only tools that may be called stay, each with its tier
// and behaviour. A list that cannot be read beyond doubt is withheld; id is that of the request, nil on a stream that
// answers none. The list is that of the caller; endpoint is where it comes from.
func (g *Gateway) listFilter(server *Server, endpoint string, who caller, id []byte) func([]byte) []byte {
	return func(message []byte) []byte {
		list, found, err := wire.ScanToolsList(message)
		switch {
		case err != nil && mightHide(message):
			return withheld(listOfTools, id)
		case err != nil:
			return message
		case !found && id != nil && isResult(message):
			return withheld(listOfTools, id)
		case !found: // on a stream it may be the answer to a call
			return sanitize(id)(message)
		}
		seen, ok := server.read(list.Tools, who.principal)
		if !ok {
			return withheld(listOfTools, id)
		}
		server.learn(endpoint, seen, false)
		snap := server.Snapshot()
		return list.Rewrite(func(t wire.ListedTool) ([]wire.Note, bool) { return notes(snap, t.Name, who.principal) })
	}
}

// read returns what a list says of tools; false for one that clients may read differently. What is as it was is not read
// again, what nobody will see is not read at all, and what is new is copied, since it outlives the list.
func (s *Server) read(list []wire.ListedTool, principal expr.Principal) (seen []tool.Descriptor, ok bool) {
	snap := s.Snapshot()
	if snap == nil {
		return nil, true
	}
	seen = make([]tool.Descriptor, 0, len(list))
	names := make(map[string]bool, len(list))
	for _, t := range list {
		if names[t.Name] {
			return nil, false
		}
		names[t.Name] = true
		d, found := snap.Definitions[t.Name]
		switch {
		case found && bytes.Equal(d.Raw, t.Raw):
		case !found && keptFrom(snap, t.Name, principal):
			continue
		default:
			var err error
			if d, err = tool.Parse(bytes.Clone(t.Raw)); err != nil {
				return nil, false
			}
		}
		seen = append(seen, d)
	}
	return seen, true
}

// keptFrom tells whether a tool that nobody classified is kept from a caller.
func keptFrom(snap *snapshot.Snapshot, name string, principal expr.Principal) bool {
	if _, classified := snap.Policy.Standing(name); classified {
		return false
	}
	_, loosest := snap.Policy.Range(name, principal)
	return loosest == policy.Deny
}

// isResult tells a result from messages that only pass on the way to it.
func isResult(message []byte) bool {
	answer, found, err := wire.ScanAnswer(message)
	return err != nil || found && !answer.Error
}

// withheld stands in for what nobody can read beyond doubt, nil where it answers nothing.
func withheld(what string, id []byte) []byte {
	if id == nil {
		return nil
	}
	refusal := wire.Refusal{Status: http.StatusOK, Code: mcp.INTERNAL_ERROR, Message: speaker + "the server's " + what + " cannot be read beyond doubt and is withheld"}
	return refusal.For(id).Body()
}

// notes returns what a caller is told of a tool, and whether it may see it.
func notes(snap *snapshot.Snapshot, name string, principal expr.Principal) ([]wire.Note, bool) {
	if snap == nil {
		return nil, false
	}
	strictest, loosest := snap.Policy.Range(name, principal)
	if loosest == policy.Deny {
		return nil, false
	}
	standing, _ := snap.Policy.Standing(name)
	behaviour := behaviourOf(strictest, standing.Tier)
	if strictest != loosest {
		behaviour = behaviourDepends
	}
	// Without arguments, what depends on them cannot be told.
	d := snap.Policy.Decide(policy.Call{Tool: name, Arguments: expr.UnknownArguments(), Principal: principal, Freshness: policy.Fresh})
	if would := d.Observed; would != nil {
		behaviour = behaviourOf(would.Effect, would.Tier)
		if would.Uncertain != "" {
			behaviour = behaviourDepends
		}
	}
	noted := []wire.Note{{Key: wire.ReservedPrefix + "behaviour", Value: behaviour}}
	if standing.Tier != "" { // where the server only observes, tools pass that nobody classified
		noted = slices.Insert(noted, 0, wire.Note{Key: wire.ReservedPrefix + "tier", Value: string(standing.Tier)})
	}
	return noted, true
}

// behaviourOf says what becomes of calls that all have one verdict.
func behaviourOf(effect policy.Effect, tier v1alpha1.Tier) string {
	switch {
	case effect == policy.RequireApproval:
		return behaviourApproval
	case effect != policy.Allow:
		return behaviourDenied
	case tier == v1alpha1.TierRead:
		return behaviourImmediate
	default:
		return behaviourUnattended
	}
}
