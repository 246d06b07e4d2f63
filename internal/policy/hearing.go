// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// ruling is a policy with those of its rules that name one tool.
type ruling struct {
	policy *Policy
	rules  []named
}

// named is a rule that names the tool, or may: doubt says why that is not known.
type named struct {
	*clause
	doubt string
}

// rulingOn returns the rules of a policy that name a tool, in their order.
func (p *Policy) rulingOn(tool string) ruling {
	r, sure := ruling{policy: p}, p.ruleTools.find(tool)
	for _, i := range p.ruleTools.with(sure) {
		n := named{clause: &p.rules[i]}
		if !slices.Contains(sure, i) {
			n.doubt = p.ruleTools.doubtOf(i)
		}
		r.rules = append(r.rules, n)
	}
	return r
}

// looksAtCalls tells whether an expression takes part.
func (r ruling) looksAtCalls() bool {
	return slices.ContainsFunc(r.rules, func(n named) bool { return n.when.program != nil })
}

// answer is whether an entry is about a call. maybe is both: it cannot be told, or it depends on what is not asked.
type answer int

const (
	no answer = iota
	maybe
	yes
)

// errOpen: the answer depends on what Range leaves open.
var errOpen = errors.New("depends on the call")

// evaluation is the work on one call.
//
// It holds the call itself, not a pointer to it: that would put every call on the heap.
type evaluation struct {
	server *Server
	call   Call
	c      *compiled
	// in is made when an expression first needs it.
	in *expr.Input
	// anyArguments: the verdict is asked for calls with any arguments; anybody: and of anybody.
	anyArguments, anybody bool
	// steps collects the derivation; nil where nobody asked for it.
	steps *[]Step
}

// matches tells whether a rule that names the tool matches the call, seen in a tier; with maybe the error says why.
func (e *evaluation) matches(n named, tier v1alpha1.Tier) (answer, error) {
	result, cause := yes, error(nil)
	if n.doubt != "" {
		result, cause = maybe, errors.New(n.doubt)
	}
	switch who, why := e.among(n.subjects); who {
	case no:
		return no, nil
	case maybe:
		result, cause = maybe, why
	case yes:
	}
	if n.when.always() {
		return result, cause
	}
	switch holds, why := e.holds(n.when, tier); holds {
	case no:
		return no, nil
	case maybe:
		return maybe, why
	default:
		return result, cause
	}
}

// among tells whether the caller is one of the subjects; none means anybody.
func (e *evaluation) among(subjects []subject) (answer, error) {
	if len(subjects) == 0 {
		return yes, nil
	}
	if e.anybody {
		return maybe, errOpen
	}
	broken := ""
	for _, s := range subjects {
		if s.is(&e.call.Principal) {
			return yes, nil
		}
		if broken == "" {
			broken = s.broken
		}
	}
	if broken != "" {
		return maybe, errors.New("one of its subjects cannot be compared: " + broken)
	}
	return no, nil
}

// holds evaluates a condition over the call, with the tool seen in a tier. Of a tool that is not known it cannot.
func (e *evaluation) holds(c condition, tier v1alpha1.Tier) (answer, error) {
	switch {
	case c.always():
		return yes, nil
	case c.broken != "":
		return maybe, errors.New(c.broken)
	case e.anybody, e.anyArguments && c.program.UsesArguments():
		return maybe, errOpen
	case e.c.decision.Reason == ReasonToolUnknown:
		return maybe, errors.New("the tool is not known")
	}
	holds, err := c.program.Holds(e.input(tier))
	switch {
	case err != nil:
		return maybe, err
	case holds:
		return yes, nil
	default:
		return no, nil
	}
}

// input is what expressions are evaluated over, with the tool seen in a tier.
func (e *evaluation) input(tier v1alpha1.Tier) *expr.Input {
	if e.in == nil {
		e.in = &expr.Input{
			Arguments: e.call.Arguments, Principal: e.call.Principal,
			Tool:   expr.Tool{Name: e.c.tool.Name, Digest: e.c.tool.Digest, Annotations: e.c.annotations},
			Server: expr.Server{Namespace: e.server.object.Namespace, Name: e.server.object.Name},
		}
	}
	e.in.Tool.Tier = tier
	return e.in
}

// anyHolds returns the first of the entries that holds for the call, else the first that may.
func (e *evaluation) anyHolds(entries []*autonomy) (*autonomy, answer, error) {
	var (
		found *autonomy
		cause error
	)
	for _, entry := range entries {
		switch holds, err := e.holds(entry.when, e.c.standing.tier); holds {
		case yes:
			return entry, yes, nil
		case maybe:
			if found == nil {
				found, cause = entry, err
			}
		case no:
		}
	}
	if found != nil {
		return found, maybe, cause
	}
	return nil, no, nil
}

