// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"slices"
)

// What a state of a pattern waits for, if not for one character.
const (
	waitsForNothing rune = -1 - iota // the pattern is matched
	waitsForAny                      // a ?
	otherRune                        // no character that any pattern names
)

// patterns are globs side by side as one automaton: the states of one follow those of the one before. State i of a
// pattern says that its first i characters, a * not counted, are matched.
type patterns struct {
	waits []rune
	// stays tells that a * stands there, so that any character leaves the state as it is.
	stays  []bool
	starts []int
}

func (p *patterns) add(glob string) {
	p.starts = append(p.starts, len(p.waits))
	stays := false
	for _, r := range glob {
		switch r {
		case '*':
			stays = true
			continue
		case '?':
			r = waitsForAny
		}
		p.waits, p.stays, stays = append(p.waits, r), append(p.stays, stays), false
	}
	p.waits, p.stays = append(p.waits, waitsForNothing), append(p.stays, stays)
}

// effort bounds what a comparison of globs may cost, in steps of a state. Strangers write globs, and some of them need
// more states than there is time for.
type effort int

// covered tells whether every name that a glob matches is matched by one of others: both walk over all names at once,
// each in a set of states. Where the effort is spent it is false.
func (e *effort) covered(glob string, others []string) bool {
	if slices.Contains(others, "*") || slices.Contains(others, glob) {
		return true
	}
	p := &patterns{}
	p.add(glob)
	own := len(p.waits) // states below it are those of glob
	for _, other := range others {
		p.add(other)
	}
	first := states(p.starts)
	letters := lettersOf(glob)
	seen := map[string]bool{first.key(): true}
	for todo := []states{first}; len(todo) > 0; todo = todo[1:] {
		for _, letter := range letters {
			next, matched, alive := e.step(p, todo[0], letter, own)
			if *e < 0 || alive.own && !alive.others || matched.own && !matched.others {
				return false // whatever is alive can still be matched
			}
			if key := next.key(); alive.own && !seen[key] {
				seen[key] = true
				todo = append(todo, next)
			}
		}
	}
	return true
}

// side says something of the glob in question, and of the others.
type side struct{ own, others bool }

func (s *side) set(own bool) {
	s.own, s.others = s.own || own, s.others || !own
}

// step takes a character, and tells which side is matched then, and which can still be.
func (e *effort) step(p *patterns, from states, letter rune, own int) (next states, matched, alive side) {
	enter := func(state int) {
		if len(next) > 0 && next[len(next)-1] == state {
			return
		}
		next = append(next, state)
		alive.set(state < own)
		if p.waits[state] == waitsForNothing {
			matched.set(state < own)
		}
	}
	for _, state := range from {
		*e--
		if p.stays[state] {
			enter(state)
		}
		if p.waits[state] == waitsForAny || p.waits[state] == letter {
			enter(state + 1)
		}
	}
	return next, matched, alive
}

// states is a set, in order.
type states []int

func (s states) key() string {
	var key []byte
	for _, state := range s {
		key = binary.AppendUvarint(key, uint64(state))
	}
	return string(key)
}

// lettersOf returns the characters that it takes to tell all names apart as far as a glob matches them, and one that
// stands for all characters that no glob names: others match no fewer of those that only they name.
func lettersOf(glob string) []rune {
	letters := []rune{otherRune}
	for _, r := range glob {
		if r != '*' && r != '?' && !slices.Contains(letters, r) {
			letters = append(letters, r)
		}
	}
	return letters
}
