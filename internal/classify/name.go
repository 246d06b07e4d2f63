// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"slices"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// name is a tool's name split into words, and which of them are verbs.
type name struct {
	tokens []token
	// head is the read verb that says what the tool does, -1 if there is none.
	head int
	// effects are the verbs with effects, in order.
	effects []int
}

// proof is what a name shows of a tool.
type proof struct {
	tier v1alpha1.Tier
	// word is the evidence; empty when the name shows nothing.
	word string
	// why completes the sentence that begins with the word.
	why string
	// storing is set when every verb only keeps what it is given, running when one runs it.
	storing, running bool
}

// parse finds the verbs of a name. prefix is the first word that the tools of
// the server share, or empty.
func parse(split []string, prefix string) name {
	n := name{head: -1}
	for _, word := range split {
		t := tokenOf(word)
		if readingsOf[t.verb][split[len(split)-1]] {
			t.verb = "lookup"
		}
		n.tokens = append(n.tokens, t)
	}
	for i := range n.tokens {
		if n.head < 0 && n.isHead(i, prefix) {
			n.head = i
		}
	}
	for i := range n.tokens {
		if n.isVerbWithEffects(i, prefix) {
			n.effects = append(n.effects, i)
		}
	}
	return n
}

// isHead tells whether the word at i is a read verb where a verb stands: first,
// last, or behind words that are no verbs.
func (n name) isHead(i int, prefix string) bool {
	t, last := n.tokens[i], len(n.tokens)-1
	if !isRead(t.verb) || t.form == participle {
		return false
	}
	switch {
	case i == 0 || i == last:
		return true
	case readVerbs[t.verb]:
		before := n.tokens[:i]
		if before[0].text == prefix {
			before = before[1:]
		}
		return !slices.ContainsFunc(before, func(t token) bool {
			return isEffect(t.verb) && !mostlyNouns[t.verb] && !isPluralNoun(t)
		})
	default:
		return i == 1 && n.tokens[0].text == prefix
	}
}

// actsOn tells whether a read verb has effects on what follows it: check in,
// extract archive. A git fetch changes the refs of the repository.
func (n name) actsOn(i int) bool {
	if i > 0 && n.tokens[i].verb == "fetch" && n.tokens[i-1].text == "git" {
		return true
	}
	return i < len(n.tokens)-1 && effectsOf[n.tokens[i].verb][n.tokens[i+1].text]
}

// isVerbWithEffects tells whether the word at i does something, rather than
// naming what is read or acted upon.
func (n name) isVerbWithEffects(i int, prefix string) bool {
	t := n.tokens[i]
	switch {
	case n.actsOn(i):
		return true
	case !isEffect(t.verb):
		return false
	case !isHomograph(t.verb):
		// Behind a read verb only deleted items are things; a bare delete is a verb anywhere.
		return t.form != participle || n.head < 0 || n.joined(n.head, i)
	case isPluralNoun(t), i == 0 && t.text == prefix && len(n.tokens) > 1:
		return false
	default:
		return n.isVerbHere(i)
	}
}

// isVerbHere tells by its place whether a word that is a verb as often as a noun is the verb.
func (n name) isVerbHere(i int) bool {
	t, last := n.tokens[i], len(n.tokens)-1
	switch {
	case i == last && n.head == 0 && headings[n.tokens[0].verb] && finals[t.text]:
		return true // scan_start
	case i > 0 && n.head < 0 && len(n.effects) == 0 && facts[t.text]:
		return false // audit_log
	case i == last && n.head < 0 && n.onlyNounsBefore():
		return true // order_refund
	case len(n.effects) > 0 || n.head >= 0 && n.head < i:
		return n.joined(n.lead(i), i) // get_order, create_order; but not get_and_order
	case n.head > i:
		return !neverNouns[n.tokens[n.head].verb] && !mostlyNouns[t.verb] && t.form != participle // archive_list
	default:
		return !stateful[t.verb] || !states[n.tokens[last].text] // but not build_status
	}
}