// hearing is what policies say of a call, in every world: a rule that cannot be evaluated makes two worlds, one in which
// it matches and one in which it does not.
type hearing struct {
	// said holds, for each effect, the first rule that says it in some world; sure, that it does in every world.
	said [Allow + 1]*clause
	sure [Allow + 1]bool
	// deniedBy is the first policy whose callers do not name the caller.
	deniedBy *Policy
	// silent: in some world no policy says anything.
	silent bool
	// required and verbs are what the rules that ask for approval ask for, over all worlds.
	required int32
	verbs    verbs
	// input is the strictest that is said of answers in the middle of a call: Allow only where a policy says so in every
	// world, and none says Deny in any.
	input v1alpha1.InputRule
	// uncertain is the first rule that could not be evaluated, and why.
	uncertain *clause
	cause     error
	// must is the strictest of the loosest words of those policies that say something in every world; loosest is the
	// loosest word at all; limit the strictest of the loosest words of baselines in other tiers.
	must, loosest, limit Effect
}

// hear asks policies about the call: those with rules on the tool, and those with callers.
func (e *evaluation) hear(rulings []ruling, gates []*Policy) hearing {
	h := hearing{silent: true, must: Allow, loosest: Deny, limit: Allow}
	tier := e.c.decision.Tier
	for i := range rulings {
		e.listen(&h, &rulings[i], tier, false)
	}
	// A baseline's word is an upper bound also in the tier that the tool would have without the teams.
	for _, bound := range e.c.bounds {
		for i := range rulings {
			if rulings[i].policy.baseline {
				e.listen(&h, &rulings[i], bound, true)
			}
		}
	}
	if e.anybody {
		return h
	}
	for _, p := range gates {
		if !p.admits(&e.call.Principal) {
			e.say(p.name, "Deny: its callers do not name the caller")
			if h.deniedBy == nil {
				h.deniedBy = p
			}
		}
	}
	return h
}

// listen adds the word of one policy. In another tier than the tool's, as a bound, only what is stricter than Allow
// counts, and it takes nothing from the others.
func (e *evaluation) listen(h *hearing, r *ruling, tier v1alpha1.Tier, bound bool) {
	certain, best, input := true, Deny, v1alpha1.InputAllow
	for _, n := range r.rules {
		match, cause := e.matches(n, tier)
		if match == no {
			continue
		}
		e.sayRule(n.clause, match, cause, tier, bound)
		if match == maybe {
			certain = false
			if h.uncertain == nil && !errors.Is(cause, errOpen) {
				h.uncertain, h.cause = n.clause, cause
			}
		}
		input = h.answers(n.clause, input)
		if !bound || n.effect != Allow {
			h.word(n.clause, certain, e.c.decision.Tier)
		}
		best = max(best, n.effect)
		if match == yes {
			if bound {
				h.limit = min(h.limit, best)
			} else {
				h.silent, h.must, h.input = false, min(h.must, best), cmp.Or(h.input, input)
			}
			break
		}
	}
	if !bound {
		h.loosest = max(h.loosest, best)
	}
}

// answers adds what a rule says of answers in the middle of a call, and returns what its policy allows in every world so
// far.
func (h *hearing) answers(r *clause, so v1alpha1.InputRule) v1alpha1.InputRule {
	if r.input == v1alpha1.InputDeny {
		h.input = v1alpha1.InputDeny
	}
	if r.input != v1alpha1.InputAllow {
		return ""
	}
	return so
}

// word adds what a rule says.
func (h *hearing) word(r *clause, certain bool, tier v1alpha1.Tier) {
	if e := r.effect; h.said[e] == nil || certain && !h.sure[e] {
		h.said[e], h.sure[e] = r, certain
	}
	if r.effect == RequireApproval {
		h.required = max(h.required, r.required)
		h.verbs.add(r, tier.ApproveVerb())
	}
}

// strictest returns the strictest word, and the rule that says it; nil where no rule says anything.
func (h *hearing) strictest() (Effect, *clause) {
	for effect, r := range h.said {
		if r != nil {
			return Effect(effect), r
		}
	}
	return Allow, nil
}

// maxVerbs is how many verbs a request has room for, the tier's among them.
const maxVerbs = 8

// verbs are those of rules, besides the tier's.
type verbs struct {
	by   [maxVerbs]*clause // with as many different verbs
	size int
}

func (v *verbs) add(r *clause, ofTier string) {
	if r.verb == "" || r.verb == ofTier || v.size == maxVerbs {
		return
	}
	for _, other := range v.by[:v.size] {
		if other.verb == r.verb {
			return
		}
	}
	v.by[v.size] = r
	v.size++
}

// join returns the tier's verb and those of the rules, of which one is by; ok is false where they are too many.
func (v *verbs) join(tier v1alpha1.Tier, by *clause) (all []string, ok bool) {
	if v.size == maxVerbs {
		return nil, false
	}
	if v.size > 1 {
		for _, r := range v.by[:v.size] {
			all = append(all, r.verb)
		}
		slices.Sort(all)
		return slices.Insert(all, 0, tier.ApproveVerb()), true
	}
	if v.size == 1 {
		by = v.by[0]
	}
	if tier.StricterThan(v1alpha1.TierReversible) {
		return by.verbs[1], true
	}
	return by.verbs[0], true
}
