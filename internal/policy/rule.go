// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// clause is a Rule, compiled.
type clause struct {
	at     string // what verdicts call it
	effect Effect
	// subjects narrow the rule; nil for anybody.
	subjects []subject
	when     condition
	required int32
	verb     string // besides the tier's, "" for none
	// verbs are the tier's verb and the rule's own, for tools that are not Irreversible and for those that are.
	verbs    [2][]string
	message  string
	controls []string
	// input is what is said of answers in the middle of a call; "" for nothing.
	input v1alpha1.InputRule
}

// condition is a compiled CEL condition. The zero value always holds.
type condition struct {
	program *expr.Program
	broken  string // why it can never be evaluated; "" for no reason
}

func (c condition) always() bool { return c.program == nil && c.broken == "" }

// subject is a Subject in the form in which it is compared.
type subject struct {
	user, group string // one of them
	broken      string // why it cannot be compared, "" for no reason
}

// is tells whether the subject names a principal; a broken one names nobody.
func (s subject) is(principal *expr.Principal) bool {
	if s.group != "" {
		return slices.Contains(principal.Groups, s.group)
	}
	return s.user != "" && s.user == principal.Username
}

func (p *Policy) addRule(i int, r *v1alpha1.Rule) {
	field := fmt.Sprintf("spec.rules[%d]", i)
	compiled := clause{at: p.names("rule " + r.Name), message: r.Message, controls: r.Controls}
	p.addGlobs(&p.ruleTools, i, field+".tools", r.Tools)
	for j, s := range r.Subjects {
		compiled.subjects = append(compiled.subjects, p.subject(fmt.Sprintf("%s.subjects[%d]", field, j), s))
	}
	compiled.when = p.condition(field+".when", r.When)
	switch r.Decision {
	case v1alpha1.EffectAllow:
		compiled.effect = Allow
	case v1alpha1.EffectRequireApproval:
		compiled.effect = RequireApproval
	case v1alpha1.EffectDeny:
		compiled.effect = Deny
	default:
		compiled.effect = Deny
		p.problem(field+".decision", fmt.Sprintf("%q is no decision; it counts as Deny", r.Decision))
	}
	switch compiled.input = r.InputResponses; compiled.input {
	case "", v1alpha1.InputAllow, v1alpha1.InputDeny:
	default:
		compiled.input = v1alpha1.InputDeny
		p.problem(field+".inputResponses", fmt.Sprintf("%q is neither Allow nor Deny; it counts as Deny", r.InputResponses))
	}
	if r.Approvals != nil {
		compiled.required, compiled.verb = r.Approvals.Required, r.Approvals.Verb
	}
	for j, tier := range []v1alpha1.Tier{v1alpha1.TierReversible, v1alpha1.TierIrreversible} {
		if compiled.verbs[j] = []string{tier.ApproveVerb()}; compiled.verb != "" && compiled.verb != tier.ApproveVerb() {
			compiled.verbs[j] = append(compiled.verbs[j], compiled.verb)
		}
	}
	p.rules = append(p.rules, compiled)
}

func (p *Policy) condition(field, source string) condition {
	if source == "" {
		return condition{}
	}
	program, err := expr.Condition(source)
	if err != nil {
		p.problem(field, err.Error())
		return condition{broken: "it does not compile: " + err.Error()}
	}
	return condition{program: program}
}

func (p *Policy) subject(field string, s v1alpha1.Subject) subject {
	var compiled subject
	switch {
	case s.Name == "":
		compiled.broken = "it has no name"
	case s.Kind == v1alpha1.SubjectServiceAccount && s.Namespace == "":
		compiled.broken = "a ServiceAccount needs a namespace"
	case s.Kind == v1alpha1.SubjectServiceAccount:
		compiled.user = "system:serviceaccount:" + s.Namespace + ":" + s.Name
	case s.Namespace != "":
		compiled.broken = "only a ServiceAccount has a namespace"
	case s.Kind == v1alpha1.SubjectUser:
		compiled.user = s.Name
	case s.Kind == v1alpha1.SubjectGroup:
		compiled.group = s.Name
	default:
		compiled.broken = fmt.Sprintf("%q is no kind of subjects", s.Kind)
	}
	if compiled.broken != "" {
		p.problem(field, compiled.broken)
	}
	return compiled
}
