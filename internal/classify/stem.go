// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import "strings"

// form tells how a word was inflected.
type form int

const (
	base       form = iota
	plural          // deletes: a third person or a plural
	participle      // deleted, deleting: an adjective behind a read verb
)

// frozen are words that look like inflections or compounds of verbs and are not.
var frozen = words(
	`settings setting billing pricing building buildings meeting meetings listing listings booking bookings`,
	`rating ratings ranking rankings mapping mappings string strings thing things training branding staging`,
	`routing tracking hosting messaging testing monitoring logging banking shipping trading processing`,
	`indexing scheduling streaming licensing learning networking drawing drawings painting recording recordings`,
	`posting postings filing filings holding holdings advertising marketing sibling pending finding findings`,
	`grouping heading string spring bring during reading opening writing following embedding embeddings`,
	`design designs display report reports request requests release releases resource region record records`,
	`review reviews research response result results relation reaction repository repo reason receipt reset`,
	`unit units union user understand deposit detail details default device department debug deck demand`,
	`disk discount discord discussion distance display replica reference register remote remove rename render`,
	`dependency description deal desk status address access process news series class business canvas analysis`,
	`alias bonus bus campus census lens focus gas glass pass press progress success radius virus basis axis need`,
	`feed seed speed red bed embed media embedded united fixed related unread detailed bed hundred shared red`,
	`unlike unless undo redo reply destroy deploy describe decide decrease destruct design disable discard`,
	`calls texts clicks presses prints tests resign relay restore resolve respond restart replay reload reissue`,
	`return returns disorder overview`,
)

// stems returns what a word may be an inflection of, the likeliest first, and how it was inflected.
func stems(word string) ([]string, form) {
	switch {
	case strings.HasSuffix(word, "ies") && len(word) > 4:
		return []string{word[:len(word)-3] + "y"}, plural
	case strings.HasSuffix(word, "es") && len(word) > 4:
		return []string{word[:len(word)-1], word[:len(word)-2]}, plural
	case strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") && len(word) > 3:
		return []string{word[:len(word)-1]}, plural
	case strings.HasSuffix(word, "ied") && len(word) > 4:
		return []string{word[:len(word)-3] + "y"}, participle
	case strings.HasSuffix(word, "ed") && len(word) > 4:
		return bare(word[:len(word)-2]), participle
	case strings.HasSuffix(word, "ing") && len(word) > 5:
		return bare(word[:len(word)-3]), participle
	}
	return nil, base
}

// bare undoes what an ending did to a verb: stopp is stop, delet is delete.
func bare(word string) []string {
	found := []string{word, word + "e"}
	if n := len(word); n > 2 && word[n-1] == word[n-2] {
		found = append(found, word[:n-1])
	}
	return found
}

// prefixes repeat or undo the verb behind them, which leaves it a verb with effects.
var prefixes = []string{"re", "un", "de", "dis", "auto", "mass"}

// token is a word of a name with the verb it is a form of, if any.
type token struct {
	text string
	verb string
	form form
}

// tokenOf finds the verb behind a word: as it stands, inflected, or behind a prefix (rerun, unmount).
func tokenOf(word string) token {
	if isVerb(word) {
		return token{text: word, verb: word}
	}
	if frozen[word] {
		return token{text: word}
	}
	candidates, inflection := stems(word)
	for _, stem := range candidates {
		if isVerb(stem) {
			return token{text: word, verb: stem, form: inflection}
		}
	}
	for _, prefix := range prefixes {
		if stem, ok := strings.CutPrefix(word, prefix); ok && len(stem) > 2 && isEffect(stem) {
			return token{text: word, verb: stem}
		}
	}
	return token{text: word, form: inflection}
}

func isVerb(word string) bool { return isRead(word) || isEffect(word) }

func isRead(word string) bool { return readVerbs[word] || readNouns[word] }

func isEffect(word string) bool { return irreversible[word] || reversible[word] || weighty[word] }

// isHomograph tells whether the verb is a noun as often.
func isHomograph(verb string) bool { return nouns[verb] || irreversibleNouns[verb] }
