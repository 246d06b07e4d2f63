// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/spelling"
)

// Reasons of findings, beside those of status.notInForce.
const (
	// FoundSameMatch: an earlier rule matches the same calls.
	FoundSameMatch = "SameMatch"
	// FoundNoSuchSubject: nobody can be called so.
	FoundNoSuchSubject = "NoSuchSubject"
	// FoundNoEffect: what the entry asks for holds anyway.
	FoundNoEffect = "NoEffect"
)

// Severity says how much a finding matters.
type Severity string

const (
	// SeverityError: the entry cannot do what its author meant.
	SeverityError Severity = "Error"
	// SeverityWarning: the entry has no effect, or not all of the effect that it seems to have.
	SeverityWarning Severity = "Warning"
)

// Finding is something in a policy that is surely not as its author meant it. A policy with findings is enforced as it
// is written.
type Finding struct {
	// Field is where it stands, such as spec.rules[2].when.
	Field string
	// Line and Column are where in the expression, from 1; 0 where the field is none.
	Line, Column int
	Severity     Severity
	// Reason is one word: a reason of status.notInForce, or one of those above.
	Reason string
	// Tool is the tool or the globs that the entry names; "" for neither.
	Tool string
	// Message is one sentence that says what is wrong and how to mend it.
	Message string
}

// Place says where in the expression it is, for the head of a line; "" for a field that is none.
func (f Finding) Place() string {
	if f.Line == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d: ", f.Line, f.Column)
}

// String says where and what, in one line.
func (f Finding) String() string { return inLine(f.Field, f.Place()+f.Message) }

// String says where and what, in one line.
func (p Problem) String() string { return inLine(p.Field, glyph.Escaped(p.Message)) }

// inLine puts a message behind its field; of an expression the place in it comes first.
func inLine(field, message string) string {
	if message != "" && message[0] >= '1' && message[0] <= '9' {
		return field + " " + message
	}
	return field + ": " + message
}

// CheckedTool is a tool of a server that a policy covers.
type CheckedTool struct {
	Namespace, Server string
	Name, Digest      string
	// ClassifiedTier is what the classifier said, Tier what is in force with the policy and all others counted.
	ClassifiedTier, Tier v1alpha1.Tier
	// InputSchema of this very definition; nil where it is not known.
	InputSchema []byte
}

// Checked returns the tools of a server for Check. schema returns the input schema of a definition, nil for none.
func (s *Server) Checked(schema func(tool, digest string) []byte) []CheckedTool {
	var all []CheckedTool
	for _, t := range s.object.Status.Tools {
		if standing, known := s.Standing(t.Name); known {
			all = append(all, CheckedTool{
				Namespace: s.object.Namespace, Server: s.object.Name, Name: t.Name, Digest: t.Digest,
				ClassifiedTier: t.ClassifiedTier, Tier: standing.Tier, InputSchema: schema(t.Name, t.Digest),
			})
		}
	}
	return all
}

// IsBaseline tells whether the policy selects namespaces, and so counts in the operator's namespace only.
func (p *Policy) IsBaseline() bool { return p.baseline }

// HasExpressions tells whether the policy has expressions, to be compared with the schemas of tools.
func (p *Policy) HasExpressions() bool {
	for i := range p.rules {
		if p.rules[i].when.program != nil {
			return true
		}
	}
	return slices.ContainsFunc(p.autonomy, func(a autonomy) bool { return a.when.program != nil }) ||
		slices.ContainsFunc(p.preview, func(v preview) bool { return v.args != nil })
}

// Check looks for what cannot be as its author meant it, beside what Problems says, in the order of the fields. tools are
// those of the servers that the policy covers and that are known; without any, only what needs none is looked for. It
// says nothing that is not sure, and what takes too long to find out is not sure.
func (p *Policy) Check(tools []CheckedTool) []Finding {
	c := &check{policy: p, spec: &p.object.Spec, effort: maxEffort, tools: map[string][]CheckedTool{}}
	for _, t := range tools {
		c.tools[t.Name] = append(c.tools[t.Name], t)
	}
	for name := range c.tools {
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	if globs := len(p.ruleTools.globs) + len(p.previewTools.globs) + len(p.tierTools.globs); len(c.names)*globs > maxMatches {
		c.names, c.tools = nil, nil
	}
	c.subjects("spec.callers", c.spec.Callers)
	c.rules()
	c.pins()
	c.previews()
	c.overrides()
	c.promotions()
	return c.findings
}

const (
	// maxEffort bounds the comparison of globs, some 50 ms.
	maxEffort effort = 5_000_000
	// maxMatches bounds how many names are matched with globs, some 200 ms.
	maxMatches = 2_000_000
	// maxSchemas bounds how many schemas the expressions of a policy are compared with.
	maxSchemas = 2048
)

// check is the state of one Check.
type check struct {
	policy *Policy
	spec   *v1alpha1.ToolPolicySpec
	// tools by name, and their names sorted.
	tools    map[string][]CheckedTool
	names    []string
	effort   effort
	schemas  int
	findings []Finding
}

func (c *check) warn(field, reason, tool, message string) {
	c.findings = append(c.findings, Finding{
		Field: field, Severity: SeverityWarning, Reason: reason, Tool: tool, Message: glyph.Escaped(message),
	})
}

// known tells whether anything is known of the servers' tools.
func (c *check) known() bool { return len(c.names) > 0 }

// matching returns the names of the tools that each entry of a roster names.
func (c *check) matching(r *roster) map[int][]string {
	names := map[int][]string{}
	for _, name := range c.names {
		for _, entry := range r.find(name) {
			names[entry] = append(names[entry], name)
		}
	}
	return names
}

// every returns all tools of some names.
func (c *check) every(names []string) []CheckedTool {
	var all []CheckedTool
	for _, name := range names {
		all = append(all, c.tools[name]...)
	}
	return all
}

// servers names the servers whose tools are known, the first few of them.
func (c *check) servers() string {
	seen := map[string]bool{}
	var names []string
	for _, t := range c.every(c.names) {
		if name := c.server(t); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return someOf(names)
}

// server names the server of a tool; with its namespace where the policy speaks of several.
func (c *check) server(t CheckedTool) string {
	if c.policy.IsBaseline() {
		return t.Namespace + "/" + t.Server
	}
	return t.Server
}

// unknown says that no server lists a tool of a name, and which one may be meant.
func (c *check) unknown(name string) string {
	return fmt.Sprintf("no tool of %s is called %s%s", c.servers(), name, spelling.Suggest(name, slices.Values(c.names)))
}

// someOf joins names, the first few of them.
func someOf(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// listed joins globs as a line of the status has them.
func listed(globs []string) string { return glyph.Clip(fmt.Sprint(globs), 256) }

// compareTools orders tools by server and name.
func compareTools(a, b CheckedTool) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Server, b.Server), strings.Compare(a.Name, b.Name))
}
