// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import (
	"strings"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/tool"
)

// maxProse is how many bytes a title or description may have; a longer one takes
// Read away. maxLead is how many of its first words are searched for the verb
// that says what the tool does.
const (
	maxProse = 64 << 10
	maxLead  = 12
)

// byDescription judges the prose of the server's author, which can only raise:
// by its leading verb, and by phrases that nobody uses of a harmless tool.
func byDescription(d tool.Descriptor, shown proof) Verdict {
	var verdict Verdict
	for _, field := range []struct{ name, text string }{
		{"title", d.Title}, {"annotations.title", d.Annotations.Title}, {"description", d.Description},
	} {
		if raised := byProse(field.name, field.text, shown); raised.Tier != "" {
			verdict = verdict.strictest(raised)
		}
	}
	return verdict
}

// strictest is raisedBy for a verdict that may be empty.
func (v Verdict) strictest(other Verdict) Verdict {
	if v.Tier == "" {
		return other
	}
	return v.raisedBy(other)
}

func byProse(field, text string, shown proof) Verdict {
	verdict := Verdict{Source: v1alpha1.TierSourceDescription}
	if len(text) > maxProse {
		verdict.Tier, verdict.Reason = v1alpha1.TierReversible, "The "+field+" is too long to be read whole"
		return verdict
	}
	split := proseWords(text)
	if phrase := strongPhrase(split); phrase != "" {
		verdict.Tier, verdict.Reason = v1alpha1.TierIrreversible, "The "+field+" says "+quote(phrase)
		return verdict
	}
	switch verb := leadingVerb(split); {
	case proseLoss[verb], proseIrreversible[verb] && shown.word == "":
		verdict.Tier, verdict.Reason = v1alpha1.TierIrreversible, "The "+field+" begins with the verb "+quote(verb)
	case proseEffects[verb], proseIrreversible[verb] && !runners[verb]:
		verdict.Tier, verdict.Reason = v1alpha1.TierReversible, "The "+field+" begins with the verb "+quote(verb)
	}
	return verdict
}

// proseWords returns the words of a text in lower case, apostrophes dropped.
func proseWords(text string) []string {
	text = strings.NewReplacer("'", "", "\u2019", "").Replace(strings.ToLower(text))
	return strings.FieldsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// leadingVerb returns the stem of the first word that is no opener such as "use this tool to".
func leadingVerb(split []string) string {
	for _, word := range split[:min(len(split), maxLead)] {
		if openers[word] {
			continue
		}
		if proseLoss[word] || proseIrreversible[word] || proseEffects[word] {
			return word
		}
		if t := tokenOf(word); t.form != participle {
			return t.verb
		}
		return ""
	}
	return ""
}

// strongPhrase returns the first strong phrase of a text that is not denied by the word before it.
func strongPhrase(split []string) string {
	for i := range split {
		for _, phrase := range strongPhrases {
			if startsWith(split[i:], phrase) && (i == 0 || !denials[split[i-1]]) {
				return strings.Join(phrase, " ")
			}
		}
	}
	return ""
}

func startsWith(split, phrase []string) bool {
	if len(split) < len(phrase) {
		return false
	}
	for i, word := range phrase {
		if split[i] != word {
			return false
		}
	}
	return true
}

// openers come before the verb of a description.
var openers = words(
	`this tool tools the a an use used uses to for allows allow lets let you user users helps help purpose is`,
	`will can it that which when want wants need needs important note please mcp server command function action`,
	`safely quickly easily securely simply immediately batch bulk`,
)

// proseLoss are leading verbs that say of any tool that something is lost or sent.
var proseLoss = words(
	`delete destroy erase wipe purge truncate drop uninstall permanently irreversibly irrevocably terminate revoke`,
)

// proseIrreversible are leading verbs that say so where the name shows nothing.
var proseIrreversible = words(
	`send pay refund transfer buy sell execute exec evaluate merge overwrite reset restore broadcast withdraw swap purchase charge`,
)

// proseEffects are leading verbs that take Read from a name.
var proseEffects = words(
	`create add insert append update upsert set edit modify change alter remove write save store rename move replace`,
	`install enable disable start stop restart cancel approve reject publish deploy upload import assign register`,
	`archive configure grant apply`,
)

// strongPhrases are said of tools whose effects cannot be undone, and hardly of others.
var strongPhrases = phrases(
	"cannot be undone", "cant be undone", "can not be undone", "cannot be reversed", "cannot be reverted",
	"cannot be recovered", "cannot be restored", "not be recoverable", "not recoverable", "irreversible",
	"irreversibly", "irrevocably", "permanently delete", "permanently deletes", "permanently remove",
	"permanently removes", "permanently erase", "permanently erases", "permanently destroy",
	"permanently destroys", "permanently wipe", "permanently lost", "will be lost", "lost forever",
	"arbitrary code", "arbitrary sql", "arbitrary command", "arbitrary commands", "arbitrary shell",
	"arbitrary javascript", "arbitrary python", "execute any", "executes any", "run any command", "runs any command",
	"run any sql", "any shell command", "destructive operation", "destructive action", "real money",
)

// denials before a strong phrase turn it round: "not irreversible".
var denials = words(`not never no isnt nothing non without`)

func phrases(texts ...string) [][]string {
	all := make([][]string, len(texts))
	for i, text := range texts {
		all[i] = strings.Fields(text)
	}
	return all
}
