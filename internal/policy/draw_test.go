// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"sync"

	"pgregory.net/rapid"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// The generators below draw from few names and digests, so that entries hit tools often.

const home = "tidewaiter-system"

// conditions remembers what was compiled: the laws meet the same few expressions a million times.
var conditions sync.Map

func conditionOf(source string) condition {
	known, found := conditions.Load(source)
	if !found {
		var p Policy
		known, _ = conditions.LoadOrStore(source, p.condition("when", source))
	}
	return known.(condition)
}

// parsed is Parse, with conditions that are compiled once in all tests.
func parsed(objects ...v1alpha1.ToolPolicy) []*Policy {
	all := make([]*Policy, 0, len(objects))
	for i := range objects {
		bare := objects[i].DeepCopy()
		for j := range bare.Spec.Rules {
			bare.Spec.Rules[j].When = ""
		}
		for j := range bare.Spec.Autonomy {
			bare.Spec.Autonomy[j].When = ""
		}
		p := Parse(bare)
		p.object = &objects[i]
		for j := range p.rules {
			p.rules[j].when = conditionOf(objects[i].Spec.Rules[j].When)
		}
		for j := range p.autonomy {
			p.autonomy[j].when = conditionOf(objects[i].Spec.Autonomy[j].When)
		}
		all = append(all, p)
	}
	return all
}

// decided compiles a server with policies, of teams or baselines.
func decided(s *v1alpha1.GovernedServer, policies []v1alpha1.ToolPolicy, facts Facts) *Server {
	return Compile(Inputs{Server: s, Policies: parsed(policies...), OperatorNamespace: home, EndpointDigest: endpoint, Facts: facts})
}

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// Conditions that look at the tier are apart: what a rule says of a tier does not get stricter with the tier.
var (
	plainConditions = []string{"", "", "args.n > 5", "args.n > 5", "args.m == 'x'", "principal.username == 'ann'", "'ops' in principal.groups",
		"tool.annotations.readOnlyHint", "args.n >", "true", "false"}
	tierConditions = []string{"tool.tier == 'Read'", "tool.tier == 'Reversible'", "tool.tier != 'Irreversible'"}
)

func drawSubject(t *rapid.T) v1alpha1.Subject {
	return pick(t, "subject",
		v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "ann"},
		v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "ops"},
		v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "shop", Name: "bot"},
		v1alpha1.Subject{Kind: "Odd", Name: "ann"},
	)
}

func drawGlobs(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"*", "get_*", "*_invoice", "wipe?ledger", "update_invoice", "get_invoice", "x*", "["}), 0, 2).Draw(t, "globs")
}

func drawRule(t *rapid.T, name string, conditions []string) v1alpha1.Rule {
	r := v1alpha1.Rule{Name: name, Tools: drawGlobs(t), When: pick(t, "when", conditions...), Message: "says " + name,
		Decision: pick(t, "decision", v1alpha1.EffectAllow, v1alpha1.EffectAllow, v1alpha1.EffectRequireApproval, v1alpha1.EffectRequireApproval, v1alpha1.EffectDeny, "Odd")}
	if r.Decision != v1alpha1.EffectDeny {
		r.InputResponses = pick(t, "input", "", "", v1alpha1.InputAllow, v1alpha1.InputAllow, v1alpha1.InputDeny, "Odd")
	}
	for range pick(t, "subjects", 0, 0, 1, 2) {
		r.Subjects = append(r.Subjects, drawSubject(t))
	}
	if r.Decision == v1alpha1.EffectRequireApproval && rapid.Bool().Draw(t, "approvals") {
		r.Approvals = &v1alpha1.RuleApprovals{Required: rapid.Int32Range(0, 8).Draw(t, "required"), Verb: pick(t, "verb", "", "approve-a", "approve-b", "approve-irreversible")}
	}
	return r
}

func drawRules(t *rapid.T, conditions []string) []v1alpha1.Rule {
	var all []v1alpha1.Rule
	for i := range rapid.IntRange(0, 3).Draw(t, "rules") {
		all = append(all, drawRule(t, fmt.Sprint("r", i), conditions))
	}
	return all
}

func drawPolicy(t *rapid.T, name string, conditions []string) v1alpha1.ToolPolicy {
	tool := rapid.SampledFrom([]string{"get_invoice", "update_invoice", "wipe_ledger", "unheard_of"})
	digest := rapid.SampledFrom([]string{digestA, digestA, digestB})
	spec := v1alpha1.ToolPolicySpec{Rules: drawRules(t, conditions)}
	for range rapid.IntRange(0, 2).Draw(t, "tiers") {
		o := v1alpha1.TierOverride{Reason: "r", Tier: pick(t, "tier", v1alpha1.TierRead, v1alpha1.TierReversible, v1alpha1.TierIrreversible, "", "Odd")}
		if rapid.Bool().Draw(t, "glob") {
			o.Tools = drawGlobs(t)
		} else {
			o.Tool, o.Digest = tool.Draw(t, "tool"), digest.Draw(t, "digest")
		}
		spec.Tiers = append(spec.Tiers, o)
	}
	for range rapid.IntRange(0, 2).Draw(t, "autonomy") {
		spec.Autonomy = append(spec.Autonomy, v1alpha1.AutonomyRule{Tool: tool.Draw(t, "tool"), Digest: digest.Draw(t, "digest"), When: pick(t, "when", plainConditions...),
			Mode: pick(t, "mode", v1alpha1.ModeUnattended, v1alpha1.ModeUnattended, v1alpha1.ModeAttended, "", "Odd")})
	}
	for range pick(t, "callers", 0, 0, 0, 1, 2) {
		spec.Callers = append(spec.Callers, drawSubject(t))
	}
	for range pick(t, "pins", 0, 0, 0, 1, 2) {
		spec.Pins = append(spec.Pins, v1alpha1.Pin{Tool: pick(t, "tool", "", "get_invoice", "update_invoice"), Digest: digest.Draw(t, "digest")})
	}
	return policyOf(name, spec)
}

