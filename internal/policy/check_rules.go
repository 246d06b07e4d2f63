// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

func (c *check) rules() {
	matching := c.matching(&c.policy.ruleTools)
	for i, r := range c.spec.Rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		c.subjects(field+".subjects", r.Subjects)
		c.reach(i, field)
		if !c.known() || c.policy.ruleTools.doubtOf(i) != "" {
			continue
		}
		matched := c.every(matching[i])
		if len(matched) == 0 {
			c.warn(field, v1alpha1.NotInForceToolUnknown, listed(r.Tools), c.unmatched(r.Tools))
			continue
		}
		c.fits(expression{field + ".when", r.When, c.policy.rules[i].when.program, listed(r.Tools)}, matched)
		c.ceiling(r, field, matched)
		c.input(r, field, matched)
	}
}

// unmatched says that globs match nothing.
func (c *check) unmatched(globs []string) string {
	if len(globs) == 1 && !strings.ContainsAny(globs[0], "*?") {
		return c.unknown(globs[0])
	}
	return fmt.Sprintf("no tool of %s matches %s", c.servers(), strings.Join(globs, ", "))
}

// reach says whether a rule can be reached at all.
func (c *check) reach(i int, field string) {
	r := c.spec.Rules[i]
	if apart(c.policy.callers, c.policy.rules[i].subjects) {
		c.warn(field, v1alpha1.NotInForceUnreachable, listed(r.Tools),
			"none of its subjects is among spec.callers, so that this policy denies their calls anyway")
		return
	}
	var globs []string
	for j := range i {
		globs = append(globs, c.takes(j, i)...)
	}
	if c.allCovered(r.Tools, globs) {
		c.warn(field, v1alpha1.NotInForceUnreachable, listed(r.Tools), fmt.Sprintf(
			"%s every call that this rule does, so that it is never reached; move it up, or narrow what comes before", c.coveredBy(i)))
		return
	}
	for _, earlier := range c.spec.Rules[:i] {
		if sameMatch(earlier, r) {
			c.warn(field, FoundSameMatch, listed(r.Tools), fmt.Sprintf(
				"rule %s matches the same calls and comes first, so that this rule counts only where those cannot be judged", earlier.Name))
			return
		}
	}
}

// takes returns the globs of an earlier rule if it surely matches, of the tools that they name, every call that a later
// one could: it has no condition that could fail to be evaluated, and is for whoever the later one is for.
func (c *check) takes(earlier, later int) []string {
	e, l := c.policy.rules[earlier], c.policy.rules[later]
	missed := func(s subject) bool { return s.broken != "" || !slices.Contains(e.subjects, s) }
	if !e.when.always() || len(e.subjects) > 0 && (len(l.subjects) == 0 || slices.ContainsFunc(l.subjects, missed)) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.spec.Rules[earlier].Tools), func(glob string) bool { return flaw(glob) != "" })
}

// allCovered tells whether others surely match all that some globs do.
func (c *check) allCovered(globs, others []string) bool {
	return len(globs) > 0 && len(others) > 0 && !slices.ContainsFunc(globs, func(glob string) bool {
		return flaw(glob) != "" || !c.effort.covered(glob, others)
	})
}

// coveredBy names the rule that covers one, or says that several do together.
func (c *check) coveredBy(i int) string {
	for j := range i {
		if c.allCovered(c.spec.Rules[i].Tools, c.takes(j, i)) {
			return "rule " + c.spec.Rules[j].Name + " comes first and matches"
		}
	}
	return "the rules before it together match"
}

func sameMatch(a, b v1alpha1.Rule) bool {
	return a.When == b.When && sameSet(a.Tools, b.Tools, strings.Compare) && sameSet(a.Subjects, b.Subjects, compareSubjects)
}

func sameSet[T comparable](a, b []T, compare func(T, T) int) bool {
	return slices.Equal(slices.Compact(slices.SortedFunc(slices.Values(a), compare)), slices.Compact(slices.SortedFunc(slices.Values(b), compare)))
}

func compareSubjects(a, b v1alpha1.Subject) int {
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// apart tells whether nobody is among both; who is in a group is not known here, and neither is who a broken one means.
func apart(callers, subjects []subject) bool {
	if len(callers) == 0 || len(subjects) == 0 || slices.ContainsFunc(slices.Concat(callers, subjects), func(s subject) bool { return s.user == "" }) {
		return false
	}
	return !slices.ContainsFunc(subjects, func(s subject) bool { return slices.Contains(callers, s) })
}

// ceiling says what of a rule holds anyway for tools that are all Irreversible.
func (c *check) ceiling(r v1alpha1.Rule, field string, matched []CheckedTool) {
	if slices.ContainsFunc(matched, func(t CheckedTool) bool { return t.Tier != v1alpha1.TierIrreversible }) {
		return
	}
	switch {
	case r.Decision == v1alpha1.EffectAllow:
		c.warn(field+".decision", v1alpha1.NotInForceIrreversible, listed(r.Tools),
			"every tool that it matches is Irreversible, whose calls need approval all the same; only a tier with its reason changes that")
	case r.Approvals != nil && r.Approvals.Verb == v1alpha1.TierIrreversible.ApproveVerb():
		c.warn(field+".approvals.verb", FoundNoEffect, listed(r.Tools),
			"every tool that it matches is Irreversible and needs that verb anyway")
	}
}

// input says where it does not matter what is said of answers in the middle of a call.
func (c *check) input(r v1alpha1.Rule, field string, matched []CheckedTool) {
	gated := func(t CheckedTool) bool { return t.Tier != v1alpha1.TierRead }
	if r.InputResponses == "" || r.Decision != v1alpha1.EffectAllow || slices.ContainsFunc(matched, gated) {
		return
	}
	c.warn(field+".inputResponses", FoundNoEffect, listed(r.Tools),
		"every tool that it matches is Read and runs at once, and the answers of such calls always pass")
}

// subjects looks for those that nobody can be.
func (c *check) subjects(field string, all []v1alpha1.Subject) {
	for i, s := range all {
		if s.Kind != v1alpha1.SubjectServiceAccount {
			continue
		}
		field := fmt.Sprintf("%s[%d]", field, i)
		if strings.HasPrefix(s.Name, "system:serviceaccount:") {
			c.warn(field+".name", FoundNoSuchSubject, "", "no ServiceAccount has such a name; give the last part of it alone, or use the kind User")
		} else if len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
			c.warn(field+".name", FoundNoSuchSubject, "", fmt.Sprintf("no ServiceAccount can be called %s: names have lower-case letters, digits, - and . only", s.Name))
		}
		if len(validation.IsDNS1123Label(s.Namespace)) > 0 {
			c.warn(field+".namespace", FoundNoSuchSubject, "", fmt.Sprintf("no namespace can be called %s: names have lower-case letters, digits and - only", s.Namespace))
		}
	}
}
