// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import "unicode/utf8"

// glob is a compiled pattern of names. * stands for any characters, / included, ? for exactly one; every other character
// stands for itself, case-sensitively. There are no classes, no braces and no escapes: admission refuses their
// characters, and here they match only themselves.
//
// It is an automaton that is in many states at once, one bit each: bit i says that the first i characters of the
// pattern are matched. So a name costs one short step a character, whatever the pattern: strangers write patterns and
// names, and every server's verdicts are worked out in the same few workers.
type glob struct {
	ascii [utf8.RuneSelf]uint16
	other map[rune]uint16
	// moves are the states that a character leads on from; ascii and other say which apply, moves[0] are those of ?.
	moves [][]uint64
	// stays are the states that any character leaves as they are: a * follows.
	stays []uint64
	// whole is the state in which the pattern is matched.
	whole int
}

const bits = 64

func compileGlob(pattern string) *glob {
	words := utf8.RuneCountInString(pattern)/bits + 1
	g := &glob{other: map[rune]uint16{}, moves: [][]uint64{make([]uint64, words)}, stays: make([]uint64, words)}
	var single []int // the states before a ?
	for _, r := range pattern {
		switch r {
		case '*':
			g.stays[g.whole/bits] |= 1 << (g.whole % bits)
			continue
		case '?':
			single = append(single, g.whole)
		default:
			g.movesOn(r, words)[g.whole/bits] |= 1 << (g.whole % bits)
		}
		g.whole++
	}
	for _, moves := range g.moves {
		for _, state := range single {
			moves[state/bits] |= 1 << (state % bits)
		}
	}
	return g
}

// movesOn returns the moves of a character, a new set for a new one.
func (g *glob) movesOn(r rune, words int) []uint64 {
	i := g.index(r)
	if i == 0 {
		i = uint16(len(g.moves)) // a pattern has at most 128 characters
		g.moves = append(g.moves, make([]uint64, words))
		if r < utf8.RuneSelf {
			g.ascii[r] = i
		} else {
			g.other[r] = i
		}
	}
	return g.moves[i]
}

func (g *glob) index(r rune) uint16 {
	if r < utf8.RuneSelf {
		return g.ascii[r]
	}
	return g.other[r]
}

// match tells whether the pattern names a tool.
func (g *glob) match(name string) bool {
	var room [3]uint64
	states := room[:]
	if len(g.stays) > len(room) {
		states = make([]uint64, len(g.stays))
	}
	states = states[:len(g.stays)]
	states[0] = 1
	for _, r := range name {
		moves := g.moves[g.index(r)]
		var carry, alive uint64
		for w, s := range states {
			moved := s & moves[w]
			states[w] = moved<<1 | carry | s&g.stays[w]
			carry = moved >> (bits - 1)
			alive |= states[w]
		}
		if alive == 0 {
			return false
		}
	}
	return states[g.whole/bits]>>(g.whole%bits)&1 == 1
}