// asBaseline moves a policy to the operator's namespace and has it select.
func asBaseline(p v1alpha1.ToolPolicy, mode v1alpha1.BaselineMode, selector metav1.LabelSelector) v1alpha1.ToolPolicy {
	p.Namespace, p.Spec.Targets, p.Spec.NamespaceSelector, p.Spec.Mode = home, nil, &selector, mode
	return p
}

func drawBaseline(t *rapid.T, name string, conditions []string) v1alpha1.ToolPolicy {
	return asBaseline(drawPolicy(t, name, conditions), pick(t, "mode", "", "", "", v1alpha1.BaselineReadOnly, v1alpha1.BaselineStopped),
		pick(t, "selector", metav1.LabelSelector{}, metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}))
}

func drawServer(t *rapid.T) *v1alpha1.GovernedServer {
	return server(func(s *v1alpha1.GovernedServer) {
		s.Spec.Mode = pick(t, "mode", "", v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeObserve, v1alpha1.ModeReadOnly, v1alpha1.ModeStopped, "Odd")
		s.Spec.Pinning = pick(t, "pinning", "", v1alpha1.PinningReport, v1alpha1.PinningEnforce, v1alpha1.PinningOff)
		s.Spec.Autonomy.CleanApprovals = rapid.Int32Range(-1, 5).Draw(t, "clean")
		s.Spec.Approvals.Required = v1alpha1.RequiredApprovals{Reversible: rapid.Int32Range(0, 8).Draw(t, "reversible"), Irreversible: rapid.Int32Range(0, 8).Draw(t, "irreversible")}
		s.Spec.Classification.MinimumTier = pick(t, "minimum", "", "", v1alpha1.TierRead, v1alpha1.TierReversible, v1alpha1.TierIrreversible)
		for i := range s.Status.Records {
			s.Status.Records[i].Approved = rapid.Int32Range(0, 6).Draw(t, "approved")
			s.Status.Records[i].Denied = pick[int32](t, "denied", 0, 0, 1)
			s.Status.Records[i].Digest = pick(t, "digest", digestA, digestA, digestB, "")
		}
		s.Status.NamespaceLabels = pick(t, "labels", nil, map[string]string{}, map[string]string{"env": "prod"})
		for _, tool := range []string{"get_invoice", "update_invoice"} {
			if rapid.IntRange(0, 4).Draw(t, "accepted") == 0 {
				s.Status.Accepted = append(s.Status.Accepted, v1alpha1.AcceptedTool{Tool: tool, Digest: pick(t, "digest", digestB, digestA, ""),
					Tier: pick(t, "tier", v1alpha1.TierRead, v1alpha1.TierReversible, v1alpha1.TierIrreversible, "")})
			}
		}
		if rapid.Bool().Draw(t, "hint") {
			hint := rapid.Bool().Draw(t, "readOnlyHint")
			s.Status.Tools[0].Annotations = &v1alpha1.ToolAnnotations{ReadOnlyHint: &hint}
		}
		s.Status.Server = pick(t, "info", nil, &v1alpha1.ServerInfo{}, &v1alpha1.ServerInfo{InstructionsDigest: digestA}, &v1alpha1.ServerInfo{InstructionsDigest: digestA, AcceptedInstructionsDigest: digestB})
	})
}

// question is a call that can be asked again, with arguments that nobody has read yet.
type question struct {
	tool, arguments string // "?" for arguments that are not known
	principal       expr.Principal
	freshness       Freshness
}

func (q question) call() Call {
	c := Call{Tool: q.tool, Principal: q.principal, Freshness: q.freshness, Arguments: expr.NewArguments([]byte(q.arguments))}
	if q.arguments == "?" {
		c.Arguments = expr.UnknownArguments()
	}
	return c
}

func drawQuestion(t *rapid.T) question {
	return question{
		tool:      pick(t, "tool", "get_invoice", "update_invoice", "update_invoice", "wipe_ledger", "unheard_of", ""),
		arguments: pick(t, "arguments", `{"n":1}`, `{"n":9}`, `{"n":"9"}`, `{}`, "", `{"n":9,"m":"x"}`, "?", "[]"),
		principal: pick(t, "principal", expr.Principal{}, expr.Principal{Username: "ann"}, expr.Principal{Username: "bob", Groups: []string{"ops"}},
			expr.Principal{Username: "system:serviceaccount:shop:bot", Namespace: "shop", ServiceAccount: "bot"}),
		freshness: pick(t, "freshness", Fresh, Fresh, Fresh, Unproven, Stale, 9),
	}
}

func drawPolicies(t *rapid.T, conditions []string) []v1alpha1.ToolPolicy {
	var all []v1alpha1.ToolPolicy
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		all = append(all, drawPolicy(t, fmt.Sprint("p", i), conditions))
	}
	for i := range pick(t, "baselines", 0, 0, 1, 2) {
		all = append(all, drawBaseline(t, fmt.Sprint("b", i), conditions))
	}
	return all
}

var anyConditions = slices.Concat(plainConditions, tierConditions)
