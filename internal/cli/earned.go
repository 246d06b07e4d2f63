// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/action"
	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/strictjson"
)

const (
	// maxCounted is how many different values of an argument are still listed one by one.
	maxCounted = 5
	// maxRanges is how many arguments are shown; an agent chooses their names, and so their number.
	maxRanges = 32
)

// earned is what persons said yes to: the clean approvals of one definition of a tool that are still stored.
type earned struct {
	calls     int
	from, to  time.Time
	approvers []tallied
	// unread counts the calls whose arguments are not stored, or not as JSON.
	unread    int
	arguments []argumentRange
	// more counts the arguments that are left out.
	more int
}

// argumentRange is what the calls had in one place of their arguments.
type argumentRange struct {
	path   string
	calls  int
	values string
}

// tallied is a word and how often it was seen.
type tallied struct {
	word  string
	count int
}

// earn sums up the clean approvals among requests: for this definition, at this endpoint, of this very server.
func earn(server *v1alpha1.GovernedServer, t v1alpha1.ToolStatus, requests []v1alpha1.ApprovalRequest) earned {
	var e earned
	approvers, seen := map[string]int{}, observations{}
	for i := range requests {
		r := &requests[i]
		if !isOf(r, server, t.Name) || r.Spec.ToolDigest != t.Digest || r.Spec.EndpointDigest != server.Status.EndpointDigest || !r.IsClean() {
			continue
		}
		e.calls++
		at := r.CreationTimestamp.Time
		if finished := r.Status.Execution.FinishedAt; finished != nil {
			at = finished.Time
		}
		if e.calls == 1 || at.Before(e.from) {
			e.from = at
		}
		if at.After(e.to) {
			e.to = at
		}
		for _, vote := range r.Status.Votes {
			approvers[vote.Username]++
		}
		arguments, err := strictjson.Scan([]byte(r.Spec.Arguments))
		if err != nil {
			e.unread++
			continue
		}
		seen.value("", arguments, e.calls)
	}
	e.approvers = byCount(approvers)
	e.arguments, e.more = seen.ranges()
	return e
}

// isOf tells whether a request is about a tool of this very server, and not of an earlier one of its name.
func isOf(r *v1alpha1.ApprovalRequest, server *v1alpha1.GovernedServer, tool string) bool {
	return r.Spec.ServerRef.UID == string(server.UID) && r.Spec.Tool == tool
}

// byCount sorts words by how often they were seen.
func byCount(counts map[string]int) []tallied {
	all := make([]tallied, 0, len(counts))
	for word, count := range counts {
		all = append(all, tallied{word, count})
	}
	slices.SortFunc(all, func(a, b tallied) int { return cmp.Or(b.count-a.count, strings.Compare(a.word, b.word)) })
	return all
}

// observations are what was seen in each place of the arguments.
type observations map[string]*observed

type observed struct {
	calls, last      int // last is the call that was counted last
	low, high        *big.Rat
	lowText, hiText  string
	words            map[string]int
	hidden           int
	lists            bool
	fewest, greatest int
}

// at returns what was seen in a place, and counts the call there once.
func (o observations) at(path string, call int) *observed {
	place := o[path]
	if place == nil {
		place = &observed{words: map[string]int{}}
		o[path] = place
	}
	if place.last != call {
		place.last = call
		place.calls++
	}
	return place
}

// value takes in one value and all that is in it. Its depth is bounded, since a strict scan read it.
func (o observations) value(path string, v strictjson.Value, call int) {
	switch v.Kind() {
	case strictjson.Object:
		empty := true
		for key, member := range v.Members() {
			empty = false
			o.value(joinPath(path, key.Text()), member, call)
		}
		if empty && path != "" {
			o.at(path, call).words["{}"]++
		}
	case strictjson.Array:
		count := 0
		for element := range v.Elements() {
			count++
			o.value(path+"[]", element, call)
		}
		o.at(path, call).list(count)
	case strictjson.Number:
		o.at(path, call).number(string(v.Raw()))
	default:
		o.at(path, call).word(v)
	}
}

func (p *observed) list(count int) {
	if !p.lists || count < p.fewest {
		p.fewest = count
	}
	p.lists, p.greatest = true, max(p.greatest, count)
}

// number compares by the exact decimal value: nothing is rounded. The scan bounds digits and exponent.
func (p *observed) number(text string) {
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		p.words[text]++
		return
	}
	if p.low == nil || value.Cmp(p.low) < 0 {
		p.low, p.lowText = value, text
	}
	if p.high == nil || value.Cmp(p.high) > 0 {
		p.high, p.hiText = value, text
	}
}

func (p *observed) word(v strictjson.Value) {
	if v.Kind() == strictjson.String && strings.HasPrefix(v.Text(), action.HiddenMark) {
		p.hidden++
		return
	}
	p.words[string(v.Raw())]++
}

// ranges returns what was seen, sorted by place, and how many places are left out.
func (o observations) ranges() (shown []argumentRange, more int) {
	for _, path := range slices.Sorted(maps.Keys(o)) {
		if len(shown) == maxRanges {
			return shown, len(o) - maxRanges
		}
		shown = append(shown, argumentRange{path: cmp.Or(path, "(all)"), calls: o[path].calls, values: o[path].String()})
	}
	return shown, 0
}

// String says what the values were: numbers as a range, few and repeated words with their counts, others by their
// number.
func (p *observed) String() string {
	var parts []string
	if p.low != nil {
		parts = append(parts, span(shortValue(p.lowText), shortValue(p.hiText), p.low.Cmp(p.high) == 0))
	}
	if len(p.words) > 0 {
		parts = append(parts, p.wordsText())
	}
	if p.hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d hidden", p.hidden))
	}
	if p.lists {
		parts = append(parts, span(fmt.Sprint(p.fewest), fmt.Sprint(p.greatest), p.fewest == p.greatest)+" elements")
	}
	return strings.Join(parts, "; ")
}

func (p *observed) wordsText() string {
	total := 0
	for _, count := range p.words {
		total += count
	}
	if len(p.words) > maxCounted || len(p.words) > 1 && 2*len(p.words) > total {
		return fmt.Sprintf("%d different", len(p.words))
	}
	texts := make([]string, 0, len(p.words))
	for _, t := range byCount(p.words) {
		texts = append(texts, fmt.Sprintf("%s (%d)", shortValue(t.word), t.count))
	}
	return strings.Join(texts, ", ")
}

func span(low, high string, same bool) string {
	if same {
		return low
	}
	return low + " to " + high
}

// joinPath names a member; a key that could be taken for a path is quoted.
func joinPath(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		key = string(strictjson.AppendString(nil, key))
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// maxValue is how many bytes of a value are shown.
const maxValue = 48

// shortValue shows a text of somebody else's on a line.
func shortValue(text string) string { return glyph.Plain(glyph.Digested(text, maxValue)) }