// lead returns the first verb before the word at i.
func (n name) lead(i int) int {
	if len(n.effects) > 0 && (n.head < 0 || n.head > i || n.effects[0] < n.head) {
		return n.effects[0]
	}
	return n.head
}

// onlyNounsBefore tells whether the verbs found so far may all be nouns: in
// order_refund the last word is the verb.
func (n name) onlyNounsBefore() bool {
	return !slices.ContainsFunc(n.effects, func(i int) bool { return !mostlyNouns[n.tokens[i].verb] })
}

// isPluralNoun tells whether the word is the plural of a noun that is a verb too: messages, refunds.
func isPluralNoun(t token) bool { return t.form == plural && isHomograph(t.verb) }

// joined tells whether a conjunction between a verb and the word at i makes that a verb too.
func (n name) joined(verb, i int) bool {
	from, to := min(verb, i), max(verb, i)
	return slices.ContainsFunc(n.tokens[from:to], func(t token) bool { return joins[t.text] })
}

// object returns the words that the verb at i acts upon: those behind it up to a
// preposition, or those before it when it stands last.
func (n name) object(i int) []string {
	span := n.tokens[i+1:]
	if end := slices.IndexFunc(span, func(t token) bool { return prepositions[t.text] || joins[t.text] }); end >= 0 {
		span = span[:end]
	}
	if i == len(n.tokens)-1 {
		span = n.tokens[:i]
	}
	var object []string
	for _, t := range span {
		if !fillers[t.text] && !isNumber(t.text) {
			object = append(object, t.text)
		}
	}
	return object
}

func isNumber(word string) bool { return word[0] >= '0' && word[0] <= '9' }

// judge weighs the verbs of a name: the most dangerous decides, Read needs proof.
func (n name) judge() proof {
	worst := proof{storing: len(n.effects) > 0}
	for _, i := range n.effects {
		found := n.effect(i)
		verb := n.tokens[i].verb
		found.storing, found.running = worst.storing && storing[verb], worst.running || runners[verb]
		if worst.word != "" && !found.tier.StricterThan(worst.tier) {
			found.tier, found.word, found.why = worst.tier, worst.word, worst.why
		}
		worst = found
	}
	if worst.word != "" {
		return worst
	}
	if n.head >= 0 {
		return n.read(n.head)
	}
	return n.withoutVerb()
}

// read judges a name whose only verb reads.
func (n name) read(i int) proof {
	t := n.tokens[i]
	if t.verb == "query" {
		for _, word := range n.object(i) {
			if languages[word] {
				return proof{tier: v1alpha1.TierIrreversible, word: word, why: "takes free code"}
			}
		}
	}
	if word := n.unknownVerb(i); word != "" {
		return proof{tier: v1alpha1.TierReversible, word: word, why: "stands where a second verb does, and is not known to read"}
	}
	return proof{tier: v1alpha1.TierRead, word: t.text, why: "reads, and no other word of the name has effects"}
}

// unknownVerb returns a word that must be a verb by its place, and that no table knows: behind a conjunction that follows
// the verb at i at once (get_and_yeet, but not list_users_and_groups), or behind a then.
func (n name) unknownVerb(i int) string {
	for j := i + 2; j < len(n.tokens); j++ {
		link, t := n.tokens[j-1].text, n.tokens[j]
		if (j == i+2 && joins[link] || link == "then") && !isRead(t.verb) {
			return t.text
		}
	}
	return ""
}

// withoutVerb judges a name of nouns only.
func (n name) withoutVerb() proof {
	if len(n.tokens) == 0 {
		return proof{tier: v1alpha1.TierReversible}
	}
	last := n.tokens[len(n.tokens)-1].text
	if facts[last] {
		return proof{tier: v1alpha1.TierRead, word: last, why: "names what is told, and no word of the name has effects"}
	}
	for _, t := range n.tokens {
		if languages[t.text] || shells[t.text] {
			return proof{tier: v1alpha1.TierIrreversible, word: t.text, why: "takes free code or commands"}
		}
	}
	return proof{tier: v1alpha1.TierReversible}
}
